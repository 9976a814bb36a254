"""Torch's ops that pick and place elements by index, in Weft's spelling."""

import weft as wf


def gather(x, dim, index):
    return wf.gather(x, dim, index)


def take_along(x, index, dim=None):
    if dim is None:
        return wf.take_along_axis(wf.flatten(x), wf.flatten(index), axis=0)
    return wf.take_along_axis(x, index, axis=dim)


def take(x, index):
    return wf.take(wf.flatten(x), index)


def index_select(x, dim, index):
    return wf.index_select(x, dim, index)


def _along(x, dim, index):
    return (slice(None),) * (dim % x.ndim) + (index,)


def index_fill(x, dim, index, value):
    return x.at[_along(x, dim, index)].set(value)


def index_copy(x, dim, index, source):
    return x.at[_along(x, dim, index)].set(source)


def index_add(x, dim, index, source, *, alpha=1):
    return wf.index_add(x, dim, index, source * alpha)


def index_put(x, indices, values, *, accumulate=False):
    place = x.at[tuple(indices)]
    return place.add(values) if accumulate else place.set(values)


def getitem(x, key):
    return x[key]


def put(x, index, source, accumulate=False):
    if not accumulate:
        return wf.put(x, index, source)
    flat = wf.flatten(x).at[wf.flatten(index)].add(wf.flatten(source))
    return wf.reshape(flat, x.shape)


def scatter(x, dim, index, source, *, reduce=None):
    if reduce == "add":
        return scatter_add(x, dim, index, source)
    return wf.scatter(x, dim, index, source)


def scatter_add(x, dim, index, source):
    return wf.scatter_add(x, dim, index, source)


def scatter_sum(x, dim, index, source, reduce, *, include_self=True):
    start = x if include_self else wf.scatter(x, dim, index, 0.0)
    return scatter_add(start, dim, index, source)


def masked_select(x, mask):
    x, mask = wf.broadcast_arrays(x, mask)
    return x[mask]


def masked_scatter(x, mask, source):
    x, mask = wf.broadcast_arrays(x, mask)
    count = int(wf.count_nonzero(mask))
    return x.at[mask].set(wf.flatten(source)[:count])


def select_scatter(x, source, dim, index):
    return x.at[_along(x, dim, index)].set(source)


def slice_scatter(x, source, dim=0, start=None, end=None, step=1):
    return x.at[_along(x, dim, slice(start, end, step))].set(source)


def embedding(weight, index, **options):
    return wf.embedding(index, weight)


def nonzero(x, as_tuple=False):
    return wf.nonzero(x) if as_tuple else wf.argwhere(x)


def searchsorted(x, values, *, out_int32=False, right=False, side=None, sorter=None):
    side = side or ("right" if right else "left")
    return wf.searchsorted(x, values, side=side, sorter=sorter)


def bucketize(values, boundaries, *, out_int32=False, right=False):
    return wf.searchsorted(boundaries, values, side="right" if right else "left")


def histogram(x, edges, *, weight=None, density=False):
    counts = wf.histogram(wf.flatten(x), edges, None if weight is None else wf.flatten(weight))
    return counts.astype(x.dtype), edges


SPELLINGS = {
    "__getitem__": getitem,
    "argwhere": "argwhere",
    "bucketize": bucketize,
    "gather": gather,
    "histogram": histogram,
    "index_add": index_add,
    "index_copy": index_copy,
    "index_fill": index_fill,
    "index_put": index_put,
    "index_select": index_select,
    "masked_scatter": masked_scatter,
    "masked_select": masked_select,
    "nn.functional.embedding": embedding,
    "nonzero": nonzero,
    "put": put,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce/sum": scatter_sum,
    "searchsorted": searchsorted,
    "select_scatter": select_scatter,
    "slice_scatter": slice_scatter,
    "take": take,
    "take_along_dim": take_along,
}
