"""Ranks that are processes: killed, stopped by signals, restarted by torchrun."""

import os
import signal
import subprocess
import sys

import pytest
from tests.dist.processes import ROOT, Started, environment

import weft as wf

from .dist_ways import Way

SOAK = bool(os.environ.get("WEFT_SOAK"))
KILLS = 50 if SOAK else 4


@pytest.mark.parametrize("changing", [False, True])
def test_killed_ranks(tmp_path, changing):
    command = [sys.executable, "-m", "tests.train.killed_ranks", tmp_path, str(KILLS), "0"]
    command += ["changing"] if changing else []
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment())
    assert run.returncode == 0, run.stdout + run.stderr
    kills, runs, slowest, _ = map(float, run.stdout.split())
    assert kills == KILLS and runs >= 1 and slowest < 30


# A run that says each step, with a directory, for signals and restarts.
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
import weft as wf
from tests.train.dist_ways import Way

class Says(wf.train.Callback):
    def on_step_end(self, trainer, row):
        os.write(1, b"step %d\\n" % row["step"])  # whole lines, whoever else writes
        time.sleep(0.02)
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if "--kill" in sys.argv and first and row["step"] == 7 and group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

group = wf.dist.init(timeout=30)
way = Way(group.size, 400, dtype="float64", optimizer="AdamW", compile="--compile" in sys.argv)
if "--short" in sys.argv:
    way = Way(group.size, 12, dtype="float64", optimizer="AdamW")
directory = Path(sys.argv[1])
made = way.trainer(group.rank, True, callbacks=[Says()], directory=directory, save_every=5)
try:
    way.fit(made, resume="auto")
finally:
    print("at", made.step, flush=True)
wf.dist.finalize()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_rank_stops_all_after_the_same_step(number, rank, tmp_path):
    with Started(2, PROGRAM, [tmp_path / "run"]) as started:
        started.until(lambda s: "step 3" in s.text(0)[0])
        os.kill(started.processes[rank].pid, number)
        found = started.outcomes()
    interrupted = number == signal.SIGINT
    for outcome in found:
        assert outcome.code == -number, outcome
        assert not interrupted or "KeyboardInterrupt" in outcome.err
    ended = [int(x.out.split("step")[-1].split()[0]) for x in found]
    assert ended[0] == ended[1] < 400
    assert wf.io.steps(tmp_path / "run")[-1] == ended[0]


def test_torchrun_restarts_a_run_whose_rank_was_killed(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launcher, "--max-restarts", "3", path, tmp_path / "run"]
    command += ["--short", "--kill"]
    run = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=ROOT, env=environment()
    )
    assert run.returncode == 0, run.stdout + run.stderr
    steps = [int(line.split()[1]) for line in run.stdout.splitlines() if line.startswith("step")]
    assert steps.count(6) == 4 and steps.count(5) == 2  # it went on from step 5
    way = Way(1, 12, dtype="float64", optimizer="AdamW")
    expected = way.alone()
    saved = wf.load_checkpoint(tmp_path / "run")
    assert saved.step == 12
    for name, x in expected.model.state_dict().items():
        assert abs(saved.model_state[name].numpy() - x.detach().numpy()).max() < 1e-11
