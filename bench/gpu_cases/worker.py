"""A process that checks and times the contenders of some problems, and prints what it finds.

Run: python -m bench.gpu_cases.worker problem … [--device …] [--tiny] [--quick] [--ways …] [--first]
Each line is JSON: {"case", "way", and what was found}. `--first` only times the first call of
Weft's compiled step.
"""

import argparse
import gc
import json
import platform
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from statistics import median
from time import monotonic
from typing import Any

import torch

from . import check, torch_side, weft_side
from .problems import COMPILED, EAGER, JAX, OURS, OURS_COMPILED, PROBLEMS, REDUCED, WAYS, Problem
from .sides import Data, Place, Side, seconds

ROUNDS, QUICK_ROUNDS, SAMPLE, MOST_CALLS = 15, 3, 0.02, 500
Line = dict[str, Any]


@contextmanager
def limited(most: int) -> Iterator[None]:
    """A block that raises `TimeoutError` after some seconds.

    A compiler may catch the error, and go on or do without what it was about to make. So it is
    raised again every other second, and once more at the end: what was built is not to be timed.
    """
    error, late = TimeoutError(f"not built within {most} s"), False

    def stop(*_: Any) -> None:
        nonlocal late
        late = True
        raise error

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, most, 2)
    try:
        yield
    except Exception as e:
        raise (error if late else e) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if late:
        raise error


def first_line(e: BaseException) -> str:
    text = str(e).strip() or "no message"
    return f"{type(e).__name__}: {text.splitlines()[0][:160]}"


def build(problem: Problem, data: Data, place: Place, way: str) -> Side:
    if way == JAX:
        from . import jax_side

        return jax_side.side(problem, data, place)
    library = weft_side if way in (OURS, OURS_COMPILED) else torch_side
    return library.side(problem, data, place, way)


class Contest:
    """One problem: its arrays, its results in float64, and the contenders so far.

    tell  what is called with each line that is found
    """

    def __init__(self, problem: Problem, place: Place, tell: Callable[[Line], None]):
        self.problem, self.place, self.tell = problem, place, tell
        self.data = problem.data(place)
        self.exact = torch_side.reference(problem, self.data, place)
        terms = problem.terms and problem.terms(self.data)
        self.rounding = {} if terms is None else {"result": check.rounding_of_sum(terms)}
        del terms  # memory that no contender is to be charged for
        given = [*self.data.inputs.values(), *self.data.frozen.values(), *self.data.grads.values()]
        given += [] if self.data.cotangent is None else [self.data.cotangent]
        self.shared = sum(x.nbytes for x in given)
        self.sides: dict[str, Side] = {}
        self.torchs: dict[str, float] | None = None

    def _allocated(self) -> int:
        gc.collect()
        return 0 if self.place.torch == "cpu" else torch.cuda.memory_allocated()

    def enter(self, way: str) -> None:
        """Build a contender and compare its first step; whatever it raises is its line."""
        before = self._allocated()
        try:
            with limited(self.problem.seconds[1]):
                side = build(self.problem, self.data, self.place, way)
                self.tell({"way": way, **self._compare(way, side)})
                seconds(side)
        except Exception as e:
            self.tell({"way": way, "message": first_line(e)})
            gc.collect()
            return
        self.sides[way] = side
        if self.place.torch != "cpu" and way != JAX:
            self.tell({"way": way, "peak": self._peak(side, before)})

    def _compare(self, way: str, side: Side) -> Line:
        side.wait(None)
        start = monotonic()
        result = side.call()
        side.wait(result)
        first = monotonic() - start
        found = side.results(result)
        expected = set(self.exact)
        if way == JAX and self.problem.update:  # its gradients stay inside of the program
            expected = {name for name in expected if not name.startswith("gradient")}
        if expected != set(found):
            raise check.Wrong(f"no {', '.join(sorted(expected ^ set(found)))}")
        errors = check.errors(found, self.exact)
        worst = check.judge(errors, self.torchs, self.problem.tolerance, self.rounding)
        if way == EAGER:
            self.torchs = errors
        return {"first": first, "error": worst}

    def _peak(self, side: Side, before: int) -> int:
        """The most memory of a step, less what was there before, with the arrays it was given."""
        self._allocated()
        torch.cuda.reset_peak_memory_stats()
        seconds(side)
        return torch.cuda.max_memory_allocated() - before + self.shared

    def time(self, rounds: int, until: float, ways: Iterable[str]) -> None:
        """The median times of a call, measured in turns; three rounds at least."""
        sides = {way: self.sides[way] for way in ways if way in self.sides}
        calls = {}
        for way, side in sides.items():
            once = min(seconds(side) for _ in range(2))
            calls[way] = max(1, min(MOST_CALLS, int(SAMPLE / once)))
        samples: dict[str, list[float]] = {way: [] for way in sides}
        for k in range(rounds):
            if k >= 3 and monotonic() > until:
                break
            for way, side in sides.items():
                samples[way].append(1e3 * seconds(side, calls[way]))
        for way, taken in samples.items():
            spread = [min(taken), max(taken)]
            self.tell({"way": way, "milliseconds": median(taken), "spread": spread})


def contest(
    problem: Problem, place: Place, tell: Callable[[Line], None], rounds: int, ways: tuple[str, ...]
) -> None:
    """All contenders of a problem: PyTorch and Weft in turns, then PyTorch's compilers, then JAX.

    Once torch.compile has run, all Python code of its process takes longer.
    """
    until = monotonic() + problem.seconds[0]
    found = Contest(problem, place, tell)
    after = [way for way in ways if way in (COMPILED, REDUCED)]
    for group in ([way for way in ways if way not in (*after, JAX)], after):
        for way in group:
            found.enter(way)
            found.time(1, until, [way])  # there are times, should the next one end the process
        found.time(rounds, until, group)
    found.sides.clear()
    if JAX not in ways:
        return
    if find_spec("jax") is None:
        tell({"way": JAX, "message": "it is not installed"})
        return
    gc.collect()
    if place.torch != "cpu":
        torch.cuda.empty_cache()
    found.enter(JAX)
    found.time(rounds, until, [JAX])


def first_call(problem: Problem, place: Place) -> float:
    """The time of the first call of Weft's compiled step, in this process."""
    data = problem.data(place)
    place.wait()
    return seconds(weft_side.side(problem, data, place, OURS_COMPILED))


def environment(place: Place) -> str:
    """The card and the versions."""
    card = "CPU" if place.torch == "cpu" else torch.cuda.get_device_name()
    names = [n for n in ("torch", "triton", "jax", "llvmlite") if find_spec(n)]
    versions = ", ".join(f"{n} {_version(n)}" for n in names)
    cuda = "" if place.torch == "cpu" else f", CUDA {torch.version.cuda}"
    return f"{card}; Python {platform.python_version()}, {versions}{cuda}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "of unknown version"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", choices=PROBLEMS)
    parser.add_argument("--device", default="cuda", help="cuda; torch or cpu without a GPU")
    parser.add_argument("--tiny", action="store_true", help="sizes for a test")
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--ways", default=",".join(WAYS), help="contenders, by commas")
    parser.add_argument("--first", action="store_true", help="only the first call")
    given = parser.parse_args(arguments)
    on_card = given.device not in ("torch", "cpu")
    place = Place(given.device, given.device if on_card else "cpu", given.tiny)
    for name in given.cases:
        problem = PROBLEMS[name]

        def tell(line: Line, name: str = name) -> None:
            print(json.dumps({"case": name, **line}), flush=True)

        if given.first:
            tell({"way": OURS_COMPILED, "own": first_call(problem, place)})
            continue
        tell({"environment": environment(place)})
        try:
            rounds = QUICK_ROUNDS if given.quick else ROUNDS
            ways = tuple(way for way in problem.ways if way in given.ways.split(","))
            contest(problem, place, tell, rounds, ways)
        except Exception as e:  # the arrays or the reference themselves: the next line may do
            tell({"message": first_line(e)})
        gc.collect()


if __name__ == "__main__":
    main()
