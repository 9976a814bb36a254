"""Tensor: the one class users see, its identity, its attributes and its operators."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Never, Self
from weakref import ref

import numpy as np

from .. import errors
from ..backend.device import as_numpy, is_torch_device
from ..core import dispatch, dtypes
from ..core.backends import BACKENDS, PYTHON_SCALARS
from ..core.box import BOXES, Box, readable
from ..core.node import Leaf, Node, Severed
from ..core.numbers import unwrap_number
from ..core.origin import assigns_item, is_array_library
from ..core.settings import current
from ..core.share import lend
from ..core.value import Value, as_seen_by_trace, install, read, wrap
from ..ops import complex_, contract, elementwise, logic, structural, transfer
from . import display, foreign
from .keywords import checks_keywords

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .types import ArrayLike, Device, DTypeLike

_ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
_OPERATORS = {f"__{side}{name}__" for name in _ARITHMETIC for side in ("", "r")} | {
    f"__{name}__" for name in ("neg", "abs", "invert", "and", "or", "lt", "le", "gt", "ge")
}


def _reflect(op):
    def operator(self, other):
        return op(other, self)

    return operator


class Tensor(Value):
    """An array with a memory of how it was made.

    data     refused: tensors are made by `wf.tensor`, `wf.array` and `wf.asarray`
    options  refused likewise

    >>> import weft as wf
    >>> x = wf.tensor([1.0, 2.0], requires_grad=True)
    >>> grads = (x * x).sum().backward()
    >>> grads[x].tolist()
    [2.0, 4.0]
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __new__(cls, data: ArrayLike | None = None, **options: Any) -> Tensor:
        raise TypeError("make tensors with wf.tensor(data), wf.asarray(data), wf.zeros(shape), …")

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
        return tuple(self._data.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements, as NumPy names it."""
        return BACKENDS[type(self._data)].dtype_of(self._data)

    @property
    def device(self) -> str:
        """`cpu` (NumPy), `torch` (PyTorch on the CPU) or `cuda:0`, `cuda:1`, …"""
        return BACKENDS[type(self._data)].device_of(self._data)

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self._data.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        n = 1
        for d in self._data.shape:
            n *= d
        return n

    @property
    def itemsize(self) -> int:
        """How many bytes an element has."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """How many bytes the elements have together."""
        return self.size * self.itemsize

    def __len__(self) -> int:
        if not self._data.shape:
            raise errors.Unsized("len(): a 0-d tensor has no axes; x.item() is its value")
        return self._data.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._data.shape:
            raise errors.Unsized("iteration: a 0-d tensor has no axes; x.item() is its value")
        rows: Any = self  # indexing is attached by `namespace`
        return (rows[i] for i in range(self._data.shape[0]))

    def __contains__(self, value: ArrayLike) -> bool:
        return bool((self == value).any())

    # Differentiation: a tensor's own attributes. `backward` and its kin are attached by `weft`,
    # from the transform layer.

    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
        return self._node is not None and self._node.__class__ is not Severed

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def data(self) -> Never:
        raise AttributeError  # and `__getattr__` says what to write

    @data.setter
    def data(self, value: object) -> Never:
        raise errors.ArgumentError("data = …: use x.copy_(value) in a block `with wf.no_grad():`")

    @property
    def is_leaf(self) -> bool:
        """Whether differentiation ends here: nothing recorded made this tensor."""
        return self._node.__class__ is not Node

    @property
    def id(self) -> int:
        """What gradient maps call this tensor."""
        return -self._node.id if self.requires_grad else id(self)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make this tensor a leaf whose gradient is wanted (or not); returns it.

        requires_grad  whether it is wanted

        >>> import weft as wf
        >>> wf.tensor([1.0]).requires_grad_()
        tensor([1.], requires_grad=True)
        """
        if not requires_grad:
            if self._node.__class__ is Node:
                raise errors.GradientError(
                    f"requires_grad_(False): this tensor was computed by {self._node.name} "
                    f"(at {self._node.line}); take x.detach() instead"
                )
            self._node = None
        elif self._node is None or self._node.__class__ is Severed:
            self._node = self._new_leaf(requested=True)
        elif self._node.__class__ is Leaf:
            self._node.requested = True
        return self

    def _new_leaf(self, requested: bool) -> Leaf:
        if not dtypes.is_inexact(self.dtype):
            raise errors.NotDifferentiable(
                f"a tensor of dtype {self.dtype} cannot require a gradient: make it a float "
                f"first, x.to('float32')"
            )
        self._grad = None
        return Leaf(self._data.shape, self._data.dtype, ref(self), requested)

    @property
    def grad(self) -> Tensor | Any:
        """The gradient accumulated by `backward()`, or None."""
        node = self._node
        if node.__class__ is Leaf:
            return node.grad
        if node.__class__ is Node and node.extra is not None:
            return node.extra.grad
        return None

    @grad.setter
    def grad(self, value: ArrayLike | None) -> None:
        node = self._node
        if node.__class__ is not Leaf:
            if value is not None:
                raise errors.GradientError(
                    "grad: only a leaf that requires a gradient has a .grad to set; this is not one"
                )
            if node.__class__ is Node and node.extra is not None:
                node.extra.grad = None
            return  # there is none to forget
        node.grad = None if value is None else self._as_gradient(value)

    def _as_gradient(self, value: Any) -> Tensor:
        value = dispatch.above.adopt(value)
        if value.shape != self.shape:
            raise errors.ShapeError(
                f"grad: got shape {value.shape}, expected that of the tensor, {self.shape}"
            )
        if value.device != self.device:
            raise errors.DeviceError(
                f"grad: on {value.device!r}, the tensor on {self.device!r}; move it with .to()"
            )
        return value.to(self.dtype)

    def detach(self) -> Tensor:
        """The same values, unconnected: no gradient flows through the result.

        >>> import weft as wf
        >>> x = wf.tensor([1.0], requires_grad=True)
        >>> x.detach().requires_grad
        False
        """
        raw = as_seen_by_trace(self)._data
        detached = wrap(raw.stop_gradient() if raw.__class__ in BOXES else raw)
        lend(self, detached)
        return detached

    # Values

    def numpy(self) -> np.ndarray[Any, Any]:
        """A read-only NumPy view of the values (a copy from another device is an error).

        >>> import weft as wf
        >>> wf.tensor([1, 2]).numpy()
        array([1, 2])
        """
        found = readable(read(self), "numpy()")
        if self.device.startswith("cuda"):
            raise errors.DeviceError(
                f"numpy(): the tensor is on {self.device}; use .to('cpu').numpy()"
            )
        view = as_numpy(found).view()
        view.flags.writeable = False
        return view

    def item(self) -> Any:
        """The value of a one-element tensor as a Python number.

        >>> import weft as wf
        >>> wf.tensor([2.5]).item()
        2.5
        """
        if self.size != 1:
            raise errors.ShapeError(
                f"item(): a tensor of shape {self.shape} has {self.size} elements, not one; "
                f"use .tolist() or index it"
            )
        return readable(read(self), "item()").item()

    to_scalar = item

    def tolist(self) -> Any:
        """The values as nested Python lists.

        >>> import weft as wf
        >>> wf.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return as_numpy(readable(read(self), "tolist()")).tolist()

    def to_vec(self) -> list[Any]:
        """The values as one flat list.

        >>> import weft as wf
        >>> wf.tensor([[1, 2], [3, 4]]).to_vec()
        [1, 2, 3, 4]
        """
        return as_numpy(readable(read(self), "to_vec()")).reshape(-1).tolist()

    def tensor(self) -> Tensor:
        """The detached value.

        >>> import weft as wf
        >>> wf.tensor([1.0], requires_grad=True).tensor()
        tensor([1.])
        """
        return self.detach()

    @checks_keywords
    def to(self, target: DTypeLike | Device, /) -> Tensor:
        """This tensor in another dtype or on another device; differentiable.

        target  a dtype or a device

        >>> import weft as wf
        >>> wf.tensor([1, 2]).to("float64").dtype
        dtype('float64')
        """
        named = isinstance(target, str) and target.partition(":")[0] in ("cpu", "cuda", "torch")
        if named or is_torch_device(target):
            return transfer.move(self, target)
        dtype = dtypes.canonical(target)
        foreign.refuse_imaginary("to", self.dtype, dtype)
        return self if dtype == self.dtype else structural.cast(self, dtype)

    def to_device(self, device: Device, /, *, stream: Any = None) -> Tensor:
        """Array API spelling of `to(device)`.

        device  a device's name
        stream  refused: there are none to choose from

        >>> import weft as wf
        >>> wf.tensor([1.0]).to_device("cpu").device
        'cpu'
        """
        if stream is not None:
            raise errors.ArgumentError("to_device: streams are not supported; pass stream=None")
        return transfer.move(self, device)

    def __bool__(self) -> bool:
        return bool(self._scalar("bool()"))

    def __int__(self) -> int:
        return int(self._scalar("int()"))

    def __float__(self) -> float:
        return float(self._scalar("float()"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex()"))

    def __index__(self) -> int:
        if dtypes.kind(self.dtype) not in ("signed integer", "unsigned integer"):
            raise errors.DTypeError(f"index: got a tensor of {self.dtype}, expected an integer")
        return int(self._scalar("an index"))

    def _scalar(self, what: str) -> Any:
        if self._data.shape != () and self.size != 1:
            raise errors.ShapeError(
                f"{what} of a tensor of shape {self.shape}: expected one element; use .any(), "
                ".all() or an index"
            )
        if self.requires_grad and current.get().grad and what != "bool()":
            self._refuse_hidden_use(what)
        return readable(read(self), what).item()

    def _refuse_hidden_use(self, what: str) -> None:
        """Refuse conversion to a number by `array[i] = x` and in NumPy, SciPy or scikit-learn."""
        caller = sys._getframe(3)
        if is_array_library(caller) or assigns_item(caller):
            raise errors.InterchangeError(
                f"{what} of a tensor that is being differentiated, called by another library "
                "or by array[i] = x, would drop its gradient; use x.detach() if that is meant"
            )

    __repr__ = display.text  # pyright: ignore[reportAssignmentType]  (of tensors only)
    __format__ = display.format_number
    _repr_html_ = display.html

    # Operators

    __add__ = elementwise.add
    __radd__ = _reflect(elementwise.add)
    __sub__ = elementwise.subtract
    __rsub__ = _reflect(elementwise.subtract)
    __mul__ = elementwise.multiply
    __rmul__ = _reflect(elementwise.multiply)
    __truediv__ = elementwise.divide
    __rtruediv__ = _reflect(elementwise.divide)
    __floordiv__ = elementwise.floor_divide
    __rfloordiv__ = _reflect(elementwise.floor_divide)
    __mod__ = elementwise.remainder
    __rmod__ = _reflect(elementwise.remainder)
    __rpow__ = _reflect(elementwise.pow_)
    __matmul__ = contract.matmul
    __rmatmul__ = _reflect(contract.matmul)
    __neg__ = elementwise.negative
    __pos__ = elementwise.positive
    __abs__ = complex_.abs_
    __invert__ = logic.bitwise_invert
    __and__ = logic.bitwise_and
    __rand__ = _reflect(logic.bitwise_and)
    __or__ = logic.bitwise_or
    __ror__ = _reflect(logic.bitwise_or)
    __xor__ = logic.bitwise_xor
    __rxor__ = _reflect(logic.bitwise_xor)
    __lshift__ = logic.bitwise_left_shift
    __rlshift__ = _reflect(logic.bitwise_left_shift)
    __rshift__ = logic.bitwise_right_shift
    __rrshift__ = _reflect(logic.bitwise_right_shift)
    __lt__ = logic.less
    __le__ = logic.less_equal
    __gt__ = logic.greater
    __ge__ = logic.greater_equal

    def __pow__(self, n: ArrayLike) -> Tensor:
        if type(n) in PYTHON_SCALARS or type(n := unwrap_number(n)) in PYTHON_SCALARS:
            return elementwise.power_scalar(self, n)
        return elementwise.pow_(self, n)

    def __eq__(self, other: object) -> Any:
        return NotImplemented if other is None else logic.equal(self, other)

    def __ne__(self, other: object) -> Any:
        return NotImplemented if other is None else logic.not_equal(self, other)


TrackedTensor = Tensor
install(Tensor)
# Rules use operators on raw values too; on boxes these are the operations themselves.
for _name, _operator in list(vars(Tensor).items()):
    if _name in _OPERATORS:
        setattr(Box, _name, _operator)
dispatch.above.cast = structural.cast
