"""Autocast: casting a row's arguments to the dtype that its `precision` column names."""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from . import dtypes, versions
from .backends import BACKENDS, KERNELS, PYTHON_SCALARS
from .dispatch import above, finish
from .node import Leaf
from .op import Caller, Op
from .record import field, record
from .recording import record_node
from .settings import GENERAL, RECORD, Settings, current
from .types import Array, Raw
from .value import GROUND, RESULT, TENSORS, wrap

HALF, SINGLE, ANY = "half", "single", "any"
COLUMNS = (HALF, SINGLE, ANY)
_settings = current.get
P = ParamSpec("P")
T = TypeVar("T")
_CASTABLE = frozenset((*dtypes.HALF, dtypes.float32))
_NOTHING = (None, None)  # what a cast saves of (y, x)


Casts: TypeAlias = list[tuple[int, np.dtype]]
# What `Autocast` found, for blocks of equal dtypes: by row and dtypes. Rows outside of the table,
# which these keys must not keep alive, are named by what decides.
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

    def cast_ground(self, op: Op, args: Sequence[Array]) -> Sequence[Array] | None:
        """Arguments after the casts that a row of the table wants; None if one is no plain tensor.

        The row's quick path then goes on as without autocast. Python's numbers may be among them.
        """
        key: list[Any] = [op]
        for a in args:
            if a.__class__ in GROUND:
                key.append(a._data.dtype)
            elif a.__class__ in PYTHON_SCALARS:
                key.append(None)
            else:
                return None
        found = self._found.get(row := tuple(key))
        if found is None:
            found = self._found[row] = self._find_casts(op, args)
        if found:
            args, cast = list(args), self.cast
            for i, dtype in found:
                args[i] = cast(args[i], dtype)
        return args

    def cast_raws(self, op: Op, args: Sequence[Array]) -> list[Raw] | None:
        """The raw arrays of arguments after a row's casts, which are not recorded.

        None if one is no plain tensor, or if they do not become arrays of one dtype and place.
        """
        key: list[Any] = [op]
        raws: list[Raw] = []
        for a in args:
            if a.__class__ not in GROUND:
                return None
            raw = a._data
            raws.append(raw)
            key.append(raw.dtype)
        first = raws[0]
        cls, device = first.__class__, first.device
        for raw in raws:
            if raw.__class__ is not cls or raw.device != device:
                return None
        found: Any = self._found.get(row := tuple(key))
        if found is None:
            found = self._found[row] = self._find_casts(op, args)
        for i, dtype in found:
            kept = self.kept
            raws[i] = (
                KERNELS[above.cast.op][cls](raws[i], dtype)
                if kept is None
                else kept.raw_cast(args[i], dtype)
            )
        dtype = raws[0].dtype
        for raw in raws:
            if raw.dtype is not dtype:
                return None
        return raws

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
        """x cast to a dtype, from the copy there is if it is still right."""
        settings = _settings()
        if settings.staging is not None:
            return above.cast(x, dtype)
        copy = self._find(x, dtype)
        if copy is not None:
            return _recorded_cast(x, copy, dtype, settings)
        if not self._keeps(x, dtype):
            return above.cast(x, dtype)
        raw, latest = x._data, versions.latest
        made = above.cast(x, dtype)
        self._keep(x, dtype, raw, latest, made._data)
        return made

    def raw_cast(self, x: Array, dtype: np.dtype) -> Raw:
        """The array of x cast to a dtype; nothing is recorded."""
        copy = self._find(x, dtype)
        if copy is None:
            raw, latest = x._data, versions.latest
            copy = KERNELS[above.cast.op][raw.__class__](raw, dtype)
            if self._keeps(x, dtype):
                self._keep(x, dtype, raw, latest, copy)
        return copy

    def _find(self, x: Array, dtype: np.dtype) -> Raw | None:
        """The copy of a parameter, if there is one that is still right.

        PyTorch counts writes, but not those of its fused optimizers; the house's own are stamped.
        """
        found = self._made.get((id(x), dtype))
        if found is not None:  # x is the parameter itself, which the entry keeps alive
            _, memory, writes, then, copy = found
            raw = x._data
            if memory is raw and writes == BACKENDS[raw.__class__].version(raw):
                if then == versions.latest or not _is_stamped_since(raw, then):
                    return copy
        return None

    def _keeps(self, x: Array, dtype: np.dtype) -> bool:
        return self._open and dtype in dtypes.HALF and _is_parameter(x)

    def _keep(self, x: Array, dtype: np.dtype, raw: Raw, latest: int, copy: Raw) -> None:
        """Keep the copy of a parameter, of whose memory later stamps than `latest` are new."""
        count = BACKENDS[raw.__class__].version(raw)
        if count is not None:
            self._made[id(x), dtype] = x, raw, count, latest, copy

    def close(self) -> None:
        """Drop the copies, and keep no more: the block is over."""
        self._open = False
        self._made.clear()


def _is_parameter(x: Array) -> bool:
    """Whether x is a leaf that requires a gradient, or was made by the user as a parameter is."""
    if x.__class__ not in GROUND:
        return False
    return x._node.__class__ is Leaf or x.__class__ is not RESULT[0]


def _is_stamped_since(raw: Any, latest: int) -> bool:
    """Whether memory was overwritten after the stamp `latest`: later stamps are smaller."""
    when = versions.last_write(raw)
    return when is not None and when < latest


def _recorded_cast(x: Array, copy: Any, dtype: np.dtype, settings: Settings) -> Array:
    """A cast of a parameter that was computed before, as a new tensor."""
    node, op = x._node, above.cast.op
    if node is not None:
        if settings.way_uncast is not RECORD or node.__class__ is not Leaf:
            return finish(op, [x], [x._data], copy, (dtype,), copy.__class__)
        node = record_node(op, copy, (node,), _NOTHING, (dtype,))
    elif settings.way_uncast is GENERAL:
        return finish(op, [x], [x._data], copy, (dtype,), copy.__class__)
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
