"""The character GPT beats counting pairs, in 32 and in 8 bits, and resumes exactly."""

import shutil

import numpy as np
import pytest
from examples import gpt

import weft as wf

SMALL = {"context": 64, "width": 64, "layers": 2, "dropout": 0.0, "progress": False}


def pairs_loss():
    """Nats a character on the text kept apart, if each depends on the one before alone."""
    text = gpt.TEXT.read_text()
    characters = gpt.Characters(text)
    numbers = characters.encode(text)
    cut = len(numbers) * 9 // 10
    seen, apart = numbers[:cut], numbers[cut:]
    counts = np.full((len(characters.alphabet),) * 2, 0.1)  # the best of 0.01, 0.1 and 1
    np.add.at(counts, (seen[:-1], seen[1:]), 1)
    chances = counts / counts.sum(1, keepdims=True)
    return -np.log(chances[apart[:-1], apart[1:]]).mean()


def state_bytes(trainer):
    """How much memory the moments take."""
    states = trainer.optimizer.state_dict()["state"].values()
    arrays = [np.asarray(value) for state in states for value in state.values()]
    return sum(array.nbytes for array in arrays if array.ndim)


@pytest.fixture(scope="module")
def trained():
    return {name: gpt.train(300, name, **SMALL)[0] for name in ("adam", "adam8bit")}


def test_better_than_counting_pairs(trained):
    for trainer in trained.values():
        assert trainer.history.validation["loss"][-1] < pairs_loss()


def test_8_bits_reach_the_loss_of_32(trained):
    full, small = (gpt.final_loss(trained[name]) for name in ("adam", "adam8bit"))
    assert small == pytest.approx(full, rel=0.01) and small != full
    sizes = np.array([p.size for p in trained["adam8bit"].model.parameters()])
    assert state_bytes(trained["adam"]) == 8 * sizes.sum()
    quantised = sizes >= 4096
    allowed = 2.1 * sizes[quantised].sum() + 8 * sizes[~quantised].sum()
    assert sizes[quantised].sum() > 0.9 * sizes.sum()
    assert state_bytes(trained["adam8bit"]) <= allowed


def test_writes_words_of_the_text(trained):
    text = gpt.TEXT.read_text()
    characters = gpt.Characters(text)
    start = characters.encode("\nThe loom ")
    wf.random.seed(1)
    numbers = gpt.write(trained["adam"].model, start, 200)
    written = characters.decode(numbers)
    assert written.startswith("\nThe loom ") and len(written) == 210
    known = set(text.split())
    random = characters.decode(np.random.default_rng(0).choice(characters.encode(text), 400))
    share, chance = (np.mean([w in known for w in t.split()]) for t in (written[10:], random))
    assert share > 2 * chance


def test_no_character_sees_what_follows():
    wf.random.seed(0)
    model = gpt.GPT(9, context=16, width=32, heads=2, layers=2).eval()
    x = np.random.default_rng(0).integers(0, 9, (1, 16))
    changed = x.copy()
    changed[0, 10] = (x[0, 10] + 1) % 9
    with wf.no_grad():
        one, two = model(wf.asarray(x)).numpy(), model(wf.asarray(changed)).numpy()
    assert (one[0, :10] == two[0, :10]).all() and (one[0, 10:] != two[0, 10:]).any(axis=1).all()


def test_a_run_that_was_stopped_ends_like_one_that_was_not(tmp_path):
    sizes = {**SMALL, "width": 32, "dropout": 0.1, "save_every": 6, "optimizer": "adam8bit"}
    whole, _ = gpt.train(14, directory=tmp_path / "whole", **sizes)
    stopped = tmp_path / "stopped"
    first, *later = sorted(p.name for p in (tmp_path / "whole").glob("step-*"))
    assert later
    shutil.copytree(tmp_path / "whole" / first, stopped / first)
    resumed, _ = gpt.train(14, directory=stopped, resume=True, seed=0, **sizes)
    assert resumed.history["loss"] == whole.history["loss"]
    ends = [trainer.model.state_dict() for trainer in (whole, resumed)]
    assert all((ends[0][name].numpy() == ends[1][name].numpy()).all() for name in ends[0])
    assert (stopped / "curves.png").exists()
