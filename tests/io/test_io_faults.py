"""A save that goes wrong at any operation of the disk costs no checkpoint, and can be repeated."""

import os
import shutil

import pytest
from alike import same
from volatile_disk import PowerCut, VolatileDisk

import weft as wf
from weft import errors

KINDS = ("cut", "short, cut", "short", "ENOSPC", "EIO", "full")


def content(n: int) -> wf.Checkpoint:
    """A checkpoint that tells which it is."""
    tensors = {"w": wf.full((3, 5), float(n)), "b": wf.arange(n)}
    return wf.Checkpoint(tensors, {"m": wf.full(7, -n), "lr": 0.1 * n}, epoch=n, rng={"key": n})


def is_content(loaded: wf.Checkpoint, n: int) -> bool:
    return all(
        same(getattr(loaded, f), getattr(content(n), f)) for f in vars(loaded) if f != "step"
    )


def new_step(root):
    wf.save_checkpoint(root, content(3), step=30, keep_last=2)


def same_step(root):
    wf.save_checkpoint(root, content(3), step=20, keep_last=1)


def without_pruning(root):
    wf.save_checkpoint(root, content(3), step=30)


SAVES = {"new step": new_step, "same step": same_step}
CUTS = [None, "all", "all but the last"]  # what of the unflushed is lost, if the power fails then
CUTS += range(6) if os.environ.get("WEFT_SOAK") else []
FAULTS = [(k, c) for k in KINDS for c in (CUTS if "cut" in k else CUTS[:1])]


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Two checkpoints on the disk, and what an earlier interrupted save has left."""
    root = tmp_path_factory.mktemp("before")
    for n in (1, 2):
        wf.save_checkpoint(root, content(n), step=10 * n)
    (root / "step-00000015").mkdir()
    (root / "step-00000015" / "model_state.safetensors").write_bytes(b"half")
    (root / "step-00000020" / ".weft-0123456789abcdef.tmp").write_bytes(b"half")
    return root


def attempt(save, root, faulty: VolatileDisk) -> str:
    with pytest.MonkeyPatch.context() as patch:
        faulty.install(patch)
        try:
            save(root)
        except PowerCut:
            return "cut"
        except OSError:
            return "error"
    return "saved"


def each_operation(kind: str):
    """A disk with a fault at its first operation, its second, … until no more are called for."""
    called: list[str] = []
    for at in range(100):
        if kind.startswith("short") and at < len(called) and called[at] != "write":
            continue
        faulty = VolatileDisk((at, kind))
        yield faulty
        called = called or faulty.called  # all of them, since the first is no write
        if len(faulty.called) <= at:
            return
    raise AssertionError("the save takes more operations than were tried")


@pytest.mark.parametrize(("kind", "loss"), FAULTS)
@pytest.mark.parametrize("name", SAVES)
def test_a_fault_at_every_operation(tmp_path, before, name, kind, loss):
    outcomes = []
    for faulty in each_operation(kind):
        root = tmp_path / str(faulty.at)
        shutil.copytree(before, root)
        outcomes.append(attempt(SAVES[name], root, faulty))
        if loss is not None:
            faulty.cut_power(loss)
        check(name, root, outcomes[-1])
    assert len(outcomes) > (5 if "short" in kind else 25) and outcomes[-1] == "saved"
    assert ("cut" if "cut" in kind else "saved" if kind == "short" else "error") in outcomes


def check(name: str, root, outcome: str) -> None:
    """The newest is what was there, or what was being saved; that certainly if it went well."""
    loaded = wf.load_checkpoint(root)
    saved = is_content(loaded, 3)
    assert saved or (is_content(loaded, 2) and loaded.step == 20)
    assert saved or outcome != "saved"
    if name != "same step":
        assert is_content(wf.load_checkpoint(root, 20), 2)
    assert attempt(SAVES[name], root, VolatileDisk()) == "saved"
    again = wf.load_checkpoint(root)
    assert is_content(again, 3) and again.step == wf.io.latest(root)
    kept = {"new step": [20, 30], "same step": [20]}[name]
    assert wf.io.steps(root) == kept
    left = sorted(p.name for p in root.iterdir())
    assert left == [".lock", *(f"step-{s:08d}" for s in kept)]
    assert len(list((root / left[-1]).iterdir())) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_very_first_save(tmp_path, kind):
    for faulty in each_operation(kind):
        root = tmp_path / str(faulty.at) / "run"
        outcome = attempt(new_step, root, faulty)
        faulty.cut_power(CUTS[1 + faulty.at % 2])
        try:
            assert is_content(wf.load_checkpoint(root), 3)
        except errors.CheckpointNotFound:
            assert outcome != "saved"
        assert attempt(new_step, root, VolatileDisk()) == "saved"
        assert is_content(wf.load_checkpoint(root), 3)


@pytest.mark.parametrize("kind", KINDS)
def test_single_files(tmp_path, kind):
    path = tmp_path / "a.safetensors"
    for faulty in each_operation(kind):
        wf.io.save_safetensors(path, {"x": wf.full(9, 1.0)})
        outcome = attempt(lambda p: wf.io.save_safetensors(p, {"x": wf.full(9, 2.0)}), path, faulty)
        faulty.cut_power(CUTS[1 + faulty.at % 2])
        (value,) = set(wf.io.load_safetensors(path)["x"].tolist())
        assert value == 2.0 or (value == 1.0 and outcome != "saved")
        assert outcome == "cut" or list(tmp_path.iterdir()) == [path]
        for unfinished in tmp_path.glob(".weft-*.tmp"):
            unfinished.unlink()


def test_errors_leave_nothing_behind(tmp_path, before):
    for faulty in each_operation("full"):
        root = tmp_path / str(faulty.at)
        shutil.copytree(before, root)
        if attempt(without_pruning, root, faulty) == "error":
            unfinished = {p.parent.name for p in root.rglob("*.tmp")}
            assert unfinished <= {"step-00000020"}  # it was there before
            assert not (root / "step-00000030").exists() or wf.io.latest(root) == 30


def test_room_is_made_before_it_is_taken(tmp_path, before):
    root, watched = tmp_path / "run", VolatileDisk()
    shutil.copytree(before, root)
    attempt(same_step, root, watched)
    first = watched.called[: watched.called.index("create")]
    assert first.count("remove") == 2 and "remove_directory" in first
