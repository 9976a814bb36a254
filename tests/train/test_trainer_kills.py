"""A run that is killed at any moment, or whose disk fails at any operation, goes on to the bit."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.io.volatile_disk import PowerCut, VolatileDisk

import weft as wf

from .runs import full_trainer, loader, same_checkpoints

ROOT = Path(__file__).parents[2]
SOAK = bool(os.environ.get("WEFT_SOAK"))
KILLS = 200 if SOAK else 10
EVERY = 1 if SOAK else 3  # of the operations; those of the kinds of faults are apart
KINDS = ("cut", "short, cut", "short", "ENOSPC", "EIO", "full")
LOSSES = ["all", "all but the last", *(range(6) if SOAK else ())]
PAIRS = [(k, loss) for k in KINDS for loss in (LOSSES if "cut" in k else [None])]
FAULTS = [(k, loss, n % EVERY) for n, (k, loss) in enumerate(PAIRS)]


@pytest.mark.parametrize("late", [False, True])
def test_killed_runs(tmp_path, late):
    number = KILLS // 4 if late else KILLS  # to compile takes longer than to train
    command = [sys.executable, "-m", "tests.train.killed_trainer", str(tmp_path), str(number), "0"]
    command += ["late"] if late else []
    path = os.pathsep.join([str(Path(wf.__file__).parents[1]), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path}
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    kills, runs, cut, _ = map(float, run.stdout.split())
    assert kills == number and runs > number / 10
    assert not SOAK or late or cut > 0  # some kills met a save


def test_event_files_of_killed_runs(tmp_path):
    every = "1" if SOAK else "29"
    command = [sys.executable, "-m", "tests.train.killed_events", str(tmp_path), every]
    path = os.pathsep.join([str(Path(wf.__file__).parents[1]), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path}
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    assert int(run.stdout) >= (5 if SOAK else 2)


def train(directory, steps: int) -> None:
    validation = loader(shuffle=False)
    full_trainer(directory).fit(loader(), steps=steps, validation=validation, resume="auto")


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run that stands at step 4, and the checkpoint that it will have at step 6."""
    root = tmp_path_factory.mktemp("begun")
    train(root / "run", 4)
    train(root / "whole", 6)
    return root / "run", wf.load_checkpoint(root / "whole")


def attempt(directory, faulty: VolatileDisk) -> str:
    with pytest.MonkeyPatch.context() as patch:
        faulty.install(patch)
        try:
            train(directory, 6)
        except PowerCut:
            return "cut"
        except OSError:
            return "error"
    return "saved"


@pytest.fixture(scope="module")
def operations(begun, tmp_path_factory):
    """The operations on the disk of the run that goes on."""
    directory, watched = tmp_path_factory.mktemp("operations") / "run", VolatileDisk()
    shutil.copytree(begun[0], directory)
    assert attempt(directory, watched) == "saved"
    return watched.called


@pytest.mark.parametrize(("kind", "loss", "first"), FAULTS)
def test_a_fault_at_every_operation_of_the_disk(tmp_path, begun, operations, kind, loss, first):
    run, expected = begun
    short, outcomes = kind.startswith("short"), []
    places = [k for k, name in enumerate(operations) if not short or name == "write"]
    for at in [*places[first::EVERY], len(operations)]:
        directory, faulty = tmp_path / str(at), VolatileDisk((at, kind))
        shutil.copytree(run, directory)
        outcomes.append(attempt(directory, faulty))
        if loss is not None:
            faulty.cut_power(loss)
        assert 4 <= wf.io.latest(directory) <= 6
        assert attempt(directory, VolatileDisk()) == "saved"
        assert same_checkpoints(expected, wf.load_checkpoint(directory)) == []
        shutil.rmtree(directory)
    assert len(outcomes) > (5 if short else 40) / EVERY and outcomes[-1] == "saved"
    assert ("cut" if "cut" in kind else "saved" if kind == "short" else "error") in outcomes


def test_a_first_checkpoint_that_fails_costs_nothing_but_itself(tmp_path):
    train(tmp_path / "whole", 4)
    faulty = VolatileDisk((6, "ENOSPC"))
    assert attempt(tmp_path / "run", faulty) == "error"
    train(tmp_path / "run", 4)
    found = wf.load_checkpoint(tmp_path / "run")
    assert same_checkpoints(wf.load_checkpoint(tmp_path / "whole"), found) == []
