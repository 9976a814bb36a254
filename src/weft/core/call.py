"""The callable face of a row: one closure per arity, quick for plain tensors."""

from functools import lru_cache
from typing import Any

from .backends import BACKENDS, KERNELS, PYTHON_SCALARS
from .call_several import (
    casting_caller,
    general_caller,
    is_plain,
    plain_caller,
    record_result,
    several_caller,
)
from .dispatch import (
    above,
    apply,
    apply_cast,
    beside_bfloat16,
    cast_ground,
    is_uncast,
    promote_pair,
    ready_arrays,
)
from .dtypes import bfloat16, float32, float64
from .node import Severed
from .op import Caller, Op
from .recording import (
    inexact,
    mark_of,
    record_node,
    saved_flags,
    sever,
    values_to_save,
)
from .settings import CASTING, GENERAL, RECORD, current
from .share import LENT, lend
from .value import GROUND, HIGHER, RESULT

_settings = current.get
_new = object.__new__
_REAL_SCALARS = frozenset((float, int))
# NumPy compares a Python float with these in their own dtype; half types are widened.
_FLOATS = frozenset((float32, float64))


# Python scalars as 0-d arrays by (value, dtype): NumPy takes twice as long over a scalar.
_POINTS: dict[tuple, Any] = {}


def _point(value, cls: type, dtype):
    """The scalar as a 0-d array where that is faster; zero is not cached: 0.0 == -0.0 as keys.

    None for an integer that the dtype does not hold: the general path refuses or converts it.
    """
    try:
        point = BACKENDS[cls].point(value, dtype)
    except OverflowError:
        return None
    if point is None:
        return value
    if value:
        if len(_POINTS) > 4096:
            _POINTS.clear()
        _POINTS[value, dtype] = point
    return point


@lru_cache(maxsize=None)
def caller(op: Op, public: bool = False) -> Caller:
    """The function that applies `op`.

    The form for rules (`public=False`) maps raw arrays to raw arrays; the public form always
    returns tensors.
    """
    if op.arity is None:
        call = _variadic(op, public)
    elif op.arity == 3 and op.outputs == 1 and not op.static and op.rule is not None:
        call = _ternary(op, public)
    elif op.outputs > 1:
        call = several_caller(op, public)
    elif op.name == "cast" or (op.arity == 1 and not op.promote and not _is_general(op)):
        call = _shape_caller(op, public)
    elif not _is_general(op) and not op.static and not _keeps_two(op):
        call = (_unary if op.arity == 1 else _binary)(op, public)
    elif is_plain(op):
        call = plain_caller(op, public)
    else:
        call = (_comparison_caller if op.arity == 2 else general_caller)(op, public)
    call.__name__ = call.__qualname__ = op.name
    call.op = op  # type: ignore[union-attr,attr-defined]
    return call  # type: ignore[return-value]  # with `op` a Caller


def _is_general(op: Op) -> bool:
    """Whether a row is none of those with a closure for their number of arguments."""
    return (op.arity or 0) > 2 or op.rule is None or op.recast


def _keeps_two(op: Op) -> bool:
    return op.arity == 2 and getattr(op.rule, "keep", None) is not None


above.caller = caller


def _variadic(op: Op, public: bool):
    """A sequence of arrays, then static parameters."""
    kernels, higher, result = KERNELS[op], HIGHER, RESULT
    lends, uncast = op.views in LENT, is_uncast(op)

    def call(args, *static):
        if not public and args and args[0].__class__ in kernels:
            if not any([a.__class__ in higher for a in args]):
                return kernels[args[0].__class__](args, *static)
        settings = _settings()
        way = settings.way_uncast if uncast else settings.way
        raws, cls = ready_arrays(op, args) if way < GENERAL else ([], None)
        if cls is None:
            return apply(op, tuple(args), static, public)
        try:
            z = kernels[cls](raws, *static)
        except Exception:
            return apply(op, tuple(args), static, public)  # converts, or explains
        t = _new(result[0])
        t._share = None
        t._data = z if z.__class__ is cls else BACKENDS[cls].whole(z)
        t._node = None
        if lends and raws and len(raws) == 1 and BACKENDS[cls].lies_in(z, raws[0]):
            lend(args[0], t)
        if way is RECORD:
            parents = tuple([a._node for a in args])
            if parents.count(None) != len(parents):
                record_result(op, t, parents, raws, static)
        return t

    return call


def _comparison_caller(op: Op, public: bool):
    """Two arguments without a derivative, as comparisons have."""
    kernels, ground, higher, result = KERNELS[op], GROUND, HIGHER, RESULT
    alike = op.rule is None and op.outputs == 1 and not op.floating and op.promote == (0, 1)
    alike = alike and is_uncast(op)

    def call(x, y, *static):
        cx = x.__class__
        if cx in ground:
            if alike and _settings().way_uncast is not GENERAL:
                a, b = x._data, y._data if y.__class__ in ground else y
                cls = a.__class__
                real = b.__class__ is float and a.dtype in _FLOATS
                if real or (b.__class__ is cls and b.dtype is a.dtype):
                    try:
                        z = kernels[cls](a, b, *static)
                    except Exception:
                        return apply(op, (x, y), static, public)  # converts, or explains
                    t = _new(result[0])
                    t._share = None
                    t._data = z if z.__class__ is cls else BACKENDS[cls].whole(z)
                    t._node = None
                    return t
        elif not public and cx in kernels and y.__class__ not in higher:
            if y.__class__ is float and getattr(x, "dtype", None) is bfloat16:
                x, y = beside_bfloat16(op, (x, y))
            return kernels[cx](x, y, *static)
        return apply(op, (x, y), static, public)

    return call


def _ternary(op: Op, public: bool):  # noqa: C901  (the hot path is written out)
    """Three tensors, as `where` takes; other arguments take the general path."""
    kernels, ground, higher, result = KERNELS[op], GROUND, HIGHER, RESULT
    general = general_caller(op, public)
    promoted = op.promote or (0,)
    one, *others = promoted
    another, third = others[0] if others else one, promoted[-1]
    all_of_them = saved_flags(op, (True, True, True))
    keep, uncast = getattr(op.rule, "keep", None), is_uncast(op)
    cast_call = casting_caller(op)

    def call(x, y, z, *static):  # noqa: C901
        if x.__class__ in ground and y.__class__ in ground and z.__class__ in ground:
            settings = _settings()
            way = settings.way_uncast if uncast else settings.way
            if way is CASTING:
                t = cast_call((x, y, z), static, settings) if cast_call else None
                if t is not None:
                    return t
                ready = cast_ground(op, (x, y, z), settings)
                if ready is None:
                    return apply_cast(op, (x, y, z), static, public, settings, call)
                x, y, z = ready
                way = settings.way_uncast
            raws = (x._data, y._data, z._data)
            cls = raws[0].__class__
            dtype = raws[one].dtype
            alike = raws[1].__class__ is cls and raws[2].__class__ is cls
            alike = alike and dtype is raws[another].dtype and dtype is raws[third].dtype
            if alike and way is not GENERAL and not keep:
                try:
                    out = kernels[cls](*raws, *static)
                except Exception:
                    return general(x, y, z, *static)  # converts, or explains
                if out.__class__ is cls and out.dtype is dtype:
                    t = _new(result[0])
                    t._share = None
                    t._data = out
                    t._node = None
                    if way is RECORD:
                        parents = (x._node, y._node, z._node)
                        if parents != _NONE:
                            saved = _saved_of(parents, (out, *raws), all_of_them)
                            if saved is None:
                                record_result(op, t, parents, raws, static)
                            else:
                                t._node = record_node(op, out, parents, saved, static)
                    return t
        elif not public and x.__class__ in kernels:
            if y.__class__ not in higher and z.__class__ not in higher:
                if y.__class__ is float or z.__class__ is float:
                    x, y, z = beside_bfloat16(op, (x, y, z))
                return kernels[x.__class__](x, y, z, *static)
        return general(x, y, z, *static)

    return call


_NONE = (None, None, None)


def _saved_of(parents, values, flags) -> tuple | None:
    """What is saved if all parents are recorded; None if one is not, or is marked `Severed`."""
    for p in parents:
        if p is None or p.__class__ is Severed:
            return None
    return tuple([v if f else None for v, f in zip(values, flags)])  # noqa: B905


def _shape_caller(op: Op, public: bool):  # noqa: C901  (the hot path is written out)
    """One tensor of any dtype, then static parameters."""
    kernels, ground, result = KERNELS[op], GROUND, RESULT
    special = getattr(op.rule, "keep", None) is not None
    keep_y, keep_x = saved_flags(op, (True,))
    lends, copies = op.views in LENT, op.views == "sometimes"
    points = op.name != "slice_"  # one element of an array is a copy
    recast, uncast = op.recast, is_uncast(op)

    def call(x, *static):  # noqa: C901  (the hot path is written out)
        cls = x.__class__
        if cls in ground:
            settings = _settings()
            way = settings.way_uncast if uncast else settings.way
            if way >= GENERAL:
                ready = cast_ground(op, (x,), settings) if way is CASTING else None
                if ready is None:
                    return apply(op, (x,), static, public)
                (x,), way = ready, settings.way_uncast
            a = x._data
            cls = a.__class__
            try:
                z = kernels[cls](a, *static)
            except Exception:
                return apply(op, (x,), static, public)  # converts, or explains
            if z.__class__ is not cls:
                z = BACKENDS[cls].whole(z)
            t = _new(result[0])
            t._data = z
            if lends and (BACKENDS[cls].lies_in(z, a) if copies else points or z.shape):
                s = x._share
                if s is None:
                    s = []
                    x._share = (s,)
                elif s.__class__ is tuple:
                    s = s[0]
                t._share = s
            else:
                t._share = None
            p = x._node
            if p is None or (recast and not inexact(z)):
                t._node = None
            elif p.__class__ is Severed:
                t._node = mark_of(op, (p,), z)
            elif way is RECORD:
                if special:
                    saved = values_to_save(op, (p,), z, (a,), static)
                else:
                    saved = (z if keep_y else None, a if keep_x else None)
                t._node = record_node(op, z, (p,), saved, static)
            else:
                t._node = None
            return t
        if not public and cls in kernels:
            return kernels[cls](x, *static)
        return apply(op, (x,), static, public)

    return call


def _unary(op: Op, public: bool):  # noqa: C901  (the hot path is written out)
    """One tensor and nothing else."""
    kernels, ground, result = KERNELS[op], GROUND, RESULT
    keep = getattr(op.rule, "keep", None)
    keep_y, keep_x = (False, False) if keep else saved_flags(op, (True,))
    nothing = None if keep or keep_y or keep_x else (None, None)
    uncast = is_uncast(op)

    def call(x):  # noqa: C901
        cls = x.__class__
        if cls in ground:
            settings = _settings()
            way = settings.way_uncast if uncast else settings.way
            if way >= GENERAL:
                if way is GENERAL:
                    return apply(op, (x,), (), public)
                ready = cast_ground(op, (x,), settings)
                if ready is None:
                    return apply_cast(op, (x,), (), public, settings, call)
                (x,), way = ready, settings.way_uncast
            a = x._data
            cls = a.__class__
            try:
                z = kernels[cls](a)
            except Exception:
                return apply(op, (x,), (), public)  # converts, or explains
            if z.__class__ is not cls:
                z = BACKENDS[cls].whole(z)
            if z.dtype is a.dtype:
                t = _new(result[0])
                t._share = None
                t._data = z
                p = x._node
                if p is None or p.__class__ is Severed:
                    t._node = p and mark_of(op, (p,), z)
                elif way is RECORD:
                    saved = nothing or (
                        keep(z, a) if keep else (z if keep_y else None, a if keep_x else None)
                    )
                    t._node = record_node(op, z, (p,), saved, ())
                else:
                    t._node = None
                return t
        elif not public and cls in kernels:
            return kernels[cls](x)
        return apply(op, (x,), (), public)

    return call


def _binary(op: Op, public: bool):  # noqa: C901  (the hot path is written out)
    """Two tensors, or a tensor and a Python scalar."""
    kernels, ground, result = KERNELS[op], GROUND, RESULT
    points = _POINTS
    both = saved_flags(op, (True, True))
    left, right = saved_flags(op, (True, False)), saved_flags(op, (False, True))
    nothing = None if any(both) else _NONE
    uncast, promotes = is_uncast(op), op.promote is None or {0, 1} <= {*op.promote}
    cast_call = casting_caller(op)

    def call(x, y):  # noqa: C901
        cx, cy, mixed = x.__class__, y.__class__, False
        if cx in ground:
            a, p = x._data, x._node
            cls, dtype = a.__class__, a.dtype
            if cy in ground:
                b, q = y._data, y._node
                fits = b.__class__ is cls
                if fits and b.dtype is not dtype:
                    fits, mixed = False, promotes
            else:
                fits = cy in _REAL_SCALARS
                b, q = y, None
                if fits:
                    b = points.get((y, dtype))
                    if b is None:
                        b = _point(y, cls, dtype)
                        fits = b is not None
        elif cy in ground:
            b, q = y._data, y._node
            cls, dtype = b.__class__, b.dtype
            fits = cx in _REAL_SCALARS
            a, p = x, None
            if fits:
                a = points.get((x, dtype))
                if a is None:
                    a = _point(x, cls, dtype)
                    fits = a is not None
        elif not public and cx in kernels and (cy is cx or cy in PYTHON_SCALARS):
            if cy is float and getattr(x, "dtype", None) is bfloat16:
                x, y = beside_bfloat16(op, (x, y))
            return kernels[cx](x, y)
        else:
            return apply(op, (x, y), (), public)
        settings = _settings()
        way = settings.way_uncast if uncast else settings.way
        if way is CASTING:
            t = cast_call((x, y), (), settings) if cast_call else None
            if t is not None:
                return t
            ready = cast_ground(op, (x, y), settings) if cx in ground and cy in ground else None
            if ready is None:
                return apply_cast(op, (x, y), (), public, settings, call)
            x, y = ready
            way, a, b, p, q = settings.way_uncast, x._data, y._data, x._node, y._node
            cls, dtype = a.__class__, a.dtype
            fits, mixed = b.__class__ is cls and b.dtype is dtype, False
        if fits and way is not GENERAL:
            try:
                z = kernels[cls](a, b)
            except Exception:
                return apply(op, (x, y), (), public)  # converts, or explains
            if z.__class__ is not cls:
                z = BACKENDS[cls].whole(z)
            if z.dtype is dtype:
                t = _new(result[0])
                t._share = None
                t._data = z
                mark = None
                if p.__class__ is Severed or q.__class__ is Severed:
                    mark = mark_of(op, (p, q), z)
                    p = None if p.__class__ is Severed else p
                    q = None if q.__class__ is Severed else q
                if p is None:
                    if q is None:
                        t._node = mark
                        return t
                    ky, ka, kb = right
                else:
                    ky, ka, kb = left if q is None else both
                if way is RECORD:
                    saved = nothing or (z if ky else None, a if ka else None, b if kb else None)
                    t._node = record_node(op, z, (p, q), saved, ())
                    if mark is not None:
                        sever(t._node, mark)
                else:
                    t._node = None
                return t
        elif mixed and way is not GENERAL:
            pair = promote_pair(x, y)
            if pair is not None:
                return call(*pair)
        return apply(op, (x, y), (), public)

    return call
