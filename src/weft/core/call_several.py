"""Callers of rows with several arguments or several results, quick for plain tensors."""

from collections.abc import Callable, Sequence
from typing import Any

from .backends import BACKENDS, KERNELS
from .derived import casting
from .dispatch import (
    apply,
    apply_cast,
    as_whole,
    beside_bfloat16,
    cast_ground,
    is_uncast,
    ready_arrays,
)
from .dtypes import RAW_INEXACT, bfloat16
from .node import Severed
from .op import TABLE, Caller, Op
from .recording import (
    Marks,
    mark_of,
    record_node,
    record_outputs,
    saved_flags,
    sever,
    values_to_save,
)
from .settings import CASTING, GENERAL, RECORD, current
from .share import LENT
from .types import Raw, Static
from .value import GROUND, HIGHER, RESULT

_settings = current.get
_new = object.__new__


def general_caller(op: Op, public: bool) -> Callable[..., Any]:
    """Any number of arguments; fast for the raw arrays that rules pass."""
    arity, kernels, higher = op.arity, KERNELS[op], HIGHER

    def call(*args):
        if not public:
            kernel = kernels.get(args[0].__class__)
            if kernel is not None and not any([a.__class__ in higher for a in args[1:arity]]):
                if getattr(args[0], "dtype", None) is bfloat16:
                    args = (*beside_bfloat16(op, args[:arity]), *args[arity:])
                return kernel(*args)
        return apply(op, args[:arity], args[arity:], public)

    return call


def is_plain(op: Op) -> bool:
    """Whether `plain_caller` is for a row: one result, which is differentiable and no view."""
    fixed = op.arity is not None and op.outputs == 1 and op.tracked == (0,)
    return fixed and op.rule is not None and op.views not in LENT and not op.foreign


def casting_caller(op: Op) -> Callable[..., Any] | None:
    """(args, static, settings) to the result of a row that autocast casts to a half type.

    The casts are part of its node: there are fewer nodes than if they were operations of their
    own. The caller returns None where another path has to be taken; None: the row has no such one.
    """
    arity: Any = op.arity
    rule: Any = op.rule
    promoted = set(range(arity) if op.promote is None else op.promote) == set(range(arity))
    if op.precision != "half" or not promoted or getattr(rule, "keep", None) is not None:
        return None
    kernels, table, result = KERNELS[op], TABLE, RESULT
    every = (True,) * arity

    def call(args, static, settings):
        if settings.way_uncast is GENERAL or table.get(op.name) is not op:
            return None
        raws = settings.autocast.cast_raws(op, args)
        if raws is None:
            return None
        parents = tuple([a._node for a in args])
        recorded = parents.count(None) != arity
        if recorded and _marked(parents):
            return None
        cls, dtype = raws[0].__class__, raws[0].dtype
        try:
            z = kernels[cls](*raws, *static)
        except Exception:
            return None  # the other path converts, or explains
        if z.__class__ is not cls or z.dtype is not dtype or dtype not in RAW_INEXACT:
            return None
        t = _new(result[0])
        t._share = t._node = None
        t._data = z
        if recorded and settings.way_uncast is RECORD:
            live = tuple([p is not None for p in parents]) if None in parents else every
            flags = saved_flags(op, live)
            saved = tuple([v if f else None for v, f in zip((z, *raws), flags)])  # noqa: B905
            t._node = record_node(casting(op), z, parents, saved, static)
        return t

    return call


def plain_caller(op: Op, public: bool) -> Callable[..., Any]:  # noqa: C901  (the hot path)
    """One result of tensors that need no conversion, then static parameters."""
    arity: Any = op.arity
    kernels, ground, result = KERNELS[op], GROUND, RESULT
    general, uncast = general_caller(op, public), is_uncast(op)
    keep_y, *keep_args = saved_flags(op, (True,) * arity)
    special = getattr(op.rule, "keep", None) is not None
    cast_call = casting_caller(op)

    def call(*args):
        if args[0].__class__ not in ground:
            return general(*args)
        given, static = args[:arity], args[arity:]
        settings = _settings()
        way = settings.way_uncast if uncast else settings.way
        if way is CASTING:
            t = cast_call(given, static, settings) if cast_call else None
            if t is not None:
                return t
            ready = cast_ground(op, given, settings)
            if ready is None:
                return apply_cast(op, given, static, public, settings, call)
            given, way = ready, settings.way_uncast
        raws, cls = ready_arrays(op, given) if way is not GENERAL else ((), None)
        if cls is None:
            return general(*given, *static)
        try:
            z = kernels[cls](*raws, *static)
        except Exception:
            return general(*given, *static)  # converts, or explains
        t = _new(result[0])
        t._share = t._node = None
        t._data = z = z if z.__class__ is cls else as_whole(z, cls)
        parents = tuple([a._node if a.__class__ in ground else None for a in given])
        if parents.count(None) != arity and z.dtype in RAW_INEXACT:
            if way is not RECORD:
                t._node = mark_of(op, parents, z)
            elif special or None in parents or _marked(parents):
                record_result(op, t, parents, raws, static)
            else:
                kept = [r if f else None for r, f in zip(raws, keep_args)]  # noqa: B905
                saved = (z if keep_y else None, *kept)
                t._node = record_node(op, z, parents, saved, static)
        return t

    return call


def record_result(op: Op, t: Any, parents: Marks, raws: Sequence[Raw], static: Static) -> None:
    """Record the result of several arguments, some of which may be marked `Severed`."""
    mark = None
    for p in parents:
        if p.__class__ is Severed:
            mark = mark_of(op, parents, t._data)
            parents = tuple([None if p.__class__ is Severed else p for p in parents])
            if parents.count(None) == len(parents):
                t._node = mark
                return
            break
    live: Any = parents
    t._node = record_node(
        op, t._data, live, values_to_save(op, live, t._data, raws, static), static
    )
    if mark is not None:
        sever(t._node, mark)


def several_caller(op: Op, public: bool, only: int | None = None) -> Callable[..., Any]:
    """Several results of tensors that need no conversion; else the general path.

    only  how many results are recorded, the first ones; None: all that carry a derivative
    """
    arity, kernels, ground, result = op.arity, KERNELS[op], GROUND, RESULT
    general, uncast = general_caller(op, public), is_uncast(op)
    tracked = op.tracked[:only]

    def call(*args):
        if args[0].__class__ not in ground:
            return general(*args)
        given, static = args[:arity], args[arity:]
        settings = _settings()
        way = settings.way_uncast if uncast else settings.way
        if way is CASTING:
            ready = cast_ground(op, given, settings)
            if ready is None:
                return apply_cast(op, given, static, public, settings, call)
            given, way = ready, settings.way_uncast
        raws, cls = ready_arrays(op, given) if way is not GENERAL else ((), None)
        if cls is None:
            return general(*given, *static)
        try:
            zs = kernels[cls](*raws, *static)
        except Exception:
            return general(*given, *static)  # explains
        parents = tuple([a._node if a.__class__ in ground else None for a in given])
        recorded = parents.count(None) != arity
        if recorded and (way is not RECORD or _marked(parents)):
            return general(*given, *static)
        outs = []
        for z in zs:
            t = _new(result[0])
            t._share = t._node = None
            t._data = z if z.__class__ is cls else BACKENDS[cls].whole(z)
            outs.append(t)
        if recorded:
            record_outputs(op, outs, parents, raws, static, tracked)
        return tuple(outs)

    return call


def _marked(parents) -> bool:
    """Whether an argument was computed from a gradient without its graph."""
    for p in parents:
        if p.__class__ is Severed:
            return True
    return False


def first_recorded(row: Caller) -> Caller:
    """A row of several results as a function of which only the first result is to be derived.

    The others are numbers to look at: in the quick path they are not recorded.
    """
    call: Any = several_caller(row.op, False, 1)
    call.__name__ = call.__qualname__ = row.op.name
    call.op = row.op
    return call
