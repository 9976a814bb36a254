"""Whether a row does for a batch what it does for each element: `python -m tests.table.batching`.

`check_batch(op)` gives the problems of a row's batching rule. The yardstick is a Python loop over
the elements.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

import weft as wf
from weft.core.op import Op

from .check import bound, run
from .elements import (
    SIZE,
    Elements,
    Places,
    Weighed,
    arrays_of,
    batches,
    compare,
    faults,
    stack,
)
from .problems import Finding, Problem
from .rows import load

# Of each row so many cases are differentiated with every choice of shared arguments.
CASES = 100 if os.environ.get("WEFT_SOAK") == "1" else 2
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


def _first(number: Callable, xs, ts) -> list:
    """The slope in a direction, and the gradient."""
    return [wf.jvp(number, xs, ts)[1], *wf.grad(number, tuple(range(len(xs))))(*xs)]


def _second(number: Callable, xs, ts) -> list:
    """The Hessian times a direction: forward over reverse, and reverse over forward."""
    places = tuple(range(len(xs)))
    pulled = wf.grad(lambda *xs: wf.jvp(number, xs, ts)[1], places)(*xs)
    return [*wf.jvp(wf.grad(number, places), xs, ts)[1], *pulled]


class Shared:
    """A row's weighed number where the chosen arguments differ over the batch, others do not."""

    def __init__(self, elements: Elements, chosen: Places):
        rng = np.random.default_rng(17)
        self.w, self.chosen = Weighed(elements), chosen
        args = elements.cases[0].args
        self.directions = [
            rng.uniform(0.5, 1.5, ((SIZE,) if i in chosen else ()) + args[i].shape).astype(
                args[i].dtype
            )
            for i in self.w.places
        ]

    def at(self, e: Elements) -> tuple:
        """The arguments to differentiate by, with a direction for each."""
        xs = [e.stacked(i) if i in self.chosen else e.one(i, 0) for i in self.w.places]
        return tuple(xs), tuple([e.tensor(d) for d in self.directions])

    def one(self, e: Elements, fixed: dict, weights) -> Callable:
        """The number of an element, by its arguments; `fixed` are those without a derivative."""
        places = [*self.w.places, *fixed]
        return lambda *xs: self.w.total(e.call(places, [*xs, *fixed.values()]), weights)

    def fixed(self, e: Elements, get: Callable) -> dict:
        return {i: get(e, i) for i in self.chosen if i not in self.w.places}

    def part(self, xs, k: int) -> tuple:
        """The arguments of element k."""
        pairs = zip(self.w.places, xs, strict=True)
        return tuple([x[k] if i in self.chosen else x for i, x in pairs])

    def summed(self, e: Elements) -> Callable:
        """The sum over the batch, by vmap."""

        def number(*xs):
            axes = tuple([0 if i in self.chosen else None for i in self.w.places])
            fixed = self.fixed(e, Elements.stacked)

            def one(weights, fixed, *xs):
                return self.one(e, fixed, weights)(*xs)

            return wf.vmap(one, (0, 0, *axes))(self.w.stacked(e), fixed, *xs).sum()

        return number

    def looped(self, e: Elements) -> Callable:
        """The sum over the batch, by a loop."""

        def number(*xs):
            total = 0.0
            for k in range(SIZE):
                one = self.one(e, self.fixed(e, lambda e, i, k=k: e.one(i, k)), self.w.one(e, k))
                total = total + one(*self.part(xs, k))
            return total

        return number

    def over(self, e: Elements, order: Callable) -> list:
        """vmap of the derivatives of an element's number."""
        axes = tuple([0 if i in self.chosen else None for i in self.w.places])
        xs, ts = self.at(e)
        fixed = self.fixed(e, Elements.stacked)
        return wf.vmap(
            lambda weights, fixed, xs, ts: order(self.one(e, fixed, weights), xs, ts),
            (0, 0, axes, axes),
        )(self.w.stacked(e), fixed, xs, ts)

    def one_by_one(self, e: Elements, order: Callable) -> list[np.ndarray]:
        rows, (xs, ts) = [], self.at(e)
        for k in range(SIZE):
            one = self.one(e, self.fixed(e, lambda e, i, k=k: e.one(i, k)), self.w.one(e, k))
            rows.append(arrays_of(order(one, self.part(xs, k), self.part(ts, k))))
        return stack(rows)


def check_shared(elements: Elements) -> Iterator[Finding]:
    """jvp, vjp and Hessians over vmap, and vmap over them, any arguments being the same for all."""
    for chosen in [] if Weighed(elements).is_constant else elements.subsets:
        s = Shared(elements, chosen)
        for name, order in (("first", _first), ("second", _second)):
            yield from _named(
                chosen,
                compare(
                    f"{name} order of vmap",
                    elements,
                    lambda e, s=s, order=order: arrays_of(order(s.summed(e), *s.at(e))),
                    lambda e, s=s, order=order: arrays_of(order(s.looped(e), *s.at(e))),
                ),
            )
            yield from _named(
                chosen,
                compare(
                    f"vmap of {name} order",
                    elements,
                    lambda e, s=s, order=order: arrays_of(s.over(e, order)),
                    lambda e, s=s, order=order: s.one_by_one(e, order),
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
            chosen = [c for c in checks if c is not check_shared or k < CASES]
            problems += run(where, [bound(check, elements) for check in chosen])
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
