"""Public special functions: `wf.special`, under SciPy's names."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Never

from .. import errors
from ..core.aval import integer_in
from ..core.op import TABLE
from ..ops import special as _special
from ..ops.structural import inverse as _inverse
from . import reductions
from .arguments import axes_of, boxed
from .elementwise import public as _public
from .keywords import unexpected_keyword
from .reductions import logsumexp
from .zeta import riemann as _riemann

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike, Axes

FUNCTIONS = {op.name: _public(op) for op in TABLE.values() if op.public == "special"}
globals().update(FUNCTIONS)
psi = FUNCTIONS["digamma"]
lgamma = FUNCTIONS["gammaln"]


def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """The n-th derivative of `digamma`; n is a nonnegative integer."""
    n = integer_in("polygamma", "n", n)
    if n < 0:
        raise errors.ArgumentError(f"polygamma: order {n}, expected 0 or more")
    return _special.polygamma(n, boxed(x))


def zeta(x: ArrayLike, q: ArrayLike | None = None, /) -> Tensor:
    """Hurwitz' Σ 1/(k + q)ˣ over k ≥ 0; Riemann's function, for all real x, if q is left out.

    >>> import weft as wf
    >>> round(wf.special.zeta(wf.tensor(2.0)).item(), 5)
    1.64493
    """
    return FUNCTIONS["zeta"](x, q) if q is not None else _riemann(boxed(x))


def softmax(x: ArrayLike, /, axis: Axes = None, **unknown: Never) -> Tensor:
    """exp(x) / Σ exp(x) over all elements, or over an axis or several."""
    if unknown:
        raise unexpected_keyword(softmax, unknown)
    return _normalised(x, axis, reductions.softmax)


def log_softmax(x: ArrayLike, /, axis: Axes = None, **unknown: Never) -> Tensor:
    """x − log Σ exp(x) over all elements, or over an axis or several."""
    if unknown:
        raise unexpected_keyword(log_softmax, unknown)
    return _normalised(x, axis, reductions.log_softmax)


def _normalised(x, axis, along):
    """`along` one axis; several are joined into one, and taken apart again."""
    x = boxed(x)
    if isinstance(axis, int):
        return along(x, axis)
    picked = axes_of(along.__name__, x, axis)
    order = (*[k for k in range(x.ndim) if k not in picked], *picked)
    turned = x.permute_dims(order)
    lead = turned.shape[: x.ndim - len(picked)]
    joined = turned.reshape((*lead, prod([x.shape[k] for k in picked])))
    return along(joined, -1).reshape(turned.shape).permute_dims(_inverse(order))


__all__ = [*sorted(FUNCTIONS), "lgamma", "log_softmax", "logsumexp", "polygamma", "psi", "softmax"]
