"""Writing random programs down: statements as text, each tried on numbers when it is added."""

import warnings
from dataclasses import dataclass, replace
from math import prod

import numpy as np

import weft as wf

from .statements import STATEMENTS
from .world import Given, World, draw_given

SIZE, BOUND = 300, 1e4  # elements of a value, and how large one may become


@dataclass(frozen=True)
class Text:
    """A program: what it is given, its statements, and the names that it returns.

    seed     of the numbers that it is run on
    results  the names of what it returns, as one expression
    """

    seed: int
    given: tuple[Given, ...]
    statements: tuple[str, ...]
    results: tuple[str, ...]
    shape: str = "tuple"

    def source(self) -> str:
        """The program as a function."""
        names = ", ".join(g.name for g in self.given)
        body = "\n".join(f"    {line}" for s in self.statements for line in s.split("\n"))
        return f"def program({names}):\n{body or '    pass'}\n    return {self._returned()}\n"

    def _returned(self) -> str:
        if self.shape == "one" and self.results:
            return self.results[0]
        if self.shape == "dict":
            pairs = ", ".join(f"'k{k}': {name}" for k, name in enumerate(self.results))
            return "{" + pairs + "}"
        if self.shape == "mixed":
            return f"[({', '.join(self.results)},), None, 3, 'text']"
        return f"({''.join(f'{name}, ' for name in self.results)})"

    def without(self, k: int) -> "Text":
        """The program without its k-th statement."""
        return replace(self, statements=self.statements[:k] + self.statements[k + 1 :])

    def returning(self, results: tuple[str, ...]) -> "Text":
        return replace(self, results=results)


class Writer:
    """A program that is being written: its names, with the values they have in one run."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        self.seed = seed
        self.given = draw_given(self.rng)
        self.world = World(self.given, seed)
        self.names = dict(self.world.arguments(0)) | self.world.tensors()
        self.statements: list[str] = []
        self.count = 0
        self.size = max(SIZE, 2 * max(prod(g.shape) for g in self.given))

    def new(self) -> str:
        """A name that is not taken."""
        self.count += 1
        return f"v{self.count}"

    def number(self) -> float:
        return float(np.round(self.rng.uniform(-2, 2), 2))

    def one_of(self, options):
        return options[int(self.rng.integers(len(options)))]

    def pick(self, fits) -> str | None:
        """A name whose value fits; later ones come more often."""
        able = [n for n, v in self.names.items() if isinstance(v, wf.Tensor) and fits(v)]
        if not able:
            return None
        return able[int(len(able) * self.rng.random() ** 0.7)]

    def add(self, make=None) -> bool:
        """One more statement, if the one that is drawn can be computed."""
        make = make or self.one_of(STATEMENTS)
        made = make(self)
        if made is None:
            return False
        statement, name = made
        scope = self.world.scope() | self.names
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(statement, scope)
        except (wf.errors.WeftError, ValueError, TypeError, IndexError, np.linalg.LinAlgError):
            return False
        value = scope.get(name)
        if name is not None and not self._sane(value):
            return False
        self.statements.append(statement)
        if name is not None:
            self.names[name] = value
        return True

    def _sane(self, value) -> bool:
        if not isinstance(value, wf.Tensor) or value.size > self.size:
            return False
        if value.dtype.kind in "biu":
            return True
        numbers = value.detach().numpy()
        with np.errstate(all="ignore"):
            tame = bool(np.all(np.abs(numbers.astype(np.complex128)) < BOUND))
        return tame or self.rng.random() < 0.05  # NaN and infinity are rare


def written(seed: int) -> Text:
    """The program of a seed."""
    w = Writer(seed)
    wanted = int(w.rng.integers(1, 11))
    for _ in range(4 * wanted):
        if len(w.statements) == wanted:
            break
        w.add()
    made = [n for n in w.names if n.startswith("v")] or [n for n in w.names if n[0] in "xB"]
    count = min(len(made), int(w.rng.integers(1, 5)))
    results = [made[-1]] + [w.one_of(made) for _ in range(count - 1)]
    if w.rng.random() < 0.1:
        results.append(w.one_of([n for n in w.names if n[0] in "xBPv"]))
    shape = w.one_of(["one", "tuple", "tuple", "dict", "mixed"])
    return Text(seed, w.given, tuple(w.statements), tuple(results), shape)
