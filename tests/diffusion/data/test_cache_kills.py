"""A cache that was killed at any moment goes on, and nothing wrong is used."""

import os
import subprocess
import sys
from pathlib import Path

import weft as wf
from weft.diffusion.data import cache

from .made import AUGMENTED, encoders, settings, write_images
from .test_cache import verify

ROOT = Path(__file__).parents[3]
KILLS = 200 if os.environ.get("WEFT_SOAK") else 12


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
