"""A writer that is killed at any moment leaves the newest checkpoint whole."""

import os
import subprocess
import sys
from pathlib import Path

KILLS = 200 if os.environ.get("WEFT_SOAK") else 20


def test_killed_writers(tmp_path):
    program = Path(__file__).with_name("killed_writer.py")
    arguments = [sys.executable, str(program), str(tmp_path), str(KILLS), "0"]
    run = subprocess.run(arguments, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    kills, saved, cut = map(int, run.stdout.split())
    assert kills == KILLS and saved > KILLS / 4 and cut > 0  # some saves were cut in two
