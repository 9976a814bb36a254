"""`vmap`: a function of one element as a function of a batch."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from ... import errors
from ...arrays.keywords import checks_keywords
from ...arrays.manipulation import moveaxis
from ...arrays.tensor import Tensor
from ...core.box import Level, Tag, refuse_inner
from ...core.settings import current, override_settings
from ...core.value import wrap
from ...ops.batching import spread
from . import trees
from .batch import Batch, batch_in_front
from .dual import to_tensor, unwrap_if_plain

P = ParamSpec("P")
R = TypeVar("R")


@checks_keywords
def vmap(f: Callable[P, R], in_axes: Any = 0, out_axes: Any = 0) -> Callable[P, R]:
    """f over a batch: each argument's axis `in_axes` is taken away, and put into the results.

    f         a function of tensors, or of trees of them
    in_axes   an axis for all arguments, or one for each: an int, None (the same for the whole
              batch), or a tree of these that matches the argument
    out_axes  where the batch axis goes in the results; None: the result does not depend on it

    There is no loop: every operation runs once, on the whole batch.

    >>> import weft as wf
    >>> wf.vmap(wf.grad(lambda x: x**2))(wf.tensor([1.0, 2.0])).tolist()
    [2.0, 4.0]
    """

    run: Callable[..., Any] = f

    @wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        axes = in_axes if isinstance(in_axes, list | tuple) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise errors.ArgumentError(
                f"vmap: {len(axes)} in_axes for {len(args)} positional arguments"
            )
        sizes: dict[int, str] = {}
        fronted = [
            trees.map_prefix(lambda a, x: _move_to_front(a, x, sizes), axis, arg)
            for axis, arg in zip(axes, args, strict=True)
        ]
        keywords = trees.map_prefix(lambda a, x: _move_to_front(a, x, sizes), 0, kwargs)
        size = _one_size(sizes)
        with Tag("vmap") as tag:
            fronted = trees.map_prefix(lambda _, x: _box(tag, x, size), None, fronted)
            keywords = trees.map_prefix(lambda _, x: _box(tag, x, size), None, keywords)
            with override_settings(levels=(*current.get().levels, Level(Batch, tag, size))):
                out = run(*fronted, **keywords)
            return _gather(out, out_axes, tag, size)

    return mapped


class _Mapped:
    """An argument with its batch axis in front."""

    __slots__ = ("x",)

    def __init__(self, x: Tensor):
        self.x = x


def _move_to_front(axis, x, sizes: dict):
    if axis is None:
        return x
    x = trees.tensor("vmap", x)
    if not x.shape:
        raise errors.AxisError("vmap: a 0-d argument has no axis to map over; give it in_axes=None")
    if not -x.ndim <= axis < x.ndim:
        raise errors.AxisError(
            f"vmap: in_axes={axis} for an argument of shape {x.shape}; take one of its "
            f"{x.ndim} axes, or None for an argument that is not mapped"
        )
    sizes.setdefault(x.shape[axis], str(x.shape))
    return _Mapped(x if axis in (0, -x.ndim) else moveaxis(x, axis, 0))


def _one_size(sizes: dict) -> int:
    if not sizes:
        raise errors.ArgumentError("vmap: no argument is mapped; give one of them an axis")
    if len(sizes) > 1:
        got = " and ".join(f"{n} (of {shape})" for n, shape in sizes.items())
        raise errors.ShapeError(
            f"vmap: mapped axes of different lengths: {got}; choose other in_axes, None for an "
            "argument that is not mapped"
        )
    return next(iter(sizes))


def _box(tag: float, x, size: int):
    return wrap(batch_in_front(tag, x.x, size)) if x.__class__ is _Mapped else x


def _gather(out, out_axes, tag: float, size: int):
    def one(axis, y):
        y = trees.tensor("vmap", y)
        refuse_inner("vmap", y, tag)
        raw = y._data
        at_level = raw.__class__ is Batch and raw.level == tag
        value = to_tensor(raw.data) if at_level else y
        is_mapped = at_level and raw.mapped
        if axis is None:
            if is_mapped:
                raise errors.ArgumentError(
                    "vmap: out_axes=None for a result that differs over the batch; give it an axis"
                )
            return value
        value = value if is_mapped else to_tensor(spread(unwrap_if_plain(value), size))
        if not -value.ndim <= axis < value.ndim:
            raise errors.AxisError(
                f"vmap: out_axes={axis} for a result of shape {value.shape}, the batch in front"
            )
        return value if axis == 0 else moveaxis(value, 0, axis)

    trees.refuse_none("vmap", out)
    return trees.map_prefix(one, out_axes, out)
