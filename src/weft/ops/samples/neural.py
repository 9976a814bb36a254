"""Inputs for the neural rows."""

from math import prod

import numpy as np

from .case import Case, Cases, Rng


def masks(rng: Rng) -> Cases:
    """An array, a mask that broadcasts to it, and a factor."""
    for shape, mask in (((3, 2), (3, 2)), ((2, 3, 2), (2, 3, 1)), ((), ()), ((0, 2), (1, 2))):
        x, keep = rng.normal(size=shape), rng.random(mask) < 0.6
        yield Case((x, np.asarray(keep)), (1.25,), f"{shape} under {mask}")


_OVER = (((2, 3), (1,)), ((2, 3, 2), (0, 2)), ((4,), (0,)), ((2, 2), (0, 1)), ((0, 3), (1,)))


def to_unit(rng: Rng) -> Cases:
    for shape, axes in _OVER:
        for eps in (1e-5, 0.3):
            x = rng.uniform(0.5, 1.5, shape) + np.arange(shape[axes[-1]])
            yield Case((x,), (axes, eps, _WIDE), f"{shape} over {axes} with {eps}")
    yield Case((np.zeros((2, 3)),), ((1,), 1e-5, _WIDE), "zero", smooth=False)
    yield Case((rng.normal(size=(2, 1)),), ((1,), 0.1, _WIDE), "alone")


def normalisations(rng: Rng) -> Cases:
    yield from to_unit(rng)
    yield Case((np.full((2, 3), 0.5),), ((1,), 1e-5, _WIDE), "constant", smooth=False)


def projections(rng: Rng) -> Cases:
    for shape, axes in _OVER:
        for centred in (True, False):
            args = rng.normal(size=shape), rng.normal(size=shape)
            yield Case(args, (axes, centred), f"{shape} over {axes}, {centred}")


_LAYERS = (((2, 3), 1), ((3,), 1), ((2, 2, 3), 1), ((2, 2, 3), 2), ((0, 2), 1), ((2, 1), 1))


def layer_norms(rng: Rng) -> Cases:
    for shape, ndim in _LAYERS:
        last = shape[len(shape) - ndim :]
        args = rng.normal(size=shape), rng.normal(size=last), rng.normal(size=last)
        yield Case(args, (0.1, _WIDE), f"{shape} over {ndim}")


def layer_norm_gradients(rng: Rng) -> Cases:
    for shape, ndim in _LAYERS:
        cut = len(shape) - ndim
        g, y, w = rng.normal(size=shape), rng.normal(size=shape), rng.normal(size=shape[cut:])
        variance = rng.uniform(0.5, 2.0, (*shape[:cut], *(1,) * ndim))
        yield Case((g, y, variance, w), (0.1,), f"{shape} over {ndim}")


# The shape of x, the axes, and the shape of the weight: layer, group, batch norm and others.
_NORMS = (
    ((2, 3), (1,), (3,)),
    ((2, 2, 3), (1, 2), (2, 3)),
    ((2, 2, 1, 2), (2, 3), (2, 1, 1)),
    ((1, 2, 2, 2), (2, 3), (2, 2, 1)),
    ((2, 2, 2), (0, 2), (2, 1)),
    ((2, 2, 1, 2), (0, 2, 3), (2, 1, 1)),
    ((2, 3), (0,), (1, 3)),
    ((0, 2), (1,), (2,)),
)


def native_norms(rng: Rng) -> Cases:
    for x, (axes, eps, wide), w in _native(rng, True):
        yield Case((x, w, rng.normal(size=w.shape)), (axes, eps, wide), f"{x.shape} over {axes}")


def native_rms_norms(rng: Rng) -> Cases:
    for x, static, w in _native(rng, False):
        yield Case((x, w), static, f"{x.shape} over {static[0]}")


def _native(rng, centred: bool):
    """x, the static parameters and the weight."""
    for shape, axes, weight in _NORMS:
        apart = np.arange(prod(shape), dtype=float).reshape(shape) % 3 if centred else 1.0
        yield rng.uniform(0.5, 1.5, shape) + apart, (axes, 0.1, _WIDE), rng.normal(size=weight)


def _native_gradients(rng, statistics: int) -> Cases:
    for shape, axes, weight in _NORMS:
        kept = tuple(1 if k in axes else n for k, n in enumerate(shape))
        g, x, w = (rng.normal(size=s) for s in (shape, shape, weight))
        centre = [rng.normal(size=kept) for _ in range(statistics - 1)]
        rate = rng.uniform(0.5, 2.0, kept)
        yield Case((g, x, *centre, rate, w), (axes,), f"{shape} over {axes}")


def native_norm_gradients(rng: Rng) -> Cases:
    return _native_gradients(rng, 2)


_CHANNELS = ((3, 2), (2, 2, 2), (2, 2, 1, 2), (2, 1, 2, 1, 2), (2, 0, 2))


def native_batch_norms(rng: Rng) -> Cases:
    for shape in _CHANNELS:
        apart = np.arange(prod(shape), dtype=float).reshape(shape) % 3
        x, w, b = rng.uniform(0.5, 1.5, shape) + apart, *rng.normal(size=(2, shape[1]))
        yield Case((x, w, b), (0.1, _WIDE), f"{shape}")


def native_batch_norm_gradients(rng: Rng) -> Cases:
    for shape in _CHANNELS:
        g, x = rng.normal(size=(2, *shape))
        mean, w = rng.normal(size=(2, shape[1]))
        yield Case((g, x, mean, rng.uniform(0.5, 2.0, shape[1]), w), (), f"{shape}")


def native_rms_norm_gradients(rng: Rng) -> Cases:
    return _native_gradients(rng, 1)


# queries, keys, values, mask
_SEEN = np.array([[True, False, True], [True, True, False]])
_ATTENTIONS = (
    ((2, 2, 2), (1, 3, 2), (1, 3, 1), None),
    ((1, 2, 1), (1, 2, 1), (1, 2, 2), None),
    ((2, 1, 2, 1), (2, 1, 2, 1), (2, 1, 2, 1), None),
    ((1, 2, 3), (1, 2, 3), (1, 2, 3), None),  # as wide as each other: what libraries take
    ((1, 2, 2), (1, 3, 2), (1, 3, 1), "seen"),
    ((2, 2, 1), (1, 3, 1), (1, 3, 1), "added"),
    ((1, 0, 2), (1, 2, 2), (1, 2, 1), None),
    ((1, 2, 2), (1, 0, 2), (1, 0, 1), None),
)
_SCALE = 0.7


def _attention_cases(rng):
    """(arguments, causal, share that is dropped, label)"""
    for q, k, v, kind in _ATTENTIONS:
        mask = True
        if kind == "seen":
            mask = _SEEN[None]
        elif kind == "added":
            mask = rng.normal(size=(1, 2, 3))
        args = rng.normal(size=q), rng.normal(size=k), rng.normal(size=v), mask
        for causal in (False, True) if kind is None else (False,):
            yield (*args, 0), causal, 0.0, f"{q} {k} {kind or ''}{' causal' * causal}"
    q, k, v, _ = _ATTENTIONS[0]
    seeds = rng.integers(0, 1 << 62, q[:-2])
    args = rng.normal(size=q), rng.normal(size=k), rng.normal(size=v)
    yield (*args, True, seeds), False, 0.4, "dropped"


def attentions(rng: Rng) -> Cases:
    for args, causal, p, label in _attention_cases(rng):
        smooth = bool(args[1].size)  # the logarithm of no sum is -∞
        yield Case(args, (causal, _SCALE, p, np.dtype("float64")), label, smooth=smooth)
    args = rng.normal(size=(1, 2, 2)), rng.normal(size=(1, 2, 2)), rng.normal(size=(1, 2, 1))
    blind = np.array([[[True, True], [False, False]]])
    yield Case((*args, blind, 0), (False, _SCALE, 0.0, np.dtype("float64")), "blind", smooth=False)


def attention_gradients(rng: Rng) -> Cases:
    for args, causal, p, label in list(_attention_cases(rng))[1::2]:
        yield Case((*_cotangents(rng, args), *args), (causal, _SCALE, p), label)


def _cotangents(rng, args):
    """g, h, the result and the logarithms, which need not fit the others."""
    q, _, v, _, _ = args
    wide, narrow = (*q.shape[:-1], v.shape[-1]), q.shape[:-1]
    shapes = wide, narrow, wide, narrow
    return [rng.normal(size=s) for s in shapes]


def attention_mask_gradients(rng: Rng) -> Cases:
    shapes = ((1, 2, 1), (1, 2, 1), (1, 2, 1))
    args = [rng.normal(size=s) for s in shapes]
    for mask in ((1, 2, 2), (1, 1, 2)):
        given = (*args, rng.normal(size=mask), 0)
        yield Case((*_cotangents(rng, given), *given), (False, _SCALE, 0.0), f"mask {mask}")
    given = (*args, rng.normal(size=(1, 2, 2)), rng.integers(0, 1 << 62, (1,)))
    yield Case((*_cotangents(rng, given), *given), (True, _SCALE, 0.3), "dropped, causal")


def attention_seeds(rng: Rng) -> Cases:
    for shape in ((2,), (2, 1), ()):
        yield Case((np.asarray(rng.integers(0, 1 << 62, shape)),), (3, 5, 0.4), f"{shape}")


_LOGITS = ((2, 3), (4,), (2, 1, 2), (0, 3), (2, 1))
_WIDE = np.dtype("float64")


def cross_entropies(rng: Rng) -> Cases:
    for shape in _LOGITS:
        for smoothing in (0.0, 0.2):
            x, classes = rng.normal(size=shape), rng.integers(0, shape[-1], shape[:-1])
            yield Case((x, np.asarray(classes)), (smoothing, _WIDE), f"{shape}, {smoothing}")
    x = np.array([[1.0, -np.inf, 2.0], [-np.inf, 0.5, -np.inf]])
    yield Case((x, np.array([0, 1])), (0.0, _WIDE), "-∞", smooth=False)
    x = np.array([[1000.0, 0.0, -1000.0]])
    yield Case((x, np.array([1])), (0.0, _WIDE), "large", smooth=False)


def cross_entropy_gradients(rng: Rng) -> Cases:
    for shape in _LOGITS[:4]:
        for smoothing in (0.0, 0.2):
            lines, x = shape[:-1], rng.normal(size=shape)
            g, h, lse, rest = (np.asarray(rng.normal(size=lines)) for _ in range(4))
            classes = np.asarray(rng.integers(0, shape[-1], lines))
            yield Case((g, h, lse, rest, x, classes), (smoothing,), f"{shape}, {smoothing}")


_NLLS = ((3, 4), (1, 2), (2, 3, 2), (0, 3))
_IGNORED = -100


def _some_classes(rng, lines: tuple[int, ...], n: int):
    """Classes, some of which are ignored."""
    return np.where(rng.random(lines) < 0.3, _IGNORED, rng.integers(0, n, lines))


def mean_nlls(rng: Rng) -> Cases:
    for shape in _NLLS:
        classes = _some_classes(rng, shape[:-1], shape[-1])
        yield Case((rng.normal(size=shape), classes), (_IGNORED,), f"{shape}")
    args = rng.normal(size=(2, 3)), np.array([1, 1])
    yield Case(args, (1,), "none counts", smooth=False)


def nll_gradients(rng: Rng) -> Cases:
    for shape in _NLLS:
        classes = _some_classes(rng, shape[:-1], shape[-1])
        args = np.asarray(rng.normal(size=shape[:-2])), classes
        yield Case(args, (_IGNORED, shape[-1]), f"{shape}")


def soft_cross_entropies(rng: Rng) -> Cases:
    for shape in _LOGITS:
        x, q = rng.normal(size=shape), rng.uniform(0.1, 1.0, shape)
        yield Case((x, q), (_WIDE,), f"{shape}")
    x = np.array([[1.0, -np.inf, 2.0]])
    yield Case((x, np.array([[0.5, 0.0, 0.5]])), (_WIDE,), "-∞", smooth=False)


def soft_cross_entropy_gradients(rng: Rng) -> Cases:
    for shape in _LOGITS[:4]:
        lines = shape[:-1]
        g, h, lse, rest = (np.asarray(rng.normal(size=lines)) for _ in range(4))
        x, q = rng.normal(size=shape), rng.normal(size=shape)
        yield Case((g, h, lse, rest, x, q), (), f"{shape}")


def rotations(rng: Rng) -> Cases:
    for x, turn in (
        ((2, 3, 4), (3, 4)),
        ((2,), (2,)),
        ((2,), (3, 2)),
        ((0, 2), (1, 2)),
        ((3, 0), (0,)),
    ):
        for interleaved, back in ((False, False), (True, False), (True, True)):
            args = rng.normal(size=x), rng.normal(size=turn)
            label = f"{x} by {turn}{' interleaved' * interleaved}{' back' * back}"
            yield Case(args, (interleaved, back), label)


def lstm_cells(rng: Rng) -> Cases:
    for lead in ((2,), (), (0,)):
        args = rng.normal(size=(*lead, 8)), rng.normal(size=(*lead, 2))
        yield Case(args, (), f"{lead}")
    yield Case((rng.normal(size=(2, 4)), rng.normal(size=(1,))), (), "one state for all")


def gru_cells(rng: Rng) -> Cases:
    for lead in ((2,), (), (0,)):
        args = rng.normal(size=(*lead, 6)), rng.normal(size=(*lead, 6)), rng.normal(size=(*lead, 2))
        yield Case(args, (), f"{lead}")
    args = rng.normal(size=(2, 3)), rng.normal(size=(3,)), rng.normal(size=(2, 1))
    yield Case(args, (), "broadcast")


def label_sequences(rng: Rng) -> Cases:
    """Log-probabilities that need not be normalised, labels with blanks, and lengths."""
    for lead, steps, labels, frames, counts in (
        ((), 3, [1], 3, 1),
        ((), 4, [1, 1], 4, 2),
        ((2,), 3, [[1, 2], [2, 0]], [3, 2], [2, 1]),
        ((1,), 2, [[]], [2], [0]),
        ((0,), 2, np.zeros((0, 1)), np.zeros(0), np.zeros(0)),
    ):
        labels = np.asarray(labels, np.int64)
        states = np.zeros((*labels.shape[:-1], 2 * labels.shape[-1] + 1), np.int64)
        states[..., 1::2] = labels
        lengths = np.asarray(frames, np.int64), np.asarray(counts, np.int64)
        x = rng.normal(size=(*lead, steps, 3))
        yield Case((x, states, *lengths), (0,), f"{lead} {steps} {labels.tolist()}")
    x, states = rng.normal(size=(2, 3)), np.array([0, 1, 0, 1, 0])
    lengths = np.asarray(2), np.asarray(2)
    yield Case((x, states, *lengths), (0,), "too short", smooth=False)
