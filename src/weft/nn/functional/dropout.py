"""Dropout: elements or whole channels set to zero at random; a byte an element is kept."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

from ... import errors
from ...arrays.arguments import as_tensor
from ...arrays.random import bernoulli, stream_for
from ...ops.activate import masked_scale
from ...ops.elementwise import where

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike
    from ...core.counter import Generator


def dropout(
    input: ArrayLike, p: float = 0.5, training: bool = True, generator: Generator | None = None
) -> Tensor:
    """Each element zero with probability p, the others divided by 1 − p; x itself if not training.

    input      an array
    p          the probability
    training   whether anything is dropped
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> wf.random.seed(0)
    >>> y = wf.nn.functional.dropout(wf.ones(1000), 0.25)
    >>> sorted(set(y.tolist())), 0.9 < y.mean().item() < 1.1
    ([0.0, 1.3333333730697632], True)
    """
    x = as_tensor(input)
    return _drop("dropout", x, x.shape, p, training, generator)


def dropout1d(
    input: ArrayLike, p: float = 0.5, training: bool = True, generator: Generator | None = None
) -> Tensor:
    """Whole channels zero with probability p, the others divided by 1 − p.

    input      (N, C, L) or (C, L)
    p          the probability
    training   whether anything is dropped
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> y = wf.nn.functional.dropout1d(wf.ones((2, 3, 4)), 0.5)
    >>> all(len(set(channel)) == 1 for sample in y.tolist() for channel in sample)
    True
    """
    return _by_channel("dropout1d", input, 1, p, training, generator)


def dropout2d(
    input: ArrayLike, p: float = 0.5, training: bool = True, generator: Generator | None = None
) -> Tensor:
    """Whole channels zero with probability p, the others divided by 1 − p.

    input      (N, C, H, W) or (C, H, W)
    p          the probability
    training   whether anything is dropped
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> y = wf.nn.functional.dropout2d(wf.ones((3, 2, 2)), 0.5)
    >>> set(y.flatten().tolist()) <= {0.0, 2.0}
    True
    """
    return _by_channel("dropout2d", input, 2, p, training, generator)


def dropout3d(
    input: ArrayLike, p: float = 0.5, training: bool = True, generator: Generator | None = None
) -> Tensor:
    """Whole channels zero with probability p, the others divided by 1 − p.

    input      (N, C, D, H, W) or (C, D, H, W)
    p          the probability
    training   whether anything is dropped
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> y = wf.nn.functional.dropout3d(wf.ones((3, 2, 2, 2)), 0.5)
    >>> set(y.flatten().tolist()) <= {0.0, 2.0}
    True
    """
    return _by_channel("dropout3d", input, 3, p, training, generator)


def _by_channel(name: str, input, axes: int, p, training, generator):
    x = as_tensor(input)
    if x.ndim not in (axes + 1, axes + 2):
        raise errors.ShapeError(
            f"{name}: input of shape {x.shape}; expected {axes + 1} axes, {axes + 2} with a batch"
        )
    return _drop(name, x, (*x.shape[:-axes], *(1,) * axes), p, training, generator)


def _drop(name: str, x, shape, p, training: bool, generator):
    if not _drops(name, p, training):
        return x
    mask = bernoulli(1 - p, shape, device=x.device, generator=stream_for(name, generator))
    return masked_scale(x, mask, 1 / (1 - p) if p < 1 else 0.0)


def _drops(name: str, p: float, training: bool) -> bool:
    if not 0 <= p <= 1:
        raise errors.ArgumentError(f"{name}: p={p}, expected a probability from 0 to 1")
    return training and p > 0


# What selu gives at −∞: what is dropped is set to it.
_FLOOR = -1.0507009873554805 * 1.6732632423543772


def alpha_dropout(
    input: ArrayLike, p: float = 0.5, training: bool = False, generator: Generator | None = None
) -> Tensor:
    """Elements set to selu(−∞) with probability p, then scaled so that mean 0 and variance 1 stay.

    input      an array
    p          the probability
    training   whether anything is dropped
    generator  a `wf.random.Generator`; None: the default one

    For networks of `selu` (Klambauer et al. 2017).

    >>> import weft as wf
    >>> x = wf.randn(5)
    >>> wf.nn.functional.alpha_dropout(x, 0.5, training=False) is x
    True
    """
    x = as_tensor(input)
    return _alpha_dropped("alpha_dropout", x, x.shape, p, training, generator)


def feature_alpha_dropout(
    input: ArrayLike, p: float = 0.5, training: bool = False, generator: Generator | None = None
) -> Tensor:
    """`alpha_dropout` of whole channels: of all elements with the same first two indices.

    input      (N, C, …)
    p          the probability
    training   whether anything is dropped
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.randn((2, 3, 4))
    >>> wf.nn.functional.feature_alpha_dropout(x, 0.5, training=True).shape
    (2, 3, 4)
    """
    x = as_tensor(input)
    if x.ndim < 2:
        raise errors.ShapeError(
            f"feature_alpha_dropout: input of shape {x.shape}; expected (N, C, …)"
        )
    shape = (*x.shape[:2], *(1,) * (x.ndim - 2))
    return _alpha_dropped("feature_alpha_dropout", x, shape, p, training, generator)


def _alpha_dropped(name: str, x, shape, p, training: bool, generator):
    if not _drops(name, p, training):
        return x
    if p == 1:
        return x * 0.0
    scale = 1 / sqrt((1 - p) * (1 + p * _FLOOR**2))
    mask = bernoulli(1 - p, shape, device=x.device, generator=stream_for(name, generator))
    shift = where(mask, 0.0, scale * _FLOOR) - scale * p * _FLOOR
    return masked_scale(x, mask, scale) + shift.to(x.dtype)
