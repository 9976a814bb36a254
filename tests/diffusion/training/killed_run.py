"""A program that kills `weft train` at random moments and lets it go on.

`python -m tests.diffusion.training.killed_run DIRECTORY KILLS SEED [compiled|process]` trains once
without interruption, from images to adapter files, and then again and again with kills by SIGKILL
until there were KILLS of them: after a random time, or before, in the middle of or after a random
operation on the disk; half of those that follow another kill soon after the run was resumed.
Every run must leave what the first one left, to the bit. It prints the kills, the runs, and what
was being written by the operations that kills met.

Runs are forks of this process, which has loaded everything and has one thread; their steps are
compiled with "compiled". With "process" they are processes of their own, with compiled steps, which
are killed after a random time.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import NamedTuple

from tests.io.volatile_disk import OPERATIONS
from tests.train.killed_events import shown
from tests.train.runs import same_checkpoints

import weft as wf
from weft.cli.commands import run as run_command
from weft.io import disk

from .tiny import SECTIONS, make_files, write_config

WHEN = ("before", "in the middle", "after")
PLACES = ("cache", "adapters", "previews", "step-", "run-")


class Moment(NamedTuple):
    """When a run is killed: after seconds, or at the operation of a number on files of a place."""

    seconds: float | None = None
    place: str = ""
    operation: int = -1
    when: str = "before"


def place_of(path: str) -> str:
    """What a file belongs to."""
    parts = Path(path).parts
    found = (place for place in PLACES if any(p.startswith(place) for p in parts))
    return next(found, "run-")


class WatchedDisk:
    """Counts operations on the disk, says of each what it is about, and kills at one of them."""

    def __init__(self, moment: Moment, told: int):
        self.moment, self.told, self.counts = moment, told, Counter[str]()
        self.open: dict[int, str] = {}

    def install(self) -> None:
        for name in OPERATIONS.split():
            setattr(disk, name, self._watch(name, getattr(disk, name)))

    def _watch(self, name: str, real: Callable) -> Callable:
        def operate(*args):
            path = self.open[args[0]] if isinstance(args[0], int) else os.fspath(args[-1])
            place = place_of(path)
            here = (place, self.counts[place]) == (self.moment.place, self.moment.operation)
            self.counts[place] += 1
            os.write(self.told, f"{place}\n".encode())
            if here and self.moment.when == "in the middle" and name == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            if here and self.moment.when != "after":
                os.kill(os.getpid(), signal.SIGKILL)
            # Flushing is of no use against SIGKILL, and takes most of the time.
            found = None if name.startswith("sync") else real(*args)
            if name == "create":
                self.open[found] = path
            if here:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return operate


def train_once(config: Path, log: Path, moment: Moment) -> tuple[bool, list[str]]:
    """A fork that begins or continues a run; whether it came to its end, and its operations."""
    log.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            WatchedDisk(moment, fd).install()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            status = run_command(["train", os.fspath(config)])
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    if moment.seconds is not None:
        time.sleep(moment.seconds)
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    done = log.read_text().splitlines() if log.exists() else []
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the run failed"
    return not os.WIFSIGNALED(status), done


def train_process(config: Path, log: Path, moment: Moment) -> tuple[bool, list[str]]:
    """As `train_once`, in a process of its own."""
    with log.open("w") as said:
        command = [sys.executable, "-m", "weft", "train", os.fspath(config)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        try:
            process.wait(moment.seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False, []
    assert process.returncode == 0, log.read_text()
    return True, []


def unfinished(*folders: Path) -> list[Path]:
    return [p for folder in folders for p in folder.rglob(".weft-*.tmp")]


# What two runs need not have alike: locks, and which digests of files are remembered.
ASIDE = {".lock", "digests.json"}


class Left(NamedTuple):
    """What a run has left: files by name, checkpoints by step, rows of its event files."""

    files: dict[str, bytes]
    checkpoints: dict[int, wf.Checkpoint]
    rows: list[tuple[str, int, float]]

    @staticmethod
    def of(run: Path, cache: Path) -> Left:
        apart = {run / wf.io.directory.step_name(s) for s in wf.io.steps(run)} | {run / "events"}
        files = {
            f"{folder.name.split('-')[0]}/{p.relative_to(folder)}": p.read_bytes()
            for folder in (run, cache)
            for p in folder.rglob("*")
            if p.is_file() and p.name not in ASIDE and not apart.intersection(p.parents)
        }
        saved = {s: wf.load_checkpoint(run, s) for s in wf.io.steps(run)}
        return Left(files, saved, shown(run / "events"))

    def differences(self, other: Left) -> list[str]:
        names = sorted(self.files.keys() | other.files.keys())
        found = [n for n in names if self.files.get(n) != other.files.get(n)]
        if self.checkpoints.keys() != other.checkpoints.keys():
            return [*found, f"steps {list(self.checkpoints)}, {list(other.checkpoints)}"]
        for step, saved in self.checkpoints.items():
            fields = same_checkpoints(saved, other.checkpoints[step])
            found += [f"{name} of step {step}" for name in fields]
        return found + (["events"] if self.rows != other.rows else [])


def configure(root: Path, name: str, compiled: bool = False) -> Path:
    """The configuration of a run with a bit of everything."""
    options = f"compile = {str(compiled).lower()}\nclip_norm = 1.0"
    return write_config(
        root,
        f"{name}.toml",
        train=SECTIONS["train"].replace("steps = 6", f"steps = 7\n{options}"),
        output=f'directory = "run-{name}"\nsave_every = 2\nkeep = 2\nlayouts = ["peft", "kohya"]\n'
        "log_every = 100\ntensorboard = true",
        encoders=f'{SECTIONS["encoders"]}\ncache = "cache-{name}"',
    )


def draw_moment(
    rng: random.Random, resumed: bool, seconds: float, operations: Counter[str]
) -> Moment:
    share = 0.2 if resumed and rng.random() < 0.5 else 1.0
    if not operations or rng.random() < 0.4:
        return Moment(seconds=rng.uniform(0, share * seconds))
    place = rng.choice(PLACES[resumed:])  # the cache is complete, most of the time
    return Moment(None, place, rng.randrange(ceil(share * operations[place])), rng.choice(WHEN))


def load_everything(root: Path, compiled: bool) -> None:
    """A run in this process: what is loaded or compiled at its first use is so once for all."""
    assert run_command(["train", os.fspath(configure(root, "warm", compiled))]) == 0
    gc.collect()  # Matplotlib has kept the loop's frame, and so the loader's thread
    assert threading.active_count() == 1


def main(root: Path, kills: int, seed: int, kind: str = "") -> None:
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", r"(?s).*width 3072 only", wf.errors.AdapterWarning)
    make_files(root)
    train, compiled = train_process if kind == "process" else train_once, bool(kind)
    if kind != "process":
        load_everything(root, compiled)
    begun = time.perf_counter()
    ended, done = train(configure(root, "whole", compiled), root / "log", Moment())
    seconds, operations = time.perf_counter() - begun, Counter(done)
    assert ended
    whole = Left.of(root / "run-whole", root / "cache-whole")
    rng, killed, runs, met = random.Random(seed), 0, 0, Counter[str]()
    while killed < kills:
        ended, resumed = False, False
        config = configure(root, str(runs), compiled)
        folders = root / f"run-{runs}", root / f"cache-{runs}"
        while not ended:
            limit = draw_moment(rng, resumed, seconds, operations) if killed < kills else Moment()
            ended, done = train(config, root / "log", limit)
            killed, resumed = killed + (not ended), True
            met[done[-1] if done else "nothing"] += not ended
            # A killed process leaves one in the cache, or one of the run's.
            assert len(unfinished(*folders)) <= 3, unfinished(*folders)
        assert not unfinished(*folders)
        differing = whole.differences(Left.of(*folders))
        assert not differing, f"run {runs} left another {differing}"
        runs += 1
    print(killed, runs, *[f"{n}:{k}" for n, k in sorted(met.items())])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
