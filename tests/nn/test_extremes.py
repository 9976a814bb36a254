"""Neural functions and their gradients at the ends of the range, beside PyTorch in float64.

Inputs are huge, tiny, denormal, tied, far from zero and close together, or −∞ here and there. What
is compared are all finite elements of the reference; a result beyond the range may be infinite.
"""

from math import inf

import numpy as np
import pytest
import torch
import torch.nn.functional as T

import weft as wf
import weft.nn.functional as F

# The largest, the smallest normal and the smallest number of each dtype, and its epsilon.
DTYPES = {
    "float32": (torch.float32, 3.4e38, 1.2e-38, 1e-45, 2.0**-23),
    "bfloat16": (torch.bfloat16, 3.38e38, 1.2e-38, 1e-40, 2.0**-8),
    "float16": (torch.float16, 65504.0, 6.2e-5, 6e-8, 2.0**-10),
}
STEPS = np.array([1, 2, -1, 0.5, 3, -2, 1, 1, 2])
W = np.array([0.3, -1, 2, 0.5, 1, 1, -0.7, 0.2, 1.1])


def lines(most: float, tiny: float, least: float) -> dict:
    near = np.array([0, 1, -2, 0, 0, -10, 0, 0.5, 0.25])
    return {
        "tied and huge": np.full(9, most),
        "tied and hugely negative": np.full(9, -most),
        "huge of both signs": most / 32 * np.array([1, -1, 1, 0, 0, -1, 0.5, -0.5, 0]),
        "huge": most / 64 * STEPS,
        "ten thousand, tied": np.full(9, 1e4),
        "around ten thousand": 1e4 + near,
        "around a hundred": 100 + near,
        "around minus a hundred": -100 + near,
        "a root of the largest": most**0.5 * STEPS / 8,
        "tiny": tiny * STEPS,
        "a root of the smallest": tiny**0.5 * STEPS,
        "denormal": least * np.rint(8 * STEPS),
        "zero": np.zeros(9),
        "-∞ among others": np.array([1, -inf, 2, 3, 0, 1, -1, -inf, 0]),
        "ordinary": STEPS,
    }


def _as(torch_, values, like):
    if torch_:
        return torch.tensor(values, dtype=torch.float64).to(like.dtype)
    return wf.asarray(values).astype(like.dtype)


def _entropies(f, classes, torch_):
    like = lambda values, x: _as(torch_, values, x)  # noqa: E731
    soft = np.exp(W) / np.exp(W).sum()
    return {
        "cross_entropy": lambda x: f(x, classes, reduction="none"),
        "cross_entropy, smoothed": lambda x: f(x, classes, reduction="none", label_smoothing=0.25),
        "cross_entropy, weighted": lambda x: f(
            x, classes, weight=like(abs(W), x), reduction="none", label_smoothing=0.25
        ),
        "cross_entropy of shares": lambda x: f(x, like(soft[None], x), reduction="none"),
    }


OURS = {
    "softmax": lambda x: wf.softmax(x, axis=-1),
    "log_softmax": lambda x: wf.log_softmax(x, axis=-1),
    "logsumexp": lambda x: wf.logsumexp(x, axis=-1),
    **_entropies(F.cross_entropy, wf.asarray([2]), False),
    "layer_norm": lambda x: F.layer_norm(x, (9,)),
    "layer_norm with weights": lambda x: F.layer_norm(x, (9,), *[_as(False, W, x)] * 2),
    "rms_norm": lambda x: F.rms_norm(x, (9,), eps=1e-6),
    "std": lambda x: wf.std(x, axis=-1),
    "norm": lambda x: wf.linalg.vector_norm(x, axis=-1),
    "norm of order 1": lambda x: wf.linalg.vector_norm(x, axis=-1, ord=1),
    "largest": lambda x: wf.linalg.vector_norm(x, axis=-1, ord=inf),
    "normalize": lambda x: F.normalize(x, dim=-1, eps=1e-3),
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "sigmoid": wf.sigmoid,
    "tanh": wf.tanh,
    **{n: getattr(F, n) for n in ("silu", "mish", "logsigmoid", "elu", "selu", "softplus")},
}
THEIRS = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    **_entropies(T.cross_entropy, torch.tensor([2]), True),
    "layer_norm": lambda x: T.layer_norm(x, (9,)),
    "layer_norm with weights": lambda x: T.layer_norm(x, (9,), *[_as(True, W, x)] * 2),
    "rms_norm": lambda x: T.rms_norm(x, (9,), eps=1e-6),
    "std": lambda x: torch.std(x, -1, correction=0),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "norm of order 1": lambda x: torch.linalg.vector_norm(x, dim=-1, ord=1),
    "largest": lambda x: torch.linalg.vector_norm(x, dim=-1, ord=inf),
    "normalize": lambda x: T.normalize(x, dim=-1, eps=1e-3),
    "gelu": T.gelu,
    "gelu by tanh": lambda x: T.gelu(x, approximate="tanh"),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    **{n: getattr(T, n) for n in ("silu", "mish", "logsigmoid", "elu", "selu", "softplus")},
}
# These add up squares, in float32 for the half types: where those leave the range, as in NumPy and
# PyTorch, they say nothing.
SQUARES = {"layer_norm", "layer_norm with weights", "rms_norm", "std", "norm", "normalize"}


def _is_beyond(name: str, x: np.ndarray, most: float) -> bool:
    if name not in SQUARES:
        return False
    with np.errstate(all="ignore"):
        squares = np.square(x[x != 0].astype(np.float32))
    return bool(x.any() and (not squares.sum() < most**2 or squares.min() < 1e-37))


def _condition(name: str, x: np.ndarray) -> float:
    """How much larger relative errors are behind a function than in front of it."""
    if name.startswith(("layer_norm", "std")):
        return 1 + float(np.abs(x).max() / (x.std() or 1)) ** 2
    return 1.0


def _weights(shape) -> np.ndarray:
    return np.broadcast_to(W[: shape[-1]], shape)


def _mine(f, x, way):
    def both(x):
        def weighed(x):
            y = f(x)
            return (y * _as(False, _weights(y.shape), y)).sum(), y

        gradient, y = wf.grad(weighed, has_aux=True)(x)
        return y, gradient

    return [np.asarray(v.detach().astype("float64")) for v in way(both)(wf.asarray(x))]


def _reference(f, x: np.ndarray, dtype):
    """In float64, with the weights as the dtype has them; the class's own gradient if ties hide it.

    PyTorch's gradient of logsumexp is exp(x − y), whose y may have lost log Σ: there it is taken of
    a line that is moved to 0.
    """
    x = torch.tensor(x.astype(np.float64))
    moved = (x - x.max() if x.abs().max() < inf else x).requires_grad_()
    x.requires_grad_()
    out = []
    for z in (x, moved) if f is THEIRS["logsumexp"] else (x, x):
        y = f(z)
        w = torch.tensor(_weights(tuple(y.shape))).to(dtype).double()
        out.append((y, torch.autograd.grad((y * w).sum(), z)[0]))
    return [out[0][0].detach().numpy(), out[1][1].numpy()]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", [lambda f: f, wf.compile], ids=["eager", "compiled"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_results_and_gradients_are_right_at_the_ends_of_the_range(name, dtype, way):
    theirs, most, tiny, least, eps = DTYPES[dtype]
    wrong = []
    for label, line in lines(most, tiny, least).items():
        with np.errstate(all="ignore"):
            x = line[None].astype(wf.zeros(0, dtype=dtype).dtype)
        if _is_beyond(name, x.astype(np.float64), most) or (
            not np.isfinite(line).all() and "softmax" not in name and "sum" not in name
        ):
            continue
        found = _mine(OURS[name], x, way)
        for what, got, want in zip(
            ("result", "gradient"), found, _reference(THEIRS[name], x, theirs), strict=True
        ):
            seen = np.isfinite(want) & (np.abs(want) <= most)
            scale = np.abs(want[seen]).max(initial=0) * _condition(name, x.astype(np.float64))
            bound = 16 * eps * scale + max(16 * least, tiny / 2**14)
            if not (np.abs(got - want)[seen] <= bound).all():
                wrong.append(f"{what}, {label}: {got[seen][:5]}, expected {want[seen][:5]}")
    assert not wrong, "\n".join(wrong)
