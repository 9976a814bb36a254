"""Torch's ops that pick and place elements by index, in Weft's spelling."""

import weft as wf

_REDUCED = {"sum": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}


def gather(x, dim, index):
    return wf.gather(x, index, axis=dim)


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
    return x.at[_along(x, dim, index)].add(source * alpha)


def index_put(x, indices, values, *, accumulate=False):
    place = x.at[tuple(indices)]
    return place.add(values) if accumulate else place.set(values)


def getitem(x, key):
    return x[tuple(key) if isinstance(key, list) else key]


def put(x, index, source, accumulate=False):
    place = wf.flatten(x).at[wf.flatten(index)]
    source = wf.flatten(source)
    return wf.reshape(place.add(source) if accumulate else place.set(source), x.shape)


def scatter(x, dim, index, source, *, reduce=None):
    if reduce == "add":
        return scatter_add(x, dim, index, source)
    return wf.scatter(x, index, source, axis=dim)


def scatter_add(x, dim, index, source):
    return wf.scatter_add(x, index, source, axis=dim)


def scatter_sum(x, dim, index, source, reduce, *, include_self=True):
    start = x if include_self else wf.scatter(x, index, 0.0, axis=dim)
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


def embedding(index, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False,
              sparse=False):
    return wf.take(weight, index, axis=0)


def nonzero(x, as_tuple=False):
    return wf.nonzero(x) if as_tuple else wf.stack(wf.nonzero(x), axis=-1)


def searchsorted(x, values, *, out_int32=False, right=False, side=None, sorter=None):
    side = side or ("right" if right else "left")
    return wf.searchsorted(x, values, side=side, sorter=sorter)


def bucketize(values, boundaries, *, out_int32=False, right=False):
    return wf.searchsorted(boundaries, values, side="right" if right else "left")


SPELLINGS = {
    "__getitem__": getitem,
    "argwhere": "argwhere",
    "bucketize": bucketize,
    "gather": gather,
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
