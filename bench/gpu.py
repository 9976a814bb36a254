"""Training steps, gradients and products on one GPU: PyTorch, JAX and Weft in one run.

Run: python bench/gpu.py [case …] [--quick] [--ways torch,weft] [--tiny] [--device …] [--out …]
Each case runs in a process of its own and within its own time; all of them take less than eight
minutes. What was measured replaces the lines of the same cases in RESULTS-GPU.md and
RESULTS-GPU.json of the folder, by default bench/. `--quick` makes few rounds, `--tiny` small
arrays, `--ways` chooses contenders; then it only prints. `--device torch` (PyTorch's arrays in host
memory) and `--device cpu` (NumPy's) need no GPU.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
LIMIT, LEAST, START = 465, 12, 25
Lines = dict[str, Any]


def run_worker(arguments: list[str], most: float, caches: Path) -> tuple[list[Lines], str]:
    """What a worker printed, and why it ended before its time, if it did."""
    command = [sys.executable, "-m", "bench.gpu_cases.worker", *arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=_variables(caches),
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            process.wait(most)
            failure = ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the compilers that it has started
            process.wait()
            failure = f"stopped after {most:.0f} s"
        out.seek(0)
        err.seek(0)
        lines = [json.loads(line) for line in out if line.startswith('{"case"')]
        if process.returncode and not failure:
            last = err.read().strip().splitlines()[-1:]
            failure = f"ended with {process.returncode}: {''.join(last)[:160]}"
    return lines, failure


def _variables(caches: Path) -> dict[str, str]:
    """The environment of a process: caches of its own; modules are compiled once, as installed."""
    return {
        **{k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(caches / "bytecode"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        "WEFT_CACHE_DIR": str(caches / "weft"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }


def gathered(
    names: list[str], lines: list[Lines], failure: str, asked: str | None = None
) -> dict[str, Any]:
    """The lines of each case by contender; what was asked for and is missing says why."""
    from bench.gpu_cases.problems import PROBLEMS

    cases = {}
    for name in names:
        found: dict[str, Any] = {
            way: {} for way in PROBLEMS[name].ways if asked is None or way in asked.split(",")
        }
        environment, message = "unknown", failure
        for line in [line for line in lines if line["case"] == name]:
            environment = line.get("environment", environment)
            if "way" in line:
                found[line["way"]] |= {k: v for k, v in line.items() if k not in ("case", "way")}
            else:
                message = line.get("message", message)
        for way, line in found.items():
            if "milliseconds" not in line and "message" not in line:
                found[way]["message"] = message or "not timed"
        cases[name] = {"environment": environment, "lines": found}
    return cases


def measured(names: list[str], given: argparse.Namespace, until: float) -> dict[str, Any]:
    """The cases of one process, and the first calls of two more."""
    from bench.gpu_cases.problems import OURS_COMPILED, PROBLEMS

    options = ["--device", given.device]
    options += [f"--{word}" for word in ("tiny", "quick") if getattr(given, word)]
    options += ["--ways", given.ways] if given.ways else []
    most = START + sum(PROBLEMS[name].seconds[0] for name in names)
    with tempfile.TemporaryDirectory() as folder:
        left = min(most, until - monotonic())
        found = run_worker([*names, *options], left, Path(folder))
    cases = gathered(names, *found, given.ways)
    for name in names:
        line = cases[name]["lines"].get(OURS_COMPILED, {})
        if PROBLEMS[name].steps and "milliseconds" in line and not given.quick:
            line["own"] = first_calls(name, options, until)
    return cases


def first_calls(name: str, options: list[str], until: float) -> list[float]:
    """Seconds with an empty cache, and with what that process has left; less if time is up."""
    from bench.gpu_cases.problems import PROBLEMS

    own: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            left = min(START + PROBLEMS[name].seconds[1], until - monotonic())
            if left < LEAST:
                break
            lines, _ = run_worker([name, "--first", *options], left, Path(folder))
            own += [line["own"] for line in lines]
    return own


def groups(asked: list[str]) -> list[list[str]]:
    """The cases of each process: names, or beginnings of names; small ones go together."""
    from bench.gpu_cases.problems import PROBLEMS

    known = {name.partition("-")[0] for name in PROBLEMS} | set(PROBLEMS)
    unknown = sorted(set(asked) - known)
    if unknown:
        raise SystemExit(f"no case {', '.join(unknown)}; there are {', '.join(PROBLEMS)}")
    found: dict[str, list[str]] = {}
    for name in PROBLEMS:
        family = name.partition("-")[0]
        if not asked or name in asked or family in asked:
            found.setdefault(family, []).append(name)
    return list(found.values())


def check_ways(asked: str | None) -> None:
    from bench.gpu_cases.problems import EAGER, WAYS

    chosen = asked.split(",") if asked else WAYS
    unknown = sorted(set(chosen) - set(WAYS))
    if unknown:
        raise SystemExit(f"no contender {', '.join(unknown)}; there are {', '.join(WAYS)}")
    if EAGER not in chosen:
        raise SystemExit(f"{EAGER} has to be there: the errors of others are judged by its own")


def stored(folder: Path) -> dict[str, Any]:
    """The cases of earlier runs: the folder's, else those of the repository."""
    for place in (folder, ROOT / "bench"):
        path = place / "RESULTS-GPU.json"
        if path.exists():
            return json.loads(path.read_text())
    return {}


def show(cases: dict[str, Any]) -> None:
    for name, case in cases.items():
        print(f"\n{name}")
        for way, line in case["lines"].items():
            time = f"{line['milliseconds']:12.4f} ms" if "milliseconds" in line else f"{'–':>15}"
            print(f"  {way:16}{time}   {', '.join(_facts(line))}", flush=True)


def _facts(line: Lines) -> list[str]:
    """What is known of a contender besides its time."""
    facts = [f"error {line['error']:.1e}"] if "error" in line else []
    facts += [f"first call {line['first']:.2f} s"] if "first" in line else []
    facts += [f"peak {line['peak'] / 2**20:,.0f} MiB"] if "peak" in line else []
    facts += [f"in an own process {seconds:.2f} s" for seconds in line.get("own", [])]
    return facts + ([line["message"]] if "message" in line else [])


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help="names, or beginnings of names; all if none")
    parser.add_argument("--device", default="cuda", help="cuda; torch or cpu without a GPU")
    parser.add_argument("--tiny", action="store_true", help="sizes for a test")
    parser.add_argument("--quick", action="store_true", help="few rounds, no further processes")
    parser.add_argument("--ways", help="contenders, by commas; all if not given")
    parser.add_argument("--out", type=Path, default=ROOT / "bench", help="where results are kept")
    given = parser.parse_args(arguments)
    processes = groups(given.cases)
    check_ways(given.ways)
    if given.device not in ("torch", "cpu") and not _card_is_there():
        raise SystemExit("there is no GPU; --device torch --tiny runs without one")
    until = monotonic() + LIMIT
    found: dict[str, Any] = {}
    for names in processes:
        if until - monotonic() < LEAST:
            print(f"\nno time is left for {', '.join(names)}: run them by their names")
            continue
        cases = measured(names, given, until)
        show(cases)
        found |= cases
    keep(found, given)
    return found


def _card_is_there() -> bool:
    import weft as wf

    return wf.cuda.is_available()


def keep(found: dict[str, Any], given: argparse.Namespace) -> None:
    """Print the tables; write them with those of earlier runs if nothing was left out."""
    from bench.gpu_cases.report import written

    if given.tiny or given.quick or given.ways or given.device in ("torch", "cpu"):
        print("\n" + written(found))
        return
    cases = stored(given.out) | found
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "RESULTS-GPU.json").write_text(json.dumps(cases, indent=1) + "\n")
    (given.out / "RESULTS-GPU.md").write_text(written(cases))
    print("\n" + written(cases))


if __name__ == "__main__":
    main()
