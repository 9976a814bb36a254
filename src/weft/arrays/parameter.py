"""Parameters: leaves that an optimizer changes, and named collections of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from .. import errors
from ..core.backends import BACKENDS
from ..core.settings import current
from ..core.share import lend
from ..core.value import as_seen_by_trace, install, wrap
from . import make, random
from .foreign import refuse_imaginary
from .inplace import own_memory, refuse_levels
from .tensor import Tensor

if TYPE_CHECKING:
    from .types import ArrayLike, Shape


class Parameter(Tensor):
    """A tensor with memory of its own that is trained.

    data           numbers, an array or a tensor, which is copied
    requires_grad  whether it is trained

    >>> import weft as wf
    >>> p = wf.Parameter(wf.tensor([1.0, 2.0]))
    >>> grads = (p * p).sum().backward()
    >>> p.update(0.5)
    >>> p.tolist()
    [0.0, 0.0]
    """

    __slots__ = ()

    def __new__(cls, data: ArrayLike, requires_grad: bool = True) -> Self:
        if current.get().staging is not None:
            raise errors.StagingError(
                "Parameter: a parameter that is made in a function which is being compiled would "
                "be made once, not at each call; make it outside of the function"
            )
        self = object.__new__(cls)
        source = make.asarray(data)
        self._data = BACKENDS[type(source._data)].copy(source._data)
        self._node = self._share = None
        return self.requires_grad_(requires_grad)

    @classmethod
    def randn(  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        cls, shape: Shape, mean: float = 0.0, std: float = 1.0, **options: Any
    ) -> Parameter:
        """Normally distributed initial values.

        shape      an integer or a tuple
        mean, std  the mean and the standard deviation
        options    dtype, device and generator, as of `wf.randn`

        >>> import weft as wf
        >>> wf.Parameter.randn((2, 3), std=0.1).shape
        (2, 3)
        """
        return cls(random.randn(shape, mean=mean, std=std, **options))

    @classmethod
    def zeros(cls, shape: Shape, *more: Any, **options: Any) -> Parameter:
        """Zero initial values.

        shape    an integer or a tuple
        more     refused: the shape is one argument
        options  dtype and device, as of `wf.zeros`

        >>> import weft as wf
        >>> wf.Parameter.zeros((2, 3)).requires_grad
        True
        """
        return cls(make.zeros(shape, *more, **options))

    def tensor(self) -> Tensor:
        """The value, still connected, for use in a forward pass.

        >>> import weft as wf
        >>> p = wf.Parameter([1.0, 2.0])
        >>> p.tensor().sum().backward()[p].tolist()
        [1.0, 1.0]
        """
        value = wrap(as_seen_by_trace(self)._data, self._node)
        lend(self, value)
        return value

    def zero_grad(self) -> None:
        """Forget the accumulated gradient.

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> grads = (p * p).sum().backward()
        >>> p.zero_grad()
        >>> p.grad is None
        True
        """
        if self.requires_grad:
            self.grad = None

    def set_grad(self, gradient: ArrayLike | None) -> None:
        """Replace the accumulated gradient.

        gradient  a tensor of its shape

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> p.set_grad(wf.tensor([2.0]))
        >>> p.grad.tolist()
        [2.0]
        """
        self.grad = gradient

    def update(self, lr: float) -> None:
        """p ← p − lr·grad, in place.

        lr  the learning rate

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> p.set_grad(wf.tensor([2.0]))
        >>> p.update(0.25)
        >>> p.tolist()
        [0.5]
        """
        if self.grad is None:
            raise errors.MissingGradient(
                "update: this parameter has no gradient; run backward() or set_grad() first"
            )
        self.apply_update(self.grad.detach() * lr)

    def apply_update(self, update: ArrayLike) -> None:
        """p ← p − update, in place.

        update  an array of its shape

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> p.apply_update(wf.tensor([0.25]))
        >>> p.tolist()
        [0.75]
        """
        update = make.asarray(update)
        refuse_levels((update,), "apply_update")
        if update.shape != self.shape:
            raise errors.ShapeError(
                f"apply_update: shape {update.shape}, expected that of the parameter, {self.shape}"
            )
        if update.device != self.device:
            raise errors.DeviceError(
                f"apply_update: on {update.device!r}, the parameter on {self.device!r}; move it "
                "with .to()"
            )
        refuse_imaginary("apply_update", update.dtype, self.dtype)
        staging = current.get().staging
        if staging is not None:
            staging.assign(self, self.detach() - update.detach().to(self.dtype))
            return
        raw = own_memory(self)
        raw -= BACKENDS[type(raw)].cast(update._data, self.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        return Parameter(wrap(self._data), self.requires_grad)

    def __repr__(self) -> str:
        return f"Parameter({super().__repr__()})"


class ParameterDict:
    """Parameters by name, in the order they were inserted.

    parameters  a dict; None: empty

    >>> import weft as wf
    >>> weights = wf.ParameterDict({"w": wf.Parameter([1.0])})
    >>> weights.insert("b", wf.Parameter([0.0]))
    >>> [name for name, p in weights.named_parameters()]
    ['w', 'b']
    """

    def __init__(self, parameters: dict[str, Parameter] | None = None):
        self._items: dict[str, Parameter] = {}
        for name, p in (parameters or {}).items():
            self.insert(name, p)

    def insert(self, name: str, parameter: Parameter) -> None:
        """Add or replace a parameter.

        name       what it is called
        parameter  the parameter

        >>> import weft as wf
        >>> weights = wf.ParameterDict()
        >>> weights.insert("w", wf.Parameter([1.0]))
        >>> len(weights.parameters())
        1
        """
        if not isinstance(name, str) or not isinstance(parameter, Parameter):
            raise errors.DTypeError(
                f"insert: expected a name and a Parameter, got {type(name).__name__} and "
                f"{type(parameter).__name__}"
            )
        self._items[name] = parameter

    def get(self, name: str, default: Any = None) -> Parameter | Any:
        """The parameter of that name, or `default`.

        name     what it is called
        default  what is returned if there is none

        >>> import weft as wf
        >>> wf.ParameterDict().get("w") is None
        True
        """
        return self._items.get(name, default)

    def __getitem__(self, name: str) -> Parameter:
        if name not in self._items:
            raise errors.MissingParameter(
                f"ParameterDict: no parameter {name!r}, only {', '.join(self._items) or 'none'}"
            )
        return self._items[name]

    __setitem__ = insert

    def parameters(self) -> list[Parameter]:
        """The parameters, in their order.

        >>> import weft as wf
        >>> [p.shape for p in wf.ParameterDict({"w": wf.Parameter([1.0])}).parameters()]
        [(1,)]
        """
        return list(self._items.values())

    def named_parameters(self) -> list[tuple[str, Parameter]]:
        """(name, parameter) pairs, in their order.

        >>> import weft as wf
        >>> [name for name, p in wf.ParameterDict({"w": wf.Parameter([1.0])}).named_parameters()]
        ['w']
        """
        return list(self._items.items())

    def zero_grad(self) -> None:
        """Forget the gradients of all parameters.

        >>> import weft as wf
        >>> weights = wf.ParameterDict({"w": wf.Parameter([1.0])})
        >>> grads = weights.get("w").sum().backward()
        >>> weights.zero_grad()
        >>> weights.get("w").grad is None
        True
        """
        for p in self._items.values():
            p.zero_grad()

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}: {p.shape}" for n, p in self._items.items())
        return f"ParameterDict({inside})"


install(Tensor, Parameter)
