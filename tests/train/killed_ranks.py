"""A program that kills ranks of runs at random moments and lets the runs go on.

`python -m tests.train.killed_ranks DIRECTORY KILLS SEED [changing]` trains once on two ranks
without interruption, then again and again, with a random rank killed by SIGKILL each time, until
there were KILLS kills. The other ranks must end with an error soon; every run must end with the
first one's checkpoint to the bit. With "changing", each start has one to three ranks, and runs must
end with the first one's numbers but for rounding. It prints the kills, the runs, and the longest
time that a rank took to end after another was killed.

Ranks are forks of this process, which has loaded everything and has one thread.
"""

import atexit
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
from tests.dist.processes import free_port
from tests.train.dist_ways import Way
from tests.train.runs import same_checkpoints

import weft as wf
from weft.io import disk

WAY = Way(2, 30, dtype="float64", ema=0.9, optimizer="AdamW", accumulate=2, means=False, lr=0.02)
DROP = 0.3


def finish(directory: Path, drop: float) -> None:
    """Begin or go on with a run, on one rank of a group, to its end."""
    group = wf.dist.init(timeout=8)
    wf.random.seed(3 + group.rank)  # rank 0's is everyone's
    way = Way(**{**WAY.__dict__, "drop": drop, "validate": 5})
    made = way.trainer(group.rank, True, directory=directory, save_every=2, keep=2)
    way.fit(made, resume="auto")
    wf.dist.finalize()


def start(ranks: int, directory: Path, drop: float) -> list[int]:
    """The processes of the ranks of a run."""
    found, place = [], {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for rank in range(ranks):
        pid = os.fork()
        if pid:
            found.append(pid)
            continue
        os.environ.update(place | {"RANK": str(rank), "WORLD_SIZE": str(ranks)})
        status = 1
        try:
            finish(directory, drop)
            status = 0
        except BaseException:
            with open(directory.parent / f"{directory.name}-errors", "a") as file:
                file.write(f"rank {rank} of {ranks}:\n{traceback.format_exc()}\n")
        finally:
            atexit._run_exitfuncs()
            os._exit(status)
    return found


def run(ranks: int, directory: Path, drop: float, kill: tuple[float, int] | None):
    """Let ranks train; whether they came to the end, and how long others outlived a killed one.

    kill  after how many seconds which rank is killed
    """
    pids = start(ranks, directory, drop)
    if kill is not None:
        time.sleep(kill[0])
        os.kill(pids[kill[1]], signal.SIGKILL)
    begin, waiting, statuses = time.monotonic(), set(pids), {}
    while waiting:
        for pid in list(waiting):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                statuses[pid] = status
                waiting.discard(pid)
        if time.monotonic() - begin > 60:
            for pid in waiting:
                os.kill(pid, signal.SIGKILL)
            raise AssertionError("ranks did not end within 60 seconds after one was killed")
        time.sleep(0.005)
    lasted = time.monotonic() - begin
    killed = [pid for pid, status in statuses.items() if os.WIFSIGNALED(status)]
    assert killed == ([] if kill is None else [pids[kill[1]]][: len(killed)]), statuses
    if kill is None:
        assert not any(statuses.values()), f"a run failed: {directory}-errors"
    return not killed, lasted if killed else 0.0


def is_near(a: wf.Checkpoint, b: wf.Checkpoint) -> bool:
    """Whether two checkpoints are of the same run but for rounding."""
    pairs = [(a.model_state[name], b.model_state[name]) for name in a.model_state]
    return (a.step, a.epoch, a.data) == (b.step, b.epoch, b.data) and all(
        np.allclose(x.numpy(), y.numpy(), rtol=1e-9, atol=1e-11) for x, y in pairs
    )


def main(root: Path, kills: int, seed: int, changing: bool) -> None:
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", wf.errors.ResumeWarning)
    disk.sync = lambda fd: None  # of no use against SIGKILL, and most of the time
    import torch.distributed  # noqa: F401 - loaded here once for all forks

    WAY.alone()
    assert threading.active_count() == 1
    drop, rng = 0.0 if changing else DROP, random.Random(seed)
    begin = time.monotonic()
    run(2, root / "whole", drop, None)
    duration = time.monotonic() - begin
    expected = wf.load_checkpoint(root / "whole")
    killed = runs = 0
    slowest = 0.0
    while killed < kills:
        directory, ended = root / f"run-{runs}", False
        while not ended:
            ranks = rng.randint(1, 3) if changing else 2
            kill = (rng.uniform(0, duration), rng.randrange(ranks)) if killed < kills else None
            ended, lasted = run(ranks, directory, drop, kill)
            killed, slowest = killed + (not ended), max(slowest, lasted)
        found = wf.load_checkpoint(directory)
        if changing:
            assert is_near(expected, found), f"run {runs} ended with other numbers"
        else:
            differing = same_checkpoints(expected, found)
            assert not differing, f"run {runs} ended with another {differing}"
        runs += 1
    print(killed, runs, round(slowest, 2), round(duration, 2))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:] == ["changing"])
