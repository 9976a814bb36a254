"""Parameters, buffers and modules as attributes: keeping them by name, and going over them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.parameter import Parameter, ParameterDict
from ..core.value import TENSORS

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from .module import Module

_STORES: tuple[str, ...] = ("_parameters", "_buffers", "_modules")


class Registry:
    """What a module holds: assigning a parameter or a module gives it a name here."""

    _keeps_state = True  # checkpointing does not flatten it
    # Attributes that guards read, besides the names in the methods that ran.
    _read_by_name = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _transient: set[str]  # the buffers that are not part of the state

    def __init__(self) -> None:
        vars(self).update({store: {} for store in _STORES})
        vars(self)["_transient"] = set()

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for store in _STORES:
            held = own.get(store)
            if held and name in held:
                return held[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        store = self._store_for(name, value)
        if store is None:
            object.__setattr__(self, name, value)
            return
        if "_modules" not in vars(self):
            raise self.not_begun(f"assigning {name!r}")
        for other in (vars(self), *(vars(self)[s] for s in _STORES if s != store)):
            other.pop(name, None)
        vars(self)[store][name] = value

    def _store_for(self, name: str, value: object) -> str | None:
        """The store of an attribute; None: the ordinary `__dict__`."""
        if isinstance(value, Parameter):
            return "_parameters"
        if isinstance(value, Registry):
            return "_modules"
        if isinstance(value, ParameterDict):
            raise errors.ModuleError(
                f"{type(self).__name__}.{name}: a module does not register the parameters of a "
                "wf.ParameterDict; use wf.nn.ParameterDict"
            )
        for store in _STORES:
            if name in vars(self).get(store, ()):
                if value is not None and not (store == "_buffers" and type(value) in TENSORS):
                    raise errors.ModuleError(
                        f"{type(self).__name__}.{name} is one of its {store[1:]}, got a "
                        f"{type(value).__name__}; assign one of these, or None, or `del` it first"
                    )
                return store
        return None

    def __delattr__(self, name: str) -> None:
        for store in _STORES:
            if name in vars(self).get(store, ()):
                del vars(self)[store][name]
                self._transient.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(n for s in _STORES for n in vars(self).get(s, ()))})

    def not_begun(self, what: str) -> errors.ModuleError:
        """The error of a module whose class has not called `super().__init__()`.

        what  what was being done
        """
        return errors.ModuleError(
            f"{type(self).__name__}: {what} before Module.__init__ has run; call "
            "super().__init__() first in its __init__"
        )

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Give a parameter a name here; None keeps the name free of one.

        name   the name, without dots
        param  the parameter, or None

        >>> import weft as wf
        >>> module = wf.nn.Module()
        >>> module.register_parameter("w", wf.Parameter([1.0]))
        >>> module.w.shape
        (1,)
        """
        if param is not None and not isinstance(param, Parameter):
            raise errors.DTypeError(
                f"register_parameter: {name!r} is a {type(param).__name__}, expected a "
                "wf.Parameter or None"
            )
        self._register("_parameters", name, param)

    def register_buffer(self, name: str, tensor: "Tensor | None", persistent: bool = True) -> None:
        """Give a tensor that is not trained a name here.

        name        the name, without dots
        tensor      the tensor, or None
        persistent  whether it belongs to `state_dict()`

        >>> import weft as wf
        >>> module = wf.nn.Module()
        >>> module.register_buffer("mean", wf.zeros(2))
        >>> list(module.state_dict())
        ['mean']
        """
        if tensor is not None and type(tensor) not in TENSORS:
            raise errors.DTypeError(
                f"register_buffer: {name!r} is a {type(tensor).__name__}, expected a tensor; make "
                "it one with wf.asarray()"
            )
        self._register("_buffers", name, tensor)
        self._transient.discard(name)
        if not persistent:
            self._transient.add(name)

    def add_module(self, name: str, module: "Module | None") -> None:
        """Give a module a name in this one.

        name    the name, without dots
        module  the module, or None

        >>> import weft as wf
        >>> module = wf.nn.Module()
        >>> module.add_module("head", wf.nn.Linear(2, 1))
        >>> module.head
        Linear(in_features=2, out_features=1, bias=True)
        """
        if module is not None and not isinstance(module, Registry):
            raise errors.DTypeError(
                f"add_module: {name!r} is a {type(module).__name__}, expected a wf.nn.Module"
            )
        self._register("_modules", name, module)

    register_module = add_module

    def _register(self, store: str, name: str, value: object) -> None:
        if "_modules" not in vars(self):
            raise self.not_begun(f"registering {name!r}")
        if not isinstance(name, str) or not name or "." in name:
            raise errors.ArgumentError(
                f"{type(self).__name__}: the name {name!r}, expected a string without dots"
            )
        if hasattr(self, name) and name not in vars(self)[store]:
            raise errors.ArgumentError(
                f"{type(self).__name__} has an attribute {name!r} already, which is not one of its "
                f"{store[1:]}; take another name, or `del` it first"
            )
        vars(self)[store][name] = value

    # Iteration

    def named_modules(
        self, prefix: str = "", remove_duplicate: bool = True
    ) -> "Iterator[tuple[str, Module]]":
        """Iterate over (name, module) pairs of this module and all its submodules.

        prefix            prepended to each name
        remove_duplicate  whether a module that is used twice comes once

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> [name for name, module in model.named_modules()]
        ['', '0', '1']
        """
        yield from self._walk(prefix, set() if remove_duplicate else None)

    def _walk(self, prefix: str, seen: set[int] | None) -> Iterator[tuple[str, Any]]:
        if seen is not None:
            if id(self) in seen:
                return
            seen.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child._walk(f"{prefix}.{name}" if prefix else name, seen)

    def modules(self) -> "Iterator[Module]":
        """Iterate over this module and all its submodules; a shared module comes once.

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> [type(module).__name__ for module in model.modules()]
        ['Sequential', 'Linear', 'ReLU']
        """
        return (m for _, m in self.named_modules())

    def named_children(self) -> "Iterator[tuple[str, Module]]":
        """Iterate over (name, module) pairs of the direct submodules; a shared one comes once.

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> [name for name, module in model.named_children()]
        ['0', '1']
        """
        seen: set[int] = set()
        for name, child in self._modules.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> "Iterator[Module]":
        """Iterate over the direct submodules; a shared module comes once.

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> len(list(model.children()))
        2
        """
        return (m for _, m in self.named_children())

    def _named_members(
        self, store: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        owners = self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]
        seen: set[int] = set()
        for where, module in owners:
            for name, x in vars(module)[store].items():
                if x is not None and id(x) not in seen:
                    if remove_duplicate:
                        seen.add(id(x))
                    yield f"{where}.{name}" if where else name, x

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Iterate over (name, parameter) pairs; a shared parameter comes once.

        prefix            prepended to each name
        recurse           whether to include parameters of submodules
        remove_duplicate  whether a shared parameter comes once, or under each of its names

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> [(name, p.shape) for name, p in model.named_parameters()]
        [('0.weight', (3, 2)), ('0.bias', (3,))]
        """
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Iterate over the parameters; a shared parameter comes once.

        recurse  whether to include parameters of submodules

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> [p.shape for p in model.parameters()]
        [(3, 2), (3,)]
        """
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> "Iterator[tuple[str, Tensor]]":
        """Iterate over (name, buffer) pairs; a shared buffer comes once.

        prefix            prepended to each name
        recurse           whether to include buffers of submodules
        remove_duplicate  whether a shared buffer comes once, or under each of its names

        >>> import weft as wf
        >>> [name for name, b in wf.nn.BatchNorm1d(2).named_buffers()]
        ['running_mean', 'running_var', 'num_batches_tracked']
        """
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> "Iterator[Tensor]":
        """Iterate over the buffers; a shared buffer comes once.

        recurse  whether to include buffers of submodules

        >>> import weft as wf
        >>> [b.shape for b in wf.nn.BatchNorm1d(2).buffers()]
        [(2,), (2,), ()]
        """
        return (b for _, b in self.named_buffers(recurse=recurse))

    def lora_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Iterate over (name, parameter) pairs of the adapters: those called `lora_…` or `lokr_…`.

        >>> import weft as wf
        >>> [name for name, p in wf.nn.LoRALinear(4, 2).lora_parameters()]
        ['lora_A', 'lora_B']
        """
        pairs = self.named_parameters()
        return ((n, p) for n, p in pairs if n.rpartition(".")[2].startswith(("lora_", "lokr_")))

    def get_submodule(self, target: str) -> "Module":
        """The module of that name; this one for an empty name.

        target  the name, dots between the levels

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> model.get_submodule("1")
        ReLU()
        """
        found: Any = self
        for k, part in enumerate(parts := target.split(".") if target else []):
            child = found._modules.get(part)
            if child is None:
                here = ".".join(parts[:k]) or type(self).__name__
                raise errors.MissingParameter(
                    f"get_submodule: {here} has no module {part!r}, only "
                    f"{', '.join(found._modules) or 'none'}"
                )
            found = child
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of that name.

        target  the name, dots between the levels

        >>> import weft as wf
        >>> model = wf.nn.Sequential(wf.nn.Linear(2, 3), wf.nn.ReLU())
        >>> model.get_parameter("0.bias").shape
        (3,)
        """
        return self._get("_parameters", target)

    def get_buffer(self, target: str) -> "Tensor":
        """The buffer of that name.

        target  the name, dots between the levels

        >>> import weft as wf
        >>> wf.nn.BatchNorm1d(2).get_buffer("running_var").tolist()
        [1.0, 1.0]
        """
        return self._get("_buffers", target)

    def _get(self, store: str, target: str) -> Any:
        where, _, name = target.rpartition(".")
        held = vars(self.get_submodule(where))[store]
        if held.get(name) is None:
            raise errors.MissingParameter(
                f"{target!r} is not among the {store[1:]} of {where or type(self).__name__}: "
                f"{', '.join(held) or 'none'}"
            )
        return held[name]
