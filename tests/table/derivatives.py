"""Checks of a row's derivatives at one case: against finite differences, and of each other."""

from collections.abc import Iterator

import numpy as np

from weft import errors
from weft.core.op import Op
from weft.ops.samples.case import Case
from weft.transform import rules
from weft.transform.sweep import sweep

from .probe import Layout, Probe, Run, attach_leaf, dtype_of, quiet, to_numpy
from .problems import differs
from .reference import RESOLUTION, UNITS, Reference, pooled, spread

Finding = tuple[str, str]


def reverse_jacobian(run: Run, codirections: np.ndarray) -> np.ndarray:
    """U·J, one sweep for each row of U."""
    rows = [run.pull(u) for u in codirections]
    return np.array(rows).reshape(len(codirections), run.probe.layout.size)


def _compared(kind: str, got, estimate, bound, size: float) -> Iterator[Finding]:
    """Reverse mode against an estimate that must itself be sharp enough to tell."""
    scale = max(np.abs(got).max(initial=0.0), np.abs(estimate).max(initial=0.0), size)
    if not (bound <= RESOLUTION * scale).all():
        worst = float(np.nan_to_num(bound, nan=np.inf).max())
        yield (
            f"{kind} vague",
            (
                f"finite differences resolve it only to {worst:.1e} of {scale:.1e}: "
                "move the case away from the singularity, or mark it smooth=False"
            ),
        )
        return
    found = differs(got, estimate, bound)
    if found:
        yield kind, found


def _size(x: np.ndarray) -> float:
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def check_gradient_form(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """Each gradient has its argument's shape and dtype; the seeds are left alone."""
    run = probe.run(ref.x)
    seeds = run.layout.unpack(ref.u, run.probe.backend)
    before = [to_numpy(s).copy() for s in seeds]
    for leaf, g in zip(run.leaves, run.cotangents(seeds, record=False), strict=True):
        if g is None:
            continue
        if tuple(g.shape) != tuple(leaf.shape):
            yield "gradient", f"shape {tuple(g.shape)} for an argument of {tuple(leaf.shape)}"
        if g.dtype != leaf.dtype:
            yield "gradient", f"dtype {dtype_of(g)} for an argument of {leaf.dtype}"
    for s, b in zip(seeds, before, strict=True):
        if not np.array_equal(to_numpy(s), b, equal_nan=True):
            yield "gradient", "the sweep changed the cotangent it was given"


def check_alone(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """By one argument, with constants for the others: the same first and second derivatives.

    What is saved for the backward pass depends on which arguments are differentiated by.
    """
    if len(probe.moving) < 2:
        return
    whole = probe.run(ref.x).pull(ref.u)
    for i, part in zip(probe.moving, probe.layout.slices, strict=True):
        one = Probe(probe.op, probe.case, probe.backend, only=i)
        p = np.zeros_like(ref.x)
        p[part] = ref.p[part]
        twice = probe.hessian_product(ref.x, ref.u, ref.curvature, p)[part]
        for what, got, expected in (
            ("gradient", one.run(one.x).pull(ref.u), whole[part]),
            ("Hessian", one.hessian_product(one.x, ref.u, ref.curvature, p[part]), twice),
        ):
            found = differs(got, expected, UNITS * ref.eps * _size(expected))
            if found:
                yield "alone", f"{what} by argument {i} alone: {found}"


def check_jacobian(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """Every element of the Jacobian (a sketch of it, where large) by reverse mode."""

    def along(x):
        return reverse_jacobian(probe.run(x), ref.codirections) @ ref.directions.T

    got = along(ref.x)
    noise = UNITS * pooled(spread(along, ref.x, ref.eps, ref.rng))
    bound = np.abs(ref.codirections) @ ref.jacobian.bound + noise
    expected = ref.codirections @ ref.jacobian.value
    yield from _compared("jacobian", got, expected, bound, _size(ref.y))


def check_adjoint(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """⟨u, Jv⟩ by the push-forward is ⟨Jᵀu, v⟩ by reverse mode, for each argument alone too."""
    run = probe.run(ref.x)
    backward = reverse_jacobian(run, ref.codirections)
    whole = np.zeros(ref.x.size)
    masks = [whole.copy() for _ in probe.moving]
    for mask, part in zip(masks, probe.layout.slices, strict=True):
        mask[part] = 1.0
    for mask in [*masks, whole + 1.0] if len(masks) > 1 else masks:
        v = ref.q * mask
        forward = _pushed(ref, probe, v, mask)
        sizes = np.abs(backward) @ np.abs(v)
        usable = np.isfinite(backward).all(axis=1) & np.isfinite(forward)
        # Both are sums of products: their rounding is relative to the terms' sizes. Of the
        # conditioning nothing is seen, since both are evaluated at the same point.
        bound = UNITS * ref.eps * (pooled(sizes) + pooled(np.abs(forward))) + _own_noise(ref, v)
        found = differs(forward[usable], (backward @ v)[usable], bound[usable])
        if found:
            yield "adjoint", f"push-forward along {_named(mask, probe)}: {found}"


def _own_noise(ref: Reference, v: np.ndarray) -> float:
    """The rounding of Jᵀu where its own evaluation is badly conditioned."""
    if not ref.probe.case.smooth:
        return 0.0
    size = np.abs(ref.codirections).sum(axis=1).max(initial=0.0)
    return size * float(ref.gradient_noise.max(initial=0.0) * np.abs(v).sum())


def _named(mask: np.ndarray, probe: Probe) -> str:
    if mask.all() and len(probe.moving) > 1:
        return "all arguments"
    part = next(i for i, s in zip(probe.moving, probe.layout.slices, strict=True) if mask[s].all())
    return f"argument {part}"


def _pushed(ref: Reference, probe: Probe, v: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """U·(J·v) by the row's push-forward; tangents outside the mask are absent."""
    arrays = probe.layout.unpack(ref.x, probe.backend)
    tensors = probe.place(arrays)
    moved = probe.layout.unpack(v, probe.backend)
    tangents: list = [None] * len(tensors)
    for i, part, t in zip(probe.moving, probe.layout.slices, moved, strict=True):
        if mask[part].all():
            tangents[i] = t
    out = probe.bare(tensors)
    primals = tuple(t._data for t in out) if probe.op.outputs > 1 else out[0]._data
    args = [t._data if hasattr(t, "_data") else t for t in tensors]
    pushed = rules.push(probe.op, primals, args, tuple(tangents), probe.case.static)
    return _through_post(ref, probe, out, pushed if probe.op.outputs > 1 else (pushed,))


def _through_post(ref: Reference, probe: Probe, out: tuple, tangents) -> np.ndarray:
    """⟨u, d post · tangents⟩ for each codirection u, by sweeping `post` alone."""
    chosen = probe.op.tracked
    lay = Layout.of([out[k]._data for k in chosen])
    t = lay.pack([tangents[k] for k in chosen])
    if probe.case.post is None:
        return ref.codirections @ t
    leaves = [attach_leaf(out[k]) for k in chosen]
    outs = probe.differentiable(probe.posted(out))
    outer = Layout.of([o._data for o in outs])
    rows = []
    for u in ref.codirections:
        seeds: dict = {}
        for o, g in zip(outs, outer.unpack(u, probe.backend), strict=True):
            if o._node is not None:
                seeds[o._node] = g
        reached = sweep(seeds, record=False, retain=True)
        rows.append(lay.pack([reached.get(leaf) for leaf in leaves]) @ t)
    return np.array(rows)


def check_second(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """The Hessian of a random function of the result, by a sweep through a recorded sweep."""
    run = probe.run(ref.x)
    gradient = run.pulled_graph(ref.u, ref.curvature)
    columns = [probe.layout.pack(run.again(gradient, d, record=False)) for d in ref.directions]
    got = np.array(columns).reshape(len(ref.directions), ref.x.size).T

    def product(x):
        return probe.hessian_product(x, ref.u, ref.curvature, ref.p)

    noise = UNITS * pooled(spread(product, ref.x, ref.eps, ref.rng)).max(initial=0.0)
    size = _size(ref.gradient(ref.x) * ref.scale)
    estimate = ref.hessian
    yield from _compared("second order", got, estimate.value, estimate.bound + noise, size)


def check_vanishing_cotangent(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """Where the cotangent is zero but varies, the Hessian is curvature·JᵀJ, not zero."""
    run = probe.run(ref.x)
    y = run.y
    got = probe.hessian_product(ref.x, -ref.curvature * y, ref.curvature, ref.p)
    tangent = reverse_jacobian(run, np.eye(y.size)) @ ref.p
    expected = ref.curvature * run.pull(tangent)

    def factors(x):
        there = probe.run(x)
        return there.pull(tangent)

    noise = UNITS * pooled(spread(factors, ref.x, ref.eps, ref.rng))
    noise = noise + UNITS * ref.eps * _size(expected) * len(expected)
    found = differs(got, expected, noise)
    if found:
        yield "second order", f"at a cotangent that passes zero: {found}"


def check_third(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """The third derivative along two random directions, by three nested sweeps."""

    def product(x):
        return probe.third_product(x, ref.u, ref.curvature, ref.p, ref.q)

    got = product(ref.x)
    noise = UNITS * pooled(spread(product, ref.x, ref.eps, ref.rng))
    estimate = ref.third
    bound = estimate.bound[:, 0] + noise
    size = _size(ref.product(ref.x))
    yield from _compared("third order", got, estimate.value[:, 0], bound, size)


def check_agreement(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """At a kink or a pole: the NumPy backend's gradient, and never NaN from finite numbers."""
    run = probe.run(ref.x)
    got = run.pull(ref.u)
    if np.isfinite(ref.y).all() and np.isfinite(ref.x).all() and np.isnan(got).any():
        yield "nan", f"the value is finite, the gradient is {got}"
    expected = quiet(ref.probe.gradient)(ref.x, ref.u, 0.0)
    found = differs(got, expected, UNITS * ref.eps * _size(expected))
    if found:
        yield "gradient", f"not the NumPy backend's: {found}"


def check_zero_cotangent(ref: Reference, probe: Probe) -> Iterator[Finding]:
    """A zero cotangent gives an exact zero wherever the arguments are finite."""
    if not np.isfinite(ref.x).all():
        return
    run = probe.run(ref.x)
    got = run.pull(np.zeros(ref.y.size))
    if got.any():
        yield "zero cotangent", f"the gradient is {got}"
    twice = run.again(run.pulled_graph(np.zeros(ref.y.size), 0.0), ref.p, record=False)
    if probe.layout.pack(twice).any():
        yield "zero cotangent", f"the second derivative is {probe.layout.pack(twice)}"


def poles(op: Op, template: Case) -> Case:
    """The case with every combination of 0, 1 and -1 in the differentiable places.

    These are where elementary functions have their poles: log and division at 0, atanh and
    logit at ±1, gamma at all three.
    """
    probe = Probe(op, template)
    grid = np.meshgrid(*[[0.0, 1.0, -1.0]] * len(probe.moving), indexing="ij")
    args = [np.asarray(a.reshape(-1)[0]) if isinstance(a, np.ndarray) else a for a in template.args]
    for i, g in zip(probe.moving, grid, strict=True):
        args[i] = g.reshape(-1).astype(template.args[i].dtype)
    return Case(tuple(args), template.static, "0, 1 and -1", smooth=False)


def check_refusal(probe: Probe, x: np.ndarray) -> Iterator[Finding]:
    """A row without a rule says so when it is differentiated."""
    run = probe.run(x)
    if not run.outs or not run.leaves:
        return
    try:
        run.pull(np.ones(run.layout.size))
    except errors.NotDifferentiable:
        return
    yield "refusal", "has no rule, and differentiating it raised no NotDifferentiable"
