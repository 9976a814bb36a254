"""Jacobians of a random program, each way to compute them against reverse mode row by row.

`python -m tests.transform.jacobian.dag_checks FIRST LAST` prints the
seeds for which some way is wrong.
"""

import sys
from collections.abc import Callable, Iterator

import numpy as np
from tests.compiler.equations import interpret
from tests.compiler.test_jit_rows import written
from tests.transform.jacobian.dags import Dag

import weft as wf
from weft.transform.modes.trees import flatten

MODES = ("auto", "mixed", "columns", "rows", "both", "forward", "reverse")
STRATEGIES = ("auto", "mixed", "forward", "reverse")
COUNTS = ((2, 0), (1, 0), (2, 0), (0, 1))  # ways to Jacobians and to Hessians, seed by seed
NATIVE = 40  # of so many programs one is compiled into native code
_RTOL = 1e-9  # float64, over some ten statements
_LARGEST = 1e6  # of a derivative, for the rounding of what cancels to stay below that


def leaves(tree) -> list:
    return flatten(tree)[0]


def matrix(tree, sizes: list[int]) -> np.ndarray:
    """A Jacobian's blocks, results by arguments, as one matrix."""
    blocks = [np.asarray(b.detach().numpy()) for b in leaves(tree)]
    rows, k = [], len(sizes)
    for r in range(0, len(blocks), k):
        row = zip(blocks[r : r + k], sizes, strict=True)
        rows.append(np.concatenate([b.reshape(-1, n) for b, n in row], 1))
    return np.concatenate(rows)


def row_by_row(f: Callable, point) -> np.ndarray:
    """The Jacobian by a backward pass for every element of the results."""
    xs = [wf.asarray(x.numpy().copy()).requires_grad_() for x in point]
    rows = []
    for y in leaves(f(*xs)):
        for k in range(y.size):
            part = y.reshape(-1)[k] if y.requires_grad else None
            found = {} if part is None else part.backward(retain_graph=True)
            rows.append(np.concatenate([_found(found, x) for x in xs]))
    return np.array(rows)


def _found(gradients, x) -> np.ndarray:
    return np.asarray(gradients[x].numpy()) if x in gradients else np.zeros(x.shape)


class Ways:
    """The ways to the Jacobian of a program, by name, as functions of a point."""

    def __init__(self, f: Callable, sizes: list[int]):
        self.f, self.sizes = f, sizes
        self.argnums = tuple(range(len(sizes))) if len(sizes) > 1 else 0
        self.found = {f"mode {mode}": self._dense(self._jacobian(mode=mode)) for mode in MODES}
        self.found["mixed, in chunks"] = self._dense(
            self._jacobian(mode="mixed", memory_limit=1000)
        )
        for format in ("csr", "coo"):
            J = self._jacobian(format=format)
            self.found[format] = lambda point, J=J: J(*point).toarray()
        for strategy in STRATEGIES:
            self.found[f"tape, {strategy}"] = lambda point, s=strategy: self._taped(point, s)
        self.found["vmap"] = self._mapped(self._jacobian())
        self.found["written down"] = self._staged_scale(self._jacobian())
        self.found["compiled"] = self._dense(wf.compile(self._jacobian()))

    def _jacobian(self, **options) -> Callable:
        return wf.jacobian(self.f, self.argnums, **options)

    def _dense(self, J: Callable) -> Callable:
        return lambda point: matrix(J(*point), self.sizes)

    def _mapped(self, J: Callable) -> Callable:
        def both(point):
            turned = [wf.stack([x, wf.flip(x)]) for x in point]
            blocks = leaves(wf.vmap(J)(*turned))
            return np.concatenate([matrix([b[k] for b in blocks], self.sizes) for k in range(2)])

        return both

    def _staged(self, J: Callable) -> Callable:
        """The program that `wf.compile` writes down at the first call, interpreted.

        The plan is made there. The eager Jacobian that it then serves has to give the same.
        """
        graphs = []

        def read(point):
            graph, values = written(lambda *xs: tuple(leaves(J(*xs))), point)
            graphs.append(graph)
            got = matrix([wf.asarray(a) for a in interpret(graphs[0], values)], self.sizes)
            return np.where(np.isclose(got, matrix(J(*point), self.sizes)), got, np.nan)

        return read

    def _taped(self, point, strategy: str) -> np.ndarray:
        config = wf.SchedulerConfig(strategy=strategy)
        with wf.GradientTape(persistent=True, scheduler=config) as tape:
            xs = [tape.watch(wf.asarray(x.numpy().copy())) for x in point]
            ys = leaves(self.f(*xs))
        rows = []
        for y in ys:
            known = y.requires_grad or any(y is x for x in xs)
            rows += [tape.jacobian(y, x) if known else wf.zeros((*y.shape, *x.shape)) for x in xs]
        return matrix(rows, self.sizes)


class HessianWays(Ways):
    """The ways to the Hessian of a number."""

    def __init__(self, f: Callable, sizes: list[int]):
        super().__init__(f, sizes)
        kept = ("mode auto", "mode mixed", "mode columns", "csr", "vmap", "written down")
        self.found = {name: self.found[name] for name in (*kept, "compiled")}

    def _jacobian(self, **options) -> Callable:
        return wf.hessian(self.f, self.argnums, **options)


def number(f: Callable) -> Callable:
    """A smooth number of all results, whose Hessian is as sparse as they are local."""

    def total(*xs):
        return sum([(wf.sin(y) * y).sum() for y in leaves(f(*xs))])

    return total


def compared(name: str, way: Callable, points, wants) -> Iterator[str]:
    """The way at the first point, where it is planned, and then at the second."""
    for call, (point, want) in enumerate(zip(points, wants, strict=True)):
        try:
            got = way(point)
        except Exception as e:  # whatever it is, it is what is looked for
            yield f"{name}, call {call}: {type(e).__name__}: {str(e)[:300]}"
            return
        scale = np.abs(want).max(initial=1.0)
        if got.shape != want.shape or not (np.abs(got - want) <= _RTOL * scale).all():
            off = np.abs(got - want).max() if got.shape == want.shape else got.shape
            yield f"{name}, call {call}: off by {off}"
            return


def _is_tame(wants: list[np.ndarray]) -> bool:
    return all([np.isfinite(w).all() and np.abs(w).max(initial=0.0) < _LARGEST for w in wants])


def chosen(ways: Ways, rng: np.random.Generator, count: int | None) -> list[str]:
    """So many ways: all of them in turn over many seeds; native code, which takes long, rarely."""
    names = [name for name in ways.found if name != "compiled"]
    if count is not None:
        names = list(rng.choice(names, count, replace=False))
    return names + ["compiled"] * (rng.uniform() < 1 / NATIVE)


def problems(seed: int, counts: tuple[int | None, int | None] = (None, None)) -> list[str]:
    """What is wrong with the Jacobians and Hessians of a seed's program.

    counts  how many ways to each are taken; None: all
    """
    dag, rng = Dag(seed), np.random.default_rng(seed)
    f, sizes = dag.function(), [x.size for x in dag.points[0]]
    g = number(f)
    gradient = wf.grad(g, tuple(range(len(sizes))))
    kinds = (("jacobian", f, Ways(f, sizes)), ("hessian", gradient, HessianWays(g, sizes)))
    found = []
    for (kind, function, ways), count in zip(kinds, counts, strict=True):
        names = chosen(ways, rng, count)
        wants = [row_by_row(function, point) for point in dag.points] if names else []
        if not _is_tame(wants):
            continue
        for name in names:
            points = dag.points
            if name == "vmap":
                pairs = [(p, [wf.flip(x) for x in p]) for p in points]
                right = [np.concatenate([row_by_row(function, p) for p in pair]) for pair in pairs]
            else:
                right = wants
            found += compared(f"{kind}, {name}", ways.found[name], points, right)
    return found


def main(first: int, last: int) -> int:
    """Some ways for every seed of a range; prints what is wrong."""
    wrong = 0
    for seed in range(first, last):
        with np.errstate(all="ignore"):
            found = problems(seed, COUNTS[seed % 4])
        wrong += bool(found)
        for line in found:
            print(f"{seed}: {line}", flush=True)
        if seed % 100 == 99:
            print(f"{seed + 1 - first} programs, {wrong} wrong", flush=True)
    return wrong


if __name__ == "__main__":
    raise SystemExit(bool(main(int(sys.argv[1]), int(sys.argv[2]))))
