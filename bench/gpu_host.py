"""What Python costs in eager steps beside PyTorch's: whole steps on tiny arrays, at full depth.

Run: python -m bench.gpu_host [--device torch] [--rounds 30] [resnet gpt scan ...]

On tiny arrays a step's time is that of the host, which a GPU waits for where its kernels are
quick. Both libraries compute on the same numbers in one process with one thread, in turns; times
are medians of that thread's CPU time, in milliseconds. On the device "torch" both also pay for
PyTorch's kernels of the processor. `--profile` prints where Weft's time goes by function instead.
"""

import argparse
import cProfile
import gc
import sys
from dataclasses import replace
from functools import partial
from math import exp, log
from pstats import Stats
from statistics import median
from time import perf_counter, thread_time

import torch

from .gpu_cases import networks, torch_side, weft_side
from .gpu_cases.problems import (
    EAGER,
    OURS,
    PROBLEMS,
    Problem,
    gpt_data,
    recurrent_data,
    resnet_data,
)
from .gpu_cases.sides import Place, Side

CASES: dict[str, Problem] = {
    "resnet": replace(PROBLEMS["resnet"], data=partial(resnet_data, (3, 4, 6, 3), 4, 8, 2, 10)),
    "resnet32": replace(
        PROBLEMS["resnet"],
        data=partial(resnet_data, (3, 4, 6, 3), 4, 8, 2, 10),
        autocast=False,
    ),
    "gpt": replace(
        PROBLEMS["gpt"], data=partial(gpt_data, 12, 48, 8, 1, 101), forward=networks.gpt(4)
    ),
    "scan": replace(PROBLEMS["scan"], data=partial(recurrent_data, 200, 4, 8)),
    **{name: PROBLEMS[name] for name in ("chain", "mlp", "layer_norm", "linear", "stack", "lora")},
}


def sides(name: str, place: Place) -> tuple[Side, Side]:
    """Weft's step and PyTorch's."""
    problem = CASES[name]
    data = problem.data(place)
    ours = weft_side.side(problem, data, place, OURS)
    return ours, torch_side.side(problem, data, place, EAGER)


def milliseconds(pair: tuple[Side, Side], place: Place, rounds: int) -> tuple[float, float]:
    """The median times of both, measured in turns; of a GPU on the clock, as PyTorch has a thread
    for its backward pass there.
    """
    now = thread_time if place.torch == "cpu" else perf_counter
    samples: tuple[list[float], list[float]] = ([], [])
    for k in range(rounds + 3):
        for times, side in zip(samples, pair, strict=True):
            side.wait(None)
            start = now()
            side.wait(side.call())
            if k >= 3:  # the first ones warm up
                times.append(now() - start)
    return median(samples[0]) * 1e3, median(samples[1]) * 1e3


def profile(side: Side, rounds: int) -> None:
    """Print where the time of one side's steps goes."""
    for _ in range(3):
        side.call()
    found = cProfile.Profile()
    found.enable()
    for _ in range(rounds):
        side.call()
    found.disable()
    Stats(found).sort_stats("tottime").print_stats(45)


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="torch", help="torch: PyTorch's CPU, or cuda")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--profile", action="store_true", help="where Weft's time goes")
    parser.add_argument("cases", nargs="*", help=" ".join(CASES))
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    place = Place(given.device, "cpu" if given.device == "torch" else given.device, True, False)
    ratios = {}
    for name in given.cases or CASES:
        pair = sides(name, place)
        if given.profile:
            profile(pair[0], given.rounds)
            continue
        gc.collect()
        ours, theirs = milliseconds(pair, place, given.rounds)
        ratios[name] = ours / theirs
        print(
            f"{name:12} PyTorch {theirs:8.3f}  Weft {ours:8.3f}  ratio {ratios[name]:.2f}",
            flush=True,
        )
    if ratios:
        mean = exp(sum(map(log, ratios.values())) / len(ratios))
        print(f"geometric mean {mean:.2f} (PyTorch {torch.__version__})")
    return ratios


if __name__ == "__main__":
    main(sys.argv[1:])
