"""What a library has to offer for a problem, and what a contender is."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch

Named = dict[str, Any]


@dataclass(frozen=True)
class Library:
    """The functions that programs are written with.

    f         `linear`, `layer_norm` and the like, under PyTorch's names
    xp        `tanh`, `stack` and the like
    cast      (x, like): x in the dtype of another
    scan      (step, state, xs): the last state after `state = step(state, x)` for each x
    autocast  a block in which products are in bfloat16
    """

    f: Any
    xp: Any
    cast: Callable[[Any, Any], Any]
    scan: Callable[[Callable[[Any, Any], Any], Any, Any], Any]
    autocast: Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Data:
    """The arrays of a problem.

    params     what gradients are taken by; each contender has copies
    inputs     the arguments of a step
    frozen     weights and tables that stay
    buffers    what a step changes besides parameters; each contender has copies
    cotangent  of the result; None: the result is a loss
    grads      gradients by the parameters' names, if a step has no forward pass
    """

    params: dict[str, torch.Tensor]
    inputs: dict[str, torch.Tensor] = field(default_factory=dict)
    frozen: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    cotangent: torch.Tensor | None = None
    grads: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Where to compute: Weft's name of the device, PyTorch's, and whether sizes are tiny.

    advised  whether PyTorch's images lie with the channels last, as it advises
    """

    weft: str
    torch: str
    tiny: bool
    advised: bool = True

    def wait(self) -> None:
        if self.torch != "cpu":
            torch.cuda.synchronize()


@dataclass(frozen=True)
class Side:
    """One contender at one problem.

    call     one step; returns its result
    results  what the last call has computed, from its result: named tensors of PyTorch's
    wait     wait until a result is there
    """

    call: Callable[[], Any]
    results: Callable[[Any], dict[str, torch.Tensor]]
    wait: Callable[[Any], None]


def seconds(side: Side, calls: int = 1) -> float:
    """The time of a call, measured over several that are waited for together."""
    side.wait(None)
    start = perf_counter()
    result = None
    for _ in range(calls):
        result = side.call()
    side.wait(result)
    return (perf_counter() - start) / calls


@contextmanager
def nothing() -> Iterator[None]:
    """The block of a library whose precision is that of the arrays."""
    yield
