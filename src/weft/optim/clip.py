"""Limiting gradients in place: by their common norm, by value, or relative to the parameters.

Gradients come as a `GradientMap`, as parameters (or a module) whose `.grad` is meant, or as a list
of gradients or of (id, parameter, gradient) triples, whose items are replaced.
"""

from collections.abc import Callable, Iterable
from math import inf, isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .. import errors
from ..arrays.make import asarray
from ..arrays.parameter import Parameter
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.box import BOXED
from ..core.kinds import demand_iterable, demand_number
from ..core.numbers import plain
from ..core.record import record
from ..core.settings import current
from ..core.value import TENSORS, as_seen_by_trace, wrap
from ..ops.elementwise import clip, maximum, sqrt, where
from ..ops.structural import cast, sum_
from ..transform.modes.gradient_map import GradientMap
from . import staged
from .norms import array_norm, global_norm

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..nn.module import Module

_G = TypeVar("_G", bound="Clipped")
# A container of gradients to be changed in place: a map, a list, parameters, or a module.
Clipped: TypeAlias = "GradientMap | Module | list[Any] | Iterable[Tensor | tuple[str, Tensor]]"


@record
class HeldGradient:
    """A gradient, the parameter it belongs to (if that is known), and how to replace it."""

    name: str
    grad: "Tensor"
    param: "Tensor | None"
    replace: Callable[["Tensor"], object]


def clip_grad_norm(
    grads: Clipped, max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False
) -> float:
    """Scale gradients so that their common norm is at most `max_norm`; returns what it was.

    grads               a `GradientMap`, a list of gradients, whose items are replaced, or
                        parameters, whose `.grad` is meant
    max_norm            the largest norm
    norm_type           its exponent
    error_if_nonfinite  whether a norm that is not finite is an error

    A norm that is not finite is returned, and the gradients stay as they are: scaling would
    spread one NaN to all of them. In a function that is being compiled the norm is a tensor, and
    so it is for gradients on a GPU, for which nothing waits until it is read: `float(norm)`.

    >>> import weft as wf
    >>> p = wf.Parameter([3.0, 4.0])
    >>> grads = (p * p).sum().backward()
    >>> wf.optim.clip_grad_norm(grads, 1.0)
    10.0
    >>> [round(x, 4) for x in grads[p].tolist()]
    [0.6, 0.8]
    """
    check_limit("clip_grad_norm", "max_norm", max_norm)
    demand_number("clip_grad_norm: norm_type", norm_type)
    held = gather_gradients("clip_grad_norm", grads)
    if current.get().staging is not None:
        return staged.stage_clip_norm(held, max_norm, plain(norm_type), error_if_nonfinite)
    total = global_norm([h.grad for h in held], norm_type)
    if error_if_nonfinite and not isfinite(total):
        raise errors.AnomalyError(_culprits(held, total, norm_type))
    _limit(held, max_norm, total)
    return total


def clip_grads_with_norm(grads: Clipped, max_norm: float, total_norm: "float | Tensor") -> None:
    """Scale gradients by max_norm/total_norm if that is below 1.

    grads       a `GradientMap`, a list of gradients, whose items are replaced, or parameters,
                whose `.grad` is meant
    max_norm    the largest norm
    total_norm  the norm they have, as `global_norm` or `GradScaler.unscale` returns it

    >>> import weft as wf
    >>> grads = [wf.tensor([3.0, 4.0])]
    >>> wf.optim.clip_grads_with_norm(grads, 1.0, 5.0)
    >>> [round(x, 4) for x in grads[0].tolist()]
    [0.6, 0.8]
    """
    check_limit("clip_grads_with_norm", "max_norm", max_norm)
    demand_number("clip_grads_with_norm: total_norm", total_norm)
    if current.get().staging is not None:
        held = gather_gradients("clip_grads_with_norm", grads)
        staged.limit(held, max_norm, asarray(total_norm, dtype=dtypes.float64))
        return
    _limit(gather_gradients("clip_grads_with_norm", grads), max_norm, total_norm)


def _limit(held: list[HeldGradient], max_norm: float, total: Any) -> None:
    there = type(total) in TENSORS and total.device != "cpu"
    if there and all([h.grad.device == total.device for h in held]):
        raw = total._data
        multiply(held, BACKENDS[type(raw)].limiting_factor(raw, max_norm))
        return
    total = float(total)
    if isfinite(total) and total > max_norm:
        multiply(held, max_norm / total)


def multiply(held: list[HeldGradient], factor: Any) -> list[Any]:
    """Multiply gradients by a number, or by a raw 0-d array on their device; the new arrays."""
    made, elsewhere = [], {}
    for h in held:
        if h.grad.device == "cpu":
            made.append(_scale(h.grad, factor)._data)
            h.replace(wrap(made[-1]))
        else:
            elsewhere.setdefault(h.grad.device, []).append(h)
    for there in elsewhere.values():
        arrays = [as_seen_by_trace(h.grad)._data for h in there]
        products = BACKENDS[type(arrays[0])].multiples(arrays, factor)
        for h, product in zip(there, products, strict=True):
            h.replace(wrap(product))
        made += products
    return made


def clip_grad_value(grads: Clipped, clip_value: float) -> None:
    """Limit every element of the gradients to [−clip_value, clip_value].

    grads       a `GradientMap`, a list of gradients, whose items are replaced, or parameters,
                whose `.grad` is meant
    clip_value  the largest size of an element

    >>> import weft as wf
    >>> grads = [wf.tensor([3.0, -0.5])]
    >>> wf.optim.clip_grad_value(grads, 1.0)
    >>> grads[0].tolist()
    [1.0, -0.5]
    """
    check_limit("clip_grad_value", "clip_value", clip_value)
    clip_value = plain(clip_value)
    for h in gather_gradients("clip_grad_value", grads):
        if dtypes.is_complex(h.grad.dtype):
            raise errors.DTypeError(
                f"clip_grad_value: {h.name} is {h.grad.dtype}, which has no order; clip by norm"
            )
        h.replace(wrap(clip(as_seen_by_trace(h.grad)._data, -clip_value, clip_value)))


def clip_grad_adaptive(
    grads: Clipped,
    clip_factor: float = 0.01,
    eps: float = 1e-3,
    *,
    params: "Iterable[Tensor] | None" = None,
) -> None:
    """Limit each unit's gradient to `clip_factor` times its weights' norm (Brock et al., 2021).

    grads        a `GradientMap`, a list of gradients, whose items are replaced, or parameters,
                 whose `.grad` is meant
    clip_factor  the largest ratio of the norms
    eps          the least that the norm of weights counts as
    params       the parameters, in the order of a map or a list of gradients

    A unit is one index of the first axis; vectors are one unit.

    >>> import weft as wf
    >>> p, grads = wf.Parameter([3.0, 4.0]), [wf.tensor([30.0, 40.0])]
    >>> wf.optim.clip_grad_adaptive(grads, 0.1, params=[p])
    >>> [round(x, 4) for x in grads[0].tolist()]
    [0.3, 0.4]
    """
    check_limit("clip_grad_adaptive", "clip_factor", clip_factor)
    demand_number("clip_grad_adaptive: eps", eps)
    clip_factor, eps = plain(clip_factor), plain(eps)
    if params is not None:
        demand_iterable("clip_grad_adaptive: params", params, "a list of parameters")
        params = list(params)
        if any([type(p) not in TENSORS for p in params]):
            raise errors.DTypeError("clip_grad_adaptive: params has what is no tensor")
    held = gather_gradients("clip_grad_adaptive", grads, params)
    for h in held:
        if h.param is None:
            raise errors.ArgumentError("clip_grad_adaptive: which parameters? Give params=")
        grad = as_seen_by_trace(h.grad)._data
        with BACKENDS[type(grad)].quiet():
            length = _unit_norms(grad)
            limit = maximum(_unit_norms(as_seen_by_trace(h.param)._data), eps) * clip_factor
            # Not where the length is NaN or infinite: such a gradient stays as it is.
            scale = where((length > limit) & (length < inf), limit / length, 1.0)
            h.replace(_scale(h.grad, scale))


class GradientClipper:
    """Clips by norm, and remembers the norm.

    max_norm  the largest norm

    >>> import weft as wf
    >>> clipper = wf.optim.GradientClipper(1.0)
    >>> clipper.clip_grads([wf.tensor([3.0, 4.0])])[0].tolist(), clipper.total_norm
    ([0.6..., 0.8...], 5.0)
    """

    def __init__(self, max_norm: float):
        check_limit("GradientClipper", "max_norm", max_norm)
        self.max_norm = max_norm
        self.total_norm: float | None = None

    def clip_grads(self, grads: _G) -> _G:
        """Clip gradients where they are held; returns what was given.

        grads  a `GradientMap`, a list of gradients, whose items are replaced, or parameters, whose
               `.grad` is meant

        >>> import weft as wf
        >>> (g,) = wf.optim.GradientClipper(1.0).clip_grads([wf.tensor([0.0, 4.0])])
        >>> g.tolist()
        [0.0, 1.0]
        """
        self.total_norm = clip_grad_norm(grads, self.max_norm)
        return grads


def _scale(g, factor):
    raw = as_seen_by_trace(g)._data
    scaled = raw * factor
    return wrap(scaled if scaled.dtype == raw.dtype else cast(scaled, g.dtype))


def _unit_norms(raw):
    """The norm of each index of the first axis, kept as an axis; of a vector, of all of it."""
    size = abs(cast(raw, dtypes.accumulator(BACKENDS[type(raw)].dtype_of(raw))))
    axes = tuple(range(1, raw.ndim)) if raw.ndim > 1 else tuple(range(raw.ndim))
    return sqrt(sum_(size * size, axes, True))


def check_limit(what: str, name: str, value: float) -> None:
    """Raise unless the value is a number ≥ 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise errors.DTypeError(f"{what}: {name} is a {type(value).__name__}, expected a number")
    if not float(value) >= 0:
        raise errors.ArgumentError(f"{what}: {name}={value}, expected a number ≥ 0")


def _culprits(held: list[HeldGradient], total: float, norm_type: float) -> str:
    bad = [h.name for h in held if not isfinite(array_norm(h.grad._data, norm_type))]
    return (
        f"clip_grad_norm: the norm is {total}; not finite: {', '.join(bad[:10]) or 'their sum'}; "
        "find the operation with wf.detect_anomaly()"
    )


# Reading gradients


def gather_gradients(
    what: str, grads: Any, params: "Iterable[Tensor] | None" = None
) -> list[HeldGradient]:
    """The gradients of any accepted container, each with a function that replaces it."""
    if isinstance(grads, GradientMap):
        held = _of_map(grads, params)
    elif hasattr(grads, "named_parameters"):
        held = [_of_parameter(str(n), p) for n, p in grads.named_parameters()]
    elif type(grads) in TENSORS or not isinstance(grads, Iterable):
        raise errors.DTypeError(
            f"{what}: got a {type(grads).__name__}, expected a GradientMap, a list of gradients, "
            "of parameters or of (id, parameter, gradient) triples, or a module"
        )
    else:
        held = _of_items(what, grads, list(params or ()))
    held = [h for h in held if h.grad is not None]
    for h in held:
        if type(h.grad) not in TENSORS or (h.grad.__class__ in BOXED and not h.grad._data.staged):
            raise errors.DTypeError(
                f"{what}: {h.name} is a {type(h.grad).__name__}, expected a plain tensor"
            )
    return held


def _of_map(grads: GradientMap, params) -> list[HeldGradient]:
    def replacing(key):
        return lambda g: grads.insert(key, g)

    owners = {p.id: p for p in params or ()}
    return [HeldGradient(f"id {k}", g, owners.get(k), replacing(k)) for k, g in grads.items()]


def _of_parameter(name: str, p) -> HeldGradient:
    return HeldGradient(name, p.grad, p, lambda g: setattr(p, "grad", g))


def _is_parameter(item) -> bool:
    """Whether an item is a parameter (frozen ones too), whose `.grad` is meant."""
    return type(item) is Parameter or (
        type(item) in TENSORS and item.requires_grad and item.is_leaf
    )


def _of_items(what: str, grads, params: list) -> list[HeldGradient]:
    items = list(grads)
    held = []
    for i, item in enumerate(items):
        if _is_parameter(item):
            held.append(_of_parameter(str(i), item))
        elif isinstance(item, tuple) and item and isinstance(item[0], str) and len(item) == 2:
            held.append(_of_parameter(*item))
        elif not isinstance(grads, list):
            raise errors.DTypeError(
                f"{what}: gradients in a {type(grads).__name__} cannot be replaced; give a list"
            )
        else:
            held.append(_read_item(grads, i, params))
    return held


def _read_item(grads: list, i: int, params: list) -> HeldGradient:
    """The gradient at index i of a list, which may be the last of a pair or triple."""
    item = grads[i]
    if not isinstance(item, tuple):
        owner = params[i] if i < len(params) else None
        return HeldGradient(str(i), item, owner, lambda g: grads.__setitem__(i, g))
    *rest, owner, g = item

    def replace(new):
        grads[i] = (*rest, owner, new)

    return HeldGradient(str(rest[0] if rest else i), g, owner, replace)
