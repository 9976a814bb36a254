"""A disk that fills up while a run caches, draws or saves: what is said, and that nothing is lost.

Each place that a run writes to fails once, in the middle of a file; the next run finishes, and
leaves what a run leaves that has never been interrupted.
"""

import errno
import os
import re

import pytest
from tests.train.runs import same_checkpoints

import weft as wf
from weft.diffusion.training.config import read_config
from weft.diffusion.training.run import train
from weft.io import disk

from .tiny import make_files, write_config

PLACES = {
    "latents": r"cache/latents/\w\w$",
    "a preview": r"run/previews$",
    "a checkpoint": r"run/step-00000002$",
    "an adapter file": r"run/adapters$",
}
if os.environ.get("WEFT_SOAK"):
    PLACES |= {"sizes": r"cache$", "text": r"cache/text/\w\w$", "the curves": r"run$"}
SECTIONS = {
    "train": 'steps = 3\nbatch = 2\nprecision = "float32"\ncompile = false\nema = 0.5',
    "output": 'directory = "run"\nsave_every = 2\nlog_every = 100\ntensorboard = true',
    "preview": 'prompts = ["a"]\nevery = 2\nsteps = 1\nwidth = 4\nheight = 4',
    "validation": "",
}


class FullAt:
    """A disk that is full from the second half of a file in some folder on, until space is made."""

    def __init__(self, folder: str):
        self.folder, self.full, self.write = re.compile(folder), False, disk.write

    def __call__(self, fd: int, data) -> int:
        if self.folder.search(os.path.dirname(os.readlink(f"/proc/self/fd/{fd}"))):
            self.full = True
        if self.full and len(data) < 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.write(fd, data[: len(data) // 2] if self.full else data)


def run(folder):
    train(read_config(write_config(folder, **SECTIONS)))


def left(folder) -> dict[str, bytes]:
    """What a run leaves, but for the checkpoints, the curves and the events, which have times."""
    kinds = ("adapters/*", "previews/*")
    return {p.name: p.read_bytes() for kind in kinds for p in (folder / "run").glob(kind)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    make_files(folder)
    run(folder)
    return folder


@pytest.mark.parametrize("place", PLACES)
def test_a_full_disk_costs_nothing(tmp_path, whole, monkeypatch, place):
    make_files(tmp_path)
    faulty = FullAt(PLACES[place])
    monkeypatch.setattr(disk, "write", faulty)
    with pytest.raises(wf.errors.DiskFull) as caught:
        run(tmp_path)
    told = caught.value.message
    assert faulty.full and re.search(PLACES[place].rstrip("$"), told)
    assert re.search(r"No space left.*: [\d,]+ bytes are needed, [\d,]+ bytes are free", told)
    assert (caught.value.needed or 0) > 2 and not list(tmp_path.rglob(".weft-*.tmp"))
    monkeypatch.undo()
    if place in ("an adapter file", "the curves"):
        assert wf.io.latest(tmp_path / "run") == 2  # saved before
    run(tmp_path)
    assert left(tmp_path) == left(whole)
    mine, right = (wf.load_checkpoint(f / "run") for f in (tmp_path, whole))
    assert mine.step == 3 and same_checkpoints(mine, right) == []


def test_events_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    from tensorboardX.record_writer import RecordWriter

    def full(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    make_files(tmp_path)
    monkeypatch.setattr(RecordWriter, "flush", full)
    with pytest.raises(wf.errors.DiskFull, match=r"run/events: No space left .* bytes are free"):
        run(tmp_path)
    monkeypatch.undo()
    run(tmp_path)
    assert wf.io.latest(tmp_path / "run") == 3
