"""Checks that forward and reverse mode say the same of a row, alone and inside each other.

The derivatives are taken by the public functions, so what the levels do to a row is seen as
well as its rule. The modes are compared with each other to rounding, which finite differences
could not do; what both modes have wrong in the same way is found by those.
"""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

import weft as wf
from weft import errors
from weft.core import dtypes
from weft.core.op import Op, Partials
from weft.core.value import wrap
from weft.transform.checking.ridders import UNITS, noise_around, ridders, size_of

from .check import at_poles, bound, run
from .probe import Layout, Probe, excluded, inexact
from .problems import Finding, Problem, differs
from .reference import Reference, references
from .trial import UNDERFLOW, compared

# How far two ways of summing the same products may be apart, relative to the sum of their
# magnitudes: one number for every row. What a row's conditioning adds to it is measured.
RELATIVE = 1e-12
# Third order is compared at this many cases of a row, the smallest ones.
THIRD = 3


class Modes:
    """A case as functions of its differentiable arguments, for wf.jvp, wf.vjp and wf.grad."""

    def __init__(self, ref: Reference, backend: str, only: int | None = None):
        self.ref, self.backend = ref, backend
        self.probe = Probe(ref.probe.op, ref.probe.case, backend, only)
        self.layout = self.probe.layout
        self.every = tuple(range(len(self.probe.moving)))

    def f(self, *moving) -> tuple:
        """The differentiable results."""
        return tuple(self.probe.differentiable(self.probe.call(self.probe.place(list(moving)))))

    def s(self, *moving):
        """A number whose derivatives to third order see those of the results.

        With t = Re⟨u, f⟩ and r = |f|² it is t + κr/2 + κ²tr.
        """
        outs = self.f(*moving)
        layout = Layout.of([y.detach()._data for y in outs])
        us = [wrap(u) for u in layout.unpack(self.ref.u, self.backend)]
        t = sum(_inner(u, y) for u, y in zip(us, outs, strict=True))
        r = sum(_inner(y, y) for y in outs)
        k = self.ref.curvature
        return t + (k / 2) * r + (k * k) * (t * r)

    def gradient(self, *moving) -> tuple:
        """The gradient of s."""
        return wf.grad(self.s, self.every)(*moving)

    def tensors(self, x: np.ndarray) -> tuple:
        """The tensors that have these coordinates."""
        return tuple(wrap(a) for a in self.layout.unpack(x, self.backend))

    def part(self, x: np.ndarray) -> np.ndarray:
        """The coordinates of the arguments that move here, out of those of all."""
        places = zip(self.ref.probe.moving, self.ref.probe.layout.slices, strict=True)
        return np.concatenate([x[s] for i, s in places if i in self.probe.moving])

    def at(self, function: Callable[..., tuple]) -> Callable[[np.ndarray], np.ndarray]:
        """A function of tensors as one of coordinates."""
        return lambda x: coordinates(function(*self.tensors(x)))

    def noise(self, function: Callable[[np.ndarray], np.ndarray]) -> float:
        """The rounding errors of a function of coordinates: its conditioning, measured."""
        x, step = self.part(self.ref.x), self.part(self.ref.q)
        noise = noise_around(function, x, step, self.ref.eps, np.random.default_rng(7))
        return float(noise.max(initial=0.0))


def _inner(a, b):
    """Re⟨a, b⟩."""
    return wf.sum(wf.real(wf.conj(a) * b) if a.dtype in dtypes.COMPLEX else a * b)


def coordinates(tensors: tuple) -> np.ndarray:
    """The coordinates of tensors, one after the other."""
    raws = [t._data for t in tensors]
    return Layout.of(raws).pack(raws)


def along(g: Callable, p: tuple, mode: str) -> Callable:
    """x ↦ the derivative of the number g(x) along p, by forward or by reverse mode."""

    def forward(*x):
        return wf.jvp(g, x, p)[1]

    def reverse(*x):
        slopes = wf.grad(g, argnums=tuple(range(len(x))))(*x)
        return sum(_inner(v, d) for v, d in zip(p, slopes, strict=True))

    return forward if mode == "fwd" else reverse


def check_adjoint(ref: Reference, backend: str) -> Iterator[Finding]:
    """⟨u, Jv⟩ by wf.jvp is ⟨Jᵀu, v⟩ by wf.vjp, by all arguments and by each alone."""
    moving = ref.probe.moving
    for only in (None, *(moving if len(moving) > 1 else ())):
        found = _adjoint(Modes(ref, backend, only))
        if found:
            yield "adjoint", f"{found} (by argument {'all' if only is None else only})"


def _adjoint(modes: Modes) -> str | None:
    ref = modes.ref
    x, v = modes.part(ref.x), modes.part(ref.q)
    y, dy = wf.jvp(modes.f, modes.tensors(x), modes.tensors(v))
    if any(_form(a) != _form(b) for a, b in zip(y, dy, strict=True)):
        return f"tangents {list(map(_form, dy))} of results {list(map(_form, y))}"
    found = differs(coordinates(y), modes.at(modes.f)(x), 0.0)
    if found:
        return f"the value beside the tangent: {found}"

    def pulled(*tensors):
        results, pull = wf.vjp(modes.f, *tensors)
        layout = Layout.of([t._data for t in results])
        return pull(tuple(map(wrap, layout.unpack(ref.u, modes.backend))))

    dy, g = coordinates(dy), modes.at(pulled)(x)
    if not _comparable(ref, dy, g):
        return None
    sizes = np.abs(ref.u) @ np.abs(dy) + np.abs(g) @ np.abs(v)
    forward, backward = np.array([ref.u @ dy]), np.array([g @ v])
    bound = RELATIVE * sizes + UNDERFLOW
    if differs(forward, backward, bound) and ref.probe.case.smooth:
        bound += modes.noise(modes.at(pulled)) * np.abs(v).sum()
    return differs(forward, backward, bound)


def _form(t) -> tuple:
    return t.shape, t.dtype.name, t.device


def check_tangent(ref: Reference, backend: str) -> Iterator[Finding]:
    """Jq by wf.jvp, against finite differences."""
    if not ref.x.size:
        return
    modes = Modes(ref, backend)
    _, dy = wf.jvp(modes.f, modes.tensors(ref.x), modes.tensors(ref.q))
    estimate = ridders(ref.value, ref.x, ref.q[None], ref.value_noise)
    bound = estimate.bound[:, 0] + UNITS * ref.eps * size_of(estimate.value)
    size = ref.size(ref.value)
    yield from compared("tangent", coordinates(dy), estimate.value[:, 0], bound, size)


def check_hessian(ref: Reference, backend: str) -> Iterator[Finding]:
    """Hp and qᵀHp, by each mode over each."""
    modes = Modes(ref, backend)
    p, q = modes.tensors(ref.p), modes.tensors(ref.q)
    ways = {
        "fwd over rev": lambda *x: wf.jvp(modes.gradient, x, p)[1],
        "rev over fwd": wf.grad(along(modes.s, p, "fwd"), modes.every),
        "rev over rev": wf.grad(along(modes.s, p, "rev"), modes.every),
    }
    products = {name: modes.at(way)(ref.x) for name, way in ways.items()}
    form = along(along(modes.s, p, "fwd"), q, "fwd")(*modes.tensors(ref.x))
    form = np.array([form.item()])
    if not _comparable(ref, *products.values(), form):
        return
    size = max(map(size_of, products.values()))
    noise = _lazily(lambda: max(modes.noise(modes.at(way)) for way in ways.values()))
    expected = products["fwd over rev"]
    for name, got in products.items():
        found = _apart(got, expected, size, noise)
        if found:
            yield "second order", f"{name}: {found}"
    length = np.abs(ref.q).sum()
    found = _apart(form, np.array([ref.q @ expected]), size * length, noise, length)
    if found:
        yield "second order", f"fwd over fwd: {found}"


def check_third(ref: Reference, backend: str) -> Iterator[Finding]:
    """The third derivative along one direction, by every mixture of the two modes."""
    modes = Modes(ref, backend)
    p, x = modes.tensors(ref.p), modes.tensors(ref.x)

    def derivative(outer, middle, inner):
        return along(along(along(modes.s, p, inner), p, middle), p, outer)

    def gradient(*x):
        return wf.grad(along(along(modes.s, p, "rev"), p, "rev"), modes.every)(*x)

    size = np.abs(modes.at(gradient)(ref.x)) @ np.abs(ref.p)
    length = np.abs(ref.p).sum()
    noise = _lazily(lambda: modes.noise(modes.at(gradient)))
    found = {
        " over ".join(mixture): np.array([derivative(*mixture)(*x).item()])
        for mixture in product(("fwd", "rev"), repeat=3)
    }
    expected = found["rev over rev over rev"]
    for name, got in found.items():
        message = _apart(got, expected, size, noise, length)
        if message:
            yield "third order", f"{name}: {message}"


def _comparable(ref: Reference, *derivatives: np.ndarray) -> bool:
    """Infinities have no sums: at a pole there is nothing to compare, nor without coordinates."""
    finite = all(np.isfinite(d).all() for d in derivatives)
    return bool(ref.x.size) and (ref.probe.case.smooth or finite)


def _lazily(measure: Callable[[], float]) -> Callable[[], float]:
    """The measurement, made at the first call only: it costs more than what is compared."""
    made: list[float] = []

    def once() -> float:
        if not made:
            made.append(measure())
        return made[0]

    return once


def _apart(got, expected, size: float, noise: Callable[[], float], length: float = 1.0):
    """What differs by more than rounding, and by more than conditioning explains."""
    bound = RELATIVE * size + UNDERFLOW
    if differs(got, expected, bound):
        bound += noise() * length
    return differs(got, expected, bound)


def check_zero_tangent(ref: Reference, backend: str) -> Iterator[Finding]:
    """A zero tangent gives an exact zero wherever the arguments are finite, to second order."""
    if not np.isfinite(ref.x).all():
        return
    modes = Modes(ref, backend)
    zero, x = modes.tensors(np.zeros_like(ref.x)), modes.tensors(ref.x)

    def tangent(*x):
        return wf.jvp(modes.f, x, zero)[1]

    def cotangent(*x):
        results, pull = wf.vjp(modes.f, *x)
        return pull(tuple(map(wf.zeros_like, results)))

    ways = {
        "the tangent": tangent,
        "the tangent of the tangent": lambda *x: wf.jvp(tangent, x, modes.tensors(ref.p))[1],
        "the tangent of the cotangent": lambda *x: wf.jvp(cotangent, x, modes.tensors(ref.p))[1],
    }
    for name, way in ways.items():
        got = coordinates(way(*x))
        if got.any():
            yield "zero tangent", f"{name} is {got}"


def check_refusal(ref: Reference, backend: str) -> Iterator[Finding]:
    """Forward mode refuses a row without a rule, and an argument that the rule leaves out."""
    op, case = ref.probe.op, ref.probe.case
    probe = Probe(op, case, backend)
    for i, a in enumerate(case.args):
        if not inexact(a) or not (op.rule is None or excluded(op, i)):
            continue
        tensors = probe.place(probe.layout.unpack(ref.x, backend))

        def f(x, i=i, tensors=tensors):
            results = probe.bare([*tensors[:i], x, *tensors[i + 1 :]])
            return tuple(y for y in results if dtypes.is_inexact(y.dtype))

        try:
            results, _ = wf.jvp(f, (tensors[i],), (tensors[i],))
        except errors.NotDifferentiable:
            continue
        if results:
            yield "refusal", f"argument {i} has no derivative, and jvp by it raised nothing"


def problems_of(op: Op, backend: str) -> Iterator[Problem]:
    """What the modes disagree about in a row; second and third order on NumPy only."""
    refs = references(op)
    third = _third_cases(refs) if backend == "numpy" else []
    for k, ref in enumerate(refs):
        checks: list[Callable] = [check_refusal]
        if op.rule is not None and ref.probe.moving:
            checks += [check_adjoint, check_zero_tangent]
            if backend == "numpy":
                checks += [check_tangent] * ref.probe.case.smooth + [check_hessian]
            checks += [check_third] * (ref in third)
        where = f"{op.name}[{k}: {ref.probe.case.label}] on {backend}"
        yield from run(where, [bound(check, ref, backend) for check in checks])
    if isinstance(op.rule, Partials):
        for pole in at_poles(op, refs):
            where = f"{op.name}[{pole.probe.case.label}] on {backend}"
            yield from run(where, [bound(check_zero_tangent, pole, backend)])


def _third_cases(refs: tuple[Reference, ...]) -> list[Reference]:
    """The smallest cases with something to differentiate, of different dtypes if there are."""
    able = [r for r in refs if r.probe.case.smooth and r.probe.moving and r.x.size]
    able.sort(key=lambda r: r.x.size)
    kinds = [r.probe.layout.kinds for r in able]
    first = [r for k, r in enumerate(able) if kinds[k] not in kinds[:k]]
    return (first + [r for r in able if r not in first])[:THIRD]
