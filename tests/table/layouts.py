"""Arrays with their elements anywhere in memory, and what calls make of them."""

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from weft.core import dtypes


def laid_out(rng, a: np.ndarray, spread: bool = False, negative: bool = False) -> np.ndarray:
    """A view with the shape and the elements of an array: what lies between them is no number.

    Axes are in any order in memory, with gaps or without, from anywhere on; the stride of an axis
    of length 1 may be any.

    spread    whether the first elements along some axes may be all of them, at the same place
    negative  whether strides may be negative
    """
    if a.ndim and rng.random() < 0.2:
        return np.array(a, order=rng.choice(["C", "F"]))
    shape, axes = list(a.shape), range(a.ndim)
    for axis in axes if spread else ():
        if shape[axis] > 1 and rng.random() < 0.3:
            shape[axis] = 1
    order = rng.permutation(a.ndim).tolist()
    steps = rng.choice([1, 1, 1, 2, 3], a.ndim).tolist()
    wide = [max(shape[k], 1) * steps[k] for k in order]
    offset = int(rng.integers(4))
    memory = np.full(offset + int(np.prod(wide, dtype=int)) + 1, _poison(a.dtype), a.dtype)
    inner = memory[offset : len(memory) - 1].reshape(wide)
    inner = inner.transpose([order.index(k) for k in axes])
    view = inner[tuple(slice(0, n * s, s) for n, s in zip(shape, steps, strict=True))]
    if negative:
        view = view[tuple(slice(None, None, rng.choice([1, -1])) for _ in axes)]
    view = view[...] if a.ndim else inner.reshape(())
    view[...] = a[tuple(slice(0, n) for n in shape)]
    strides = [_stride(rng, a, k, n, view.strides[k]) for k, n in enumerate(shape)]
    return as_strided(view, a.shape, strides)


def _stride(rng, a: np.ndarray, axis: int, kept: int, stride: int) -> int:
    if kept != 1:
        return stride
    return 0 if a.shape[axis] > 1 else int(rng.integers(9)) * a.itemsize


def _poison(dtype: np.dtype):
    if dtypes.is_inexact(dtype):
        return np.nan
    return True if dtype == np.bool_ else np.iinfo(dtype).max // 3


class Laid:
    """Arrays laid out at random, one after the other; the options are those of `laid_out`."""

    def __init__(self, seed, spread: bool = False, negative: bool = False):
        self._rng, self._spread, self._negative = np.random.default_rng(seed), spread, negative
        self._made: list[np.ndarray] = []
        self.plain: list[np.ndarray] = []  # the same elements, row by row

    def __call__(self, a: np.ndarray, keep: bool = False) -> np.ndarray:
        """A view; keep: with all elements of the array, whose function may be singular else."""
        made = laid_out(self._rng, a, self._spread and not keep, self._negative)
        self._made.append(made)
        self.plain.append(np.array(made, order="C", copy=True))
        return made

    def strides(self) -> str:
        """The shapes and the strides of all of them."""
        return ", ".join([f"{a.shape} {a.strides}" for a in self._made])

    def unchanged(self) -> bool:
        """Whether they still have their elements."""
        pairs = zip(self._made, self.plain, strict=True)
        return all([np.array_equal(a, b, dtypes.is_inexact(a.dtype)) for a, b in pairs])


class Plain:
    """The same arrays in the same order, row by row."""

    def __init__(self, laid: Laid):
        self._left = iter(laid.plain)

    def __call__(self, a: np.ndarray, keep: bool = False) -> np.ndarray:
        return next(self._left).copy()


def outcome(call: Callable[..., list[np.ndarray]], *args) -> list[np.ndarray] | str:
    """The arrays, or the name of the error."""
    try:
        return call(*args)
    except Exception as e:
        return type(e).__name__


def difference(got, want, relative: float) -> str:
    """What differs by more than a share of the largest number of an array; "": nothing."""
    if isinstance(got, str) or isinstance(want, str):
        return "" if got is want or got == want else f"{got}, expected {want}"
    if len(got) != len(want):
        return f"{len(got)} arrays, expected {len(want)}"
    for k, (x, y) in enumerate(zip(got, want, strict=True)):
        if x.shape != y.shape or x.dtype != y.dtype:
            return f"array {k}: {x.shape} {x.dtype}, expected {y.shape} {y.dtype}"
        if not dtypes.is_inexact(y.dtype):
            if not np.array_equal(x, y):
                return f"array {k}: {x.tolist()}, expected {y.tolist()}"
            continue
        x, y = (v.astype(np.result_type(v.dtype, np.float64)) for v in (x, y))
        with np.errstate(all="ignore"):
            size = np.abs(y).max(initial=1.0, where=np.isfinite(y))
            off = ~((x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= relative * size))
        if off.any():
            at = tuple(np.argwhere(off)[0].tolist())
            return f"array {k} at {at}: {x[at]}, expected {y[at]} (of {size:.2g})"
    return ""
