"""The types of kernels' arguments, for annotations only."""

from collections.abc import Callable
from typing import Any, TypeVar

from ...core.aval import Shape  # noqa: F401 (exported)

Raw = Any  # an array of whichever backend, or a Python number beside one
Words = Any  # four arrays of random words, or one array whose first axis has length four
Device = Any  # one of our names, PyTorch's object for one, or None
Axes = tuple[int, ...]  # counted from the front, none twice
Index = tuple[int | tuple[int, int, int] | None, ...]  # a place; start, count, step; a new axis
Sizes = tuple[int, ...]  # for each of the last axes, along which windows slide
Padding = tuple[tuple[int, int], ...]  # before and after each of these
Function = TypeVar("Function", bound=Callable[..., Any])
