"""The types of what public functions take, for annotations only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from .tensor import Tensor


class SupportsArray(Protocol):
    """An array of another library: NumPy's, PyTorch's, JAX's."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any: ...


# What is made a tensor of.
ArrayLike: TypeAlias = "Tensor | SupportsArray | complex | list[Any] | tuple[Any, ...] | range"
# A dtype, its name (`"float32"`), or Python's bool, int, float, complex.
DTypeLike: TypeAlias = "np.dtype[Any] | str | type"
# `"cpu"`, `"torch"`, `"cuda:0"`, or PyTorch's object for one.
Device: TypeAlias = "str | Any"
Shape: TypeAlias = "int | tuple[int, ...] | list[int]"
# One axis, several, or all.
Axes: TypeAlias = "int | tuple[int, ...] | list[int] | None"
ArgNums: TypeAlias = "int | tuple[int, ...] | list[int]"
