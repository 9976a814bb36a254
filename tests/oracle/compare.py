"""Running a sample in torch and in Weft, and judging whether the two agree."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

import weft as wf

from .database import OPS, SampleInput, parts, replaced, tensors
from .mapping import spelling

# The rule, one for all ops and results. An element r agrees with torch's if
#     |Δ| ≤ ROUNDINGS · eps · (|r| + κ),
# with κ the change of torch's own result when every input and cotangent is changed relatively by
# ±STEP, divided by STEP, the largest of DIRECTIONS such changes: both results may be the exact
# ones of inputs a few dozen roundings away. A jump J (a tie broken in another way, another
# branch) enters κ·eps only as J · eps / STEP, so that no such difference passes as rounding.
ROUNDINGS = 64.0
STEP = 2.0**-30
DIRECTIONS = 3


@dataclass(frozen=True)
class Outcome:
    """What a sample evaluates to: outputs, and gradients of the tensors that require them."""

    values: list[np.ndarray]
    gradients: list[np.ndarray]

    def named(self) -> Iterator[tuple[str, np.ndarray]]:
        yield from ((f"value {i}", v) for i, v in enumerate(self.values))
        yield from ((f"gradient {i}", g) for i, g in enumerate(self.gradients))


class Trial:
    """One sample with fixed cotangents, to be evaluated in torch and in Weft."""

    def __init__(self, name: str, sample: SampleInput):
        self.name, self.sample = name, sample
        self._tree = parts(sample)
        self._tensors = list(tensors(self._tree))
        self._inputs = [_array(t) for t in self._tensors]
        self._cotangents: list[np.ndarray] = []
        self._connected: list[bool] = []
        self.expected = self._torch_first()

    def _torch_first(self) -> Outcome:
        leaves, outputs = self._torch_outputs(self._inputs)
        rng = np.random.default_rng(len(self._inputs))
        self._connected = [y.requires_grad for y in outputs]
        self._cotangents = [
            _normal(rng, _array(y)) for y in outputs if y.requires_grad
        ]
        return self._torch_outcome(leaves, outputs, self._cotangents)

    def _torch_outputs(self, inputs: list[np.ndarray]):
        """Torch's leaves and outputs at changed inputs."""
        leaves = [_leaf(t, a) for t, a in zip(self._tensors, inputs, strict=True)]
        of = {id(t): leaf for t, leaf in zip(self._tensors, leaves, strict=True)}
        first, args, kwargs = replaced(self._tree, torch.Tensor, lambda t: of[id(t)])
        op = OPS[self.name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = op.gradcheck_wrapper(op.get_op(), first, *args, **kwargs)
            out = self.sample.output_process_fn_grad(out)
        return leaves, _flat(out, torch.Tensor)

    def _torch_outcome(self, leaves, outputs, cotangents) -> Outcome:
        sources = [leaf for leaf in leaves if leaf.requires_grad]
        targets = [y for y in outputs if y.requires_grad]
        grads = [None] * len(sources)
        if sources and targets:
            seeds = [torch.from_numpy(c) for c in cotangents]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                grads = torch.autograd.grad(targets, sources, seeds, allow_unused=True)
        return Outcome([_array(y) for y in outputs], [*map(_filled, sources, grads)])

    def weft(self, device: str) -> Outcome:
        """What Weft makes of the sample on a device."""
        boxes = {
            id(t): wf.tensor(a, requires_grad=t.requires_grad, device=device)
            for t, a in zip(self._tensors, self._inputs, strict=True)
        }
        tree = replaced(self._tree, torch.Tensor, lambda t: boxes[id(t)])
        tree = replaced(tree, torch.dtype, lambda d: str(d).removeprefix("torch."))
        first, args, kwargs = tree
        sources = [boxes[id(t)] for t in self._tensors if t.requires_grad]
        out = spelling(self.name)(first, *args, **kwargs)
        outputs = _flat(self.sample.output_process_fn_grad(out), wf.Tensor)
        grads = self._weft_gradients(outputs, sources, device)
        return Outcome([y.detach().to("cpu").numpy() for y in outputs], grads)

    def _weft_gradients(self, outputs, sources, device) -> list[np.ndarray]:
        if len(outputs) != len(self._connected):
            raise AssertionError(f"{len(outputs)} outputs, torch has {len(self._connected)}")
        targets = [y for y, c in zip(outputs, self._connected, strict=True) if c]
        if not targets or not sources:
            return [np.zeros(s.shape, s.dtype) for s in sources]
        seeds = [wf.asarray(c, device=device) for c in self._cotangents]
        tape = wf.GradientTape()
        grads = tape.gradient(targets, sources, seeds, unconnected="zero")
        return [g.to("cpu").numpy() for g in grads]

    def sensitivity(self) -> list[np.ndarray]:
        """κ for each result."""
        rng = np.random.default_rng(7)
        moved = [np.zeros(r.shape) for _, r in self.expected.named()]
        for _ in range(DIRECTIONS):
            leaves, outputs = self._torch_outputs([_changed(rng, a) for a in self._inputs])
            cotangents = [_changed(rng, c) for c in self._cotangents]
            there = self._torch_outcome(leaves, outputs, cotangents)
            pairs = zip(self.expected.named(), there.named(), strict=True)
            moved = [np.fmax(m, _distance(a, b)) for m, ((_, a), (_, b)) in zip(moved, pairs)]
        return [m / STEP for m in moved]


def disagreements(trial: Trial, got: Outcome) -> list[str]:
    """Where Weft's outcome is not torch's, in words."""
    pairs = list(zip(trial.expected.named(), got.named(), strict=True))
    strange = [_mismatch(name, a, b) for (name, a), (_, b) in pairs]
    if any(strange):
        return [s for s in strange if s]
    if all(_agree(a, b, np.abs(a)).all() for (_, a), (_, b) in pairs):
        return []
    scales = trial.sensitivity()
    return [
        problem
        for ((name, a), (_, b)), k in zip(pairs, scales, strict=True)
        if (problem := _difference(name, a, b, np.abs(a) + k))
    ]


def _mismatch(name: str, a: np.ndarray, b: np.ndarray) -> str | None:
    if a.shape != b.shape:
        return f"{name}: shape {b.shape}, torch has {a.shape}"
    if (a.dtype.kind in "fc" or b.dtype.kind in "fc") and a.dtype != b.dtype:
        return f"{name}: dtype {b.dtype}, torch has {a.dtype}"
    return None


def _agree(a: np.ndarray, b: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Elementwise: equal, or both not a number, or within the bound."""
    eps = np.finfo(a.dtype).eps if a.dtype.kind in "fc" else 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(a - b) <= ROUNDINGS * eps * scale if eps else a == b
    return (a == b) | (close & np.isfinite(a)) | _both_strange(a, b)


def _both_strange(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "c":
        # Which part of a complex overflow is infinite and which NaN is no one's contract.
        return ~np.isfinite(a) & ~np.isfinite(b)
    return np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)


def _difference(name: str, a: np.ndarray, b: np.ndarray, scale: np.ndarray) -> str | None:
    wrong = ~_agree(a, b, scale)
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        error = np.where(wrong, np.abs(a - b), -1.0)
        i = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), a.shape)
        roundings = error[i] / (np.finfo(a.dtype).eps * scale[i]) if a.dtype.kind in "fc" else 0
    place = tuple(map(int, i))
    return (
        f"{name}: {int(wrong.sum())} of {a.size} differ, at {place} {b[i]!r}, torch has {a[i]!r} "
        f"({roundings:.1e} roundings)"
    )


def _array(t: torch.Tensor) -> np.ndarray:
    return t.detach().resolve_conj().resolve_neg().numpy()


def _filled(source: torch.Tensor, grad: torch.Tensor | None) -> np.ndarray:
    return _array(torch.zeros_like(source) if grad is None else grad)


def _leaf(t: torch.Tensor, a: np.ndarray) -> torch.Tensor:
    """A leaf like t with the values a; t itself (its strides too) where they are the same."""
    same = np.shares_memory(a, _array(t)) or not a.size
    leaf = t.detach() if same else torch.from_numpy(a)
    return leaf.requires_grad_(t.requires_grad)


def _normal(rng, like: np.ndarray) -> np.ndarray:
    c = rng.standard_normal(like.shape)
    if like.dtype.kind == "c":
        c = c + 1j * rng.standard_normal(like.shape)
    return np.asarray(c, like.dtype)


def _changed(rng, a: np.ndarray) -> np.ndarray:
    """Inexact numbers changed relatively by STEP, in random directions."""
    if a.dtype.kind not in "fc":
        return a
    u = rng.choice((-1.0, 1.0), a.shape)
    if a.dtype.kind == "c":
        u = (u + 1j * rng.choice((-1.0, 1.0), a.shape)) / np.sqrt(2.0)
    return np.asarray(a * (1.0 + STEP * u), a.dtype)


def _distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.shape != b.shape:
        return np.zeros(a.shape)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), 0.0)


def _flat(tree, kind: type) -> list:
    """The leaves of a kind in a result, in order; plain numbers become tensors."""
    if isinstance(tree, kind):
        return [tree]
    if isinstance(tree, list | tuple):
        return [leaf for t in tree for leaf in _flat(t, kind)]
    make: Callable = torch.tensor if kind is torch.Tensor else wf.asarray
    return [make(tree)]
