"""Training steps of the six networks in PyTorch, with checkpoints and under activation budgets.

`every n` puts `torch.utils.checkpoint.checkpoint` around every n units of the network, one at a
time and about the root of how many there are. A share is `activation_memory_budget`, which bounds
what the compiled forward pass saves for the backward pass, not the peak. Compiled is the loss, and
with it the backward pass; AdamW runs outside, fused.

`saved` is what is alive between the two passes, `peak` the most that is alive at once in a step,
with parameters, buffers, moments, gradients and the batch; `beyond` is the peak without those, and
its share that of the plain step of the same table. Slowdowns are beside that step, too.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

# The profiler would log each start and stop.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import numpy as np
import torch
from torch import Tensor
from torch._functorch import config as functorch_config
from torch._inductor.compile_fx import compile_fx
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function

from weft.backend.shared.blas import available
from weft.core.checkpointing import MIB

from .torch_networks import NETWORKS
from .weft_side import NETWORKS as OURS
from .weft_side import slowdown

SHARES = (0.75, 0.5, 0.35, 0.25)
BACKWARD = "backward pass"
Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Taken:
    """The bytes of a step: the most at once, and those that are there between its passes."""

    peak: int
    saved: int


def measure(step: Callable[[], object]) -> Taken:
    """What a step takes, by the profiler's record of every allocation of PyTorch's CPU allocator.

    Compiled code allocates its buffers there, too. Not there are the workspaces within oneDNN's
    kernels, and small buffers on the stacks of threads. The step has to free what it allocates: a
    block that outlives its record, or was there before, would be missing in the sum.

    >>> measure(lambda: torch.empty(1000, 1000)).peak
    4000000
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    profiler: Any = record.profiler  # PyTorch's stubs leave out the bytes of events
    events = profiler.kineto_results.events()
    alive = peak = saved = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
        elif event.name() == BACKWARD:
            saved = alive
    if alive != 0:
        raise RuntimeError(f"a step left {alive} bytes behind: its peak is not known")
    return Taken(peak, saved)


def parameter_count(module) -> int:
    return sum(math.prod(p.shape) for p in module.parameters())


def compile_with_budget(loss: Loss, share: float) -> Loss:
    """A loss compiled under an activation budget.

    Dynamo looks compiled code up by backend as well. As each has its own, steps under all budgets
    stay compiled side by side.
    """

    def backend(graph, inputs):
        with functorch_config.patch(activation_memory_budget=share):
            return compile_fx(graph, inputs)

    return torch.compile(loss, backend=backend, fullgraph=True, dynamic=False)


class TorchStep:
    """A training step of a network; `base` is what is there before it."""

    def __init__(self, name: str):
        torch.manual_seed(0)
        ours, _, x, y = OURS[name](np.random.default_rng(0))
        self.model = NETWORKS[name]()
        counts = parameter_count(self.model), parameter_count(ours)
        if counts[0] != counts[1]:
            raise ValueError(f"{name}: {counts[0]} parameters in torch, {counts[1]} in Weft")
        self.batch = torch.from_numpy(x), torch.from_numpy(y)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self(self.loss)
        parameters = list(self.model.parameters())
        moments = [m for state in self.optimizer.state.values() for m in state.values()]
        fixed = [*parameters, *self.model.buffers(), *moments, *self.batch]
        self.base = sum(t.nbytes for t in fixed)
        self.gradients = sum(p.nbytes for p in parameters)

    def loss(self, x: Tensor, y: Tensor, every: int = 0) -> Tensor:
        return F.cross_entropy(self.model(x, every).flatten(0, -2), y.flatten())

    def __call__(self, loss: Loss) -> None:
        self.optimizer.zero_grad()
        value = loss(*self.batch)
        with record_function(BACKWARD):
            value.backward()
        self.optimizer.step()

    def measure(self, loss: Loss) -> Taken:
        self(loss)  # compiles, if it is to be compiled
        self.optimizer.zero_grad()

        def step():
            self(loss)
            self.optimizer.zero_grad()

        return measure(step)

    def table(self, title: str, plain: Loss, others: dict[str, Loss]) -> None:
        whole = self.measure(plain).peak - self.gradients
        print(
            f"  {title:>9} {'saved':>9} {'peak':>9} {'beyond':>9} {'of plain':>9} {'measured':>9}"
        )
        for name, loss in {"plain": plain, **others}.items():
            taken = self.measure(loss)
            beyond = taken.peak - self.gradients
            measured = slowdown(partial(self, plain), partial(self, loss), ())
            print(
                f"  {name:>9} {taken.saved / MIB:9.2f} {(self.base + taken.peak) / MIB:9.2f} "
                f"{beyond / MIB:9.2f} {100 * beyond / whole:7.1f} % {measured:9.3f}",
                flush=True,
            )


def report(name: str) -> None:
    torch.set_num_threads(available())
    torch._dynamo.reset()
    step = TorchStep(name)
    units = len(step.model.units)
    print(f"{name}, torch: {OURS[name].__doc__}")
    print(
        f"  {step.base / MIB:.2f} MiB before, {step.gradients / MIB:.2f} of gradients; "
        f"{units} {step.model.unit}"
    )
    checkpoints: dict[str, Loss] = {
        f"every {n}": partial(step.loss, every=n) for n in (1, round(math.sqrt(units)))
    }
    step.table("eager", step.loss, checkpoints)
    budgets = {f"{100 * share:.0f} %": compile_with_budget(step.loss, share) for share in SHARES}
    compiled = {n: compile_with_budget(loss, 1.0) for n, loss in checkpoints.items()}
    step.table("compiled", compile_with_budget(step.loss, 1.0), {**budgets, **compiled})
