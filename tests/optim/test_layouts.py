"""Steps on PyTorch's arrays that lie anywhere in memory, beside steps of NumPy's.

Parameters, gradients, arrays of states and averages are laid out at random, and steps are taken in
every way. What ATen's fused kernels get must lie as those of CUDA demand.
"""

import os
from collections import Counter

import numpy as np
import pytest
import torch
from tests.table.layouts import Laid, Plain
from tests.table.probe import raw, to_numpy
from torch.utils._python_dispatch import TorchDispatchMode

import weft as wf
from weft.core import dtypes

from .every import OPTIMIZERS, shapes_of

SEEDS = 60 if os.environ.get("WEFT_SOAK") else 3
STEPS = 6
WAYS = ("grad", "list", "triples", "apply")


class Demands(TorchDispatchMode):
    """Refuses what fused kernels of CUDA do not take; on the CPU they would read beyond arrays."""

    def __init__(self):
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = str(func)
        if "_fused_" in name:
            self.calls[name] += 1
            columns = [c for c in args[:5] if c]
            for arrays in zip(*columns, strict=True):
                first = arrays[0]
                assert first.is_contiguous(), (name, first.shape, first.stride())
                for x in arrays:
                    alike = x.dtype is first.dtype and x.shape == first.shape
                    assert alike and x.stride() == first.stride(), (name, x.shape, x.stride())
        return func(*args, **(kwargs or {}))


class Run:
    """An optimizer's steps on a device; vary(array) lays out an array there."""

    def __init__(self, name: str, device: str, dtype: str, vary, follow):
        self.device, self.dtype, self.vary, self.follow = device, dtype, vary, follow
        rng = np.random.default_rng(1)
        self.params = []
        for shape in shapes_of(name):
            p = wf.Parameter(wf.zeros(shape, dtype=dtype, device=device))
            p._data = self.array(np.asarray(rng.standard_normal(shape)), follow)._data
            self.params.append(p)
        self.optimizer = OPTIMIZERS[name][0](self.params)
        self.ema = wf.optim.EMA(self.params, 0.8)

    def array(self, x: np.ndarray, vary=None):
        """An array of the run's dtype in some layout."""
        made = (vary or self.vary)(x.astype(getattr(dtypes, self.dtype)))
        return wf.asarray(raw(made, "numpy" if self.device == "cpu" else "torch"))

    def step(self, grads: list[np.ndarray | None], way: str) -> None:
        given = [None if g is None else self.array(g) for g in grads]
        pairs = [(p, g) for p, g in zip(self.params, given, strict=True) if g is not None]
        for p, g in zip(self.params, given, strict=True):
            p.grad = g if way == "grad" else None
        if way == "apply":
            self.optimizer.apply_gradients(pairs)
        else:
            triples = [(p.id, p, g) for p, g in pairs]
            self.optimizer.step({"grad": None, "list": given, "triples": triples}[way])
        self.ema.update()

    def turn(self, at: int) -> None:
        """Lay out the arrays of one parameter, its state and its average anew."""
        p, own = self.params[at], self.optimizer.state.get(str(at), {})
        p._data = self.turned(p._data)
        for name in [n for n, x in own.items() if isinstance(x, torch.Tensor)]:
            own[name] = self.turned(own[name])
        self.ema._averages[str(at)] = self.turned(self.ema._averages[str(at)])

    def turned(self, x):
        return raw(self.follow(to_numpy(x)), "torch")

    def values(self) -> dict[str, np.ndarray]:
        found = {f"p{k}": wf.asarray(p._data).to("float64") for k, p in enumerate(self.params)}
        found |= {
            f"average {k}": wf.asarray(x).to("float64") for k, x in self.ema._averages.items()
        }
        return {k: x.to("cpu").numpy() for k, x in found.items()}


def gradients(rng, shapes) -> list[np.ndarray | None]:
    """Random ones; of some parameters but the first there is none."""
    absent = [k > 0 and rng.random() < 0.1 for k in range(len(shapes))]
    made = [np.asarray(rng.standard_normal(s)) for s in shapes]
    return [None if gone else g for gone, g in zip(absent, made, strict=True)]


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_layouts_of_all_arrays_do_not_matter(name, dtype):
    close = max(OPTIMIZERS[name][1], {"float64": 0, "float32": 1e-3, "bfloat16": 0.06}[dtype])
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, len(name)])
        # Of a matrix with equal rows Muon makes one that follows from rounding.
        laid = Laid([seed, 1], spread=name != "muon")
        ours = Run(name, "torch", dtype, laid, Laid([seed, 2]))
        plain = Plain(laid)
        theirs = Run(name, "cpu", dtype, plain, np.array)
        for step in range(STEPS):
            grads, way = gradients(rng, shapes_of(name)), str(rng.choice(WAYS))
            if rng.random() < 0.5:
                ours.turn(int(rng.integers(len(grads))))
            with Demands():
                ours.step(grads, way)
            theirs.step(grads, way)
            for key, want in theirs.values().items():
                got = ours.values()[key]
                off = np.abs(got - want).max(initial=0.0)
                assert off <= close * max(1.0, np.abs(want).max(initial=0.0)), (
                    seed,
                    step,
                    way,
                    key,
                )
        assert laid.unchanged(), "a step changes its gradients"
