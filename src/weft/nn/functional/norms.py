"""Normalisations, under PyTorch's names and arguments."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ... import errors
from ...arrays.arguments import as_tensor
from ...arrays.inplace import copy_
from ...core import dtypes
from ...core.autocast import ANY, computed_in
from ...core.aval import integer_in
from ...core.box import BOXES
from ...core.call_several import first_recorded
from ...core.settings import current, exactly
from ...core.value import GROUND, TENSORS, wrap
from ...ops.activate import scale_shift
from ...ops.elementwise import maximum, rsqrt
from ...ops.layernorm import layer_norm as _layer_norm
from ...ops.native_norm import native_norm, native_rms_norm
from ...ops.normalise import root_mean_square, standardise
from ...ops.reduce import mean as _mean
from ...ops.structural import cast, reshape
from ...transform.checkpoint.replayed import replaying
from ...transform.modes.backward import no_grad
from ...transform.modes.batch import Batch
from .batch_statistics import (
    follow_by_kernel,
    is_native,
    normed_and_followed,
    normed_by_kernel,
)

if TYPE_CHECKING:
    import numpy as np

    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, PerAxis


# Statistics are only looked at.
_normed, _rms_normed = first_recorded(native_norm), first_recorded(native_rms_norm)


def layer_norm(
    input: ArrayLike,
    normalized_shape: PerAxis,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean)/√(variance + eps)·weight + bias over the last axes, of shape `normalized_shape`.

    input             an array
    normalized_shape  the lengths of the axes that are averaged over, or one number
    weight, bias      of that shape; None: 1 and 0
    eps               what is added to the variance, which is divided by n

    Keeps the normalised values and one number for each set that was averaged; on a GPU the input
    and two numbers.

    >>> import weft as wf
    >>> wf.nn.functional.layer_norm([[1.0, 3.0]], 2, eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    x = as_tensor(input)
    shape = _trailing("layer_norm", x, normalized_shape)
    if weight is not None and bias is not None:
        w, b = as_tensor(weight), as_tensor(bias)
        dtype = _computed_in(x, "layer_norm")
        if w._data.shape == b._data.shape == shape and w.dtype == b.dtype == dtype:
            wide = dtypes.accumulator(dtype)
            if not is_native(x):
                return _layer_norm(x, w, b, float(eps), wide)[0]
            axes = tuple(range(x.ndim - len(shape), x.ndim))
            return _normed(x, w, b, axes, float(eps), wide)[0]
    y = standardise(x, tuple(range(x.ndim - len(shape), x.ndim)), float(eps), _wide(x))[0]
    return _affine("layer_norm", y, shape, weight, bias)


def rms_norm(
    input: ArrayLike,
    normalized_shape: PerAxis,
    weight: ArrayLike | None = None,
    eps: float | None = None,
) -> Tensor:
    """x/√(mean(x²) + eps)·weight over the last axes, of shape `normalized_shape`.

    input             an array
    normalized_shape  the lengths of the axes that are averaged over, or one number
    weight            of that shape; None: 1
    eps               None is the rounding unit, for half types that of float32

    >>> import weft as wf
    >>> wf.nn.functional.rms_norm([[3.0, 3.0, 3.0, -3.0]], 4, eps=0.0).tolist()
    [[1.0, 1.0, 1.0, -1.0]]
    """
    x = as_tensor(input)
    shape = _trailing("rms_norm", x, normalized_shape)
    if eps is None:
        eps = _unit(_wide(x))
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    if weight is not None and is_native(x):
        w, dtype = as_tensor(weight), _computed_in(x, "native_rms_norm")
        if w.shape == shape and w.dtype == dtype:
            return _rms_normed(x, w, axes, float(eps), dtypes.accumulator(dtype))[0]
    y = root_mean_square(x, axes, float(eps), _wide(x))[0]
    return _affine("rms_norm", y, shape, weight, None)


def _computed_in(x, row: str) -> np.dtype:
    """The dtype that norms of x are computed in: under autocast not its own."""
    autocast = current.get().autocast
    if autocast is None or x.dtype not in dtypes.HALF:
        return x.dtype
    return autocast.dtype_for(row, "single") or x.dtype


def _native_norm(x, shape, weight, bias, weights, axes, eps: float):
    """(y, mean, rate) of x as an array of this shape, by one kernel; None where there is none.

    weights  the shape in which the weight and the bias broadcast to that one
    """
    if weight is None or bias is None or not is_native(x):
        return None
    w, b, dtype = as_tensor(weight), as_tensor(bias), _computed_in(x, "native_norm")
    size, wide = prod(weights), dtypes.accumulator(dtype)
    if w.dtype != b.dtype or w.dtype not in (dtype, wide) or {w.shape, b.shape} != {(size,)}:
        return None
    same = x.shape == shape
    given = x if same else reshape(x, shape), reshape(w, weights), reshape(b, weights)
    y, *statistics = _normed(*given, axes, float(eps), wide)
    return y if same else reshape(y, x.shape), *statistics


def _wide(x):
    """The dtype of statistics: of half types float32, as their squares leave float16's range."""
    return dtypes.accumulator(x.dtype if dtypes.is_inexact(x.dtype) else dtypes.default_float())


def _unit(dtype) -> float:
    from ml_dtypes import finfo

    return float(finfo(dtype).eps)


def _trailing(name: str, x, shape) -> tuple[int, ...]:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or x.shape[len(x.shape) - len(shape) :] != shape:
        raise errors.ShapeError(
            f"{name}: normalized_shape {shape}, expected the lengths of the last axes of the "
            f"input, which is {x.shape}"
        )
    return shape


def _affine(name: str, y, shape, weight, bias):
    """y·weight + bias, each of this shape or of one that broadcasts like it."""
    weight, bias = (_fitting(name, y, shape, v) for v in (weight, bias))
    if weight is None:
        return y if bias is None else y + bias
    return y * weight if bias is None else scale_shift(y, weight, bias)


def _fitting(name: str, y, shape, v):
    if v is None:
        return None
    v = as_tensor(v)
    if v.size != prod(shape) or v.ndim > len(shape):
        shown = tuple(n for n in shape if n != 1) or shape
        raise errors.ShapeError(
            f"{name}: a weight or bias of shape {v.shape}, expected {shown}, one number for each "
            "element or channel that is normalised"
        )
    v = v if v.dtype == y.dtype else cast(v, y.dtype)
    return v if v.shape == shape else reshape(v, shape)


def _channels(name: str, x) -> int:
    shape = x.shape
    if len(shape) < 2:
        raise errors.ShapeError(f"{name}: input of shape {shape}; expected (N, C, …)")
    return shape[1]


def group_norm(
    input: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean)/√(variance + eps)·weight + bias for each group of channels of (N, C, …).

    input         (N, C, …)
    num_groups    how many groups the channels are divided into
    weight, bias  one number for each channel; None: 1 and 0
    eps           what is added to the variance

    >>> import weft as wf
    >>> wf.nn.functional.group_norm([[1.0, 3.0, 2.0, 6.0]], 2, eps=0.0).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """
    x = as_tensor(input)
    c = _channels("group_norm", x)
    num_groups = int(integer_in("group_norm", "num_groups", num_groups))
    if num_groups < 1 or c % num_groups:
        raise errors.ArgumentError(
            f"group_norm: {c} channels in {num_groups} groups; num_groups must divide {c}"
        )
    each, size = c // num_groups, prod(x.shape[2:])
    shape, weights = (x.shape[0], num_groups, each, size), (num_groups, each, 1)
    found = _native_norm(x, shape, weight, bias, weights, (2, 3), eps)
    if found is not None:
        return found[0]
    grouped = reshape(x, (x.shape[0], num_groups, size * each))
    y = reshape(standardise(grouped, (2,), float(eps), _wide(x))[0], x.shape)
    return _affine("group_norm", y, (c, *(1,) * (x.ndim - 2)), weight, bias)


def batch_norm(
    input: ArrayLike,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean)/√(variance + eps)·weight + bias for each channel of (N, C, …).

    input                      (N, C) or (N, C, …)
    running_mean, running_var  the running statistics of each channel, or None
    weight, bias               one number for each channel; None: 1 and 0
    training                   whether the statistics are those of the batch, over all axes but
                               the channels
    momentum                   the share of the batch in the running statistics, which change in
                               place
    eps                        what is added to the variance

    In training the variance is Σ(x − mean)²/n; the running one takes Σ(x − mean)²/(n − 1). The
    result has the input's dtype, under autocast too. A checkpoint that runs this again does not
    count the statistics again.

    >>> import weft as wf
    >>> x = wf.tensor([[1.0], [3.0]])
    >>> wf.nn.functional.batch_norm(x, None, None, training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    x = as_tensor(input)
    if training:
        running = running_mean, running_var
        done = normed_and_followed(x, running, weight, bias, momentum, float(eps))
        if done is not None:
            return done
    c = _channels("batch_norm", x)
    if not training:
        wide = (c, *(1,) * (x.ndim - 2))
        return _by_running("batch_norm", x, wide, running_mean, running_var, weight, bias, eps)
    count = x.size // c if c else 0
    if count == 1:
        raise errors.ShapeError(
            f"batch_norm: input of shape {x.shape} has one value for each channel, which has no "
            "variance; give more, or pass training=False. Where it is the rest of an epoch, or a "
            "rank's part of that, DataLoader(drop_last=True) leaves it out"
        )
    if not count:  # nothing has no statistics
        return _affine("batch_norm", x, (c, *(1,) * (x.ndim - 2)), weight, bias)
    y, mean, variance, rate = _by_batch(x, weight, bias, float(eps))
    if rate is not None and follow_by_kernel(
        x, (running_mean, running_var), mean, rate, momentum, float(eps)
    ):
        return y
    with no_grad(), exactly():
        variance = _variance(rate, float(eps)) if variance is None else variance
        _follow("batch_norm", running_mean, reshape(mean, (c,)), momentum)
        unbiased = reshape(variance, (c,)) * (count / (count - 1))
        _follow("batch_norm", running_var, unbiased, momentum)
    return y


@computed_in(ANY, "batch_norm")
def _by_batch(x, weight, bias, eps: float):
    """x normalised for each channel, in its own dtype, the mean, and the variance or the rate.

    Of half types, nothing is rounded before the end if the weight or the bias is wider.
    """
    found = normed_by_kernel(x, weight, bias, eps)
    if found is not None:
        y, mean, rate = found
        return y, mean, None, rate
    c, own, axes = x.shape[1], x.dtype, (0, *range(2, x.ndim))
    weights = (c, *(1,) * (x.ndim - 2))
    wider = any([v is not None and as_tensor(v).dtype not in dtypes.HALF for v in (weight, bias)])
    wider = wider and own in dtypes.HALF
    given = cast(x, dtypes.float32) if wider else x
    y, mean, variance = standardise(given, axes, eps, _wide(x))
    y = _affine("batch_norm", y, weights, weight, bias)
    return cast(y, own) if wider else y, mean, variance, None


def _variance(rate, eps: float):
    """The variance that a reciprocal deviation is of, to some rounding errors of it + eps."""
    return maximum(rate**-2.0 - eps, 0.0)


def instance_norm(
    input: ArrayLike,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x − mean)/√(variance + eps)·weight + bias for each channel of each element of (N, C, …).

    input                      (N, C, …) or (C, …)
    running_mean, running_var  the running statistics of each channel, or None
    weight, bias               one number for each channel; None: 1 and 0
    use_input_stats            whether the statistics are the input's own, whose means over the
                               batch the running ones follow; else the running ones
    momentum                   the share of the batch in the running statistics, which change in
                               place
    eps                        what is added to the variance

    >>> import weft as wf
    >>> wf.nn.functional.instance_norm([[[1.0, 3.0], [2.0, 6.0]]], eps=0.0).tolist()
    [[[-1.0, 1.0], [-1.0, 1.0]]]
    """
    x = as_tensor(input)
    c = _channels("instance_norm", x)
    wide = (c, *(1,) * (x.ndim - 2))
    if not use_input_stats:
        return _by_running("instance_norm", x, wide, running_mean, running_var, weight, bias, eps)
    count = prod(x.shape[2:])
    if not x.size:  # nothing has no statistics
        return _affine("instance_norm", x, wide, weight, bias)
    if count == 1:
        raise errors.ShapeError(
            f"instance_norm: input of shape {x.shape} has one value for each channel, which has "
            "no variance; give more, or pass use_input_stats=False"
        )
    if running_mean is None and running_var is None:
        shape = (x.shape[0], c, 1, count)
        found = _native_norm(x, shape, weight, bias, (c, 1, 1), (2, 3), eps)
        if found is not None:
            return found[0]
    y, mean, variance = standardise(x, tuple(range(2, x.ndim)), float(eps), _wide(x))
    share = count / (count - 1)
    flat = (x.shape[0], c)
    _follow("instance_norm", running_mean, _mean(reshape(mean, flat), (0,), False), momentum)
    averaged = _mean(reshape(variance, flat), (0,), False) * share
    _follow("instance_norm", running_var, averaged, momentum)
    return _affine("instance_norm", y, wide, weight, bias)


def _by_running(name: str, x, wide, mean: Any, variance: Any, weight, bias, eps: float):
    """(x − mean)/√(variance + eps)·weight + bias in one pass over x."""
    if mean is None or variance is None:
        raise errors.ArgumentError(
            f"{name}: no running_mean and running_var to normalise by; give both, or normalise by "
            "the input's own statistics"
        )
    own = x.dtype
    # −mean·scale and x·scale may be large and nearly cancel: too much for half precision.
    x = cast(x, dtypes.float32) if own in dtypes.HALF else x
    mean, variance = _fitting(name, x, wide, mean), _fitting(name, x, wide, variance)
    scale = rsqrt(variance + float(eps))
    if weight is not None:
        scale = scale * _fitting(name, x, wide, weight)
    shift = -(mean * scale)
    if bias is not None:
        shift = shift + _fitting(name, x, wide, bias)
    y = scale_shift(x, scale, shift)
    return cast(y, own) if own in dtypes.HALF else y


def _follow(name: str, running: Tensor | None, value: Tensor, momentum: float | Tensor) -> None:
    """running ← (1 − momentum)·running + momentum·value, in place."""
    if running is None or replaying():
        return
    if type(running) not in TENSORS:
        raise errors.DTypeError(
            f"{name}: running statistics of type {type(running).__name__}, which cannot be "
            "changed in place; expected a tensor"
        )
    with no_grad():
        value = cast(_plain(name, value), running.dtype)
        before = _plain(name, running)
        # A transformation has wrapped the running statistic in a box or a node of its own.
        leaf = running.is_leaf and type(running) in GROUND
        shares: Any = (1 - momentum, momentum)
        if type(momentum) in TENSORS:
            shares = [cast(s, running.dtype) for s in shares]
        copy_(running if leaf else before, before * shares[0] + value * shares[1])


def _plain(name: str, x):
    """The value of a statistic, without its node and boxes."""
    while x._data.__class__ in BOXES and not x._data.staged:
        box = x._data
        if box.__class__ is Batch and box.mapped:
            raise errors.BatchingError(
                f"{name}: inside vmap the statistics differ over the batch, but the running ones "
                "are shared; leave the running ones out, or normalise by them"
            )
        x = box.inner if box.inner.__class__ in TENSORS else wrap(box.inner)
    return x.detach()
