"""The elements of a batch: a row's own cases, drawn several times.

They have the shapes and the static parameters of one case, and each its own numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from weft.core import dtypes
from weft.core.call import caller
from weft.core.op import Op
from weft.core.value import wrap
from weft.ops.complex_ import real
from weft.ops.samples.case import Case
from weft.ops.structural import sum_
from weft.transform.checking.ridders import UNITS, pool_noise

from .probe import excluded, inexact, raw, to_numpy
from .problems import Finding, differs
from .rows import cases

SIZE = 3
EPS = float(np.finfo(np.float64).eps)
# Rows of more arrays than this are mapped over some of their subsets only.
EVERY_SUBSET = 3

Places = tuple[int, ...]


@dataclass(frozen=True)
class Elements:
    """Cases of a row that differ in their numbers only, on a backend."""

    op: Op
    cases: tuple[Case, ...]
    backend: str

    @property
    def arrays(self) -> Places:
        """The arguments that can have a batch axis."""
        return tuple(i for i, a in enumerate(self.cases[0].args) if isinstance(a, np.ndarray))

    @property
    def moving(self) -> Places:
        """The arguments that a derivative can be taken by."""
        args = self.cases[0].args
        return tuple(i for i in self.arrays if inexact(args[i]) and not excluded(self.op, i))

    @property
    def subsets(self) -> list[Places]:
        """The choices of arguments to map over."""
        n = len(self.arrays)
        lengths = range(1, n + 1) if n <= EVERY_SUBSET else sorted({1, n - 1, n})
        return [s for k in lengths for s in combinations(self.arrays, k)]

    def tensor(self, array: np.ndarray):
        return wrap(raw(array, self.backend))

    def one(self, i: int, k: int):
        """Argument i of element k."""
        return self.tensor(self.cases[k].args[i])

    def stacked(self, i: int, size: int = SIZE):
        """Argument i of the first elements, with the batch axis in front."""
        return self.tensor(np.stack([c.args[i] for c in self.cases])[:size])

    def call(self, places, values) -> tuple:
        """The row's results with these values, and the first element's in the other places."""
        case = self.cases[0]
        args = [self.tensor(a) if isinstance(a, np.ndarray) else a for a in case.args]
        for i, v in zip(places, values, strict=True):
            args[i] = v
        out = caller(self.op)(*((args,) if self.op.arity is None else args), *case.static)
        out = out if isinstance(out, tuple) else (out,)
        if case.post is not None:
            out = case.post(*out)
        return tuple(out) if isinstance(out, tuple | list) else (out,)

    def call_one(self, places, k: int) -> tuple:
        """The results of element k, which differs from the first in these places."""
        return self.call(places, [self.one(i, k) for i in places])

    def nudged(self, rng) -> "Elements":
        """The same with all numbers moved by one unit of rounding."""

        def moved(a):
            if not inexact(a):
                return a
            return np.asarray(a * (1 + EPS * rng.choice([-1.0, 1.0], a.shape)))

        changed = [replace(c, args=tuple(map(moved, c.args))) for c in self.cases]
        return replace(self, cases=tuple(changed))


def batches(op: Op, backend: str) -> list[Elements]:
    """A batch of each of the row's cases that has an array."""
    drawn = [cases(op, draw) for draw in range(SIZE)]
    found = [Elements(op, _varied(alike), backend) for alike in zip(*drawn, strict=True)]
    return [elements for elements in found if elements.arrays]


def _varied(alike: tuple[Case, ...]) -> tuple[Case, ...]:
    """The cases, with other numbers in arrays that the sampler states instead of drawing."""
    columns = list(zip(*(c.args for c in alike), strict=True))
    for i, column in enumerate(columns):
        if isinstance(column[0], np.ndarray) and all(_same(a, column[0]) for a in column):
            columns[i] = tuple(_variant(a, k) for k, a in enumerate(column))
    rows = zip(*columns, strict=True)
    return tuple(replace(c, args=tuple(row)) for c, row in zip(alike, rows, strict=True))


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return np.array_equal(a, b, equal_nan=inexact(b))


def _variant(a: np.ndarray, k: int) -> np.ndarray:
    """Smaller numbers, which stay in order and in domains; integers may be indices: they turn."""
    if inexact(a):
        return np.asarray(a * (1 - k / 8))
    return np.roll(a.reshape(-1), k).reshape(a.shape)


class Weighed:
    """The row as a function with one real number as its value, another one for each element."""

    def __init__(self, elements: Elements):
        results = elements.call_one(elements.arrays, 0)
        tracked = elements.op.tracked if elements.cases[0].post is None else range(len(results))
        self.places = elements.moving
        self.outputs = [k for k in tracked if dtypes.is_inexact(results[k].dtype)]
        rng = np.random.default_rng(11)
        self.weights = [
            rng.uniform(0.5, 1.5, (SIZE, *r.shape)) * (1 - 0.5j if r.dtype.kind == "c" else 1.0)
            for r in (results[k] for k in self.outputs)
        ]

    @property
    def is_constant(self) -> bool:
        return not self.places or not self.outputs

    def total(self, results, weights):
        """The real part of the weighted sum of all results."""
        total = 0.0
        for k, w in zip(self.outputs, weights, strict=True):
            term = real(results[k] * w)
            total = total + sum_(term, tuple(range(len(term.shape))), False)
        return total

    def stacked(self, e: Elements) -> list:
        return [e.tensor(w) for w in self.weights]

    def one(self, e: Elements, k: int) -> list:
        return [e.tensor(np.asarray(w[k])) for w in self.weights]


def arrays_of(tensors) -> list[np.ndarray]:
    return [to_numpy(t._data) for t in tensors]


def stack(rows: list[list[np.ndarray]]) -> list[np.ndarray]:
    """For each result its values over the batch."""
    return [np.stack(column) for column in zip(*rows, strict=True)]


Way = Callable[[Elements], list[np.ndarray]]


def compare(kind: str, elements: Elements, found: Way, expected: Way) -> Iterator[Finding]:
    """Two ways to the same numbers, within what their conditioning allows."""
    got, want = found(elements), expected(elements)
    bounds = [UNITS * EPS * pool_noise(np.abs(w)) if inexact(w) else 0.0 for w in want]
    if any(faults(got, want, bounds)):  # the conditioning is measured only where it matters
        for way, at in ((expected, want), (found, got)) if _alike(got, want) else ():
            noise = _noise(elements, way, at)
            bounds = [b + UNITS * pool_noise(n) for b, n in zip(bounds, noise, strict=True)]
    for fault in faults(got, want, bounds):
        yield kind, fault


def _alike(got, want) -> bool:
    return [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]


def _noise(elements: Elements, way: Way, at: list[np.ndarray]) -> list[np.ndarray]:
    """How far the numbers move when those they are made of move by a unit of rounding."""
    rng = np.random.default_rng(5)
    noise = [np.zeros(a.shape) for a in at]
    for _ in range(2):
        for n, moved, a in zip(noise, way(elements.nudged(rng)), at, strict=True):
            if inexact(a):
                np.fmax(n, np.abs(moved - a), out=n)
    return noise


def faults(got, want, bounds) -> Iterator[str]:
    """What is wrong with results; the bounds are for numbers, integers are exact."""
    if len(got) != len(want):
        yield f"{len(got)} results, expected {len(want)}"
        return
    for k, (g, w, b) in enumerate(zip(got, want, bounds, strict=True)):
        fault = None
        if g.dtype != w.dtype or g.shape != w.shape:
            fault = f"{g.shape} {g.dtype}, expected {w.shape} {w.dtype}"
        elif inexact(w):
            fault = differs(g, w, b)
        elif not np.array_equal(g, w):
            fault = f"{g.tolist()}, expected {w.tolist()}"
        if fault:
            yield f"result {k}: {fault}"
