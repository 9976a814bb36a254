"""Modules that hold others: in a row, in a list, by name."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any, Self, overload

from .. import errors
from ..arrays.parameter import Parameter
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike


def _position(name: str, i: int, n: int) -> int:
    if not -n <= i < n:
        raise errors.IndexingError(f"{name}: index {i} is out of range for {n} entries")
    return i % n


class _NumberedModules(Module):
    """Modules under the names 0, 1, 2, …"""

    def __init__(self, modules: Iterable[Module] = ()):
        super().__init__()
        self.extend(modules)

    def append(self, module: Module) -> Self:
        """Add a module after the others; returns the container.

        module  the module

        >>> import weft as wf
        >>> len(wf.nn.Sequential(wf.nn.ReLU()).append(wf.nn.Tanh()))
        2
        """
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules after the others; returns the container.

        modules  the modules

        >>> import weft as wf
        >>> len(wf.nn.ModuleList().extend([wf.nn.ReLU(), wf.nn.Tanh()]))
        2
        """
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before the one at `index`; returns the container.

        index   where it is afterwards
        module  the module

        >>> import weft as wf
        >>> wf.nn.Sequential(wf.nn.ReLU()).insert(0, wf.nn.Tanh())[0]
        Tanh()
        """
        held = list(self._modules.values())
        held.insert(index, module)
        return self._become(held)

    def _become(self, modules: list[Module]) -> Self:
        self._modules.clear()
        return self.extend(modules)

    def pop(self, index: int = -1) -> Module:
        """Take a module out, and return it.

        index  where it is; the last one if it is not given

        >>> import weft as wf
        >>> layers = wf.nn.ModuleList([wf.nn.ReLU(), wf.nn.Tanh()])
        >>> layers.pop(), len(layers)
        (Tanh(), 1)
        """
        held = list(self._modules.values())
        module = held.pop(_position(type(self).__name__, index, len(held)))
        self._become(held)
        return module

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))

    @overload
    def __getitem__(self, i: int) -> Module: ...
    @overload
    def __getitem__(self, i: slice) -> Self: ...
    def __getitem__(self, i: int | slice) -> Module:
        held = list(self._modules.values())
        if isinstance(i, slice):
            return self._like(list(self._modules.items())[i])
        return held[_position(type(self).__name__, i, len(held))]

    def _like(self, pairs: list[tuple[str, Module]]) -> Self:
        return type(self)(m for _, m in pairs)

    def __setitem__(self, i: int, module: Module) -> None:
        name = list(self._modules)[_position(type(self).__name__, i, len(self))]
        self.add_module(name, module)

    def __delitem__(self, i: int | slice) -> None:
        held = list(self._modules.values())
        if not isinstance(i, slice):
            i = _position(type(self).__name__, i, len(held))
        del held[i]
        self._become(held)


class Sequential(_NumberedModules):
    """Modules one after the other: each is called with what the one before returned.

    modules  the modules, or one dict of them by name

    Slices are `Sequential`s of the same modules.

    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(2, 8), wf.nn.Tanh(), wf.nn.Linear(8, 1))
    >>> model(wf.ones((5, 2))).shape, len(model[:2])
    ((5, 1), 2)
    """

    @overload
    def __init__(self, *modules: Module) -> None: ...
    @overload
    def __init__(self, modules: Mapping[str, Module], /) -> None: ...
    def __init__(self, *modules: Any) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            super().__init__()
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            super().__init__(modules)

    def _like(self, pairs: list[tuple[str, Module]]) -> Self:
        return type(self)(dict(pairs))

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self, *other)

    def forward(self, input: ArrayLike) -> Tensor:
        x: Any = input
        for module in self._modules.values():
            x = module(x)
        return x


class ModuleList(_NumberedModules):
    """A list of modules, which are called by the module that holds it.

    modules  the modules at first

    >>> import weft as wf
    >>> layers = wf.nn.ModuleList([wf.nn.Linear(2, 2), wf.nn.ReLU()])
    >>> len(layers), layers[1]
    (2, ReLU())
    """

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])


class ModuleDict(Module):
    """Modules by name, which are called by the module that holds it.

    modules  a mapping, or (name, module) pairs

    >>> import weft as wf
    >>> heads = wf.nn.ModuleDict({"a": wf.nn.Linear(2, 1), "b": wf.nn.Linear(2, 3)})
    >>> heads["b"](wf.ones(2)).shape, "a" in heads
    ((3,), True)
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()):
        super().__init__()
        self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules by name.

        modules  a mapping, or (name, module) pairs

        >>> import weft as wf
        >>> heads = wf.nn.ModuleDict()
        >>> heads.update({"a": wf.nn.ReLU()})
        >>> list(heads)
        ['a']
        """
        for name, module in dict(modules).items():
            self[name] = module

    def __getitem__(self, name: str) -> Module:
        if name not in self._modules:
            raise errors.MissingParameter(
                f"ModuleDict: no module {name!r}, only {', '.join(self._modules) or 'none'}"
            )
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def keys(self) -> KeysView[str]:
        """The names.

        >>> import weft as wf
        >>> list(wf.nn.ModuleDict({"a": wf.nn.ReLU()}).keys())
        ['a']
        """
        return self._modules.keys()

    def values(self) -> ValuesView[Module]:
        """The modules.

        >>> import weft as wf
        >>> len(list(wf.nn.ModuleDict({"a": wf.nn.ReLU()}).values()))
        1
        """
        return self._modules.values()

    def items(self) -> ItemsView[str, Module]:
        """(name, module) pairs.

        >>> import weft as wf
        >>> [name for name, module in wf.nn.ModuleDict({"a": wf.nn.ReLU()}).items()]
        ['a']
        """
        return self._modules.items()

    def pop(self, name: str) -> Module:
        """Take a module out, and return it.

        name  what it is called

        >>> import weft as wf
        >>> wf.nn.ModuleDict({"a": wf.nn.ReLU()}).pop("a")
        ReLU()
        """
        module = self[name]
        del self._modules[name]
        return module


def _as_parameter(x: ArrayLike) -> Parameter:
    return x if isinstance(x, Parameter) else Parameter(x)


class ParameterList(Module):
    """Parameters under the names 0, 1, 2, …; tensors are made parameters.

    values  the parameters at first

    >>> import weft as wf
    >>> weights = wf.nn.ParameterList([wf.ones(2), wf.zeros(3)])
    >>> [p.shape for p in weights]
    [(2,), (3,)]
    """

    def __init__(self, values: Iterable[ArrayLike] = ()):
        super().__init__()
        self.extend(values)

    def append(self, value: ArrayLike) -> Self:
        """Add a parameter after the others; returns the list.

        value  the parameter, or a tensor that is made one

        >>> import weft as wf
        >>> len(wf.nn.ParameterList().append(wf.ones(2)))
        1
        """
        self.register_parameter(str(len(self)), _as_parameter(value))
        return self

    def extend(self, values: Iterable[ArrayLike]) -> Self:
        """Add parameters after the others; returns the list.

        values  the parameters

        >>> import weft as wf
        >>> len(wf.nn.ParameterList().extend([wf.ones(2), wf.ones(2)]))
        2
        """
        for value in values:
            self.append(value)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(list(self._parameters.values()))

    @overload
    def __getitem__(self, i: int) -> Parameter: ...
    @overload
    def __getitem__(self, i: slice) -> ParameterList: ...
    def __getitem__(self, i: int | slice) -> Parameter | ParameterList:
        held = list(self._parameters.values())
        if isinstance(i, slice):
            return ParameterList(held[i])
        return held[_position("ParameterList", i, len(held))]

    def __setitem__(self, i: int, value: ArrayLike) -> None:
        name = str(_position("ParameterList", i, len(self)))
        self.register_parameter(name, _as_parameter(value))

    def extra_repr(self) -> str:
        return "\n".join(f"({n}): Parameter {p.shape}" for n, p in self._parameters.items())


class ParameterDict(Module):
    """Parameters by name, as part of a module; tensors are made parameters.

    parameters  a mapping; None: empty

    >>> import weft as wf
    >>> weights = wf.nn.ParameterDict({"w": wf.ones((2, 2))})
    >>> weights["w"].requires_grad, len(weights)
    (True, 1)
    """

    def __init__(self, parameters: Mapping[str, ArrayLike] | None = None):
        super().__init__()
        for name, value in (parameters or {}).items():
            self[name] = value

    def __getitem__(self, name: str) -> Parameter:
        return self.get_parameter(name)

    def insert(self, name: str, value: ArrayLike) -> None:
        """Add or replace a parameter, as `weights[name] = value` does.

        name   what it is called
        value  the parameter, or a tensor that is made one

        >>> import weft as wf
        >>> weights = wf.nn.ParameterDict()
        >>> weights.insert("w", wf.ones(2))
        >>> weights["w"].shape
        (2,)
        """
        self.register_parameter(name, _as_parameter(value))

    __setitem__ = insert

    def __delitem__(self, name: str) -> None:
        self.get_parameter(name)
        del self._parameters[name]

    def get(self, name: str, default: Any = None) -> Parameter | Any:
        """The parameter of that name, or `default`.

        name     what it is called
        default  what is returned if there is none

        >>> import weft as wf
        >>> wf.nn.ParameterDict().get("w") is None
        True
        """
        return self._parameters.get(name, default)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def keys(self) -> KeysView[str]:
        """The names.

        >>> import weft as wf
        >>> list(wf.nn.ParameterDict({"a": wf.ones(2)}).keys())
        ['a']
        """
        return self._parameters.keys()

    def values(self) -> ValuesView[Parameter]:
        """The parameters.

        >>> import weft as wf
        >>> len(list(wf.nn.ParameterDict({"a": wf.ones(2)}).values()))
        1
        """
        return self._parameters.values()

    def items(self) -> ItemsView[str, Parameter]:
        """(name, parameter) pairs.

        >>> import weft as wf
        >>> [name for name, parameter in wf.nn.ParameterDict({"a": wf.ones(2)}).items()]
        ['a']
        """
        return self._parameters.items()

    def extra_repr(self) -> str:
        return "\n".join(f"({n}): Parameter {p.shape}" for n, p in self._parameters.items())
