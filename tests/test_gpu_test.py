"""The command of `make gpu-test`: what goes wrong in a part is counted, and the others go on."""

import subprocess
import sys
from pathlib import Path

import pytest
from tools import gpu_test

ROOT = Path(__file__).parent.parent
# Programs, of which some differ, end the process, or never end.
WORKER = """
import json, os, sys, time
for seed in range(*map(int, sys.argv[1:4])):
    print(json.dumps({"begins": seed}), flush=True)
    if seed == 5:
        os._exit(3)
    if seed == 9:
        time.sleep(60)
    found = "mismatch" if seed == 12 else "same"
    print("noise", flush=True)
    print(json.dumps({"seed": seed, "verdict": found, "told": "what differs"}), flush=True)
"""


@pytest.fixture
def worker(monkeypatch):
    """Programs are those of WORKER."""

    def start(first, stop, cache):
        command = [sys.executable, "-c", WORKER, str(first), str(stop), str(gpu_test.WORKERS)]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
        )

    monkeypatch.setattr(gpu_test, "start_programs", start)
    monkeypatch.setattr(gpu_test, "WORKERS", 3)
    monkeypatch.setattr(gpu_test, "STUCK", 3.0)


def test_programs_that_crash_hang_or_differ_are_counted_and_the_rest_run(worker, capsys):
    totals = gpu_test.Totals(sanitizer=-1)
    gpu_test.run_programs(0, 30, totals, "", gpu_test.Deadline(None))
    assert totals.verdicts == {"same": 27, "crash": 2, "mismatch": 1}
    assert sorted(totals.wrong) == [5, 9, 12] and not totals.good
    said = capsys.readouterr().out
    assert "wrong seeds [5, 9, 12]" in said and "what differs" in said
    assert totals.summary(7.6) == "gpu-test: 0 passed, 0 failed, 30 programs, 3 mismatches, 8 s"


def test_time_is_kept(worker):
    totals = gpu_test.Totals(sanitizer=-1)
    gpu_test.run_programs(9, 1000, totals, "", gpu_test.Deadline(1 / 60))
    assert 9 not in totals.wrong
    assert totals.summary(1).endswith("0 mismatches, no time for all of programs, 1 s")


def test_a_part_that_crashes_fails_and_says_so(monkeypatch, tmp_path, capsys):
    (tmp_path / "test_parts.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert 1 == 2\n"
        "@pytest.mark.skip\n"
        "def test_not(): pass\n"
    )
    (tmp_path / "test_dead.py").write_text("import os\nos._exit(9)\n")
    monkeypatch.setattr(gpu_test, "PYTEST", [sys.executable, "-m", "pytest", "-n", "1"])
    monkeypatch.setitem(gpu_test.PARTS, "mixed", [str(tmp_path / "test_parts.py")])
    monkeypatch.setitem(gpu_test.PARTS, "dead", [str(tmp_path / "test_dead.py")])
    totals = gpu_test.Totals(sanitizer=-1)
    for name in ("mixed", "dead"):
        gpu_test.run_tests(name, totals, str(tmp_path), gpu_test.Deadline(None))
    assert (totals.passed, totals.failed) == (1, 2)
    assert "test_bad" in capsys.readouterr().out


def test_errors_of_the_sanitizer_are_read():
    assert gpu_test.reported("========= ERROR SUMMARY: 3 errors\n") == 3
    assert gpu_test.reported("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)") == 0
    assert gpu_test.reported("Killed") is None
    assert gpu_test.Totals(sanitizer=2).good is False
    assert "2 sanitizer errors" in gpu_test.Totals(sanitizer=2).summary(1)
