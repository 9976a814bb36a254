"""The samples that are not compared, each with the reason."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .database import SampleInput


@dataclass(frozen=True)
class Exclusion:
    """Samples of some ops that are out of the contract."""

    ops: tuple[str, ...]
    when: Callable[[SampleInput, str], bool]
    reason: str


def excluded(ops: str, when: Callable[[SampleInput, str], bool], reason: str) -> Exclusion:
    return Exclusion(tuple(ops.split()), when, reason)


def _first(sample: SampleInput) -> torch.Tensor:
    first = sample.input
    return first[0] if isinstance(first, list | tuple) else first


def no_axes(sample: SampleInput, dtype: str) -> bool:
    return _first(sample).ndim == 0


def axis_of_no_axes(sample: SampleInput, dtype: str) -> bool:
    """A 0-d input with an axis named, by keyword or as an argument after the input."""
    named = sample.kwargs.get("dim", sample.args[-1] if sample.args else None)
    return no_axes(sample, dtype) and named is not None and named != ()


def keyword_axis_of_no_axes(sample: SampleInput, dtype: str) -> bool:
    return no_axes(sample, dtype) and "dim" in sample.kwargs


def norm_of_no_axes(sample: SampleInput, dtype: str) -> bool:
    return no_axes(sample, dtype) and len(sample.args) > 1


def is_complex(sample: SampleInput, dtype: str) -> bool:
    return dtype == "complex128"


def not_empty(sample: SampleInput, dtype: str) -> bool:
    return _first(sample).numel() > 0


def several(sample: SampleInput, dtype: str) -> bool:
    return _first(sample).numel() > 1


def even_count(sample: SampleInput, dtype: str) -> bool:
    x, dim = _first(sample), sample.kwargs.get("dim")
    count = x.numel() if dim is None or x.ndim == 0 else x.shape[dim]
    return count % 2 == 0


def named_rows(sample: SampleInput, dtype: str) -> bool:
    return sample.kwargs["dim"] is not None and _first(sample).ndim > 1


def large_phases(sample: SampleInput, dtype: str) -> bool:
    size = _first(sample).abs().max()
    return is_complex(sample, dtype) and bool(size > (100 if len(sample.args[0]) == 1 else 1e5))


def spectral_norm(sample: SampleInput, dtype: str) -> bool:
    spectral = _first(sample).ndim == 2 and sample.args[0] in ("nuc", 2, -2)
    return spectral and not_empty(sample, dtype)


def absolute_rank(sample: SampleInput, dtype: str) -> bool:
    absolute = sample.kwargs.get("atol") is not None and sample.kwargs["rtol"] is None
    return absolute and not_empty(sample, dtype)


NO_AXIS = (
    "torch reads an axis of a 0-d tensor as one of length 1; the Array API raises, and so do we"
)
BESSEL = "torch's values are right to seven digits only (SciPy's and mpmath's agree with ours)"

EXCLUDED: tuple[Exclusion, ...] = (
    excluded(
        """
        all amax amin aminmax any argmax argmin count_nonzero linalg.vector_norm masked.amax
        masked.amin masked.logsumexp masked.mean masked.prod masked.sum mean median nanmean nansum
        prod sum squeeze squeeze/multiple
        """,
        axis_of_no_axes,
        NO_AXIS,
    ),
    excluded(
        """
        argsort cummax cummin cumprod cumsum index_add index_copy index_fill index_select kthvalue
        log_softmax log_softmax/with_dtype logcumsumexp logsumexp masked.cumprod masked.cumsum
        masked.log_softmax masked.softmax max/reduction_with_dim min/reduction_with_dim
        nn.functional.softmin nn.functional.softmin/with_dtype softmax softmax/with_dtype
        sort topk transpose unfold gather scatter scatter_add scatter_reduce/sum
        """,
        no_axes,
        NO_AXIS,
    ),
    excluded("quantile", keyword_axis_of_no_axes, NO_AXIS),
    excluded("norm", norm_of_no_axes, NO_AXIS),
    excluded(
        "nonzero",
        lambda sample, dtype: no_axes(sample, dtype) and sample.kwargs["as_tuple"],
        "the indices of a 0-d tensor: torch invents an axis; the Array API raises",
    ),
    excluded(
        """
        bfloat16 bool byte char double float half int log_softmax/with_dtype long
        nn.functional.softmin/with_dtype short softmax/with_dtype to
        """,
        is_complex,
        "casts complex numbers to real ones, dropping the imaginary part; ours raises instead",
    ),
    excluded(
        "logaddexp logcumsumexp sigmoid",
        is_complex,
        "of complex numbers; NumPy and SciPy have it for real ones only, and so have we",
    ),
    excluded(
        "median",
        even_count,
        "of an even number torch returns the lower of the middle two, ours their mean",
    ),
    excluded(
        "special.bessel_j0 special.bessel_j1",
        not_empty,
        BESSEL,
    ),
    excluded(
        "special.bessel_y0 special.bessel_y1",
        several,
        BESSEL,
    ),
    excluded(
        "logsumexp",
        large_phases,
        "torch's gradient is exp(x − y) with y reduced modulo 2π: off by the rounding of 2πk",
    ),
    excluded(
        "linalg.norm/subgradients_at_zero",
        spectral_norm,
        "the norm of a zero matrix: our gradient is 0, torch's a product of the SVD's choice",
    ),
    excluded(
        "linalg.matrix_rank",
        absolute_rank,
        "an absolute bound on singular values; NumPy and the Array API have the relative one",
    ),
    excluded(
        "special.ndtr",
        no_axes,
        "torch computes (1 + erf)/2, which loses the digits of the lower tail; ours keeps them",
    ),
    excluded(
        "nextafter",
        lambda sample, dtype: True,
        "a step of rounding: torch passes the gradient, ours has no derivative and says so",
    ),
    excluded(
        "cat",
        lambda sample, dtype: {x.ndim for x in sample.input} == {1, 2},
        "torch skips empty vectors among matrices, a relic; ranks must agree",
    ),
    excluded(
        "gather",
        lambda sample, dtype: sample.args[1].ndim > _first(sample).ndim,
        "empty indices of another rank: torch lets them pass, ranks must agree",
    ),
    excluded(
        "searchsorted",
        lambda sample, dtype: _first(sample).ndim > 1,
        "a batch of sorted rows; NumPy and the Array API know one sorted vector",
    ),
    excluded("unique", named_rows, "distinct rows or columns; the Array API has elements only"),
    excluded(
        "histogram",
        lambda sample, dtype: isinstance(sample.args[0], int) or sample.kwargs["density"],
        "a number of bins, or a density; ours counts between edges that are given",
    ),
    excluded(
        "einsum",
        lambda sample, dtype: sample.args[0] == "...ik, ...j -> ij",
        "sums over an ellipsis that the result leaves out; NumPy and we refuse it",
    ),
    excluded(
        "tensordot",
        lambda sample, dtype: (
            sample.input.shape != sample.args[0].shape and sample.input.shape == (1, 1, 1)
        ),
        "contracts an axis of length 1 with a longer one; NumPy and we refuse it",
    ),
)


def reason(name: str, sample: SampleInput, dtype: str) -> str | None:
    """Why a sample is not compared, or None if it is."""
    for e in EXCLUDED:
        if name in e.ops and e.when(sample, dtype):
            return e.reason
    return None
