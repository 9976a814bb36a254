"""The types of what public functions take, for annotations only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import EllipsisType
    from typing import SupportsIndex

    import numpy as np

    from .tensor import Tensor


class SupportsArray(Protocol):
    """An array of another library: NumPy's, PyTorch's, JAX's."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...


class SupportsDLPack(Protocol):
    """An array that other libraries can take over."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class TorchDType(Protocol):
    """One of PyTorch's dtypes."""

    @property
    def is_floating_point(self) -> bool: ...


class TorchDevice(Protocol):
    """One of PyTorch's devices."""

    @property
    def type(self) -> str: ...
    @property
    def index(self) -> int | None: ...


# What is made a tensor of.
ArrayLike: TypeAlias = "Tensor | SupportsArray | complex | list[Any] | tuple[Any, ...] | range"
# A dtype, its name (`"float32"`), or Python's bool, int, float, complex.
DTypeLike: TypeAlias = "np.dtype[Any] | str | type | TorchDType"
# `"cpu"`, `"torch"`, `"cuda:0"`, or PyTorch's object for one.
Device: TypeAlias = "str | TorchDevice"
Shape: TypeAlias = "int | tuple[int, ...] | list[int]"
# One axis, several, or all.
Axes: TypeAlias = "int | tuple[int, ...] | list[int] | None"
# One number for all axes, or one for each.
PerAxis: TypeAlias = "int | Sequence[int]"
# What `x[key]` takes.
Index: TypeAlias = (
    "SupportsIndex | slice | EllipsisType | SupportsArray | list[Any] | tuple[Any, ...] | None"
)
# What becomes of the losses of the elements.
Reduction: TypeAlias = Literal["none", "mean", "sum"]
ArgNums: TypeAlias = "int | tuple[int, ...] | list[int]"
