"""Training steps of six networks under budgets of bytes: peaks, and how much slower.

Run: python -m bench.memory_budget [compiled] [eager] [torch] [cuda] [network ...]
A budget is for all memory of a step: arguments, parameters, moments, gradients and values in
between. Its share is of the values in between, beyond all the rest. Slowdowns are measured in
turns in one process (medians). PyTorch's tables are last, so that its threads are not there while
Weft is timed. `cuda` asks for the tables of a GPU, of larger networks.
"""

import importlib.util
import sys

from .weft_side import NETWORKS, compiled_report, eager_report

OURS = {"compiled": compiled_report, "eager": eager_report}


def main(asked: list[str]) -> None:
    kinds = [a for a in asked if a in (*OURS, "torch", "cuda")] or [*OURS, "torch"]
    networks = [a for a in asked if a in NETWORKS] or NETWORKS
    for name in networks:
        for kind in kinds:
            if kind in OURS:
                OURS[kind](name)
    if "cuda" in kinds:
        from . import cuda_side

        for name in [a for a in asked if a in cuda_side.NETWORKS] or cuda_side.NETWORKS:
            cuda_side.report(name)
        cuda_side.torch_report()
    if "torch" not in kinds:
        return
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: its tables are left out")
        return
    from .torch_side import report

    for name in networks:
        report(name)


if __name__ == "__main__":
    main(sys.argv[1:])
