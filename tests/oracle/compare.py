"""Running a sample in torch and in Weft, and judging whether the two agree."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

import weft as wf

from .database import OPS, SampleInput, parts, replaced, tensors
from .mapping import spelling

# The rule, one for all ops and results. An element of the array r agrees with torch's if
#     |Δ| ≤ ROUNDINGS · (eps·max|r| + eps·κ + min(ν, √eps·max|r|)).
# κ, the element's condition: the change of torch's own result when all inputs and cotangents
# change relatively by ±STEP, divided by STEP. Both results may be the exact ones of numbers a few
# roundings away. A jump J, as of a tie broken in another way, enters only as eps·J/STEP.
# ν, torch's own noise: the largest second difference in the array over ±STEP, where the
# curvature's share is of the order STEP², far below eps. Where torch loses digits on the way, we
# may too; the limit keeps jumps from passing as noise.
# κ and ν are the largest of DIRECTIONS random changes.
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
        self._cotangents = [_normal(rng, _array(y)) for y in outputs if y.requires_grad]
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
            pairs = zip(cotangents, targets, strict=True)
            seeds = [torch.from_numpy(c).to(y.dtype) for c, y in pairs]
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
        return Outcome([_numbers(y) for y in outputs], grads)

    def _weft_gradients(self, outputs, sources, device) -> list[np.ndarray]:
        if len(outputs) != len(self._connected):
            raise AssertionError(f"{len(outputs)} outputs, torch has {len(self._connected)}")
        targets = [y for y, c in zip(outputs, self._connected, strict=True) if c]
        if not targets or not sources:
            return [np.zeros(s.shape, s.dtype) for s in sources]
        seeds = [wf.asarray(c, device=device) for c in self._cotangents]
        tape = wf.GradientTape()
        grads = tape.gradient(targets, sources, seeds, unconnected="zero")
        return [_numbers(g) for g in grads]

    def sensitivity(self) -> list[np.ndarray]:
        """What each element of each result may be off by in a rounding, as the rule says."""
        rng = np.random.default_rng(7)
        here = [r for _, r in self.expected.named()]
        slope, noise = [np.zeros(r.shape) for r in here], [0.0 for r in here]
        for _ in range(DIRECTIONS):
            u = [_direction(rng, a) for a in (*self._inputs, *self._cotangents)]
            up, down = self._moved(u, STEP), self._moved(u, -STEP)
            for i, (a, r, b) in enumerate(zip(up, here, down, strict=True)):
                first, second = _differences(a, r, b)
                slope[i] = np.maximum(slope[i], first / (2 * STEP))
                noise[i] = max(noise[i], second.max(initial=0.0))
        return [_rounding(r, k, n) for r, k, n in zip(here, slope, noise, strict=True)]

    def _moved(self, directions: list[np.ndarray], step: float) -> list[np.ndarray]:
        """Torch's results with every input and cotangent changed along a direction."""
        now = (*self._inputs, *self._cotangents)
        new = [_stepped(a, u, step) for a, u in zip(now, directions, strict=True)]
        n = len(self._inputs)
        there = self._torch_outcome(*self._torch_outputs(new[:n]), new[n:])
        return [r for _, r in there.named()]


def disagreements(trial: Trial, got: Outcome) -> list[str]:
    """Where Weft's outcome is not torch's, in words."""
    pairs = list(zip(trial.expected.named(), got.named(), strict=True))
    strange = [_mismatch(name, a, b) for (name, a), (_, b) in pairs]
    if any(strange):
        return [s for s in strange if s]
    if all(_agree(a, b, _eps(a) * _largest(a)).all() for (_, a), (_, b) in pairs):
        return []
    roundings = trial.sensitivity()
    return [
        problem
        for ((name, a), (_, b)), rounding in zip(pairs, roundings, strict=True)
        if (problem := _difference(name, a, b, rounding))
    ]


def _mismatch(name: str, a: np.ndarray, b: np.ndarray) -> str | None:
    if a.shape != b.shape:
        return f"{name}: shape {b.shape}, torch has {a.shape}"
    if (a.dtype.kind in "fc" or b.dtype.kind in "fc") and a.dtype != b.dtype:
        return f"{name}: dtype {b.dtype}, torch has {a.dtype}"
    return None


def _eps(a: np.ndarray) -> float:
    return float(np.finfo(a.dtype).eps) if a.dtype.kind in "fc" else 0.0


def _agree(a: np.ndarray, b: np.ndarray, rounding) -> np.ndarray:
    """Elementwise: equal, or both not a number, or within the bound."""
    if not _eps(a):
        return a == b
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(a - b) <= ROUNDINGS * rounding
    return (a == b) | (close & np.isfinite(a)) | _both_strange(a, b)


def _both_strange(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "c":
        # Which part of a complex overflow is infinite and which NaN is no one's contract.
        return ~np.isfinite(a) & ~np.isfinite(b)
    return np.isnan(a) & np.isnan(b)


def _difference(name: str, a: np.ndarray, b: np.ndarray, rounding: np.ndarray) -> str | None:
    wrong = ~_agree(a, b, rounding)
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        error = np.where(wrong, np.abs(a - b), -1.0)
        i = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), a.shape)
        roundings = error[i] / rounding[i]
    place = tuple(map(int, i))
    return (
        f"{name}: {int(wrong.sum())} of {a.size} differ, at {place} {b[i]!r}, torch has {a[i]!r} "
        f"({roundings:.1e} roundings)"
    )


def _array(t: torch.Tensor) -> np.ndarray:
    """A torch tensor's numbers; bfloat16, which NumPy lacks, as the same float32."""
    return (t.float() if t.dtype == torch.bfloat16 else t).numpy(force=True)


def _numbers(t) -> np.ndarray:
    a = t.detach().to("cpu").numpy()
    return a.astype(np.float32) if a.dtype == wf.bfloat16 else a


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


def _direction(rng, a: np.ndarray) -> np.ndarray:
    """Random signs, of both parts of complex numbers."""
    u = rng.choice((-1.0, 1.0), a.shape)
    if a.dtype.kind == "c":
        u = (u + 1j * rng.choice((-1.0, 1.0), a.shape)) / np.sqrt(2.0)
    return u


def _stepped(a: np.ndarray, u: np.ndarray, step: float) -> np.ndarray:
    """Inexact numbers changed relatively by a step."""
    return np.asarray(a * (1.0 + step * u), a.dtype) if a.dtype.kind in "fc" else a


def _differences(a: np.ndarray, r: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|a − b| and |a − 2r + b| where these are finite, 0 elsewhere."""
    if not _eps(r) or a.shape != r.shape or b.shape != r.shape:
        return np.zeros(r.shape), np.zeros(r.shape)
    finite = np.isfinite(a) & np.isfinite(r) & np.isfinite(b)
    a, r, b = (np.where(finite, x, 0.0) for x in (a, r, b))
    return np.abs(a - b), np.abs(a - 2 * r + b)


def _largest(r: np.ndarray) -> float:
    return float(np.max(np.abs(r), initial=0.0, where=np.isfinite(r)))


def _rounding(r: np.ndarray, slope: np.ndarray, noise: float) -> np.ndarray:
    eps, largest = _eps(r), _largest(r)
    return eps * largest + eps * slope + min(noise, eps**0.5 * largest)


def _flat(tree, kind: type) -> list:
    """The leaves of a kind in a result, in order; plain numbers become tensors."""
    if isinstance(tree, kind):
        return [tree]
    if isinstance(tree, list | tuple):
        return [leaf for t in tree for leaf in _flat(t, kind)]
    make: Callable = torch.tensor if kind is torch.Tensor else wf.asarray
    return [make(tree)]
