"""Every problem in every library, each in a process of its own, timed in turns.

Run: python -m bench.scoreboard [--quick] [problem …]
Results are compared with PyTorch's in float64 before anything is timed. The first call is timed in
two processes: with empty caches, and with those that the first has left. Writes bench/RESULTS.md
when all problems are run. `--quick` makes one round, which says little about times.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from .problems import PROBLEMS
from .report import written

ROOT = Path(__file__).resolve().parents[2]
ROUNDS, SECONDS, PAUSE = 6, 0.5, 0.3
JIT = ("dispatch", "chain", "norm", "mlp-small", "mlp-middle", "gpt", "cnn")
CONTENDERS = {
    "torch": tuple(PROBLEMS),
    "torch.compile": JIT,
    "torch foreach": ("adamw",),
    "jax.jit": tuple(PROBLEMS),
    "autograd": ("dispatch", "chain", "scan", "bottleneck"),
    "CasADi": ("scan", "arm"),
    "CasADi, bound": ("arm",),
    "floor": ("chain", "norm", "mlp-small", "mlp-middle", "bottleneck", "logistic"),
    "weft": tuple(PROBLEMS),
    "weft.compile": tuple(PROBLEMS),
}


@dataclass
class Line:
    """What was found of one contender at one problem; times in seconds."""

    cold: float
    warm: float
    errors: list[float]
    right: bool
    bests: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.bests)


class Worker:
    """A process with one contender at one problem."""

    def __init__(self, contender: str, problem: str, folder: Path):
        reference = folder / f"{problem}.npz"
        self.process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker", contender, problem, str(reference)],
            cwd=ROOT,
            env={**os.environ, **_caches(folder / contender.replace(" ", "-") / problem)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.told = self._answer()

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        while line and not line.startswith("{"):  # what a library prints
            line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(self.process.communicate()[1][-2000:])
        return json.loads(line)

    def round(self) -> dict:
        """The times of a round."""
        self.process.stdin.write(f"{SECONDS}\n")
        self.process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        self.process.communicate()


def _caches(folder: Path) -> dict[str, str]:
    return {
        "WEFT_CACHE_DIR": str(folder / "weft"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "PYTHONPATH": os.pathsep.join(["src", os.environ.get("PYTHONPATH", "")]),
    }


def measured(problem: str, folder: Path, rounds: int) -> dict[str, Line]:
    """The contenders at one problem."""
    Worker("reference", problem, folder).end()
    lines, workers = {}, {}
    for contender, problems in CONTENDERS.items():
        if problem not in problems:
            continue
        try:
            cold = Worker(contender, problem, folder)
            cold.end()
            workers[contender] = Worker(contender, problem, folder)
        except RuntimeError as e:
            print(f"  {contender}: {e}", file=sys.stderr, flush=True)
            continue
        told = workers[contender].told
        building = contender.startswith("CasADi")
        times = [w["first"] + (w["made"] if building else 0) for w in (cold.told, told)]
        lines[contender] = Line(*times, told.get("errors", []), told.get("right", True))
    for _ in range(rounds):
        for contender, worker in workers.items():
            time.sleep(PAUSE)  # threads of the others look out for work for a while
            found = worker.round()
            lines[contender].bests.append(found["best"])
            lines[contender].medians.append(found["median"])
    for worker in workers.values():
        worker.end()
    return lines


def main(names: list[str]) -> None:
    quick = "--quick" in names
    names = [n for n in names if n != "--quick"]
    unknown = set(names) - set(PROBLEMS)
    if unknown:
        raise SystemExit(
            f"no problem {', '.join(sorted(unknown))}; there are {', '.join(PROBLEMS)}"
        )
    found = {}
    for name in names or PROBLEMS:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measured(name, Path(folder), 1 if quick else ROUNDS)
        print(f"\n{PROBLEMS[name].title}")
        for contender, line in found[name].items():
            wrong = "" if line.right else "  WRONG"
            print(
                f"  {contender:14} {1e6 * line.best:12,.1f} µs   first call {line.cold:8.3f} s, "
                f"warm {line.warm:8.3f} s{wrong}",
                flush=True,
            )
    text = written(found)
    print(f"\n{text}")
    if set(found) == set(PROBLEMS) and not quick:
        (ROOT / "bench" / "RESULTS.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
