"""One library at one problem, in a process of its own; it answers to lines on its input.

python -m bench.scoreboard.worker CONTENDER PROBLEM REFERENCE
The first line of output is how long the first call took, and the relative error beside the
reference (which the contender "reference" writes); each number of seconds on the input is answered
with the times of a round.
"""

import json
import statistics
import sys
import time
from importlib import import_module

import numpy as np

from .problems import PROBLEMS, data_of
from .sides import Side

SIDES = {
    "reference": "torch_side",
    "torch": "torch_side",
    "torch foreach": "torch_side",
    "torch.compile": "torch_side",
    "jax.jit": "jax_side",
    "autograd": "autograd_side",
    "CasADi": "casadi_side",
    "CasADi, bound": "casadi_side",
    "floor": "floor_side",
    "weft": "weft_side",
    "weft.compile": "weft_side",
}
STEPS = 5  # of training, that are compared
SAMPLE = 2e-3  # seconds that a sample takes at least


def results(side: Side, first, data) -> list[np.ndarray]:
    """What is compared: a function's results; of a training step losses, and what changed."""
    if side.state is None:
        return side.arrays(first)
    losses = [side.arrays(first), *(side.arrays(side.call()) for _ in range(STEPS - 1))]
    before = data["params"].values() if "params" in data else [data["p"]]
    changes = [a - b for a, b in zip(side.state(), before, strict=True)]
    flat = [np.array([x for each in losses for x in each])] if losses[0] else []
    return [*flat, np.concatenate([c.ravel() for c in changes])]


def errors(found: list[np.ndarray], reference: list[np.ndarray]) -> list[float]:
    """Relative errors in norm."""
    return [
        float(np.linalg.norm(np.ravel(a) - np.ravel(b)) / np.linalg.norm(b))
        for a, b in zip(found, reference, strict=True)
    ]


def sample(call, count: int) -> float:
    """Seconds of one of so many calls."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def timed(call, seconds: float) -> dict[str, float]:
    """The best and the median sample of a round."""
    once = min(sample(call, 1) for _ in range(3))
    count = max(1, int(SAMPLE / max(once, 1e-8)))
    taken, end = [], time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        taken.append(sample(call, count))
    return {"best": min(taken), "median": statistics.median(taken)}


def main(contender: str, name: str, reference: str) -> None:
    module = import_module(f".{SIDES[contender]}", __package__)
    data = data_of(name)
    start = time.perf_counter()
    side: Side = module.side(name, contender, data)
    made = time.perf_counter() - start
    start = time.perf_counter()
    first = side.call()
    report = {"first": time.perf_counter() - start, "made": made}
    found = results(side, first, data)
    if contender == "reference":
        np.savez(reference, *found)
    elif found:
        with np.load(reference) as held:
            wrong = errors(found, [held[k] for k in held.files])
        report["errors"] = wrong
        report["right"] = _is_right(wrong, name)
    print(json.dumps(report), flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(side.call, float(line))), flush=True)


def _is_right(wrong: list[float], name: str) -> bool:
    """Losses and results keep to the tolerance.

    Changes of parameters may differ by more: where a gradient is zero but for rounding, the
    adaptive step is as large as elsewhere, and of any sign.
    """
    problem = PROBLEMS[name]
    if not problem.steps:
        return max(wrong) <= problem.tolerance
    *losses, changes = wrong
    return max(losses, default=0.0) <= problem.tolerance and changes <= 0.1


if __name__ == "__main__":
    main(*sys.argv[1:])
