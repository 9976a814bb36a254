"""A program that kills runs at random moments and lets them go on.

`python -m tests.train.killed_trainer DIRECTORY KILLS SEED [late]` trains once without interruption,
then again and again with kills by SIGKILL, until there were KILLS of them; every run must end with
the same checkpoint to the bit. With "late", steps are compiled, and read after the next one is
launched. It prints the kills, the runs, and how many kills met a save.

Runs are forks of this process, which has loaded everything and has one thread.
"""

import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from tests.train.runs import finish, same_checkpoints

import weft as wf
from weft.io import disk


def run(finish, directory: Path, kill_after: float | None) -> bool:
    """Let a fork begin or continue the run; whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            finish(directory)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return False
    assert os.WEXITSTATUS(status) == 0, "the run failed"
    return True


def is_cut(directory: Path) -> bool:
    """Whether a save was under way."""
    found = directory.glob("step-*")
    return any(not (p / "manifest.json").exists() or list(p.glob("*.tmp")) for p in found)


def main(root: Path, kills: int, seed: int, finish) -> None:
    warnings.simplefilter("error")
    disk.sync = lambda fd: None  # of no use against SIGKILL, and most of the time
    finish(root / "warm")  # what is loaded at its first use is loaded here, once for all forks
    assert threading.active_count() == 1
    start = time.perf_counter()
    assert run(finish, root / "whole", None)
    duration = time.perf_counter() - start
    expected, rng = wf.load_checkpoint(root / "whole"), random.Random(seed)
    killed = runs = cut = 0
    while killed < kills:
        directory = root / f"run-{runs}"
        while not run(finish, directory, rng.uniform(0, duration) if killed < kills else None):
            killed += 1
            cut += is_cut(directory)
        differing = same_checkpoints(expected, wf.load_checkpoint(directory))
        assert not differing, f"run {runs} ended with another {differing}"
        runs += 1
    print(killed, runs, cut, round(duration, 3))


if __name__ == "__main__":
    block, train = nullcontext(), finish
    if sys.argv[4:] == ["late"]:
        from tests.train.whole_steps import late

        block, train = late(), partial(finish, compile=True)
    with block:
        main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), train)
