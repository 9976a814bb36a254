"""The types of what operations compute with, for annotations."""

from typing import Any, TypeAlias

# What rules and compositions of rows compute with: a tensor, a box, a backend's array or, beside
# one of these, a Python scalar.
Array: TypeAlias = Any
# An array of whichever backend, or the box in its place: what a tensor holds.
Raw: TypeAlias = Any
# What computes on one type of raw array: kernels by the names of rows, and questions to arrays.
Namespace: TypeAlias = Any
# What a row takes after its arrays: axes, shapes, flags, numbers.
Static: TypeAlias = tuple[Any, ...]
