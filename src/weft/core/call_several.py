"""Callers of rows with several arguments or several results, quick for plain tensors."""

from collections.abc import Callable, Sequence
from typing import Any

from .backends import BACKENDS, KERNELS
from .dispatch import apply, apply_cast, as_whole, beside_bfloat16, is_uncast, ready_arrays
from .dtypes import bfloat16
from .node import Severed
from .op import Caller, Op
from .recording import (
    Marks,
    inexact,
    mark_of,
    record_node,
    record_outputs,
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


def plain_caller(op: Op, public: bool) -> Callable[..., Any]:
    """One result of tensors that need no conversion, then static parameters."""
    arity, kernels, ground, result = op.arity, KERNELS[op], GROUND, RESULT
    general, uncast = general_caller(op, public), is_uncast(op)

    def call(*args):
        if args[0].__class__ not in ground:
            return general(*args)
        settings = _settings()
        way = settings.way_uncast if uncast else settings.way
        if way is CASTING:
            return apply_cast(op, args[:arity], args[arity:], public, settings, call)
        raws, cls = ready_arrays(op, args[:arity]) if way is not GENERAL else ((), None)
        if cls is None:
            return general(*args)
        static = args[arity:]
        try:
            z = kernels[cls](*raws, *static)
        except Exception:
            return general(*args)  # converts, or explains
        t = _new(result[0])
        t._share = t._node = None
        t._data = z if z.__class__ is cls else as_whole(z, cls)
        parents = tuple([a._node if a.__class__ in ground else None for a in args[:arity]])
        if parents.count(None) != arity and inexact(t._data):
            if way is RECORD:
                record_result(op, t, parents, raws, static)
            else:
                t._node = mark_of(op, parents, t._data)
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
        settings = _settings()
        way = settings.way_uncast if uncast else settings.way
        if way is CASTING:
            return apply_cast(op, args[:arity], args[arity:], public, settings, call)
        raws, cls = ready_arrays(op, args[:arity]) if way is not GENERAL else ((), None)
        if cls is None:
            return general(*args)
        static = args[arity:]
        try:
            zs = kernels[cls](*raws, *static)
        except Exception:
            return general(*args)  # explains
        parents = tuple([a._node if a.__class__ in ground else None for a in args[:arity]])
        recorded = parents.count(None) != arity
        if recorded and (way is not RECORD or _marked(parents)):
            return general(*args)
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
