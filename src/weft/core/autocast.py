"""Autocast: casting a row's arguments to the dtype that its `precision` column names."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from . import dtypes, versions
from .backends import BACKENDS, PYTHON_SCALARS
from .dispatch import above, finish
from .node import Leaf
from .op import Caller, Op
from .record import field, record
from .recording import record_node
from .settings import RECORD, current
from .types import Array
from .value import GROUND, RESULT, TENSORS, wrap

HALF, SINGLE, ANY = "half", "single", "any"
COLUMNS = (HALF, SINGLE, ANY)
_settings = current.get
P = ParamSpec("P")
T = TypeVar("T")
_CASTABLE = frozenset((*dtypes.HALF, dtypes.float32))
_NOTHING = (None, None)  # what a cast saves of (y, x)


Casts: TypeAlias = list[tuple[int, np.dtype]]
# What `Autocast.casts` found, for blocks of equal dtypes: by row and dtypes.
_FOUND: dict[Any, dict[Any, Casts]] = {}


@record
class Autocast:
    """The dtypes of an autocast block: rows marked "half" in `dtype`, "single" in float32.

    columns  (name, column) pairs that override the table's column of these rows
    kept     the casts of parameters that the block which is running has made
    """

    dtype: np.dtype
    columns: tuple[tuple[str, str], ...] = ()
    kept: "KeptCasts | None" = field(default=None, repr=False, compare=False)
    _column: dict[str, str] = field(init=False, repr=False, compare=False)
    _found: dict[Any, Casts] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_column", dict(self.columns))
        object.__setattr__(self, "_found", _FOUND.setdefault((self.dtype, self.columns), {}))

    def dtype_for(self, name: str, column: str) -> np.dtype | None:
        """The dtype that an operation's arguments are cast to; None: they stay as they are."""
        column = self._column.get(name, column)
        if column == ANY:
            return None
        return self.dtype if column == HALF else dtypes.float32

    def casts(self, op: Op, args: Sequence[Array]) -> Casts:
        """(position, dtype) of the arguments to be cast."""
        key: list[Any] = [op.name, op.precision, op.promote]
        for a in args:
            if a.__class__ in GROUND:
                key.append(a._data.dtype)
            elif a.__class__ in PYTHON_SCALARS:
                key.append(None)  # which is never cast
            else:
                return self._find_casts(op, args)
        found = self._found.get(row := tuple(key))
        if found is None:
            found = self._found[row] = self._find_casts(op, args)
        return found

    def _find_casts(self, op: Op, args: Sequence[Array]) -> Casts:
        dtype = self.dtype_for(op.name, op.precision)
        if dtype is None:
            return []
        places = [i for i in op.promote or range(len(args)) if args[i].__class__ in TENSORS]
        if not _castable(args[i].dtype for i in places):
            return []
        return [(i, dtype) for i in places if _differs(args[i].dtype, dtype)]

    @property
    def cast(self) -> Callable[[Array, np.dtype], Array]:
        """(x, dtype) -> x cast to a dtype, as an operation that is recorded."""
        return above.cast if self.kept is None else self.kept.cast


class KeptCasts:
    """The half-precision copies of parameters that an autocast block has made, each of them once.

    Only memory is shared: every use records a cast of its own, so that gradients are added in the
    parameters' dtype, as they are without copies that are kept. A copy is made anew if its
    parameter was given other memory, or was written to.
    """

    def __init__(self) -> None:
        # By id and dtype: the parameter (which holds the id), its memory, its count of writes and
        # the latest of all stamps, both before the cast, and the copy.
        self._made: dict[tuple[int, np.dtype], tuple[Array, Any, int, int, Any]] = {}
        self._open = True

    def cast(self, x: Array, dtype: np.dtype) -> Array:
        """x cast to a dtype, from the copy there is if it is still right.

        PyTorch counts writes, but not those of its fused optimizers; the house's own are stamped.
        """
        if not _is_parameter(x) or not self._open or dtype not in dtypes.HALF:
            return above.cast(x, dtype)
        raw = x._data
        count = BACKENDS[raw.__class__].version(raw)
        if count is None:
            return above.cast(x, dtype)
        found = self._made.get((id(x), dtype))
        latest = versions.latest
        if found is not None:
            _, memory, writes, then, copy = found
            if memory is raw and writes == count:
                if then == latest or not _is_stamped_since(raw, then):
                    return _recorded_cast(x, copy, dtype)
        made = above.cast(x, dtype)
        self._made[id(x), dtype] = x, raw, count, latest, made._data
        return made

    def close(self) -> None:
        """Drop the copies, and keep no more: the block is over."""
        self._open = False
        self._made.clear()


def _is_parameter(x: Array) -> bool:
    """Whether x is a leaf that requires a gradient, or was made by the user as a parameter is."""
    if x.__class__ not in GROUND or _settings().staging is not None:
        return False
    return x._node.__class__ is Leaf or x.__class__ is not RESULT[0]


def _is_stamped_since(raw: Any, latest: int) -> bool:
    """Whether memory was overwritten after the stamp `latest`: later stamps are smaller."""
    when = versions.last_write(raw)
    return when is not None and when < latest


def _recorded_cast(x: Array, copy: Any, dtype: np.dtype) -> Array:
    """A cast of a parameter that was computed before, as a new tensor."""
    node, op = x._node, above.cast.op
    if _settings().way_uncast is not RECORD or (node is not None and node.__class__ is not Leaf):
        return finish(op, [x], [x._data], copy, (dtype,), copy.__class__)
    if node is not None:
        node = record_node(op, copy, (node,), _NOTHING, (dtype,))
    return wrap(copy, node)


def _castable(found: Iterable[np.dtype]) -> bool:
    """Whether none is double or complex.

    The result would be of that dtype anyway; casting the other arguments would only lose digits.
    """
    return all([d in _CASTABLE or not dtypes.is_inexact(d) for d in found])


def _differs(own: np.dtype, dtype: np.dtype) -> bool:
    return own in _CASTABLE and own != dtype


def cast_ahead(row: Caller, x: Array, *others: Array) -> Array:
    """x as a row will cast it beside other arguments, for a view of a cast that is kept."""
    autocast = _settings().autocast
    if autocast is None:
        return x
    wanted = dict(autocast.casts(row.op, (x, *others)))
    return autocast.cast(x, wanted[0]) if 0 in wanted else x


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
            settings = _settings()
            autocast = settings.autocast
            if autocast is None:
                return f(*args, **kwargs)
            dtype = autocast.dtype_for(own, column)
            if dtype is not None and _castable(t.dtype for t in _tensors((args, kwargs))):
                args, kwargs = _cast((args, kwargs), dtype, autocast)
            token = current.set(settings.exact)
            try:
                return f(*args, **kwargs)
            finally:
                current.reset(token)

        return call

    return marked


def _tensors(x: Any) -> list[Array]:
    """The tensors in tuples, lists and dicts."""
    if x.__class__ in TENSORS:
        return [x]
    inside = x.values() if isinstance(x, dict) else x if isinstance(x, tuple | list) else ()
    return [t for v in inside for t in _tensors(v)]


def _cast(x, dtype: np.dtype, autocast: Autocast):
    """The same tuples, lists and dicts with the tensors cast."""
    if x.__class__ in TENSORS:
        return autocast.cast(x, dtype) if _differs(x.dtype, dtype) else x
    if isinstance(x, dict):
        return {k: _cast(v, dtype, autocast) for k, v in x.items()}
    return type(x)([_cast(v, dtype, autocast) for v in x]) if type(x) in (tuple, list) else x
