"""Losses of logits or log-probabilities beside classes, under PyTorch's names and arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ... import errors
from ...arrays.arguments import as_tensor, boxed_beside
from ...backend.device import as_numpy
from ...core import dtypes
from ...core.autocast import SINGLE, computed_in
from ...core.box import BOXED
from ...core.settings import current
from ...core.value import as_seen_by_trace
from ...ops.alignments import ctc
from ...ops.along import take_along_axis
from ...ops.crossentropy import cross_entropy as _by_class
from ...ops.crossentropy import soft_cross_entropy as _by_distribution
from ...ops.elementwise import clip, where
from ...ops.index import take
from ...ops.logic import equal, greater, isinf, less, logical_or, not_equal
from ...ops.nll import mean_nll
from ...ops.positions import index_like, within
from ...ops.reduce import log_softmax
from ...ops.structural import broadcast_to, cast, concat, permute, reshape, stack, sum_
from .losses import reduce_losses

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, Reduction


@computed_in(SINGLE)
def cross_entropy(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """−log softmax(x)[class] for logits x, without the logarithms being stored.

    input            logits (N, C, …) or (C,)
    target           classes (N, …), or probabilities of the logits' shape
    weight           one number for each class; a mean is then divided by the sum of the
                     targets' weights
    ignore_index     a class whose targets do not count; a mean over no target is 0, without
                     gradient
    reduction        "mean" over the targets that count (probabilities: over N and the axes
                     after C), "sum", or "none"
    label_smoothing  the share of a target that is spread evenly over all classes

    The logits are kept, and two numbers for each line of them; the backward pass makes their
    gradient once, a chunk of lines at a time.

    >>> import weft as wf
    >>> round(wf.nn.functional.cross_entropy([[0.0, 0.0], [100.0, 0.0]], [1, 0]).item(), 4)
    0.3466
    """
    x = _classes_last("cross_entropy", as_tensor(input))
    t = boxed_beside(x, target)
    _check_smoothing(label_smoothing, reduction)
    if weight is not None:
        weight = _class_weights("cross_entropy", x, weight)
    if dtypes.is_inexact(t.dtype):
        if ignore_index >= 0:
            raise errors.ArgumentError(
                f"cross_entropy: ignore_index={ignore_index} with probabilities as targets, which "
                "name no class; give them weight 0 instead"
            )
        return _of_probabilities(x, t, as_tensor(input).shape, weight, reduction, label_smoothing)
    _check_classes("cross_entropy", x, t)
    if reduction == "mean" and weight is None and not label_smoothing and _is_small(x):
        return mean_nll(log_softmax(x, 1), t, ignore_index)[0]
    counts = not_equal(t, ignore_index)
    classes = where(counts, t, 0)
    loss = _smooth_losses(x, classes, weight, label_smoothing)
    share = None if weight is None else take(weight, classes, 0)
    return _over_counted("cross_entropy", loss, share, counts, reduction)


# Logits whose logarithms may be stored on a GPU: there calls cost more than they do.
_SMALL = 1 << 20


def _is_small(x) -> bool:
    """Whether PyTorch's own kernels, which store the logarithms, are the quicker ones."""
    if x.ndim != 2 or x.device == "cpu" or current.get().staging is not None:
        return False
    return x.size <= _SMALL and x.dtype not in dtypes.HALF and dtypes.is_inexact(x.dtype)


def _wide(x):
    return dtypes.accumulator(x.dtype if dtypes.is_inexact(x.dtype) else dtypes.default_float())


def _smooth_losses(x, classes, weight, smoothing: float):
    """The loss of each line."""
    if weight is None:
        return _by_class(x, classes, float(smoothing), _wide(x))[0]
    loss = _by_class(x, classes, 0.0, _wide(x))[0] * take(weight, classes, 0)
    if not smoothing:
        return loss
    spread = _by_distribution(x, weight * (smoothing / x.shape[-1]), _wide(x))[0]
    return loss * (1 - smoothing) + spread


def softmax_cross_entropy(
    logits: ArrayLike, labels: ArrayLike, reduction: Reduction = "mean"
) -> Tensor:
    """−log softmax(x)[class]: `cross_entropy` under TensorFlow's name.

    logits     x (N, C, …) or (C,)
    labels     classes, or probabilities of each
    reduction  "mean", "sum" or "none"

    >>> import weft as wf
    >>> round(wf.nn.functional.softmax_cross_entropy(wf.zeros((1, 4)), [2]).exp().item(), 4)
    4.0
    """
    return cross_entropy(logits, labels, reduction=reduction)


def _of_probabilities(x, q, shape, weight, reduction: str, smoothing: float):
    if q.shape != shape:
        raise errors.ShapeError(
            f"cross_entropy: logits {shape} and probabilities {q.shape}; expected one shape, or "
            "integers as classes"
        )
    q = _classes_last("cross_entropy", q)
    if smoothing:
        q = q * (1 - smoothing) + smoothing / x.shape[-1]
    if weight is not None:
        q = q * weight
    loss = _by_distribution(x, q, _wide(x))[0]
    return reduce_losses("cross_entropy", loss, reduction)


def _check_smoothing(smoothing: float, reduction: str) -> None:
    if not 0 <= smoothing <= 1:
        raise errors.ArgumentError(
            f"cross_entropy: label_smoothing={smoothing}, expected a share from 0 to 1"
        )
    if reduction not in ("none", "mean", "sum"):
        raise errors.ArgumentError(
            f"cross_entropy: reduction={reduction!r}, expected 'none', 'mean' or 'sum'"
        )


def _classes_last(name: str, x):
    """(N, C, …) as (N, …, C)."""
    if not x.ndim:
        raise errors.ShapeError(f"{name}: input of shape (); expected (N, C, …) or (C,)")
    return x if x.ndim < 3 else permute(x, (0, *range(2, x.ndim), 1))


def _class_weights(name: str, x, weight):
    weight = boxed_beside(x, weight)
    if weight.shape != x.shape[-1:]:
        raise errors.ShapeError(
            f"{name}: weight of shape {weight.shape}, expected {x.shape[-1:]}, one for each class"
        )
    return weight if weight.dtype == x.dtype else cast(weight, x.dtype)


def _check_classes(name: str, x, t) -> None:
    if t.dtype not in dtypes.SIGNED + dtypes.UNSIGNED:
        raise errors.DTypeError(f"{name}: targets of dtype {t.dtype}; expected integer classes")
    if t.shape != x.shape[:-1]:
        shape = x.shape if x.ndim < 3 else (x.shape[0], x.shape[-1], *x.shape[1:-1])
        raise errors.ShapeError(
            f"{name}: input {shape} and target {t.shape}; expected a target of {x.shape[:-1]}"
        )


def _over_counted(name: str, loss, share, counts, reduction: str):
    """The losses that are not ignored, reduced; the mean is weighted by their shares."""
    loss = where(counts, loss, 0.0)
    if reduction != "mean":
        return reduce_losses(name, loss, reduction)
    share = counts if share is None else where(counts, share, 0.0)
    if loss.dtype in dtypes.HALF:  # whose range sums over many lines exceed
        return cast(_mean_by(cast(loss, dtypes.float32), share), loss.dtype)
    return _mean_by(loss, share)


def _mean_by(loss, share):
    """Σ loss / Σ share; 0 for nothing."""
    axes = tuple(range(loss.ndim))
    share = share if share.dtype == loss.dtype else cast(share, loss.dtype)
    total = sum_(share, axes, False)
    return sum_(loss, axes, False) / where(equal(total, 0), 1.0, total)


@computed_in(SINGLE)
def nll_loss(
    input: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    """−x[class] for log-probabilities x.

    input         log-probabilities (N, C, …) or (C,)
    target        classes (N, …)
    weight        one number for each class; a mean is then divided by the sum of the targets'
                  weights
    ignore_index  a class whose targets do not count
    reduction     "mean" over the targets that count, "sum", or "none"

    >>> import weft as wf
    >>> wf.nn.functional.nll_loss([[-1.0, -2.0], [-3.0, -4.0]], [0, 1]).item()
    2.5
    """
    x = _classes_last("nll_loss", as_tensor(input))
    t = boxed_beside(x, target)
    _check_classes("nll_loss", x, t)
    counts = not_equal(t, ignore_index)
    classes = where(counts, t, 0)
    loss = -reshape(_at_classes(x, classes), t.shape)
    share = None
    if weight is not None:
        share = take(_class_weights("nll_loss", x, weight), classes, 0)
        loss = loss * share
    return _over_counted("nll_loss", loss, share, counts, reduction)


def _at_classes(x, classes):
    """The element of each line at its class; classes out of range are refused."""
    n, classes = x.shape[-1], cast(classes, dtypes.int64)
    message = f"nll_loss: classes from {{low}} to {{high}}; expected 0 to {n - 1}, or ignore_index"
    if current.get().staging is not None:
        i = within(classes, 0, n, message)
        return take_along_axis(x, reshape(i, (*i.shape, 1)), x.ndim - 1)
    # Negative classes, which take_along_axis counts from the end, are moved out of range.
    i = where(logical_or(less(classes, 0), greater(classes, n - 1)), n, classes)
    try:
        return take_along_axis(x, reshape(i, (*i.shape, 1)), x.ndim - 1)
    except errors.IndexingError:
        if classes.__class__ in BOXED:
            raise
        found = message.format(low=int(classes.min()), high=int(classes.max()))
        raise errors.IndexingError(found) from None


@computed_in(SINGLE)
def ctc_loss(
    log_probs: ArrayLike,
    targets: ArrayLike,
    input_lengths: ArrayLike,
    target_lengths: ArrayLike,
    blank: int = 0,
    reduction: Reduction = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """−log of the probability of label sequences, over all alignments (Graves et al. 2006).

    log_probs       (T, N, C), or (T, C) for one sequence
    targets         labels (N, L), padded with anything, or all one after the other
    input_lengths   how many frames of each sequence count
    target_lengths  how many labels each has
    blank           the class that stands between labels
    reduction       "mean" divides each loss by its number of labels first; "sum" or "none"
    zero_infinity   whether sequences that are too short for their labels have loss 0 in place
                    of ∞

    Where a loss is ∞ its gradient is 0.

    >>> import weft as wf
    >>> frames = wf.log(wf.full((2, 1, 2), 0.5))
    >>> loss = wf.nn.functional.ctc_loss(frames, [[1]], [2], [1])
    >>> round(loss.exp().item(), 4)
    1.3333
    """
    x = as_tensor(log_probs)
    alone = x.ndim == 2
    if x.ndim not in (2, 3):
        raise errors.ShapeError(f"ctc_loss: log_probs of shape {x.shape}; expected (T, N, C)")
    if not 0 <= blank < x.shape[-1]:
        raise errors.ArgumentError(
            f"ctc_loss: blank {blank} of {x.shape[-1]} classes; expected 0 to {x.shape[-1] - 1}"
        )
    x = reshape(x, (1, *x.shape)) if alone else permute(x, (1, 0, 2))
    frames, counts = (_lengths(x, v) for v in (input_lengths, target_lengths))
    labels = _pad_labels(x, boxed_beside(x, targets), counts)
    _check_lengths(x, frames, counts, labels)
    known = less(index_like(x, np.arange(labels.shape[1])), reshape(counts, (x.shape[0], 1)))
    labels = where(known, labels, blank)
    states = _with_blanks(labels, blank)
    loss = ctc(x, states, frames, counts, int(blank))
    if zero_infinity:
        loss = where(isinf(loss), 0.0, loss)
    if reduction == "mean":
        loss = loss / cast(clip(counts, 1, None), loss.dtype)
    return reduce_losses("ctc_loss", reshape(loss, ()) if alone else loss, reduction)


def _lengths(x, value):
    value = boxed_beside(x, value)
    return reshape(cast(value, dtypes.int64), (value.size,))


def _pad_labels(x, labels, counts):
    """Labels as (N, L)."""
    if labels.dtype not in dtypes.SIGNED + dtypes.UNSIGNED:
        raise errors.DTypeError(f"ctc_loss: targets of dtype {labels.dtype}; expected integers")
    labels = cast(labels, dtypes.int64)
    if labels.ndim == 2:
        return labels
    if x.shape[0] == 1:
        return reshape(labels, (1, labels.size))
    counts = as_seen_by_trace(counts)
    if counts.__class__ in BOXED or labels.__class__ in BOXED:
        raise errors.ShapeError(
            f"ctc_loss: targets of shape {labels.shape} inside a transformation; give (N, L)"
        )
    lengths = as_numpy(counts._data)
    if labels.ndim != 1 or lengths.sum() != labels.shape[0] or len(lengths) != x.shape[0]:
        raise errors.ShapeError(
            f"ctc_loss: targets of shape {labels.shape} and {len(lengths)} target_lengths with "
            f"the sum {lengths.sum()}; expected (N, L), or (sum of the lengths,)"
        )
    table = np.zeros((len(lengths), int(lengths.max(initial=0))), np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = as_numpy(labels._data)
    return index_like(x, table)


def _check_lengths(x, frames, counts, labels) -> None:
    n, steps, classes = x.shape
    if frames.shape != (n,) or counts.shape != (n,) or labels.shape[0] != n:
        raise errors.ShapeError(
            f"ctc_loss: {n} sequences, {frames.shape[0]} input_lengths, {counts.shape[0]} "
            f"target_lengths, {labels.shape[0]} targets; expected as many of each"
        )
    frames, counts, labels = map(as_seen_by_trace, (frames, counts, labels))
    if any(v.__class__ in BOXED for v in (frames, counts, labels)):
        return
    frames, counts, labels = (as_numpy(v._data) for v in (frames, counts, labels))
    if n and not (0 < frames.min() and frames.max() <= steps):
        raise errors.ArgumentError(
            f"ctc_loss: input_lengths from {frames.min()} to {frames.max()}; expected 1 to {steps}"
        )
    if n and not (0 <= counts.min() and counts.max() <= labels.shape[1]):
        raise errors.ArgumentError(
            f"ctc_loss: target_lengths from {counts.min()} to {counts.max()}; expected 0 to "
            f"{labels.shape[1]}"
        )
    used = labels[np.arange(labels.shape[1]) < counts[:, None]]
    if used.size and not (0 <= used.min() and used.max() < classes):
        raise errors.ArgumentError(
            f"ctc_loss: labels from {used.min()} to {used.max()}; expected 0 to {classes - 1}"
        )


def _with_blanks(labels, blank: int):
    """A blank before, between and after the labels of each line."""
    n, count = labels.shape
    pairs = reshape(stack([labels * 0 + blank, labels], 2), (n, 2 * count))
    last = broadcast_to(index_like(labels, np.full((1, 1), blank)), (n, 1))
    return concat([pairs, last], 1)
