"""Training steps of networks on a GPU, eager, under budgets of bytes and with values moved out.

Peaks are those of PyTorch's allocator (`torch.cuda.max_memory_allocated`), for Weft and PyTorch
alike. A share is of what a step without a budget takes beyond parameters, moments and gradients.
PyTorch's rows put `torch.utils.checkpoint.checkpoint` around every n blocks.

Run: python -m bench.memory_budget cuda
"""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import weft as wf
from weft.core.checkpointing import MIB, CheckpointConfig
from weft.errors import BudgetExceeded

from . import torch_networks
from .weft_side import Block, Vision

F = wf.nn.functional
SHARES, ROUNDS = (1.0, 0.75, 0.5, 0.35, 0.25, 0.02), 7


def gpt(rng: np.random.Generator) -> Any:
    """A GPT of 24 blocks, width 1024, batch 8 of 512 words, float32."""
    width, length, words, batch = 1024, 512, 4096, 8
    model = wf.nn.Sequential(
        wf.nn.Embedding(words, width),
        *[Block(width, 16, 0.0, True) for _ in range(24)],
        wf.nn.LayerNorm(width),
        wf.nn.Linear(width, words),
    )
    ids, targets = (rng.integers(0, words, (batch, length)) for _ in range(2))
    return model, lambda y, t: F.cross_entropy(y.reshape(-1, words), t.reshape(-1)), ids, targets


def torch_gpt() -> torch_networks.Chain:
    width, words = 1024, 4096
    blocks = [torch_networks.Block(width, 16, 0.0, True) for _ in range(24)]
    last = torch.nn.Sequential(torch.nn.LayerNorm(width), torch.nn.Linear(width, words))
    return torch_networks.Chain("block", torch.nn.Embedding(words, width), blocks, last)


def vit(rng: np.random.Generator) -> Any:
    """A vision transformer of 12 blocks with dropout, width 384, batch 64 of 64×64."""
    x = rng.standard_normal((64, 3, 64, 64)).astype(np.float32)
    return Vision(384, 12, 4), F.cross_entropy, x, rng.integers(0, 10, 64)


def mlp(rng: np.random.Generator) -> Any:
    """A perceptron of 50 layers, width 1024, batch 8192."""
    layers = [part for _ in range(50) for part in (wf.nn.Linear(1024, 1024), wf.nn.GELU())]
    x = rng.standard_normal((8192, 1024)).astype(np.float32)
    model = wf.nn.Sequential(*layers, wf.nn.Linear(1024, 10))
    return model, F.cross_entropy, x, rng.integers(0, 10, 8192)


def cnn(rng: np.random.Generator) -> Any:
    """18 convolutions with batch norm, 64 channels, batch 64 of 64×64."""
    parts: list[Any] = []
    for k in range(18):
        parts += [wf.nn.Conv2d(64 if k else 3, 64, 3, padding=1), wf.nn.BatchNorm2d(64)]
        parts += [wf.nn.ReLU()]
    model = wf.nn.Sequential(
        *parts, wf.nn.AdaptiveAvgPool2d(1), wf.nn.Flatten(), wf.nn.Linear(64, 10)
    )
    x = rng.standard_normal((64, 3, 64, 64)).astype(np.float32)
    return model, F.cross_entropy, x, rng.integers(0, 10, 64)


NETWORKS = {f.__name__: f for f in (gpt, vit, mlp, cnn)}


def milliseconds(step: Callable[[], object]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def peak(step: Callable[[], object]) -> int:
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated()


def in_turns(plain: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """The medians of both times."""
    both = [(milliseconds(plain), milliseconds(other)) for _ in range(ROUNDS)]
    return statistics.median(a for a, _ in both), statistics.median(b for _, b in both)


class Step:
    """A training step on the GPU; `base` is what is there before it, gradients included."""

    def __init__(self, name: str):
        wf.random.seed(0)
        self.model, self.loss, x, y = NETWORKS[name](np.random.default_rng(0))
        self.model.to("cuda")
        self.batch = wf.tensor(x).to("cuda"), wf.tensor(y).to("cuda")
        self.parameters = list(self.model.parameters())
        self.optimizer = wf.optim.AdamW(self.parameters, lr=1e-4)
        self(None)
        gc.collect()
        self.base = torch.cuda.memory_allocated() + sum(p.nbytes for p in self.parameters)

    def __call__(self, config: CheckpointConfig | None) -> None:
        x, y = self.batch
        with wf.GradientTape(checkpoint=config) as tape:
            value = self.loss(self.model(x), y)
        self.optimizer.step(tape.gradient(value, self.parameters))

    def on_cpu(self) -> None:
        """The step with all that is saved in host memory."""
        x, y = self.batch
        with wf.GradientTape() as tape, wf.save_on_cpu():
            value = self.loss(self.model(x), y)
        self.optimizer.step(tape.gradient(value, self.parameters))

    def row(self, title: str, config: CheckpointConfig) -> None:
        budget = "" if config.budget is None else f"{config.budget / MIB:9.1f}"
        try:
            for _ in range(2):  # needs are measured, for which the count of the peak begins again
                self(config)
            most = peak(lambda: self(config))
        except BudgetExceeded as e:
            print(f"  {title:>14} {budget:>9}  refused: {(e.smallest or 0) / MIB:.1f} MiB at least")
            return
        self.show(title, budget, most, lambda: self(config))

    def show(self, title: str, budget: str, most: int, step: Callable[[], object]) -> None:
        plain, other = in_turns(lambda: self(None), step)
        passed = "  PASSED" if budget and most > float(budget) * MIB + 0.06 * MIB else ""
        print(
            f"  {title:>14} {budget:>9} {most / MIB:9.1f} {plain:9.1f} {other:9.1f} "
            f"{other / plain:9.3f}{passed}",
            flush=True,
        )


def report(name: str) -> None:
    step = Step(name)
    whole = peak(lambda: step(None))
    print(f"{name}, eager on {torch.cuda.get_device_name()}: {NETWORKS[name].__doc__}")
    print(f"  {step.base / MIB:.1f} MiB fixed, {(whole - step.base) / MIB:.1f} beyond")
    print(f"  {'share':>14} {'budget':>9} {'peak':>9} {'plain':>9} {'ms':>9} {'slowdown':>9}")
    for share in SHARES:
        budget = (step.base + share * (whole - step.base)) / MIB
        step.row(f"{100 * share:.0f} %", CheckpointConfig("auto", memory_budget_mb=budget))
    half = (step.base + 0.5 * (whole - step.base)) / MIB
    step.row("50 %, to host", CheckpointConfig("auto", memory_budget_mb=half, offload="cpu"))
    for strategy in ("selective", "block", "full"):
        step.row(strategy, CheckpointConfig(strategy))
    step.show("save_on_cpu", "", peak(step.on_cpu), step.on_cpu)


def torch_report() -> None:
    """PyTorch's own GPT with checkpoints."""
    model = torch_gpt().cuda()
    _, _, ids, targets = gpt(np.random.default_rng(0))
    x, y = torch.from_numpy(ids).cuda(), torch.from_numpy(targets).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(every: int) -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, every).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()

    step(0)
    base = torch.cuda.memory_allocated()
    whole = peak(lambda: step(0))
    print(f"gpt, torch {torch.__version__} eager: {base / MIB:.1f} MiB fixed")
    for every in (0, 1, 2, 5):
        most = peak(lambda every=every: step(every))
        plain, other = in_turns(lambda: step(0), lambda every=every: step(every))
        share = (most - base) / (whole - base)
        print(
            f"  every {every}: {most / MIB:9.1f} MiB ({100 * share:5.1f} % beyond) "
            f"{other:9.1f} ms {other / plain:9.3f}"
        )
