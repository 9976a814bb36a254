"""Autocast: casting a row's arguments to the dtype that its `precision` column names."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from . import dtypes
from .dispatch import above
from .op import Op
from .record import field, record
from .settings import current, exactly
from .types import Array
from .value import TENSORS

HALF, SINGLE, ANY = "half", "single", "any"
COLUMNS = (HALF, SINGLE, ANY)
_settings = current.get
P = ParamSpec("P")
T = TypeVar("T")
_CASTABLE = frozenset((*dtypes.HALF, dtypes.float32))


@record
class Autocast:
    """The dtypes of an autocast block: rows marked "half" in `dtype`, "single" in float32.

    columns  (name, column) pairs that override the table's column of these rows
    """

    dtype: np.dtype
    columns: tuple[tuple[str, str], ...] = ()
    _column: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_column", dict(self.columns))

    def dtype_for(self, name: str, column: str) -> np.dtype | None:
        """The dtype that an operation's arguments are cast to; None: they stay as they are."""
        column = self._column.get(name, column)
        if column == ANY:
            return None
        return self.dtype if column == HALF else dtypes.float32

    def casts(self, op: Op, args: Sequence[Array]) -> list[tuple[int, np.dtype]]:
        """(position, dtype) of the arguments to be cast."""
        dtype = self.dtype_for(op.name, op.precision)
        if dtype is None:
            return []
        places = [i for i in op.promote or range(len(args)) if args[i].__class__ in TENSORS]
        if not _castable(args[i].dtype for i in places):
            return []
        return [(i, dtype) for i in places if _differs(args[i].dtype, dtype)]


def _castable(found: Iterable[np.dtype]) -> bool:
    """Whether none is double or complex.

    The result would be of that dtype anyway; casting the other arguments would only lose digits.
    """
    return all([d in _CASTABLE or not dtypes.is_inexact(d) for d in found])


def _differs(own: np.dtype, dtype: np.dtype) -> bool:
    return own in _CASTABLE and own != dtype


# The column of each composite function that has one of its own.
FUNCTIONS: dict[str, str] = {}


def computed_in(column: str, name: str | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Mark a composite function that autocast treats as one operation, in one dtype.

    name  its name in `Autocast.columns`; by default the function's own
    """

    def marked(f: Callable[P, T]) -> Callable[P, T]:
        own = name or f.__name__
        FUNCTIONS[own] = column

        @wraps(f)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            autocast = _settings().autocast
            if autocast is None:
                return f(*args, **kwargs)
            dtype = autocast.dtype_for(own, column)
            if dtype is not None and _castable(t.dtype for t in _tensors((args, kwargs))):
                args, kwargs = _cast((args, kwargs), dtype)
            with exactly():
                return f(*args, **kwargs)

        return call

    return marked


def _tensors(x: Any) -> list[Array]:
    """The tensors in tuples, lists and dicts."""
    if x.__class__ in TENSORS:
        return [x]
    inside = x.values() if isinstance(x, dict) else x if isinstance(x, tuple | list) else ()
    return [t for v in inside for t in _tensors(v)]


def _cast(x, dtype: np.dtype):
    """The same tuples, lists and dicts with the tensors cast."""
    if x.__class__ in TENSORS:
        return above.cast(x, dtype) if _differs(x.dtype, dtype) else x
    if isinstance(x, dict):
        return {k: _cast(v, dtype) for k, v in x.items()}
    return type(x)([_cast(v, dtype) for v in x]) if type(x) in (tuple, list) else x
