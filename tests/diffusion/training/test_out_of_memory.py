"""Runs that are out of memory: what they say, and what stays."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import weft as wf
from weft.diffusion.training import build, run
from weft.diffusion.training.config import read_config
from weft.train import Trainer

from .tiny import make_files, write_config

MIB = 1 << 20


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make_files(folder)
    sections = {"preview": "", "validation": ""}
    return read_config(write_config(folder, **sections))


def into(config, name: str, **train):
    """The configuration with a directory of its own."""
    output = replace(config.output, directory=config.output.directory / name)
    return replace(config, output=output, train=replace(config.train, **train))


ERRORS = [
    np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype("f4")),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    wf.errors.BudgetExceeded("compile: 'cuda:0' has 3 MiB free of 4"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_building_says_what_would_fit(config, error, monkeypatch):
    def refuse(*args):
        raise error

    monkeypatch.setattr(build, "load_model", refuse)
    with pytest.raises(wf.errors.BudgetExceeded) as e:
        wf.diffusion.train(into(config, f"build-{type(error).__name__}"))
    said = wf.diffusion.estimate(config)
    needed = f"out of memory on 'cpu': the run takes {said.peak / MIB:,.1f} MiB"
    assert e.value.message.startswith(needed) and " MiB are free. " in e.value.message
    assert "No step was saved" in e.value.message
    assert e.value.smallest is not None
    assert f"{wf.diffusion.training.footprint.budget_text(e.value.smallest)} is the smallest" in (
        e.value.message
    )


@pytest.mark.parametrize("compiled", [True, False])
def test_the_last_checkpoint_stays(config, compiled, monkeypatch):
    """The fifth step is out of memory: step 3 is there, and the run goes on from it to the bit."""
    own = into(config, f"later-{compiled}", compile=compiled)
    take, steps = Trainer._end_step, []

    def end(trainer, row):
        steps.append(row["step"])
        if row["step"] == 5:
            raise MemoryError("Unable to allocate 3.1 GiB")
        take(trainer, row)

    with monkeypatch.context() as m:
        m.setattr(Trainer, "_end_step", end)
        with pytest.raises(wf.errors.BudgetExceeded, match="The checkpoint step-00000003 stays"):
            wf.diffusion.train(own)
    assert steps == [1, 2, 3, 4, 5]
    again = wf.diffusion.train(own)
    whole = wf.diffusion.train(into(config, f"whole-{compiled}", compile=compiled))
    assert again.read_bytes() == whole.read_bytes()


def test_a_limit_of_memory_is_told(config):
    """The arena is refused by a counter of NumPy's allocations."""
    own = into(config, "limited")
    counter = wf.profile.Counter()
    with pytest.raises(wf.errors.BudgetExceeded, match=r"the run takes [\d.]+ MiB"), counter:
        data = run.prepare_data(own)
        with run.out_of_memory_explained(own):
            counter.limit(counter.live + 400_000)
            try:
                run._fit(own, data)
            finally:
                counter.limit(None)


def test_the_named_budget_works(config):
    own = into(config, "budget", memory_budget_mb=0.05)
    said = wf.diffusion.estimate(own)
    assert not said.fits and "0.05 is refused" in said.refused
    with pytest.raises(wf.errors.BudgetExceeded, match=r"memory_budget_mb: 0\.05 is refused") as e:
        wf.diffusion.train(own)
    assert e.value.smallest == said.smallest_budget
    least = said.smallest_budget / MIB + 0.01
    said = wf.diffusion.estimate(into(config, "budget", memory_budget_mb=least))
    assert said.refused == "" and said.smallest_budget is None
    wf.diffusion.train(into(config, "budget", memory_budget_mb=least))


def test_other_errors_pass_unchanged(config, monkeypatch):
    def refuse(*args):
        raise RuntimeError("not of memory")

    monkeypatch.setattr(build, "load_model", refuse)
    with pytest.raises(RuntimeError, match="not of memory"):
        wf.diffusion.train(into(config, "other"))
