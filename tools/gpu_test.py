"""Everything that needs a GPU, with one summary line: `make gpu-test`.

Rows on the GPU, eager and compiled, random programs compiled beside eager, kernels and routines
launched between guard regions, runs that repeat bit for bit, captured beside uncaptured, programs
under threads and without memory, and all tests that are skipped elsewhere. Each part is a process
of its own, so that one that crashes leaves the others alone.
Nothing is installed: the Python that runs this has PyTorch with CUDA, pytest and pytest-xdist.

    python tools/gpu_test.py --minutes 10 --programs 3000
    python tools/gpu_test.py --sanitize
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 8
STUCK = 180.0  # seconds after which a program that says nothing is ended
CRASHES = 10  # after which no more processes take the place of those that ended
HERE = "tests/compiler/cuda"
ALONE = [sys.executable, "-m", "pytest", "--light", "-q"]
ALONE += ["-p", "no:cacheprovider", "-p", "no:benchmark"]  # which warns of xdist, an error here
PYTEST = [*ALONE, "-n", str(WORKERS), "--dist", "worksteal"]
PARTS = {
    "rows": ["tests/table", "-k", "cuda"],
    "compiled": [f"{HERE}/test_rows.py", "-k", "not torch"],
    "kernels": [f"{HERE}/test_launched.py", "-k", "not emulated"],
    "bits": [f"{HERE}/test_captured.py", "-k", "not torch"],
    "hostile": [f"{HERE}/test_hostile.py", f"{HERE}/test_activations.py", "-k", "not torch"],
    "others": [
        *("tests", "--ignore=tests/table", "--ignore=tests/oracle", f"--ignore={HERE}"),
        *("-k", "cuda or gpu"),
    ],
}
ORDER = ("kernels", "bits", "hostile", "programs", "compiled", "rows", "others")
ROUTINES = ("take", "take_along", "index_put", "segment_sums", "scattered_sums", "running", "draws")
SANITIZED = [
    *(f"test_random_kernels_write_their_results_only[cuda-{n}]" for n in range(60)),
    *(f"test_random_routines[{name}-cuda-{n}]" for name in ROUTINES for n in range(3)),
]


@dataclass
class Totals:
    """What the parts have found."""

    passed: int = 0
    failed: int = 0
    sanitizer: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    wrong: list[int] = field(default_factory=list)  # seeds of programs
    unfinished: list[str] = field(default_factory=list)  # parts that the time was not enough for

    def summary(self, seconds: float) -> str:
        programs = sum(self.verdicts.values())
        parts = [f"{self.passed} passed", f"{self.failed} failed", f"{programs} programs"]
        parts += [f"{len(self.wrong)} mismatches"]
        parts += [f"{self.sanitizer} sanitizer errors"] if self.sanitizer >= 0 else []
        parts += [f"no time for all of {' and '.join(self.unfinished)}"] if self.unfinished else []
        return f"gpu-test: {', '.join(parts)}, {seconds:.0f} s"

    @property
    def good(self) -> bool:
        return not (self.failed or self.wrong or self.sanitizer > 0)


class Deadline:
    """When all of it has to be done; `None` minutes: never."""

    def __init__(self, minutes: float | None):
        self.start = time.monotonic()
        self._end = None if minutes is None else self.start + 60 * minutes

    @property
    def left(self) -> float | None:
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        return self.left == 0.0


def environment(cache: str) -> dict[str, str]:
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    own = {"WEFT_CACHE_DIR": cache, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    own |= {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    own |= {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}  # or JAX takes most of the memory
    return {**os.environ, **own}


# -- tests -----------------------------------------------------------------------------------


def run_tests(name: str, totals: Totals, cache: str, deadline: Deadline) -> None:
    """One part by pytest; what it says of its tests is read from its report."""
    report = Path(cache) / f"{name}.xml"
    command = [*PYTEST, f"--junitxml={report}", "--tb=short", "--continue-on-collection-errors"]
    command += PARTS[name]
    try:
        made = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment(cache),
            timeout=deadline.left,
        )
        said, code = made.stdout + made.stderr, made.returncode
    except subprocess.TimeoutExpired as e:
        totals.unfinished.append(name)
        said, code = (e.stdout or b"").decode(errors="replace"), 0
    counts = count(report)
    totals.passed += counts["passed"]
    totals.failed += counts["failed"] + (counts["failed"] == 0 and code != 0)
    print(f"{name}: {dict(counts)}, exit status {code}", flush=True)
    if code or name in totals.unfinished:
        print(said[-6000:], flush=True)


def count(report: Path) -> Counter[str]:
    """How many tests of a report passed, failed and were skipped; none, if there is no report."""
    found: Counter[str] = Counter()
    if not report.exists():
        return found
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            found["failed"] += 1
        else:
            found["skipped" if "skipped" in kinds else "passed"] += 1
    return found


# -- programs --------------------------------------------------------------------------------


def run_programs(first: int, number: int, totals: Totals, cache: str, deadline: Deadline) -> None:
    """Random programs in processes beside each other."""
    lock = threading.Lock()
    lanes = [
        threading.Thread(
            target=run_lane, args=(first + k, first + number, totals, lock, cache, deadline)
        )
        for k in range(WORKERS)
    ]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    print(f"programs: {dict(totals.verdicts)}", flush=True)
    if totals.wrong:
        print(f"programs: wrong seeds {sorted(totals.wrong)}", flush=True)
    done = sum(totals.verdicts.values())
    same = totals.verdicts["same"] + totals.verdicts["same as on the CPU"]
    if done < number:
        totals.unfinished.append("programs")
    if same < 0.8 * done:
        totals.failed += 1
        print(f"programs: only {same} of {done} were compared", flush=True)


def run_lane(
    first: int, stop: int, totals: Totals, lock: threading.Lock, cache: str, deadline: Deadline
) -> None:
    """Every so-many-th program; a process that ends early is replaced behind its program."""
    seed, crashes = first, 0
    while seed < stop and not deadline.passed and crashes < CRASHES:
        begun, done, said = seed, set(), deque[str](maxlen=20)
        with start_programs(seed, stop, cache) as process:
            for record in spoken(process, deadline):
                begun = record.get("begins", begun)
                said.append(record.get("said", ""))
                if "seed" in record:
                    done.add(record["seed"])
                    with lock:
                        note(totals, record)
        if begun not in done and not deadline.passed:
            crashes += 1
            with lock:
                note(totals, {"seed": begun, "verdict": "crash", "told": "".join(said)})
        seed = begun + WORKERS


def start_programs(first: int, stop: int, cache: str) -> "subprocess.Popen[str]":
    arguments = [str(first), str(stop), str(WORKERS)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.compiler.cuda.card_programs", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=environment(cache),
    )


def spoken(process: "subprocess.Popen[str]", deadline: Deadline) -> Iterator[dict]:
    """The records that a process prints, and its other lines; if it is silent for long, it ends."""
    assert process.stdout is not None
    while True:
        wait = STUCK if deadline.left is None else min(STUCK, deadline.left)
        timer = threading.Timer(wait, process.kill)
        timer.start()
        line = process.stdout.readline()
        timer.cancel()
        if not line:
            return
        yield json.loads(line) if line.startswith("{") else {"said": line}


def note(totals: Totals, record: dict) -> None:
    totals.verdicts[record["verdict"]] += 1
    if record["verdict"] in ("mismatch", "crash"):
        totals.wrong.append(record["seed"])
        print(f"program {record['seed']}: {record['verdict']}\n{record['told']}", flush=True)


# -- compute-sanitizer -----------------------------------------------------------------------


def sanitize(totals: Totals, cache: str, deadline: Deadline) -> None:
    """Kernels without guard regions, and programs that are not captured, under NVIDIA's tool."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        totals.failed += 1
        print("sanitize: compute-sanitizer is not on PATH", flush=True)
        return
    kernels = [*ALONE, *(f"{HERE}/test_launched.py::{name}" for name in SANITIZED)]
    programs = [sys.executable, "-m", "tests.compiler.cuda.card_programs", "0", "40", "1"]
    runs = [
        ("memcheck", kernels),
        ("racecheck", kernels),
        ("memcheck", [*programs, "--uncaptured"]),
    ]
    # Each array is an allocation of its own, which ends where it does.
    own = {"WEFT_GUARD": "0", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    for check, command in runs:
        whole = [tool, "--tool", check, "--error-exitcode", "99", *command]
        if check == "memcheck":  # bindings ask for functions that the driver may not have
            whole[3:3] = ["--report-api-errors", "no"]
        try:
            made = subprocess.run(
                whole,
                capture_output=True,
                text=True,
                cwd=ROOT,
                env={**environment(cache), **own},
                timeout=deadline.left,
            )
        except subprocess.TimeoutExpired:
            totals.unfinished.append(check)
            continue
        errors = reported(made.stdout + made.stderr)
        totals.sanitizer += errors or 0
        totals.failed += errors is None or (errors == 0 and made.returncode != 0)
        print(f"sanitize: {check}: {errors} errors, exit status {made.returncode}", flush=True)
        if errors or made.returncode:
            print((made.stdout + made.stderr)[-6000:], flush=True)


def reported(text: str) -> int | None:
    """The errors that compute-sanitizer counts; None if it has not come to its summary."""
    found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
    return sum(map(int, found)) if found else None


def has_card() -> bool:
    code = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code]).returncode == 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run everything that needs a GPU.")
    parser.add_argument("--minutes", type=float, help="stop after so many")
    parser.add_argument("--programs", type=int, default=3000, help="random programs")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first of them")
    parser.add_argument("--only", nargs="*", choices=ORDER, help="parts to run")
    parser.add_argument("--sanitize", action="store_true", help="a few under compute-sanitizer")
    given = parser.parse_args(arguments)
    deadline = Deadline(given.minutes)
    totals = Totals(sanitizer=0 if given.sanitize else -1)
    if not has_card():
        print("gpu-test: PyTorch finds no GPU on this machine")
        return 1
    with tempfile.TemporaryDirectory() as cache:
        if given.sanitize:
            sanitize(totals, cache, deadline)
        else:
            chosen = given.only or ORDER
            for name in [n for n in ORDER if n in chosen]:
                if name == "programs":
                    run_programs(given.first, given.programs, totals, cache, deadline)
                else:
                    run_tests(name, totals, cache, deadline)
    print(totals.summary(time.monotonic() - deadline.start))
    return 0 if totals.good else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
