"""`weft train` on several processes, and what ranks do one after the other."""

import os

import pytest
from tests.diffusion.training.tiny import make_files, write_config
from tests.dist.processes import launch
from tests.dist.threads import run

import weft as wf
from weft import errors
from weft.diffusion.training import joining
from weft.train.joining import joined_ranks

TRAIN = 'batch = 3\nprecision = "float32"\nema = 0.9\ncompile = false\ndist = {dist}\nsteps = {n}'


def config_of(folder, dist, steps=4):
    lines = TRAIN.format(dist=str(dist).lower(), n=steps)
    return write_config(folder, train=lines, output='directory = "run"\nsave_every = 2')


@pytest.mark.parametrize("name", ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_several_processes_without_dist_are_refused(name, tmp_path, monkeypatch):
    make_files(tmp_path)
    config = config_of(tmp_path, dist=False)
    monkeypatch.setenv(name, "2")
    with pytest.raises(errors.ConfigError, match=rf"train\.dist: .*2 processes \({name}\)"):
        wf.diffusion.train(config)
    assert not (tmp_path / "run").exists()
    monkeypatch.setenv(name, "1")
    assert joining.launched(os.environ) is None


def test_processes_train_adapters_together_and_one_goes_on(tmp_path):
    make_files(tmp_path)
    found = launch(2, "weft", ["train", config_of(tmp_path, dist=True)], timeout=120)
    assert [x.code for x in found] == [0, 0], found
    assert "adapter: " in found[0].out and "adapter: " not in found[1].out
    assert "step 4" in found[0].out + found[0].err and "step" not in found[1].out + found[1].err
    there = sorted(p.name for p in (tmp_path / "run" / "adapters").iterdir())
    numbered = [f"adapter-{n:08d}.safetensors" for n in (2, 4)]
    assert there == [*numbered, "adapter.safetensors"] and wf.io.steps(tmp_path / "run") == [2, 4]
    assert len(list((tmp_path / "run" / "previews").glob("*.png"))) == 2
    with pytest.warns(errors.ResumeWarning, match="ranks"):
        wf.diffusion.train(config_of(tmp_path, dist=False, steps=6))
    assert wf.io.steps(tmp_path / "run")[-1] == 6


def test_ranks_act_in_turn_and_hear_from_each_other(monkeypatch):
    monkeypatch.setattr(joining, "_BEAT", 0.0)
    acted, shown = [], []

    def program(rank):
        ranks = joined_ranks(True)

        def action(tell):
            for k in range(3):
                tell("stage", k + 1, 3)
            acted.append(rank)
            return rank * 10

        show = (lambda *given: shown.append(given)) if ranks.first else None
        return joining.in_turn(ranks, "the data", action, show)

    assert run(3, program) == [0, 10, 20] and acted == [0, 1, 2]
    assert shown == [("stage", k + 1, 3) for k in range(3)]

    def failing(rank):
        def action(tell):
            raise errors.DatasetError("no image can be used")

        with pytest.raises(errors.DatasetError, match="no image can be used"):
            joining.in_turn(joined_ranks(True), "the data", action, None)
        return wf.dist.all_reduce([1.0]).item()

    assert run(3, failing) == [3.0] * 3
