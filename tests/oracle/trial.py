"""Trials: a sample of torch's, evaluated in torch and in Weft with the same numbers."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

import weft as wf

from .database import OPS, SampleInput, parts, replaced, tensors
from .mapping import spelling


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

    def torch_near(self, directions: list[np.ndarray], step: float) -> Outcome:
        """Torch's outcome with every input and cotangent changed relatively along a direction."""
        new = [_stepped(a, u, step) for a, u in zip(self.numbers, directions, strict=True)]
        n = len(self._inputs)
        return self._torch_outcome(*self._torch_outputs(new[:n]), new[n:])

    @property
    def numbers(self) -> tuple[np.ndarray, ...]:
        """All that goes in: the sample's tensors, then the cotangents."""
        return (*self._inputs, *self._cotangents)


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
    same = np.may_share_memory(a, _array(t)) or not a.size
    leaf = t.detach() if same else torch.from_numpy(a)
    return leaf.requires_grad_(t.requires_grad)


def _normal(rng, like: np.ndarray) -> np.ndarray:
    c = rng.standard_normal(like.shape)
    if like.dtype.kind == "c":
        c = c + 1j * rng.standard_normal(like.shape)
    return np.asarray(c, like.dtype)


def _stepped(a: np.ndarray, u: np.ndarray, step: float) -> np.ndarray:
    """Inexact numbers changed relatively by a step."""
    return np.asarray(a * (1.0 + step * u), a.dtype) if a.dtype.kind in "fc" else a


def _flat(tree, kind: type) -> list:
    """The leaves of a kind in a result, in order; plain numbers become tensors."""
    if isinstance(tree, kind):
        return [tree]
    if isinstance(tree, list | tuple):
        return [leaf for t in tree for leaf in _flat(t, kind)]
    make: Callable = torch.tensor if kind is torch.Tensor else wf.asarray
    return [make(tree)]
