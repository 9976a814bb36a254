"""A function of Weft and one of PyTorch, called with the same arrays: values and gradients."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import weft as wf

from .beside_torch import close

F, T = wf.nn.functional, torch.nn.functional


@dataclass(frozen=True)
class Constant:
    """An array of float64 that is not differentiated by."""

    array: np.ndarray


class Leaves:
    """Arrays as one library's tensors; those of float64 are differentiated by."""

    def __init__(self, make: Callable):
        self._make, self.all = make, []

    def __call__(self, value):
        if isinstance(value, list | tuple):
            return type(value)(self(v) for v in value)
        if isinstance(value, Constant):
            return self._make(value.array, requires_grad=False)
        if not isinstance(value, np.ndarray):
            return value
        made = self._make(value, requires_grad=value.dtype == np.float64)
        if made.requires_grad:
            self.all.append(made)
        return made


def same(ours: Callable, theirs: Callable, *args, device="cpu", rtol=1e-11, **options) -> None:
    """Demand the same results and gradients of two functions; arrays may be in lists too."""
    mine = Leaves(lambda a, requires_grad: wf.tensor(a, requires_grad, device=device))
    other = Leaves(lambda a, requires_grad: torch.tensor(a, requires_grad=requires_grad))
    y = ours(*mine(args), **{k: mine(v) for k, v in options.items()})
    z = theirs(*other(args), **{k: other(v) for k, v in options.items()})
    ys, zs = _flat(y), _flat(z)
    assert len(ys) == len(zs)
    rng = np.random.default_rng(3)
    total, sums = 0.0, []
    for a, b in zip(ys, zs, strict=True):
        close(a.detach().numpy(), b.detach().numpy(), rtol)
        seed = rng.standard_normal(b.shape)
        total = total + (a * wf.tensor(seed, device=device)).sum()
        sums.append((b * torch.tensor(seed)).sum())
    grads = total.backward()
    sum(sums).backward()
    for a, b in zip(mine.all, other.all, strict=True):
        expected = torch.zeros_like(b) if b.grad is None else b.grad
        found = grads.get(a)
        close(np.zeros(b.shape) if found is None else found.numpy(), expected.numpy(), rtol)


def _flat(value) -> list:
    if isinstance(value, list | tuple):
        return [v for part in value for v in _flat(part)]
    return [value]


def agree(name: str, *args, **options) -> None:
    """`same` of the functional of that name."""
    same(getattr(F, name), getattr(T, name), *args, **options)


def saved_bytes(f: Callable) -> int:
    """How many bytes the graph of f() keeps, more than was kept before."""
    before = wf.memory_stats().bytes
    result = f()
    after = wf.memory_stats().bytes
    del result
    return after - before
