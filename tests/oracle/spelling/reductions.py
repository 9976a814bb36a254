"""Torch's reductions, running reductions and sorting, in Weft's spelling."""

import weft as wf


def _axis(dim):
    """Torch's empty tuple means all axes."""
    return None if dim is None or dim == () or dim == [] else dim


def reduction(name):
    def reduce(x, dim=None, keepdim=False):
        return getattr(wf, name)(x, axis=_axis(dim), keepdims=keepdim)

    return reduce


def sum_(x, dim=None, keepdim=False, *, dtype=None):
    return wf.sum(x, axis=_axis(dim), keepdims=keepdim, dtype=dtype)


def prod(x, dim=None, keepdim=False, *, dtype=None):
    return wf.prod(x, axis=_axis(dim), keepdims=keepdim, dtype=dtype)


def mean(x, dim=None, keepdim=False, *, dtype=None):
    return wf.mean(x if dtype is None else x.astype(dtype), axis=_axis(dim), keepdims=keepdim)


def nansum(x, dim=None, keepdim=False, *, dtype=None):
    return sum_(wf.where(wf.isnan(x), 0.0, x), dim, keepdim, dtype=dtype)


def nanmean(x, dim=None, keepdim=False, *, dtype=None):
    there = wf.sum((~wf.isnan(x)).astype(x.dtype), axis=_axis(dim), keepdims=keepdim)
    return nansum(x, dim, keepdim, dtype=dtype) / there


def _correction(unbiased, correction):
    if correction is not None:
        return correction
    return 0 if unbiased is False else 1


def spread(name):
    """`var` and `std`, whose first argument may be either the axis or `unbiased`."""

    def reduce(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        c = _correction(unbiased, correction)
        return getattr(wf, name)(x, axis=_axis(dim), correction=c, keepdims=keepdim)

    return reduce


def with_mean(name):
    def reduce(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
        both = spread(name)(x, dim, unbiased, keepdim, correction=correction)
        dim = None if isinstance(dim, bool) else dim
        return both, wf.mean(x, axis=_axis(dim), keepdims=keepdim)

    return reduce


def found(name):
    """`max` and `min` along an axis, which also say where."""

    def reduce(x, dim, keepdim=False):
        return getattr(wf, f"{name}_with_indices")(x, axis=dim, keepdims=keepdim)

    return reduce


def aminmax(x, *, dim=None, keepdim=False):
    return reduction("min")(x, dim, keepdim), reduction("max")(x, dim, keepdim)


def arg(name):
    def reduce(x, dim=None, keepdim=False):
        return getattr(wf, name)(x, axis=dim, keepdims=keepdim)

    return reduce


def count_nonzero(x, dim=None):
    return wf.count_nonzero(x, axis=_axis(dim))


def running_extreme(name):
    """Ours gives the values; torch's indices are where these were met last."""

    def run(x, dim):
        y = getattr(wf, name)(x, axis=dim)
        behind = x.ndim - dim % x.ndim - 1
        place = wf.reshape(wf.arange(x.shape[dim], device=x.device), (-1,) + (1,) * behind)
        return y, wf.cummax(wf.where(x == y, place, 0), axis=dim)

    return run


def running(name):
    def run(x, dim, *, dtype=None):
        return getattr(wf, name)(x if dtype is None else x.astype(dtype), axis=dim)

    return run


def diff(x, n=1, dim=-1, prepend=None, append=None):
    return wf.diff(x, n=n, axis=dim, prepend=prepend, append=append)


def softmax(x, dim, *, dtype=None):
    return wf.softmax(x if dtype is None else x.astype(dtype), axis=dim)


def softmin(x, dim, *, dtype=None):
    return softmax(-x, dim, dtype=dtype)


def log_softmax(x, dim, *, dtype=None):
    return wf.log_softmax(x if dtype is None else x.astype(dtype), axis=dim)


def logsumexp(x, dim, keepdim=False):
    return wf.logsumexp(x, axis=_axis(dim), keepdims=keepdim)


def median(x, dim=None, keepdim=False):
    """The middle of an odd number of elements, and where it is."""
    if dim is None:
        return wf.median(x)
    order = wf.argsort(x, axis=dim)
    middle = (slice(None),) * (dim % x.ndim) + (slice((n := x.shape[dim]) // 2, n // 2 + 1),)
    where = order[middle]
    where = where if keepdim else wf.squeeze(where, axis=dim)
    return wf.median(x, axis=dim, keepdims=keepdim), where


def quantile(x, q, dim=None, keepdim=False, *, interpolation="linear"):
    return wf.quantile(x, q, axis=dim, keepdims=keepdim, method=interpolation)


def sort(x, dim=-1, descending=False, *, stable=False):
    order = {"axis": dim, "descending": descending}
    return wf.sort(x, **order), wf.argsort(x, **order)


def argsort(x, dim=-1, descending=False, *, stable=False):
    return wf.argsort(x, axis=dim, descending=descending)


def msort(x):
    return wf.sort(x, axis=0)


def topk(x, k, dim=-1, largest=True, sorted=True):
    return wf.topk(x, k, axis=dim, largest=largest)


def kthvalue(x, k, dim=-1, keepdim=False):
    """The last of the k smallest."""
    last = (slice(None),) * (dim % x.ndim) + (slice(k - 1, k),)
    parts = [part[last] for part in wf.topk(x, k, axis=dim, largest=False)]
    return [p if keepdim else wf.squeeze(p, axis=dim) for p in parts]


def unique(x, *, sorted=True, return_inverse=False, return_counts=False, dim=None):
    found = wf.unique_all(x)
    wanted = [found.values]
    wanted += [found.inverse_indices] if return_inverse else []
    wanted += [found.counts] if return_counts else []
    return wanted


def trapezoid(y, x=None, *, dx=1.0, dim=-1):
    y = wf.moveaxis(y, dim, -1)
    width = dx if x is None else wf.diff(wf.moveaxis(x, dim, -1) if x.ndim > 1 else x)
    return wf.sum((y[..., 1:] + y[..., :-1]) * width, axis=-1) / 2


def cumulative_trapezoid(y, x=None, *, dx=1.0, dim=-1):
    y = wf.moveaxis(y, dim, -1)
    width = dx if x is None else wf.diff(wf.moveaxis(x, dim, -1) if x.ndim > 1 else x)
    return wf.moveaxis(wf.cumsum((y[..., 1:] + y[..., :-1]) * width, axis=-1) / 2, -1, dim)


SPELLINGS = {
    **{name: reduction(name) for name in ("all", "amax", "amin", "any")},
    **{name: running(name) for name in ("cumprod", "cumsum", "logcumsumexp")},
    **{name: running_extreme(name) for name in ("cummax", "cummin")},
    **{f"std{variant}": spread("std") for variant in ("", "/unbiased")},
    **{f"var{variant}": spread("var") for variant in ("", "/unbiased")},
    "aminmax": aminmax,
    "argmax": arg("argmax"),
    "argmin": arg("argmin"),
    "argsort": argsort,
    "count_nonzero": count_nonzero,
    "cumulative_trapezoid": cumulative_trapezoid,
    "diff": diff,
    "isin": "isin",
    "kthvalue": kthvalue,
    "log_softmax": log_softmax,
    "log_softmax/with_dtype": log_softmax,
    "logsumexp": logsumexp,
    "max/reduction_no_dim": "max",
    "max/reduction_with_dim": found("max"),
    "mean": mean,
    "median": median,
    "min/reduction_no_dim": "min",
    "min/reduction_with_dim": found("min"),
    "msort": msort,
    "nanmean": nanmean,
    "nansum": nansum,
    "nn.functional.softmin": softmin,
    "nn.functional.softmin/with_dtype": softmin,
    "prod": prod,
    "quantile": quantile,
    "softmax": softmax,
    "softmax/with_dtype": softmax,
    "sort": sort,
    "std_mean": with_mean("std"),
    "std_mean/unbiased": with_mean("std"),
    "sum": sum_,
    "topk": topk,
    "trapezoid": trapezoid,
    "trapz": trapezoid,
    "unique": unique,
    "var_mean": with_mean("var"),
    "var_mean/unbiased": with_mean("var"),
}
