"""Torch's ops that rearrange tensors, in Weft's spelling."""

from math import prod

import numpy as np

import weft as wf


def broadcast_tensors(*xs):
    return wf.broadcast_arrays(*xs)


def chunk(x, chunks, dim=0):
    return wf.chunk(x, chunks, axis=dim)


def sum_to_size(x, *size):
    """The transpose of broadcasting, as `broadcast_to` has it."""
    size = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    lead = x.ndim - len(size)
    stretched = [i + lead for i, n in enumerate(size) if n == 1]
    return wf.reshape(wf.sum(x, axis=(*range(lead), *stretched)), size)


def diag(x, diagonal=0):
    return wf.diag(x, diagonal)


def diag_embed(x, offset=0, dim1=-2, dim2=-1):
    y = wf.diag_embed(x, offset)
    return wf.moveaxis(y, (-2, -1), (dim1, dim2)) if (dim1, dim2) != (-2, -1) else y


def diagonal(x, offset=0, dim1=0, dim2=1):
    return wf.diagonal(x, offset=offset, axis1=dim1, axis2=dim2)


def diagonal_of_matrix(x, *, offset=0, dim1=-2, dim2=-1):
    return diagonal(x, offset, dim1, dim2)


def flip(x, dims):
    return wf.flip(x, axis=dims)


def roll(x, shifts, dims=None):
    return wf.roll(x, shifts, axis=dims)


def rot90(x, k=1, dims=(0, 1)):
    a, b = dims
    for _ in range(k % 4):
        x = wf.flip(wf.swapaxes(x, a, b), axis=a)
    return x


def split(x, size, dim=0):
    """Parts of one length (the last may be shorter), or of the lengths given."""
    if isinstance(size, int):
        cuts = range(size, x.shape[dim], size)
    else:
        cuts = np.cumsum(size)[:-1].tolist()
    return wf.split(x, tuple(cuts), axis=dim)


def tensor_split(x, sections, dim=0):
    sections = sections.tolist() if isinstance(sections, wf.Tensor) else sections
    if isinstance(sections, int):
        n, extra = divmod(x.shape[dim], sections)
        sections = np.cumsum([n + 1] * extra + [n] * (sections - extra))[:-1].tolist()
    return wf.split(x, tuple(sections), axis=dim)


def hsplit(x, sections):
    return wf.split(x, sections, axis=0 if x.ndim == 1 else 1)


def vsplit(x, sections):
    return wf.split(x, sections, axis=0)


def dsplit(x, sections):
    return wf.split(x, sections, axis=2)


def squeeze(x, dim=None):
    """Torch leaves a named axis alone that is longer than 1."""
    if dim is None:
        return wf.squeeze(x)
    named = dim if isinstance(dim, tuple) else (dim,)
    return wf.squeeze(x, axis=tuple(d for d in named if x.shape[d] == 1))


def unflatten(x, dim, sizes):
    dim %= x.ndim
    return wf.reshape(x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


def flatten(x, start_dim=0, end_dim=-1):
    if x.ndim == 0:
        return wf.flatten(x)
    end = end_dim % x.ndim
    joined = prod(x.shape[start_dim : end + 1])
    return wf.reshape(x, (*x.shape[:start_dim], joined, *x.shape[end + 1 :]))


def transpose(x, a, b):
    return wf.swapaxes(x, a, b)


def adjoint(x):
    return wf.conj(wf.matrix_transpose(x))


def at_most_matrix_transpose(x):
    return wf.matrix_transpose(x) if x.ndim == 2 else x


def expand(x, shape):
    lead = len(shape) - x.ndim
    sizes = [x.shape[i - lead] if n == -1 else n for i, n in enumerate(shape)]
    return wf.broadcast_to(x, tuple(sizes))


def repeat(x, sizes):
    return wf.tile(x, sizes)


def tile(x, dims):
    return wf.tile(x, dims)


def repeat_interleave(x, *, repeats, dim=None, output_size=None):
    return wf.repeat(x, repeats, axis=dim)


def stack(xs, dim=0):
    return wf.stack(xs, axis=dim)


def concat(xs, dim=0):
    return wf.concat(xs, axis=dim)


def unbind(x, dim=0):
    return wf.unstack(x, axis=dim)


def at_least(ndim):
    def lift(*xs):
        xs = xs[0] if isinstance(xs[0], list | tuple) else xs
        out = [_lifted(x, ndim) for x in xs]
        return out if len(out) > 1 else out[0]

    return lift


def _lifted(x, ndim):
    """New axes in front, and for three of them one behind."""
    while x.ndim < min(ndim, 2):
        x = wf.expand_dims(x, axis=0)
    return wf.expand_dims(x, axis=-1) if x.ndim < ndim else x


def hstack(xs):
    xs = [_lifted(x, 1) for x in xs]
    return wf.concat(xs, axis=0 if xs[0].ndim == 1 else 1)


def vstack(xs):
    return wf.concat([_lifted(x, 2) for x in xs], axis=0)


def dstack(xs):
    return wf.concat([_lifted(x, 3) for x in xs], axis=2)


def column_stack(xs):
    columns = [x if x.ndim > 1 else wf.reshape(x, (x.size, 1)) for x in xs]
    return wf.concat(columns, axis=1)


def meshgrid(*xs, indexing):
    xs = xs[0] if isinstance(xs[0], list) else xs
    return wf.meshgrid(*[_lifted(x, 1) for x in xs], indexing=indexing)


def tril(x, diagonal=0):
    return wf.tril(x, k=diagonal)


def triu(x, diagonal=0):
    return wf.triu(x, k=diagonal)


def unfold(x, dim, size, step):
    return wf.sliding_window(x, size, step=step, axis=dim)


def narrow(x, dim, start, length):
    start = int(start) % (x.shape[dim] + 1) if int(start) >= 0 else int(start) + x.shape[dim]
    return sliced(x, dim, start, start + length)


def sliced(x, dim=0, start=None, end=None, step=1):
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def select(x, dim, index):
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def constant_pad(x, pad, value=0.0):
    return pad_by(x, pad, "constant", value)


MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad_by(x, pad, mode="constant", value=None):
    """Torch lists pairs from the last axis on; negative ones cut, before `circular` wraps."""
    pairs = list(zip(pad[::2], pad[1::2], strict=True))[::-1]
    pairs = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    widths = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if mode == "circular":
        return wf.pad(_cut(x, pairs), widths, MODES[mode])
    if mode == "constant":
        return _cut(wf.pad(x, widths, constant_values=0.0 if value is None else value), pairs)
    return _cut(wf.pad(x, widths, MODES[mode]), pairs)


def _cut(x, pairs):
    for axis, (a, b) in enumerate(pairs):
        x = sliced(x, axis, max(-a, 0), x.shape[axis] - max(-b, 0))
    return x


def block_diag(*xs):
    xs = [_lifted(x, 2) for x in xs]
    width, before, rows = sum(x.shape[1] for x in xs), 0, []
    for x in xs:
        rows.append(wf.pad(x, [(0, 0), (before, width - before - x.shape[1])]))
        before += x.shape[1]
    return wf.concat(rows, axis=0)


def movedim(x, source, destination):
    return wf.moveaxis(x, source, destination)


SPELLINGS = {
    "T": lambda x: x.T if x.ndim == 2 else x,
    "H": lambda x: adjoint(x) if x.ndim == 2 else x,
    "atleast_1d": at_least(1),
    "atleast_2d": at_least(2),
    "atleast_3d": at_least(3),
    "block_diag": block_diag,
    "broadcast_tensors": broadcast_tensors,
    "broadcast_to": "broadcast_to",
    "cat": concat,
    "chunk": chunk,
    "clone": "clone",
    "column_stack": column_stack,
    "constant_pad_nd": constant_pad,
    "diag": diag,
    "diag_embed": diag_embed,
    "diagflat": "diagflat",
    "diagonal": diagonal,
    "dsplit": dsplit,
    "dstack": dstack,
    "expand": expand,
    "expand_as": lambda x, y: wf.broadcast_to(x, y.shape),
    "flatten": flatten,
    "flip": flip,
    "fliplr": lambda x: wf.flip(x, axis=1),
    "flipud": lambda x: wf.flip(x, axis=0),
    "hsplit": hsplit,
    "hstack": hstack,
    "linalg.diagonal": diagonal_of_matrix,
    "mH": adjoint,
    "mT": "matrix_transpose",
    "meshgrid/list_of_tensors": meshgrid,
    "meshgrid/variadic_tensors": meshgrid,
    "movedim": movedim,
    "narrow": narrow,
    "nn.functional.pad/circular": pad_by,
    "nn.functional.pad/constant": pad_by,
    "nn.functional.pad/reflect": pad_by,
    "nn.functional.pad/replicate": pad_by,
    "nn.functional.pad/replicate_negative": pad_by,
    "permute": "permute_dims",
    "ravel": "flatten",
    "repeat": repeat,
    "repeat_interleave": repeat_interleave,
    "reshape": "reshape",
    "reshape_as": lambda x, y: wf.reshape(x, y.shape),
    "roll": roll,
    "rot90": rot90,
    "select": select,
    "slice": sliced,
    "split": split,
    "split/list_args": split,
    "split_with_sizes": split,
    "squeeze": squeeze,
    "squeeze/multiple": squeeze,
    "stack": stack,
    "sum_to_size": sum_to_size,
    "t": at_most_matrix_transpose,
    "tensor_split": tensor_split,
    "tile": tile,
    "transpose": transpose,
    "tril": tril,
    "triu": triu,
    "unbind": unbind,
    "unflatten": unflatten,
    "unfold": unfold,
    "unsqueeze": "expand_dims",
    "view": "reshape",
    "view_as": lambda x, y: wf.reshape(x, y.shape),
    "vsplit": vsplit,
    "vstack": vstack,
}
