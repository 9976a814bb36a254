"""A run that is killed at any moment ends as one that was not; two processes never share one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft as wf
from weft.cli.commands import run as run_command

from .tiny import SECTIONS, make_files, write_config

ROOT = Path(__file__).parents[3]
SOAK = bool(os.environ.get("WEFT_SOAK"))


@pytest.mark.parametrize(
    ("kills", "options"), [(60, ["compiled"]), (10, ["process"])] if SOAK else [(3, [])]
)
def test_killed_runs(tmp_path, kills, options):
    command = [sys.executable, "-m", "tests.diffusion.training.killed_run", str(tmp_path)]
    path = os.pathsep.join([str(Path(wf.__file__).parents[1]), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path}
    command += [str(kills), "0", *options]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    killed, runs, *met = run.stdout.splitlines()[-1].split()
    assert int(killed) == kills and int(runs) >= 1 and met


@pytest.mark.parametrize("place", ["run", "cache"])
def test_two_processes_on_one_directory(tmp_path, capfd, place):
    """The second is refused, says which process is there, and changes nothing."""
    make_files(tmp_path)
    train = SECTIONS["train"].replace("steps = 6", "steps = 1\ncompile = false")
    config = write_config(tmp_path, preview="", validation="", train=train)
    (tmp_path / place).mkdir()
    begun, ended = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with wf.io.locked(tmp_path / place):
            os.write(begun[1], b"1")
            os.read(ended[0], 1)
        os._exit(0)
    os.read(begun[0], 1)
    try:
        assert run_command(["train", os.fspath(config)]) == 2
        assert f"process {pid} " in " ".join(capfd.readouterr().err.split())
        assert [p.name for p in (tmp_path / place).iterdir()] == [".lock"]
    finally:
        os.write(ended[1], b"1")
        os.waitpid(pid, 0)
