"""The types of what operations compute with, for annotations."""

from typing import Any, TypeAlias

# The operands of rules and composite functions: a tensor, a box, a backend's array or, beside one
# of these, a Python scalar.
Array: TypeAlias = Any
# What a tensor holds: an array of any backend, or a box.
Raw: TypeAlias = Any
# A backend for one type of raw array: kernels by the names of rows, and queries on arrays.
Namespace: TypeAlias = Any
# A row's parameters after its arrays: axes, shapes, flags, numbers.
Static: TypeAlias = tuple[Any, ...]
