"""`weft train` after a rate that was too high: what stays, what is said, and how it goes on."""

import re

import numpy as np
import pytest

import weft as wf
from weft.cli import main

from .tiny import make_files, write_config

# The rate of the command differs from that of the checkpoint.
pytestmark = pytest.mark.filterwarnings("ignore::weft.errors.ResumeWarning")
SECTIONS = {
    "train": 'steps = 12\nbatch = 2\nprecision = "float32"\ncompile = false',
    "output": 'directory = "run"\nsave_every = 1\nkeep = 1\nlog_every = 100',
    "validation": "",
    "preview": "",
}
OPTIMIZER = 'name = "sgd"\nlr = {}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of three steps, which went on with another rate and diverged."""
    folder = tmp_path_factory.mktemp("diverged")
    make_files(folder)
    assert train(folder, "1e-2", steps=3) == 0
    return folder


def train(folder, rate: str, *options: str, steps: int = 12) -> int:
    sections = SECTIONS | {"train": SECTIONS["train"].replace("12", f"{steps}")}
    path = write_config(folder, optimizer=OPTIMIZER.format(rate), **sections)
    with np.errstate(all="ignore"):
        return main(["train", str(path), *options])


def left(folder) -> tuple[list[int], list[str]]:
    names = sorted(p.name for p in (folder / "run/adapters").glob("adapter-*"))
    return wf.io.steps(folder / "run"), names


def test_the_same_command_goes_on_with_a_lower_rate(folder, capsys):
    sound = (folder / "run/adapters/adapter-00000003.safetensors").read_bytes()
    for _ in range(2):
        assert train(folder, "1e32") == 2
        said = capsys.readouterr().err
        found = re.search(r"will go on from step (\d+), .* Lower the learning rate\n", said)
        assert found is not None and "nonfinite" not in said
        steps, adapters = left(folder)
        assert steps[-1] == int(found[1]) == 3 and adapters[-1] == "adapter-00000003.safetensors"
        assert (folder / "run/adapters/adapter-00000003.safetensors").read_bytes() == sound
        assert wf.io.steps(folder / "run/aside")
    assert train(folder, "1e-2") == 0
    steps, adapters = left(folder)
    assert steps == [11, 12] and [name[8:16] for name in adapters] == ["00000011", "00000012"]
    found = wf.nn.lora_summary(folder / "run/adapters" / adapters[-1])
    assert all(m.norm < 10 for m in found.modules.values())


def test_going_on_from_a_step(folder, capsys):
    assert train(folder, "1e-2", "--from-step", "5") == 2
    assert re.search(
        r"no checkpoint of step 5; there are \[11, 12\], and \[", capsys.readouterr().err
    )
    before = (folder / "run/adapters/adapter.safetensors").read_bytes()
    assert train(folder, "1e-2", "--from-step", "11") == 0
    assert (folder / "run/adapters/adapter.safetensors").read_bytes() == before
    assert 12 in wf.io.steps(folder / "run/aside") and wf.io.steps(folder / "run") == [11, 12]
    assert train(folder, "1e-2", "--from-step", "0", steps=2) == 0
    assert left(folder) == ([1, 2], [f"adapter-0000000{n}.safetensors" for n in (1, 2)])


def test_a_base_that_is_not_finite_is_named(folder, capsys):
    model = wf.diffusion.Flux.load(folder / "model")
    model.x_embedder.bias = wf.Parameter(model.x_embedder.bias * float("nan"))
    model.save(folder / "broken")
    for dtype in ("bfloat16", "float32"):
        section = f'path = "broken"\ndtype = "{dtype}"'
        path = write_config(folder, model=section, **SECTIONS | {"output": 'directory = "other"'})
        assert main(["train", str(path)]) == 2
        said = capsys.readouterr().err
        assert "NaN or infinite" in said and "x_embedder.bias" in said and "rate" not in said
