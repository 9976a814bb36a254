"""A program that saves checkpoints until it is killed, and a program that kills it again and again.

`python killed_writer.py DIRECTORY KILLS SEED` forks a writer, ends it with SIGKILL after a random
time and looks at what is on the disk, KILLS times; it prints how often a save was cut in two.
"""

import os
import random
import signal
import struct
import sys
import time
import warnings

import numpy as np
from alike import same

import weft as wf


def content(step: int) -> wf.Checkpoint:
    """The checkpoint of a step, always the same."""
    rng = np.random.default_rng(step)
    model = {f"layer{i}": wf.asarray(rng.standard_normal((64, 64))) for i in range(4)}
    moments = {name: (p * p).to("bfloat16") for name, p in model.items()}
    return wf.Checkpoint(model, moments, epoch=step // 10, step=step, rng=wf.random.get_state())


def save_forever(root: str, reports: int) -> None:
    """Save step after step from where the last writer was, and report each that is saved."""
    step = wf.io.latest(root) or 0
    while True:
        step += 1
        wf.random.seed(step)
        wf.save_checkpoint(root, content(step), keep_last=2)
        os.write(reports, struct.pack("q", step))


def time_of_a_save(root: str) -> float:
    """In seconds, with the removal of an older one; leaves steps 2 and 3."""
    for step in (1, 2, 3):
        wf.random.seed(step)
        start = time.perf_counter()
        wf.save_checkpoint(root, content(step), keep_last=2)
    return time.perf_counter() - start


def kill_once(root: str, pause: float) -> list[int]:
    """Run a writer for a while; the steps that it reported."""
    reading, reports = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            save_forever(root, reports)
        finally:
            os._exit(1)  # only if saving failed
    os.close(reports)
    time.sleep(pause)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "the writer failed"
    with os.fdopen(reading, "rb") as file:
        return [step for (step,) in struct.iter_unpack("q", file.read())]


def check(root: str, reported: int) -> None:
    """The newest checkpoint is the last reported one or its successor, to the bit."""
    step = wf.io.latest(root)
    assert step is not None
    assert reported <= step <= reported + 1, (reported, step)
    wf.random.seed(step)
    loaded, expected = wf.load_checkpoint(root), content(step)
    assert all(same(getattr(loaded, f), getattr(expected, f)) for f in vars(expected))


def main(root: str, kills: int, seed: int) -> None:
    warnings.simplefilter("error")
    rng, reported, cut, duration = random.Random(seed), 3, 0, time_of_a_save(root)
    for _ in range(kills):
        steps = kill_once(root, rng.uniform(0.0, 4 * duration))
        reported = max([reported, *steps])
        cut += any(
            not os.path.exists(f"{root}/{name}/manifest.json")
            for name in os.listdir(root)
            if name.startswith("step-")
        )
        check(root, reported)
        reported = wf.io.latest(root)
    print(kills, reported, cut)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
