"""Adaptive Dormand–Prince steps of order 5(4) with dense output of order 4, on vectors.

J. R. Dormand, P. J. Prince, A family of embedded Runge–Kutta formulae (1980); the initial step,
the PI control and the dense output after E. Hairer, S. P. Nørsett, G. Wanner, Solving Ordinary
Differential Equations I (1993), II.4–II.6.
"""

from collections.abc import Callable
from itertools import pairwise
from math import inf, isfinite, ulp
from typing import Any

import numpy as np

from ... import errors
from ...arrays.tensor import Tensor
from ...backend.device import as_numpy
from ...core.backends import BACKENDS
from ...core.box import BOXED, ground
from ...core.record import record
from ...core.settings import current, override_settings
from ...core.value import read
from ...ops.combine import weighted_sum
from ...ops.elementwise import maximum
from ...ops.structural import stack

NODES = (0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
STAGES = (
    (),
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
RESULT = (*STAGES[-1], 0.0)
ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
DENSE = (
    -12715105075 / 11282082432,
    0.0,
    87487479700 / 32700410799,
    -10690763975 / 1880347072,
    701980252875 / 199316789632,
    -1453857185 / 822651844,
    69997945 / 29380423,
)

SAFETY, SHRINK, GROW = 0.9, 0.2, 10.0
PROPORTIONAL, INTEGRAL = 0.7 / 5, 0.4 / 5


@record
class StepControl:
    """The tolerances of the steps.

    groups  the sizes of the groups of elements: the error is the largest of the groups' root mean
            squares, relative to atol + rtol·|y|
    whole   the first attempt is one step for the whole span
    """

    rtol: float
    atol: float
    max_steps: int
    groups: tuple[int, ...]
    whole: bool = False


@record(frozen=False)
class OdeStep:
    """One step from y at offset `at` from the first time, with the slopes of all stages."""

    at: float
    h: float
    y: Tensor
    end: Tensor
    slopes: list[Tensor]

    def within(self, part: Any) -> Tensor:
        """The solution inside the step, at the fraction `part` of its length."""
        weights = [self.h * w for w in dense_weights(part)]
        if isinstance(part, float):
            return _sum([self.y, *self.slopes], [1.0, *weights])
        total = self.y
        for w, k in zip(weights, self.slopes, strict=True):
            total = total + w * k
        return total


def dense_weights(part: Any) -> list[Any]:
    """The weights of the stages' slopes in the interpolant, for a step of length one."""
    rest, weights = 1.0 - part, []
    for i, (b, d) in enumerate(zip(RESULT, DENSE, strict=True)):
        first, last = float(i == 0), float(i == 6)
        cubic = 2 * b - last - first + rest * d
        weights.append(part * (b + rest * (first - b + part * cubic)))
    return weights


def _sum(values: list, weights) -> Tensor:
    pairs = [(v, w) for v, w in zip(values, weights, strict=True) if w != 0]
    return weighted_sum([v for v, _ in pairs], tuple([w for _, w in pairs]))


def times_of(ts: Tensor) -> list[float]:
    """The times as numbers, from which the steps are chosen."""
    raw = as_numpy(ground(read(ts)))
    if raw.shape != ts.shape:
        raise errors.BatchingError(
            "odeint: inside vmap, ts must be the same for all elements: they make their steps "
            "together; give ts in_axes=None, or scale the time in f"
        )
    times = [float(t) for t in raw]
    rises = [b - a for a, b in pairwise(times)]
    if not all(isfinite(t) for t in times) or (min(rises, default=0) < 0 < max(rises, default=0)):
        raise errors.ArgumentError("odeint: ts must be finite, and either increase or decrease")
    return times


def integrate(
    field: Callable[..., Any],
    y0: Tensor,
    ts: Tensor,
    control: StepControl,
    watch: Callable[..., Any] | None = None,
) -> Tensor:
    """The solution of dy/dt = field(y, t) at the times ts, as a matrix; y0 is that at the first.

    Written with operations, so that the accepted steps are differentiated as they are; their
    lengths are plain numbers, and so constants. `watch(y, t, slope)` is called at each step's end.
    """
    if current.get().staging is not None:
        from . import staged_ode  # it imports this module

        return staged_ode.integrate(field, y0, ts, control)
    times = times_of(ts)
    moving = ts._node is not None or ts.__class__ in BOXED
    first = ts[0].to(y0.dtype)
    found = [y0]
    with BACKENDS[np.ndarray].quiet():  # an attempt may leave the domain of f
        for step in _steps(field, y0, first, times, control):
            if watch is not None:
                watch(step.end, first + (step.at + step.h), step.slopes[-1])
            for k in range(len(found), len(times)):
                part = (times[k] - times[0] - step.at) / step.h
                if part > 1:
                    break
                part = (ts[k].to(y0.dtype) - first - step.at) / step.h if moving else part
                found.append(
                    step.end if part.__class__ is float and part == 1 else step.within(part)
                )
        for k in range(len(found), len(times)):  # times that are all the same
            found.append(y0 + (ts[k].to(y0.dtype) - first) * field(y0, first))
    return stack(found, 0)


def choose_steps(
    field: Callable[..., Any], y0: Tensor, ts: Tensor, control: StepControl
) -> list[tuple[float, float]]:
    """(offset from the first time, length) of each accepted step of a solution."""
    with override_settings(grad=False), BACKENDS[np.ndarray].quiet():
        found = _steps(field, y0, ts[0].to(y0.dtype), times_of(ts), control)
        return [(step.at, step.h) for step in found]


def redo_steps(
    field: Callable[..., Any],
    y: Tensor,
    first: Tensor,
    steps: list[tuple[float, float]],
    stride: int,
) -> list[tuple[Tensor, Tensor]]:
    """Make the given steps; returns (y, t) after every `stride` of them, without the last."""
    found, slope = [], None
    with override_settings(grad=False), BACKENDS[np.ndarray].quiet():
        for k, (at, h) in enumerate(steps[:-1], 1):
            slope = field(y, first + at) if slope is None else slope
            step = _attempt(field, y, first, slope, at, h)
            y, slope = step.end, step.slopes[-1]
            if k % stride == 0:
                found.append((y, first + (at + h)))
    return found


def _steps(
    field: Callable[..., Any], y: Tensor, first: Tensor, times: list[float], control: StepControl
):
    """The accepted steps, from the first to the last time."""
    span = times[-1] - times[0]
    if span == 0:
        return
    slope, at, accepted, before = field(y, first), 0.0, True, 1e-4
    _refuse_non_finite(slope, times[0])
    h = span if control.whole else _first_length(field, y, first, slope, span, control)
    for _ in range(control.max_steps):
        last = abs(h) >= abs(span - at) * (1 - 1e-9)
        h = span - at if last else h
        if abs(h) <= 4 * ulp(max(abs(times[0] + at), abs(span))):
            raise _underflow(times[0] + at, h)
        step = _attempt(field, y, first, slope, at, h)
        error = _error(step, control)
        if error <= 1:
            yield step
            if last:
                return
            growth = SAFETY * max(error, 1e-10) ** -PROPORTIONAL * before**INTEGRAL
            y, slope, at, before = step.end, step.slopes[-1], at + h, max(error, 1e-4)
            h *= min(GROW if accepted else 1.0, max(SHRINK, growth))
        else:
            h *= max(SHRINK, SAFETY * error**-0.2) if error < inf else SHRINK
        accepted = error <= 1
    raise errors.ConvergenceError(
        f"odeint: {control.max_steps} steps did not reach t = {times[-1]:g}: they got to "
        f"t = {times[0] + at:g} with steps of {abs(h):.3g}; allow more max_steps or larger rtol "
        "and atol, or use a method for stiff equations if these are"
    )


def _attempt(
    field: Callable[..., Any], y: Tensor, first: Tensor, slope: Tensor, at: float, h: float
):
    slopes, end = [slope], y
    for node, weights in zip(NODES[1:], STAGES[1:], strict=True):
        end = _sum([y, *slopes], [1.0, *[h * w for w in weights]])
        slopes.append(field(end, first + (at + node * h)))
    return OdeStep(at, h, y, end, slopes)


def _error(step: OdeStep, control: StepControl) -> float:
    """The step's error relative to the tolerance; infinity if anything is not finite."""
    with override_settings(grad=False):
        slopes = [k.detach() for k in step.slopes]
        error = _sum(slopes, [step.h * e for e in ERROR])
        sizes = maximum(abs(step.y.detach()), abs(step.end.detach()))
        return _norm(error, sizes, control)


def _norm(error: Tensor, sizes: Tensor, control: StepControl) -> float:
    """The largest root mean square of a group, in any element of a batch."""
    ratio = as_numpy(ground(error / (control.atol + control.rtol * sizes)))
    squares = np.square(ratio.reshape(-1, max(1, error.shape[0])).astype(np.float64))
    worst, at = 0.0, 0
    for size in control.groups:
        if size:
            worst = max(worst, float(squares[:, at : at + size].mean(1).max(initial=0.0)))
            if not np.isfinite(squares[:, at : at + size]).all():
                return inf
        at += size
    return worst**0.5


def _first_length(
    field, y: Tensor, first: Tensor, slope: Tensor, span: float, control: StepControl
):
    """The length of the first step, from how fast the solution and its slope change."""
    with override_settings(grad=False):
        y, slope = y.detach(), slope.detach()
        size = abs(y)
        value, change = _norm(y, size, control), _norm(slope, size, control)
        h = 0.01 * value / change if min(value, change) >= 1e-5 else 1e-6
        h = np.copysign(min(h, abs(span)), span).item()
        there = field(_sum([y, slope], [1.0, h]), first + h).detach()
        bend = _norm(there - slope, size, control) / abs(h)
    steep = max(change, bend)
    best = (0.01 / steep) ** 0.2 if steep > 1e-15 else max(1e-6, abs(h) * 1e-3)
    if not isfinite(best) or best == 0:
        return h
    return float(np.copysign(min(100 * abs(h), best, abs(span)), span))


def _refuse_non_finite(slope: Tensor, t: float) -> None:
    if not np.isfinite(as_numpy(ground(slope)).astype(np.float64)).all():
        raise errors.ConvergenceError(
            f"odeint: dy/dt is not finite at the start, t = {t:g}; check y0 and f there"
        )


def _underflow(t: float, h: float) -> errors.ConvergenceError:
    return errors.ConvergenceError(
        f"odeint: at t = {t:g} the step would have to be below {abs(h):.1g}: the solution or its "
        "slope stops being finite or smooth there (a pole, a jump, an infinite slope); end before "
        "that time, or start anew after it"
    )
