"""Whether a row does for a batch what it does for each element: `python -m tests.table.batching`.

`check_batch(op)` gives the problems of a row's batching rule. The yardstick is a Python loop over
the elements.
"""

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

import weft as wf
from weft.core.op import Op

from .check import bound, run
from .elements import SIZE, Elements, Places, Weighed, arrays_of, batches, compare, faults, stack
from .problems import Finding, Problem
from .rows import load

# Sizes of batches between which the number of calls must not grow by one for each element.
FEW, MANY = 2, 40


def _named(chosen: Places, findings: Iterator[Finding]) -> Iterator[Finding]:
    for kind, message in findings:
        yield kind, f"over arguments {chosen}: {message}"


def check_values(elements: Elements) -> Iterator[Finding]:
    """vmap over every choice of arguments is the loop, also over one element and over none."""
    for chosen in elements.subsets:
        for size in (SIZE, 1):

            def mapped(e: Elements, chosen=chosen, size=size):
                over = [e.stacked(i, size) for i in chosen]
                return arrays_of(wf.vmap(lambda *xs: e.call(chosen, xs))(*over))

            def looped(e: Elements, chosen=chosen, size=size):
                return stack([arrays_of(e.call_one(chosen, k)) for k in range(size)])

            yield from _named(chosen, compare(f"vmap of {size}", elements, mapped, looped))
        yield from _named(chosen, _over_nothing(elements, chosen))


def _over_nothing(elements: Elements, chosen: Places) -> Iterator[Finding]:
    """A batch of no elements has the elements' shape and dtype."""
    over = [elements.stacked(i, 0) for i in chosen]
    got = arrays_of(wf.vmap(lambda *xs: elements.call(chosen, xs))(*over))
    want = [np.empty((0, *a.shape), a.dtype) for a in arrays_of(elements.call_one(chosen, 0))]
    for fault in faults(got, want, [0.0] * len(want)):
        yield "vmap of 0", fault


def check_nested(elements: Elements) -> Iterator[Finding]:
    """vmap inside vmap: over a batch of batches, or over one argument and then the others."""
    first, *rest = elements.arrays

    def mapped(e: Elements):
        def inside(x):
            if not rest:
                return wf.vmap(lambda y: e.call([first], [y]))(x)
            others = [e.stacked(i) for i in rest]
            return wf.vmap(lambda *ys: e.call([first, *rest], [x, *ys]))(*others)

        outer = e.stacked(first)
        if not rest:
            outer = wf.stack([outer, wf.flip(outer, axis=0)])
        return arrays_of(wf.vmap(inside)(outer))

    def looped(e: Elements):
        if not rest:
            row = stack([arrays_of(e.call_one([first], k)) for k in range(SIZE)])
            return [np.stack([a, a[::-1]]) for a in row]
        each = range(SIZE)
        inner = [[e.one(i, k) for i in rest] for k in each]
        return stack(
            [
                stack([arrays_of(e.call([first, *rest], [e.one(first, j), *ys])) for ys in inner])
                for j in each
            ]
        )

    yield from compare("nested", elements, mapped, looped)


def _choices(elements: Elements) -> list[Places]:
    """Mapped arguments for the derivatives: all of them, and each one alone."""
    arrays = elements.arrays
    return [arrays] + ([(i,) for i in arrays] if len(arrays) > 1 else [])


def _slope(w: Weighed, e: Elements, weights, others=(), fixed=()) -> Callable:
    """The gradient of an element's number by its places; other arguments are fixed."""

    def number(*xs):
        return w.total(e.call([*w.places, *others], [*xs, *fixed]), weights)

    return wf.grad(number, tuple(range(len(w.places))))


def _looped_slope(w: Weighed, e: Elements, chosen: Places) -> list[np.ndarray]:
    """The gradients of all elements, of which the chosen arguments differ."""
    others = [i for i in chosen if i not in w.places]
    rows = []
    for k in range(SIZE):
        slope = _slope(w, e, w.one(e, k), others, [e.one(i, k) for i in others])
        rows.append(arrays_of(slope(*(e.one(i, k if i in chosen else 0) for i in w.places))))
    return stack(rows)


def check_over_grad(elements: Elements) -> Iterator[Finding]:
    """vmap(grad(f)) is the loop over grad(f)."""
    w = Weighed(elements)
    for chosen in [] if w.is_constant else _choices(elements):

        def mapped(e: Elements, chosen=chosen):
            inside = [i for i in chosen if i in w.places]
            others = [i for i in chosen if i not in w.places]

            def one(weights, xs, fixed):
                given = dict(zip(inside, xs, strict=True))
                at = [given[i] if i in given else e.one(i, 0) for i in w.places]
                return _slope(w, e, weights, others, fixed)(*at)

            args = [e.stacked(i) for i in inside], [e.stacked(i) for i in others]
            return arrays_of(wf.vmap(one)(w.stacked(e), *args))

        def looped(e: Elements, chosen=chosen):
            return _looped_slope(w, e, chosen)

        yield from _named(chosen, compare("vmap(grad)", elements, mapped, looped))


def check_under_grad(elements: Elements) -> Iterator[Finding]:
    """The gradient of a sum over vmap(f), by mapped and by shared arguments, is the loop's."""
    w = Weighed(elements)
    for chosen in [] if w.is_constant else _choices(elements):

        def mapped(e: Elements, chosen=chosen):
            shared = [i for i in w.places if i not in chosen]
            weights = w.stacked(e)

            def number(*xs):
                given = dict(zip(w.places, xs, strict=True))
                common = [given[i] for i in shared]
                over = [given[i] if i in given else e.stacked(i) for i in chosen]
                results = wf.vmap(lambda *ys: e.call([*chosen, *shared], [*ys, *common]))(*over)
                return w.total(results, weights)

            at = [e.stacked(i) if i in chosen else e.one(i, 0) for i in w.places]
            return arrays_of(wf.grad(number, tuple(range(len(at))))(*at))

        def looped(e: Elements, chosen=chosen):
            found = zip(w.places, _looped_slope(w, e, chosen), strict=True)
            return [g if i in chosen else np.asarray(g.sum(0)) for i, g in found]

        yield from _named(chosen, compare("grad(vmap)", elements, mapped, looped))


def check_forward(elements: Elements) -> Iterator[Finding]:
    """vmap(jvp(f)) and jvp(vmap(f)) are the loop over jvp(f)."""
    w = Weighed(elements)
    if w.is_constant:
        return
    others = [i for i in elements.arrays if i not in w.places]
    rng = np.random.default_rng(13)
    args = elements.cases[0].args
    directions = [rng.uniform(0.5, 1.5, (SIZE, *args[i].shape)) for i in w.places]
    directions = [d.astype(args[i].dtype) for i, d in zip(w.places, directions, strict=True)]

    def pushed(e: Elements, xs, ts, fixed):
        def f(*xs):
            results = e.call([*w.places, *others], [*xs, *fixed])
            return tuple(results[k] for k in w.outputs)

        return wf.jvp(f, tuple(xs), tuple(ts))[1]

    def stacked(e: Elements) -> tuple:
        ts = [e.tensor(d) for d in directions]
        return [e.stacked(i) for i in w.places], ts, [e.stacked(i) for i in others]

    def over(e: Elements):
        return arrays_of(wf.vmap(lambda xs, ts, fixed: pushed(e, xs, ts, fixed))(*stacked(e)))

    def under(e: Elements):
        xs, ts, fixed = stacked(e)

        def one(*args):
            results = e.call([*w.places, *others], args)
            return tuple(results[k] for k in w.outputs)

        return arrays_of(wf.jvp(lambda *xs: wf.vmap(one)(*xs, *fixed), tuple(xs), tuple(ts))[1])

    def looped(e: Elements):
        rows = []
        for k in range(SIZE):
            ts = [e.tensor(np.asarray(d[k])) for d in directions]
            xs, fixed = [e.one(i, k) for i in w.places], [e.one(i, k) for i in others]
            rows.append(arrays_of(pushed(e, xs, ts, fixed)))
        return stack(rows)

    yield from compare("vmap(jvp)", elements, over, looped)
    yield from compare("jvp(vmap)", elements, under, looped)


class Derivatives:
    """Derivatives of a function that gives a number, by all of its arguments."""

    def __init__(self, w: Weighed, elements: Elements, chosen: Places):
        rng = np.random.default_rng(17)
        self.w, self.chosen = w, chosen
        self.shared = [i for i in w.places if i not in chosen]
        args = elements.cases[0].args
        self.shapes = [((SIZE,) if i in chosen else ()) + args[i].shape for i in w.places]
        self.directions = [
            rng.uniform(0.5, 1.5, shape).astype(args[i].dtype)
            for i, shape in zip(w.places, self.shapes, strict=True)
        ]

    def at(self, e: Elements) -> tuple:
        """The arguments, and a direction to move them in."""
        xs = [e.stacked(i) if i in self.chosen else e.one(i, 0) for i in self.w.places]
        return tuple(xs), tuple([e.tensor(d) for d in self.directions])

    def first(self, number: Callable, e: Elements) -> list:
        """The slope in the direction, and the gradient."""
        xs, ts = self.at(e)
        places = tuple(range(len(xs)))
        return arrays_of([wf.jvp(number, xs, ts)[1], *wf.grad(number, places)(*xs)])

    def second(self, number: Callable, e: Elements) -> list:
        """The Hessian times the direction: forward over reverse, and reverse over forward."""
        xs, ts = self.at(e)
        places = tuple(range(len(xs)))
        pushed = wf.jvp(wf.grad(number, places), xs, ts)[1]
        pulled = wf.grad(lambda *xs: wf.jvp(number, xs, ts)[1], places)(*xs)
        return arrays_of([*pushed, *pulled])


def check_shared(elements: Elements) -> Iterator[Finding]:
    """Derivatives over vmap(f) and those of a loop agree, any arguments being the same for all.

    The number is a sum over the batch; by the loop it is made without any vmap.
    """
    w = Weighed(elements)
    for chosen in [] if w.is_constant else elements.subsets:
        d = Derivatives(w, elements, chosen)

        def mapped(e: Elements, d=d):
            def number(*xs):
                given = dict(zip(w.places, xs, strict=True))
                common = [given[i] for i in d.shared]
                over = [given[i] if i in given else e.stacked(i) for i in d.chosen]
                one = lambda *ys: e.call([*d.chosen, *d.shared], [*ys, *common])  # noqa: E731
                return w.total(wf.vmap(one)(*over), w.stacked(e))

            return number

        def looped(e: Elements, d=d):
            def number(*xs):
                given = dict(zip(w.places, xs, strict=True))
                common = [given[i] for i in d.shared]
                total = 0.0
                for k in range(SIZE):
                    ys = [given[i][k] if i in given else e.one(i, k) for i in d.chosen]
                    found = e.call([*d.chosen, *d.shared], [*ys, *common])
                    total = total + w.total(found, w.one(e, k))
                return total

            return number

        for order, kind in ((d.first, "first order of vmap"), (d.second, "second order of vmap")):
            yield from _named(
                chosen,
                compare(
                    kind,
                    elements,
                    lambda e, order=order, mapped=mapped: order(mapped(e), e),
                    lambda e, order=order, looped=looped: order(looped(e), e),
                ),
            )


def check_no_loop(elements: Elements) -> Iterator[Finding]:
    """A larger batch takes no more calls of functions, of Python's or of C's."""
    counts = []
    for size in (FEW, MANY):
        args = elements.cases[0].args
        over = [elements.tensor(np.repeat(args[i][None], size, 0)) for i in elements.arrays]

        def mapped(over=over):
            return wf.vmap(lambda *xs: elements.call(elements.arrays, xs))(*over)

        mapped()  # what is looked up once is looked up now
        counts.append(_calls(mapped))
    if counts[1] - counts[0] >= MANY - FEW:
        yield "loop", f"{counts[0]} calls for a batch of {FEW}, {counts[1]} for one of {MANY}"


def _calls(function: Callable) -> int:
    count = 0

    def see(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


VALUES = (check_values,)
DERIVATIVES = (check_over_grad, check_under_grad, check_forward, check_shared)
ALL = (check_values, check_nested, *DERIVATIVES, check_no_loop)


def check_batch(op: Op, backend: str = "numpy", checks=ALL) -> list[Problem]:
    """The problems of a row's batching rule on a backend ("numpy" or "torch"); none if right."""
    if op.rule is None:
        checks = [c for c in checks if c not in DERIVATIVES]
    problems = []
    with np.errstate(all="ignore"):
        for k, elements in enumerate(batches(op, backend)):
            where = f"{op.name}[{k}: {elements.cases[0].label}] on {backend}"
            problems += run(where, [bound(check, elements) for check in checks])
    return problems


def main(names: list[str]) -> int:
    """Check the batching rules of rows by name, or of all, and print what is wrong."""
    torch.set_num_threads(1)
    table = load()
    for name in names or [n for n in sorted(table) if table[n].batch is not None]:
        start = time.process_time()
        problems = check_batch(table[name]) + check_batch(table[name], "torch", VALUES)
        spent = time.process_time() - start
        print(f"{name}: {len(problems) or 'no'} problems ({spent:.2f} s)", flush=True)
        for p in problems[:6]:
            print(f"  {p}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
