"""Random programs on a GPU, compiled beside eager: a line of JSON for each.

`python -m tests.compiler.cuda.card_programs FIRST STOP STEP [--uncaptured]` from the root of the
repository. A program is called three times: launched directly, captured, replayed.
"""

import json
import os
import sys
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import torch

from weft.compiler.cuda import sums
from weft.compiler.cuda.runtime import executable

from ..fuzz.oracle import Mismatch, check, mode_of
from ..fuzz.writer import Text, written


def verdict(seed: int, device: str) -> tuple[str, str]:
    """What the oracle says of a program, and what is different."""
    text = written(seed)
    try:
        return check(text, mode_of(text), device), ""
    except Mismatch as e:
        told = f"mode {mode_of(text)!r}\n{text.source()}{str(e)[:2000]}"
        return "mismatch", f"{told}\nagain: {_again(text, device)}"


def _again(text: Text, device: str) -> str:
    """Whether a mismatch is there once more: it may depend on what ran before, or on time."""
    try:
        return check(text, mode_of(text), device)
    except Mismatch:
        return "mismatch"


def main(first: int, stop: int, step: int, captured: bool, device: str = "cuda") -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    executable._FEW = 0 if captured else 1 << 30
    sums.FLOPS = 0  # small products take a bias, too
    for seed in range(first, stop, step):
        print(json.dumps({"begins": seed}), flush=True)
        found, told = verdict(seed, device)
        # A GPU that has failed once refuses everything: the next program needs a new process.
        torch.cuda.synchronize()
        print(json.dumps({"seed": seed, "verdict": found, "told": told}), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), captured="--uncaptured" not in sys.argv)
