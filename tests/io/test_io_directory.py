"""Which checkpoint is the newest, which are removed, who may write, and damage that is noticed."""

import os
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from alike import same

import weft as wf
from weft import errors
from weft.io import directory, disk

SAVED = wf.Checkpoint({"w": wf.tensor([1.0, 2.0])}, {"m": wf.tensor([3], dtype="int8")}, epoch=1)


def save(root, *steps, **options):
    return [wf.save_checkpoint(root, SAVED, step=s, **options) for s in steps][-1]


def flip(path: Path, position: int, bit: int) -> None:
    with open(path, "r+b", buffering=0) as file:
        (byte,) = os.pread(file.fileno(), 1, position)
        os.pwrite(file.fileno(), bytes([byte ^ (1 << bit)]), position)


def test_every_flipped_bit_is_noticed(tmp_path):
    path = save(tmp_path, 7)
    tried = 0
    for file in sorted(path.iterdir()):
        for position in range(file.stat().st_size):
            for bit in range(8):
                flip(file, position, bit)
                with pytest.raises(errors.CheckpointError):
                    wf.load_checkpoint(tmp_path, 7)
                flip(file, position, bit)
                tried += 1
    assert tried > 5000 and same(wf.load_checkpoint(tmp_path, 7).model_state, SAVED.model_state)


class Keeper:
    def state_dict(self):
        return {"m": wf.tensor([1.0, 2.0]), "lr": 0.1}

    def load_state_dict(self, state):
        self.state = state


def test_every_flipped_bit_of_an_optimizer_is_noticed(tmp_path):
    path = tmp_path / "optimizer"
    wf.save_optimizer(path, Keeper())
    for position in range(path.stat().st_size):
        for bit in range(8):
            flip(path, position, bit)
            with pytest.raises(errors.CheckpointError):
                wf.load_optimizer(path, Keeper())
            flip(path, position, bit)
    assert same(wf.load_optimizer(path, Keeper()).state, Keeper().state_dict())


def test_verification_without_loading_notices_flips_too(tmp_path):
    path = save(tmp_path, 1, 2)
    for file in path.iterdir():
        flip(file, file.stat().st_size - 2, 3)
        assert wf.io.latest(tmp_path) == 1
        flip(file, file.stat().st_size - 2, 3)
        assert wf.io.latest(tmp_path) == 2


def test_the_newest_valid_one_is_loaded_and_damage_is_told(tmp_path):
    path = save(tmp_path, 9, 10, 11)
    file = path / "model_state.safetensors"
    flip(file, file.stat().st_size - 1, 0)
    (tmp_path / "step-00000012").mkdir()  # an unfinished save says nothing
    with pytest.warns(errors.CheckpointWarning, match=r"step-00000011.*damaged") as told:
        assert wf.load_checkpoint(tmp_path).step == 10
    assert told[0].filename == __file__
    with pytest.raises(errors.CheckpointError, match="damaged"):
        wf.load_checkpoint(tmp_path, 11)
    assert wf.io.latest(tmp_path) == 10
    assert wf.load_checkpoint(tmp_path, 9).step == 9


def test_unfinished_saves_are_no_checkpoints(tmp_path):
    path = save(tmp_path, 1, 2)
    (path / "manifest.json").unlink()
    assert wf.io.steps(tmp_path) == [1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wf.load_checkpoint(tmp_path, "latest").step == 1
    with pytest.raises(errors.CheckpointNotFound, match=r"no checkpoint of step 2 .*\[1\]"):
        wf.load_checkpoint(tmp_path, 2)


@pytest.mark.parametrize("prepare", [lambda p: None, lambda p: p.mkdir(), lambda p: p.touch()])
def test_nothing_to_load(tmp_path, prepare):
    prepare(tmp_path / "run")
    assert wf.io.latest(tmp_path / "run") is None and wf.io.steps(tmp_path / "run") == []
    with pytest.raises(FileNotFoundError, match=r"no valid checkpoint in .*run \(at test_io_dir"):
        wf.load_checkpoint(tmp_path / "run")


def test_only_damaged_ones(tmp_path):
    path = save(tmp_path, 5)
    (path / "model_state.safetensors").unlink()
    with pytest.raises(errors.CheckpointNotFound, match=r"model_state\S* cannot be read"):
        wf.load_checkpoint(tmp_path)


def test_a_checkpoint_by_its_own_path(tmp_path):
    path = save(tmp_path, 5, 6)
    assert wf.load_checkpoint(path.parent / "step-00000005").step == 5
    shutil.move(path, tmp_path / "best")
    assert wf.load_checkpoint(tmp_path / "best").step == 6


def test_a_checkpoint_under_another_step(tmp_path):
    shutil.move(save(tmp_path, 5), tmp_path / "step-00000006")
    with pytest.raises(
        errors.CheckpointError, match="of step 5, but its directory is named step-00000006"
    ):
        wf.load_checkpoint(tmp_path, 6)


def test_names_that_are_not_ours_are_left_alone(tmp_path):
    for name in ("step-1", "step-000000011", "step-00000001.bak", "step-" + "\u0661" * 8, "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{}")
    path = save(tmp_path, 2)
    (path / "sample.png").touch()
    save(tmp_path, 3, 4, keep_last=1)
    assert wf.io.steps(tmp_path) == [4]
    assert len(list(tmp_path.iterdir())) == 8  # five, .lock, step 4, and the picture of step 2
    assert [p.name for p in path.iterdir()] == ["sample.png"]


def test_keep_last(tmp_path):
    save(tmp_path, 1, 2, 3, 4)
    save(tmp_path, 5, keep_last=3)
    assert wf.io.steps(tmp_path) == [3, 4, 5]
    save(tmp_path, 2, keep_last=1)  # an earlier step after going back: neither it nor the newest
    assert wf.io.steps(tmp_path) == [2, 5]
    save(tmp_path, 2**40, keep_last=1)
    assert wf.io.steps(tmp_path) == [2**40]


def test_keep_last_counts_valid_ones_only(tmp_path):
    save(tmp_path, 1, 2, 3)
    flip(tmp_path / "step-00000002" / "manifest.json", 50, 0)
    (tmp_path / "step-00000003" / "model_state.safetensors").write_bytes(b"")
    save(tmp_path, 4, keep_last=2)
    assert wf.io.steps(tmp_path) == [1, 2, 3, 4]
    save(tmp_path, 5, keep_last=2)
    assert wf.io.steps(tmp_path) == [2, 3, 4, 5]


def test_nothing_is_removed_while_the_new_one_reads_back_damaged(tmp_path, monkeypatch):
    save(tmp_path, 1)
    rename = disk.rename

    def damaging(old, new):
        rename(old, new)
        if new.name == "optimizer_state.safetensors":
            flip(new, new.stat().st_size - 1, 0)

    monkeypatch.setattr(disk, "rename", damaging)
    save(tmp_path, 2, keep_last=1)
    assert wf.io.steps(tmp_path) == [1, 2] and wf.io.latest(tmp_path) == 1
    with pytest.warns(errors.CheckpointWarning, match="step-00000002"):
        assert wf.load_checkpoint(tmp_path).step == 1


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 1)
    for epoch in (2, 3):
        other = wf.Checkpoint({"other": wf.ones(epoch)}, epoch=epoch)
        path = wf.save_checkpoint(tmp_path, other, step=1)
        loaded = wf.load_checkpoint(tmp_path)
        assert same(loaded.model_state, other.model_state) and loaded.epoch == epoch
        assert loaded.optimizer_state is None and len(list(path.iterdir())) == 2


def test_a_damaged_step_can_be_saved_again(tmp_path):
    path = save(tmp_path, 1)
    flip(path / "manifest.json", 30, 1)
    save(tmp_path, 1)
    assert same(wf.load_checkpoint(tmp_path).model_state, SAVED.model_state)
    assert len(list(path.iterdir())) == 3


def test_a_writer_that_replaces_what_is_being_read(tmp_path, monkeypatch):
    save(tmp_path, 1)
    read_manifest = directory.read_manifest

    def overtaken(path):
        monkeypatch.setattr(directory, "read_manifest", read_manifest)
        found = read_manifest(path)
        save(tmp_path, 2, keep_last=1)
        return found

    monkeypatch.setattr(directory, "read_manifest", overtaken)
    assert wf.load_checkpoint(tmp_path).step == 2


HOLDER = """
import sys, weft as wf
with wf.io.locked(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_refused_until_the_first_dies(tmp_path):
    save(tmp_path, 1)
    program = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(
            errors.CheckpointLocked, match=rf"process {holder.pid} is writing there"
        ):
            save(tmp_path, 2)
        assert wf.load_checkpoint(tmp_path).step == 1  # readers need no lock
        holder.kill()
        holder.wait()
        save(tmp_path, 2)
    assert wf.io.steps(tmp_path) == [1, 2]


def test_locks_nest_and_end(tmp_path):
    with wf.io.locked(tmp_path), wf.io.locked(tmp_path / ".." / tmp_path.name):
        save(tmp_path, 1)
    save(tmp_path, 2)
    with pytest.raises(ZeroDivisionError), wf.io.locked(tmp_path):
        raise ZeroDivisionError
    save(tmp_path, 3)


def test_a_forked_child_does_not_keep_the_lock(tmp_path):
    program = (
        "import os, time, weft as wf\n"
        f"with wf.io.locked({str(tmp_path)!r}):\n"
        "    if os.fork() == 0:\n"
        "        try:\n"
        f"            wf.save_checkpoint({str(tmp_path)!r}, wf.Checkpoint(step=1))\n"
        "        except wf.errors.CheckpointLocked:\n"
        "            print('refused', flush=True)\n"
        "        time.sleep(60)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert parent.stdout.readline() == b"refused\n"
        parent.kill()  # its child lives on
        parent.wait()
        save(tmp_path, 2)
    finally:
        os.killpg(parent.pid, 9)
        parent.stdout.close()


def test_threads_take_turns(tmp_path):
    failed = []

    def work(first):
        try:
            for step in range(first, first + 4):
                save(tmp_path, step, keep_last=3)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(10 * i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed and wf.io.latest(tmp_path) == 23
    assert same(wf.load_checkpoint(tmp_path).model_state, SAVED.model_state)


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(NotADirectoryError):
        save(tmp_path / "run", 1)


def test_pipes_and_directories_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "missing"):
        with pytest.raises(errors.CheckpointError, match="cannot be read"):
            wf.io.load_safetensors(path)


def test_links_are_followed(tmp_path):
    wf.io.save_safetensors(tmp_path / "a", {"x": wf.ones(2)})
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert same(wf.io.load_safetensors(tmp_path / "b"), {"x": wf.ones(2)})


def test_what_links_lead_to_is_never_removed(tmp_path):
    other, run = tmp_path / "other", tmp_path / "run"
    theirs = save(other, 1)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "model_state.safetensors").write_bytes(b"theirs")
    run.mkdir()
    (run / theirs.name).symlink_to(theirs)
    (run / "step-00000003").symlink_to(tmp_path / "foreign")
    (run / "step-00000004").symlink_to(tmp_path / "nowhere")
    (run / "step-00000005").write_text("no directory")
    assert wf.io.latest(run) == 1
    save(run, 6, 7, 8, keep_last=1)
    assert wf.io.steps(run) == [1, 8]
    assert same(wf.load_checkpoint(other).model_state, SAVED.model_state)
    assert (tmp_path / "foreign" / "model_state.safetensors").read_bytes() == b"theirs"
    with pytest.raises(errors.CheckpointError, match=r"a link to .*other"):
        wf.save_checkpoint(run, wf.Checkpoint({"w": wf.zeros(2)}), step=1)
    assert same(wf.load_checkpoint(other).model_state, SAVED.model_state)
