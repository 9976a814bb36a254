"""Checks of a row's first derivatives at one case: differences, both modes, kinks."""

from collections.abc import Iterator

import numpy as np

from weft import errors
from weft.transform.checking.ridders import UNITS, pool_noise, size_of
from weft.transform.modes import rules
from weft.transform.modes.reverse import sweep

from .probe import Layout, Probe, attach_leaf, dtype_of, excluded, inexact, to_numpy
from .problems import Finding, differs
from .reference import Reference
from .trial import Trial, compared


def check_form(trial: Trial) -> Iterator[Finding]:
    """Each gradient has its argument's shape and dtype; the seeds are left alone."""
    run = trial.run
    seeds = run.layout.unpack(trial.ref.u, trial.probe.backend)
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


def check_jacobian(trial: Trial) -> Iterator[Finding]:
    """Every element of the Jacobian (a sketch of it, where large) by reverse mode."""
    ref = trial.ref
    got = trial.jacobian @ ref.directions.T
    expected = ref.codirections @ ref.jacobian.value
    bound = np.abs(ref.codirections) @ ref.jacobian.bound + _sweep_noise(ref, ref.directions)
    yield from compared("jacobian", got, expected, bound, ref.size(ref.value))


def _sweep_noise(ref: Reference, directions: np.ndarray) -> float:
    """The rounding errors of one element of U·J·V, from those of one gradient."""
    lengths = np.abs(directions).sum(axis=-1).max(initial=0.0)
    return float(ref.gradient_noise.max(initial=0.0) * lengths)


def check_adjoint(trial: Trial) -> Iterator[Finding]:
    """⟨u, Jv⟩ by the push-forward is ⟨Jᵀu, v⟩ by reverse mode, for each argument alone too."""
    ref, probe, backward = trial.ref, trial.probe, trial.jacobian
    masks = {f"argument {i}": [i] for i in probe.moving}
    if len(masks) > 1:
        masks["all arguments"] = probe.moving
    for name, chosen in masks.items():
        v = np.zeros(ref.x.size)
        for i, part in zip(probe.moving, probe.layout.slices, strict=True):
            if i in chosen:
                v[part] = ref.q[part]
        forward = _pushed(ref, probe, v, chosen)
        usable = np.isfinite(backward).all(axis=1) & np.isfinite(forward)
        sizes = pool_noise(np.abs(backward) @ np.abs(v)) + pool_noise(np.abs(forward))
        bound = UNITS * ref.eps * sizes
        if probe.case.smooth:
            bound = bound + _sweep_noise(ref, v)
        found = differs(forward[usable], (backward @ v)[usable], bound[usable])
        if found:
            yield "adjoint", f"push-forward along {name}: {found}"


def _pushed(ref: Reference, probe: Probe, v: np.ndarray, chosen: list[int]) -> np.ndarray:
    """U·(J·v) by the row's push-forward; the other arguments' tangents are absent."""
    tensors = probe.place(probe.layout.unpack(ref.x, probe.backend))
    moved = dict(zip(probe.moving, probe.layout.unpack(v, probe.backend), strict=True))
    tangents = tuple(moved[i] if i in chosen else None for i in range(len(tensors)))
    out = probe.bare(tensors)
    several = probe.op.outputs > 1
    primals = tuple(t._data for t in out) if several else out[0]._data
    args = [t._data if hasattr(t, "_data") else t for t in tensors]
    pushed = rules.push(probe.op, primals, args, tangents, probe.case.static)
    return _projected(ref, probe, out, pushed if several else (pushed,))


def _projected(ref: Reference, probe: Probe, out: tuple, tangents) -> np.ndarray:
    """⟨u, d post · tangents⟩ for each codirection u, by sweeping `post` alone."""
    layout = Layout.of([out[k]._data for k in probe.op.tracked])
    t = layout.pack([tangents[k] for k in probe.op.tracked])
    if probe.case.post is None:
        return ref.codirections @ t
    leaves = [attach_leaf(out[k]) for k in probe.op.tracked]
    outs = probe.differentiable(probe.posted(out))
    outer = Layout.of([o._data for o in outs])
    rows = []
    for u in ref.codirections:
        seeds = zip(outs, outer.unpack(u, probe.backend), strict=True)
        reached = sweep(
            {o._node: g for o, g in seeds if o._node is not None}, record=False, retain=True
        )
        rows.append(layout.pack([reached.get(leaf) for leaf in leaves]) @ t)
    return np.array(rows).reshape(len(ref.codirections))


def check_agreement(trial: Trial) -> Iterator[Finding]:
    """At a kink or a pole: the NumPy backend's gradient, and never NaN from finite numbers."""
    ref = trial.ref
    got = trial.run.pull(ref.u)
    if np.isfinite(ref.y).all() and np.isfinite(ref.x).all() and np.isnan(got).any():
        yield "nan", f"the value is finite, the gradient is {got}"
    expected = ref.probe.gradient(ref.x, ref.u, 0.0)
    found = differs(got, expected, UNITS * ref.eps * size_of(expected))
    if found:
        yield "gradient", f"not the NumPy backend's: {found}"


def check_refused_arguments(trial: Trial) -> Iterator[Finding]:
    """An argument that the rule gives no derivative raises when it is differentiated by."""
    probe = trial.probe
    tensors = probe.place(probe.layout.unpack(trial.ref.x, probe.backend))
    for i, a in enumerate(probe.case.args):
        if not inexact(a) or not excluded(probe.op, i):
            continue
        leaf = attach_leaf(tensors[i])
        outs = [t for t in probe.bare(tensors) if t._node is not None]
        tensors[i]._node = None
        try:
            seeds = {t._node: t._data for t in outs}
            reached = sweep(seeds, record=False, retain=True)
        except errors.NotDifferentiable:
            continue
        if leaf in reached or not outs:
            yield "refusal", f"argument {i} has no derivative, and by it nothing was raised"


def check_refusal(trial: Trial) -> Iterator[Finding]:
    """A row without a rule says so when it is differentiated."""
    run = trial.run
    if not run.outs or not run.leaves:
        return
    try:
        run.pull(np.ones(run.layout.size))
    except errors.NotDifferentiable:
        return
    yield "refusal", "has no rule, and differentiating it raised no NotDifferentiable"
