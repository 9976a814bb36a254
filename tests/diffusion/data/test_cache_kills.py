"""A cache that was killed at any moment goes on, and nothing wrong is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.io.volatile_disk import PowerCut, VolatileDisk

import weft as wf
from weft.diffusion.data import cache

from .small_data import AUGMENTED, encoders, settings, write_images
from .test_cache import verify

SOAK = bool(os.environ.get("WEFT_SOAK"))
ROOT = Path(__file__).parents[3]
KILLS = 200 if SOAK else 10
EVERY = 1 if SOAK else 3


def test_killed_caches(tmp_path):
    command = [sys.executable, "-m", "tests.diffusion.data.killed_cache", str(tmp_path)]
    path = os.pathsep.join([str(Path(wf.__file__).parents[1]), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path}
    run = subprocess.run(
        [*command, str(KILLS), "0"], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert run.returncode == 0, run.stdout + run.stderr
    kills, met, _, left = map(int, run.stdout.split())
    assert kills == KILLS and met > KILLS / 4 and left == 0
    source, mine = write_images(tmp_path / "images", 0), encoders()
    dataset, report = cache([source], mine, settings(AUGMENTED), tmp_path / "cache")
    assert not report.computed and not report.repaired
    verify(dataset, mine)
    # What was cached through all of these kills is what a fresh cache holds, to the byte.
    fresh, _ = cache([source], mine, settings(AUGMENTED), tmp_path / "fresh")
    for entry in fresh.needed():
        assert (tmp_path / "cache" / entry.path).read_bytes() == (
            tmp_path / "fresh" / entry.path
        ).read_bytes()


@pytest.mark.parametrize("kind", ["cut", "short, cut", "ENOSPC", "EIO", "full"])
def test_a_fault_at_operations_of_the_disk(tmp_path, kind):
    """After it, the next run goes on, and the cache is that of a run without faults."""
    source, mine = write_images(tmp_path / "images", 2, masks=True), encoders()
    good, _ = cache([source], mine, settings(), tmp_path / "good")
    expected = {e.path: (tmp_path / "good" / e.path).read_bytes() for e in good.needed()}
    faults = 0
    for at in range(0, 1000, EVERY):
        directory, faulty = tmp_path / str(at), VolatileDisk((at, kind))
        with pytest.MonkeyPatch.context() as patch:
            faulty.install(patch)
            try:
                cache([source], mine, settings(), directory)
            except (PowerCut, OSError) as e:
                faults += 1
                if isinstance(e, PowerCut):
                    faulty.cut_power(["all", "all but the last", at][faults % 3])
            else:
                if at > len(faulty.called):
                    break
        dataset, _ = cache([source], mine, settings(), directory)
        assert {p: (directory / p).read_bytes() for p in expected} == expected
        verify(dataset, mine)
    assert faults >= 3
