"""Losses of predictions beside targets, under PyTorch's names and arguments.

`reduction` is "mean", "sum" or "none". Input and target must have one shape, unless the target is
a number: what broadcasting would make of (N, 1) and (N,) is hardly ever meant.
"""

from __future__ import annotations

from math import log, pi
from typing import TYPE_CHECKING, Literal

from ... import errors
from ...arrays.arguments import as_tensor, boxed_beside
from ...core.autocast import SINGLE, computed_in
from ...core.aval import broadcast
from ...ops import activate
from ...ops.complex_ import abs_
from ...ops.elementwise import clip, exp, minimum, square, where
from ...ops.elementwise import log as _log
from ...ops.elementwise import sqrt as _sqrt
from ...ops.logic import equal, greater, not_equal
from ...ops.reduce import mean as _mean
from ...ops.special import xlogy
from ...ops.structural import sum_
from .distances import pairwise_distance

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, Reduction


def reduce_losses(name: str, loss: Tensor, reduction: str) -> Tensor:
    """The losses' mean or sum, or all of them."""
    if reduction == "none":
        return loss
    axes = tuple(range(loss.ndim))
    if reduction == "sum":
        return sum_(loss, axes, False)
    if reduction == "mean":
        return _mean(loss, axes, False)
    raise errors.ArgumentError(f"{name}: reduction={reduction!r}, expected 'none', 'mean' or 'sum'")


def _pair(name: str, input, target):
    """Input and target as tensors of one shape; a number as the target stands for all."""
    x = as_tensor(input)
    t = boxed_beside(x, target)
    if t.ndim and t.shape != x.shape:
        raise errors.ShapeError(
            f"{name}: input {x.shape} and target {t.shape} differ; reshape one of them"
        )
    return x, t


def _times_weights(name: str, loss, weight):
    """Losses times weights of the same shape."""
    weight = boxed_beside(loss, weight)
    if weight.shape != loss.shape:
        raise errors.ShapeError(
            f"{name}: weight {weight.shape} for losses of shape {loss.shape}; expected a weight "
            "for each loss"
        )
    return loss * weight


def _weighted_mean(name: str, loss, weight, reduction: str):
    """Losses times weights; their mean is divided by the sum of the weights."""
    if weight is None:
        return reduce_losses(name, loss, reduction)
    loss = _times_weights(name, loss, weight)
    if reduction != "mean":
        return reduce_losses(name, loss, reduction)
    # As means: in half precision the sums could overflow.
    return reduce_losses(name, loss, "mean") / reduce_losses(
        name, boxed_beside(loss, weight), "mean"
    )


@computed_in(SINGLE)
def mse_loss(
    input: ArrayLike,
    target: ArrayLike,
    reduction: Reduction = "mean",
    weight: ArrayLike | None = None,
) -> Tensor:
    """The squared error (x − t)².

    input      x
    target     t, of its shape
    reduction  "mean" over all losses, "sum", or "none" for each
    weight     what each loss is multiplied by; broadcasts. The mean is still over their number

    >>> import weft as wf
    >>> wf.nn.functional.mse_loss([1.0, 3.0], [0.0, 0.0]).item()
    5.0
    """
    x, t = _pair("mse_loss", input, target)
    return _weighted_mean("mse_loss", square(x - t), weight, reduction)


@computed_in(SINGLE)
def l1_loss(
    input: ArrayLike,
    target: ArrayLike,
    reduction: Reduction = "mean",
    weight: ArrayLike | None = None,
) -> Tensor:
    """The absolute error |x − t|; its derivative at 0 is 0.

    input      x
    target     t, of its shape
    reduction  "mean" over all losses, "sum", or "none" for each
    weight     what each loss is multiplied by; broadcasts. The mean is still over their number

    >>> import weft as wf
    >>> wf.nn.functional.l1_loss([1.0, 3.0], [0.0, 0.0]).item()
    2.0
    """
    x, t = _pair("l1_loss", input, target)
    return _weighted_mean("l1_loss", abs_(x - t), weight, reduction)


@computed_in(SINGLE)
def huber_loss(
    input: ArrayLike,
    target: ArrayLike,
    reduction: Reduction = "mean",
    delta: float = 1.0,
    weight: ArrayLike | None = None,
) -> Tensor:
    """(x − t)²/2 where |x − t| ≤ delta, else delta·(|x − t| − delta/2).

    input      x
    target     t, of its shape
    reduction  "mean" over all losses, "sum", or "none" for each
    delta      where the square ends
    weight     what each loss is multiplied by; broadcasts. The mean is still over their number

    >>> import weft as wf
    >>> wf.nn.functional.huber_loss([1.0, 3.0], [0.0, 0.0], reduction="none").tolist()
    [0.5, 2.5]
    """
    if not delta > 0:
        raise errors.ArgumentError(f"huber_loss: delta={delta}, expected a positive number")
    x, t = _pair("huber_loss", input, target)
    loss = _huber(x - t, float(delta))
    loss = loss if weight is None else _times_weights("huber_loss", loss, weight)
    return reduce_losses("huber_loss", loss, reduction)


def _huber(d, delta: float):
    """With c, d limited to ±delta, both branches are c·(d − c/2)."""
    c = clip(d, -delta, delta)
    return c * (d - 0.5 * c)


@computed_in(SINGLE)
def smooth_l1_loss(
    input: ArrayLike, target: ArrayLike, reduction: Reduction = "mean", beta: float = 1.0
) -> Tensor:
    """(x − t)²/(2·beta) where |x − t| < beta, else |x − t| − beta/2: the Huber loss over beta.

    input      x
    target     t, of its shape
    reduction  "mean" over all losses, "sum", or "none" for each
    beta       where the square ends; 0 gives |x − t|

    >>> import weft as wf
    >>> wf.nn.functional.smooth_l1_loss([1.0, 3.0], [0.0, 0.0], beta=2.0, reduction="none").tolist()
    [0.25, 2.0]
    """
    if beta < 0:
        raise errors.ArgumentError(f"smooth_l1_loss: beta={beta}, expected 0 or more")
    x, t = _pair("smooth_l1_loss", input, target)
    loss = _huber(x - t, float(beta)) / beta if beta else abs_(x - t)
    return reduce_losses("smooth_l1_loss", loss, reduction)


@computed_in(SINGLE)
def binary_cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """−t·log p − (1 − t)·log(1 − p) for probabilities p; logarithms end at −100.

    input      p, from 0 to 1
    target     t, from 0 to 1
    weight     what each loss is multiplied by; broadcasts
    reduction  "mean" over all losses, "sum", or "none" for each

    Where a logarithm ends the loss is flat, and so is its gradient.
    `binary_cross_entropy_with_logits` has no such end.

    >>> import weft as wf
    >>> round(wf.nn.functional.binary_cross_entropy([0.5, 0.5], [1.0, 0.0]).item(), 4)
    0.6931
    """
    p, t = _pair("binary_cross_entropy", input, target)
    near, far = clip(_log_quietly(p), -100.0, None), clip(_log_quietly(1 - p), -100.0, None)
    return _mean_of_weighted("binary_cross_entropy", -(t * near + (1 - t) * far), weight, reduction)


def _log_quietly(p):
    """log(p), for p = 0 by way of a number that is not: NumPy would warn."""
    nothing = equal(p, 0)
    return where(nothing, -1000.0, _log(where(nothing, 1.0, p)))


def _mean_of_weighted(name: str, loss, weight, reduction: str):
    """Losses times weights that broadcast; the mean is over the number of losses."""
    if weight is not None:
        loss = loss * boxed_beside(loss, weight)
    return reduce_losses(name, loss, reduction)


@computed_in(SINGLE)
def binary_cross_entropy_with_logits(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    reduction: Reduction = "mean",
    pos_weight: ArrayLike | None = None,
) -> Tensor:
    """Binary cross-entropy of σ(x), without overflow: (1 − t)·x + log(1 + e⁻ˣ).

    input       x, any numbers
    target      t, from 0 to 1
    weight      what each loss is multiplied by; broadcasts
    reduction   "mean" over all losses, "sum", or "none" for each
    pos_weight  what the losses of t = 1 are multiplied by; broadcasts

    >>> import weft as wf
    >>> loss = wf.nn.functional.binary_cross_entropy_with_logits([0.0, 0.0], [1.0, 0.0])
    >>> round(loss.item(), 4)
    0.6931
    """
    name = "binary_cross_entropy_with_logits"
    x, t = _pair(name, input, target)
    if pos_weight is None:
        loss = (1 - t) * x + activate.softplus(-x)
    else:
        share = 1 + (boxed_beside(x, pos_weight) - 1) * t
        loss = (1 - t) * x + share * activate.softplus(-x)
    return _mean_of_weighted(name, loss, weight, reduction)


@computed_in(SINGLE)
def kl_div(
    input: ArrayLike,
    target: ArrayLike,
    reduction: Reduction | Literal["batchmean"] = "mean",
    log_target: bool = False,
) -> Tensor:
    """t·(log t − x) for log-probabilities x, where 0·log 0 = 0.

    input       x, log-probabilities
    target      t, probabilities
    reduction   "mean" over all elements, "batchmean", the divergence itself, over the first
                axis, "sum" or "none"
    log_target  whether the target is given as log t

    >>> import weft as wf
    >>> p = wf.tensor([[0.5, 0.5]])
    >>> wf.nn.functional.kl_div(wf.log(p), p).item()
    0.0
    """
    x, t = _pair("kl_div", input, target)
    share = exp(t) if log_target else t
    impossible = equal(share, 0)  # whatever its log-probability, which may be −∞
    x = where(impossible, 0.0, x)
    if log_target:
        loss = share * (where(impossible, 0.0, t) - x)
    else:
        loss = xlogy(t, t) - t * x
    if reduction != "batchmean":
        return reduce_losses("kl_div", loss, reduction)
    return reduce_losses("kl_div", loss, "sum") / (loss.shape[0] if loss.ndim else 1)


@computed_in(SINGLE)
def hinge_loss(
    input: ArrayLike, target: ArrayLike, margin: float = 1.0, reduction: Reduction = "mean"
) -> Tensor:
    """max(0, margin − t·x) for t = ±1.

    input      x
    target     t, 1 or −1
    margin     from which t·x on there is no loss
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.functional.hinge_loss([0.5, 0.5], [1.0, -1.0], reduction="none").tolist()
    [0.5, 1.5]
    """
    x, t = _pair("hinge_loss", input, target)
    return reduce_losses("hinge_loss", clip(margin - t * x, 0.0, None), reduction)


@computed_in(SINGLE)
def hinge_embedding_loss(
    input: ArrayLike, target: ArrayLike, margin: float = 1.0, reduction: Reduction = "mean"
) -> Tensor:
    """x where t = 1, max(0, margin − x) where t = −1.

    input      x, distances
    target     t, 1 or −1
    margin     the distance from which on different things cost nothing
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.functional.hinge_embedding_loss([0.25, 0.25], [1.0, -1.0], reduction="none").tolist()
    [0.25, 0.75]
    """
    x, t = _pair("hinge_embedding_loss", input, target)
    apart = where(not_equal(t, 1), clip(margin - x, 0.0, None), 0.0)
    loss = where(not_equal(t, -1), x, 0.0) + apart
    return reduce_losses("hinge_embedding_loss", loss, reduction)


@computed_in(SINGLE)
def soft_margin_loss(input: ArrayLike, target: ArrayLike, reduction: Reduction = "mean") -> Tensor:
    """log(1 + exp(−t·x)) for t = ±1.

    input      x
    target     t, 1 or −1
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> round(wf.nn.functional.soft_margin_loss([0.0], [1.0]).item(), 4)
    0.6931
    """
    x, t = _pair("soft_margin_loss", input, target)
    return reduce_losses("soft_margin_loss", activate.softplus(-(t * x)), reduction)


@computed_in(SINGLE)
def margin_ranking_loss(
    input1: ArrayLike,
    input2: ArrayLike,
    target: ArrayLike,
    margin: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """max(0, margin − t·(x₁ − x₂)) for t = ±1: t = 1 where x₁ should be the larger.

    input1, input2  x₁ and x₂
    target          t, 1 or −1
    margin          by how much it should be larger
    reduction       "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.functional.margin_ranking_loss([1.0], [3.0], [1.0]).item()
    2.0
    """
    a, b = _pair("margin_ranking_loss", input1, input2)
    _, t = _pair("margin_ranking_loss", a, target)
    return reduce_losses("margin_ranking_loss", clip(margin - t * (a - b), 0.0, None), reduction)


@computed_in(SINGLE)
def cosine_embedding_loss(
    input1: ArrayLike,
    input2: ArrayLike,
    target: ArrayLike,
    margin: float = 0.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """1 − cos(x₁, x₂) where t = 1, max(0, cos(x₁, x₂) − margin) where t = −1.

    input1, input2  x₁ and x₂: (N, D), or (D,)
    target          t, 1 or −1: (N,), or a number
    margin          the cosine up to which different things cost nothing
    reduction       "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.functional.cosine_embedding_loss([[1.0, 0.0]], [[0.0, 2.0]], [1.0]).item()
    1.0
    """
    a, b = _pair("cosine_embedding_loss", input1, input2)
    t = boxed_beside(a, target)
    if a.ndim not in (1, 2) or t.shape != a.shape[:-1]:
        raise errors.ShapeError(
            f"cosine_embedding_loss: inputs {a.shape} and target {t.shape}; expected (N, D) and "
            "(N,), or (D,) and ()"
        )
    along, tiny = (a.ndim - 1,), 1e-12
    inner = sum_(a * b, along, False)
    sizes = (sum_(a * a, along, False) + tiny) * (sum_(b * b, along, False) + tiny)
    cos = inner / _sqrt(sizes)
    loss = where(equal(t, 1), 1 - cos, 0.0)
    loss = loss + where(equal(t, -1), clip(cos - margin, 0.0, None), 0.0)
    return reduce_losses("cosine_embedding_loss", loss, reduction)


@computed_in(SINGLE)
def triplet_margin_loss(
    anchor: ArrayLike,
    positive: ArrayLike,
    negative: ArrayLike,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) − d(anchor, negative) + margin).

    anchor, positive, negative  (N, D) or (D,)
    margin                      by how much the negative should be further away
    p                           the exponent of the distance d
    eps                         what is added to differences, so that their norm is
                                differentiable
    swap                        where the positive is nearer to the negative than the anchor is,
                                that distance counts
    reduction                   "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> a, p, n = [[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 2.0]]
    >>> round(wf.nn.functional.triplet_margin_loss(a, p, n).item(), 4)
    4.0
    """
    if not margin > 0:
        raise errors.ArgumentError(f"triplet_margin_loss: margin={margin}, expected more than 0")
    near = pairwise_distance(anchor, positive, p, eps)
    far = pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduce_losses("triplet_margin_loss", clip(near - far + margin, 0.0, None), reduction)


@computed_in(SINGLE)
def poisson_nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: Reduction = "mean",
) -> Tensor:
    """−log of the Poisson probability of t, up to log t!: exp(x) − t·x.

    input      x, the logarithm of the rate
    target     t, counts
    log_input  False: x is the rate itself, and the loss x − t·log(x + eps)
    full       whether Stirling's approximation of log t! is added where t > 1
    eps        what is added to a rate
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.functional.poisson_nll_loss([0.0], [3.0]).item()
    1.0
    """
    x, t = _pair("poisson_nll_loss", input, target)
    loss = exp(x) - t * x if log_input else x - t * _log(x + eps)
    if full:
        many = greater(t, 1)
        large = where(many, t, 1.0)
        stirling = large * _log(large) - large + 0.5 * _log(2 * pi * large)
        loss = loss + where(many, stirling, 0.0)
    return reduce_losses("poisson_nll_loss", loss, reduction)


@computed_in(SINGLE)
def gaussian_nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    var: ArrayLike,
    full: bool = False,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> Tensor:
    """(log v + (x − t)²/v)/2 for the variance v: −log of the normal density, up to log(2π)/2.

    input      x, the expected values
    target     t
    var        v, which broadcasts to the input; the last axis may be left out
    full       whether log(2π)/2 is added
    eps        the least that v counts as; its gradient passes this limit
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.functional.gaussian_nll_loss([1.0], [3.0], [1.0]).item()
    2.0
    """
    x, t = _pair("gaussian_nll_loss", input, target)
    v = boxed_beside(x, var)
    if v.ndim and v.shape == x.shape[:-1] and v.shape != x.shape:
        v = v.reshape((*v.shape, 1))
    if v.ndim not in (0, x.ndim) or broadcast("gaussian_nll_loss", v.shape, x.shape) != x.shape:
        raise errors.ShapeError(
            f"gaussian_nll_loss: var {v.shape} for an input of shape {x.shape}; expected one that "
            "broadcasts to it, or one number for each line of it"
        )
    v = v + (clip(v, float(eps), None) - v).detach()
    loss = 0.5 * (_log(v) + square(x - t) / v)
    if full:
        loss = loss + 0.5 * log(2 * pi)
    return reduce_losses("gaussian_nll_loss", loss, reduction)
