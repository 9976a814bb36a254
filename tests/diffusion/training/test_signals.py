"""Real signals: the first one ends a run after a checkpoint, the second one at once."""

import os
import re
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import pytest

import weft as wf
from weft.cli import main
from weft.diffusion.data.demo import draw_shapes

from .tiny import make_files, write_config

ROOT = Path(__file__).parents[3]
SOAK = bool(os.environ.get("WEFT_SOAK"))
STEPS = 100
SECTIONS = {
    "train": f'steps = {STEPS}\nbatch = 2\nprecision = "float32"\ncompile = false\nema = 0.5',
    "output": 'directory = "run"\nsave_every = 1000\nlog_every = 1\ntensorboard = true',
    "validation": "",
    "preview": "",
}
# For minutes: the second signal does not wait for it.
VALIDATION = 'folder = "other"\nevery = 5\nlevels = 10000'


class Run:
    """A command in a process of its own, and what it says."""

    def __init__(self, *arguments: str, hangup: signal.Handlers = signal.SIG_DFL):
        path = os.pathsep.join([str(Path(wf.__file__).parents[1]), str(ROOT)])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "weft", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},  # as tests have it
            # Also where the tests themselves ignore it.
            preexec_fn=partial(signal.signal, signal.SIGHUP, hangup),
        )
        assert self.process.stderr is not None
        self.lines, self.said = self.process.stderr, ""

    def until(self, what: str) -> None:
        for line in self.lines:
            self.said += line
            if re.search(what, line):
                return
        raise AssertionError(f"{what!r} never came: {self.said}")

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        self.lines.close()

    def kill(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        self.said += self.lines.read()
        return self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing stops; its adapter file."""
    folder = tmp_path_factory.mktemp("whole")
    make_files(folder)
    assert main(["train", str(write_config(folder, **SECTIONS))]) == 0
    return folder / "run/adapters/adapter.safetensors"


def finish(folder: Path, whole: Path) -> None:
    assert main(["train", str(write_config(folder, **SECTIONS))]) == 0
    found = folder / "run/adapters/adapter.safetensors"
    assert found.read_bytes() == whole.read_bytes()


FIRST = [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)][: None if SOAK else 1]


@pytest.mark.parametrize(("number", "status"), FIRST)
def test_a_signal_ends_a_run_that_goes_on_to_the_bit(tmp_path, whole, number, status):
    make_files(tmp_path)
    config = str(write_config(tmp_path, **SECTIONS))
    with Run("train", config) as run:
        run.until(r"step 4/")
        run.kill(number)
        if number == signal.SIGHUP:  # a closed terminal and its shell both send it
            run.until("SIGHUP: finishing this step")
            run.kill(number)
        assert run.end() == status
    step = wf.io.latest(tmp_path / "run")
    assert step is not None and 4 <= step < STEPS
    assert f"{number.name}: finishing this step and saving a checkpoint" in run.said
    assert f"weft: stopped; `weft train {config}` goes on from step {step}\n" in run.said
    assert f"step {step}/" in run.said and f"step {step + 1}/" not in run.said
    assert "Traceback" not in run.said
    finish(tmp_path, whole)


@pytest.mark.parametrize("gone", ["both", "stderr", "full"][: None if SOAK else 1])
def test_a_run_outlives_whoever_reads_its_output(tmp_path, whole, gone):
    """Pipes whose readers end, as `tee` does, and a log on a full disk."""
    make_files(tmp_path)
    config = str(write_config(tmp_path, **SECTIONS))
    command = [sys.executable, "-m", "weft", "train", config]
    path = os.pathsep.join([str(Path(wf.__file__).parents[1]), str(ROOT)])
    settings = {"cwd": ROOT, "env": os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}}
    if gone == "full":
        with open("/dev/full", "w") as full:
            assert subprocess.run(command, stderr=full, **settings).returncode == 0
    else:
        out = subprocess.PIPE if gone == "both" else None
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=out, **settings) as process:
            assert process.stderr is not None
            process.stderr.readline()
            process.stderr.close()
            if process.stdout is not None:
                process.stdout.close()
            assert process.wait(timeout=60) == 0
    assert (tmp_path / "run/adapters/adapter.safetensors").read_bytes() == whole.read_bytes()


@pytest.mark.skipif(not SOAK, reason="tests/train/test_interrupts.py has it in one process")
def test_a_hangup_that_is_ignored_stays_so(tmp_path):
    """As under nohup."""
    make_files(tmp_path)
    config = str(write_config(tmp_path, **SECTIONS))
    with Run("train", config, hangup=signal.SIG_IGN) as run:
        run.until(r"step 4/")
        run.kill(signal.SIGHUP)
        assert run.end() == 0
    assert "SIGHUP" not in run.said and f"step {STEPS}/" in run.said


def test_a_second_signal_does_not_wait(tmp_path, whole):
    make_files(tmp_path)
    shutil.copytree(tmp_path / "images", tmp_path / "other")
    output = SECTIONS["output"].replace("1000", "3")
    slow = SECTIONS | {"validation": VALIDATION, "output": output}
    config = str(write_config(tmp_path, **slow))
    with Run("train", config) as run:
        run.until(r"step 5/")
        run.kill(signal.SIGTERM)
        run.until("SIGTERM: finishing this step")
        run.kill(signal.SIGTERM)
        assert run.end() == 143
    assert f"weft: stopped; `weft train {config}` goes on from step 3\n" in run.said
    assert "validation" not in run.said and "Traceback" not in run.said
    finish(tmp_path, whole)


CACHING = [("train", signal.SIGINT, 130), ("cache", signal.SIGHUP, 129)][: None if SOAK else 1]


@pytest.mark.parametrize(("command", "number", "status"), CACHING)
def test_a_signal_while_caching(tmp_path, capsys, command, number, status):
    make_files(tmp_path)
    draw_shapes(tmp_path / "images", images=300, size=16)
    config = str(write_config(tmp_path, **SECTIONS))
    with Run(command, config) as run:
        end = monotonic() + 60
        while len(list((tmp_path / "cache").rglob("*.safetensors"))) < 5 and monotonic() < end:
            sleep(0.01)
        run.kill(number)
        assert run.end() == status
    assert f"`weft {command} {config}` " in run.said and "Traceback" not in run.said
    assert main(["cache", config]) == 0
    computed, reused = re.findall(
        r"latents: (\d+) computed, (\d+) reused", capsys.readouterr().out
    )[0]
    assert int(reused) >= 4 and int(computed) > 0
