"""Checks of a row's rule as something to differentiate: second and third order, zeros."""

from collections.abc import Iterator

import numpy as np

from weft.core.op import Op
from weft.ops.samples.case import Case
from weft.transform.checking.ridders import UNITS, pool_noise, size_of, spread

from .probe import Probe
from .problems import Finding, differs
from .reference import FULL
from .trial import UNDERFLOW, Trial, compared


def check_second(trial: Trial) -> Iterator[Finding]:
    """The Hessian of a random function of the result, by a sweep through a recorded sweep."""
    ref, run = trial.ref, trial.run
    gradient = run.pulled_graph(ref.u, ref.curvature)
    layout, directions = trial.probe.layout, ref.second_directions
    columns = [layout.pack(run.again(gradient, d, record=False)) for d in directions]
    got = np.array(columns).reshape(len(directions), ref.x.size).T
    noise = ref.product_noise.max(initial=0.0)
    size = ref.size(ref.gradient)
    estimate = ref.hessian
    yield from compared("second order", got, estimate.value, estimate.bound + noise, size)


def check_third(trial: Trial) -> Iterator[Finding]:
    """The third derivative along two random directions, by three nested sweeps."""
    ref = trial.ref

    def product(x):
        return trial.probe.third_product(x, ref.u, ref.curvature, ref.p, ref.q)

    got = product(ref.x)
    noise = UNITS * pool_noise(spread(product, ref.x, ref.eps, ref.rng))
    bound = ref.third.bound[:, 0] + noise
    size = ref.size(ref.product)
    yield from compared("third order", got, ref.third.value[:, 0], bound, size)


def check_alone(trial: Trial) -> Iterator[Finding]:
    """By one argument, with constants for the others: the same first and second derivatives.

    What is saved for the backward pass depends on which arguments are differentiated by.
    """
    ref, probe = trial.ref, trial.probe
    if len(probe.moving) < 2:
        return
    whole = trial.run.pull(ref.u)
    for i, part in zip(probe.moving, probe.layout.slices, strict=True):
        one = Probe(probe.op, probe.case, probe.backend, only=i)
        p = np.zeros_like(ref.x)
        p[part] = ref.p[part]
        twice = probe.hessian_product(ref.x, ref.u, ref.curvature, p)[part]
        for what, got, expected in (
            ("gradient", one.run(one.x).pull(ref.u), whole[part]),
            ("Hessian", one.hessian_product(one.x, ref.u, ref.curvature, p[part]), twice),
        ):
            found = differs(got, expected, UNITS * ref.eps * size_of(expected) + UNDERFLOW)
            if found:
                yield "alone", f"{what} by argument {i} alone: {found}"


def check_vanishing_cotangent(trial: Trial) -> Iterator[Finding]:
    """Where the cotangent is zero but varies, the Hessian is curvature·JᵀJ, not zero."""
    ref, run = trial.ref, trial.run
    if ref.y.size > FULL:
        return
    got = trial.probe.hessian_product(ref.x, -ref.curvature * run.y, ref.curvature, ref.p)
    tangent = trial.jacobian @ ref.p
    expected = ref.curvature * run.pull(tangent)
    noise = ref.gradient_noise.max(initial=0.0) * ref.curvature * size_of(tangent) * tangent.size
    noise += ref.product_noise.max(initial=0.0)
    found = differs(got, expected, noise + UNDERFLOW)
    if found:
        yield "second order", f"at a cotangent that passes zero: {found}"


def check_zero_cotangent(trial: Trial) -> Iterator[Finding]:
    """A zero cotangent gives an exact zero wherever the arguments are finite."""
    ref, run = trial.ref, trial.run
    if not np.isfinite(ref.x).all():
        return
    zero = np.zeros(run.layout.size)
    got = run.pull(zero)
    if got.any():
        yield "zero cotangent", f"the gradient is {got}"
    twice = run.again(run.pulled_graph(zero, 0.0), ref.p, record=False)
    twice = trial.probe.layout.pack(twice)
    if twice.any():
        yield "zero cotangent", f"the second derivative is {twice}"


def poles(op: Op, template: Case) -> Case:
    """The case with every combination of 0, 1 and -1 in the differentiable places.

    These are where elementary functions have their poles: log and division at 0, atanh and
    logit at ±1, gamma at 0 and -1.
    """
    probe = Probe(op, template)
    grid = np.meshgrid(*[[0.0, 1.0, -1.0]] * len(probe.moving), indexing="ij")
    args = list(template.args)
    for i, a in enumerate(args):
        if isinstance(a, np.ndarray):
            args[i] = np.asarray(a.reshape(-1)[0])
    for i, g in zip(probe.moving, grid, strict=True):
        args[i] = g.reshape(-1).astype(template.args[i].dtype)
    return Case(tuple(args), template.static, "0, 1 and -1", smooth=False)
