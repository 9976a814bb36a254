"""`odeint` in a function that is being compiled: the steps of `dormand_prince` as native loops.

The number of steps is known only when the program runs. So a first loop chooses the steps, without
derivatives, as eager mode does. If a derivative may be taken, a second loop repeats the accepted
steps, with their lengths as constants.
"""

from collections.abc import Callable
from functools import reduce
from math import inf, isqrt

from ... import errors
from ...arrays.make import asarray, zeros
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.box import BOXES
from ...core.call import caller
from ...core.record import record
from ...core.settings import override_settings
from ...graph.guard import GUARD
from ...ops.elementwise import maximum, minimum, where
from ...ops.structural import concat, narrow, stack
from ..control.loops import cond, while_loop
from .dormand_prince import (
    ERROR,
    GROW,
    INTEGRAL,
    NODES,
    PROPORTIONAL,
    SAFETY,
    SHRINK,
    STAGES,
    StepControl,
    dense_weights,
)


def integrate(field: Callable, y0: Tensor, ts: Tensor, control: StepControl) -> Tensor:
    """The solution of dy/dt = field(y, t) at the times ts, as a matrix; y0 is that at the first."""
    first = ts[0].to(y0.dtype)
    offsets = ts.to(dtypes.float64)
    offsets = offsets - offsets[0]
    slope = field(y0, first)
    moves = any([may_move(x) for x in (y0, ts, slope)])
    with override_settings(grad=False):
        start, begun = _check_start(y0.detach(), slope.detach(), offsets.detach())

        def still(y: Tensor, t: Tensor) -> Tensor:
            return field(y, t).detach()

        chosen = _StepChoice(still, start, begun, first.detach(), offsets.detach(), control)
        count, lengths, found = chosen.run()
    if not moves:
        return found
    return _redo_steps(field, y0, slope, first, offsets, count, lengths, control)


def may_move(x: Tensor) -> bool:
    """Whether a derivative with respect to x may be taken."""
    return x._node is not None or (x._data.__class__ in BOXES and not x._data.staged)


def _guard(x: Tensor, flag: Tensor, message: str, error) -> Tensor:
    return caller(GUARD)(x, flag, message, error)


def _check_start(y: Tensor, slope: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """The start and its slope, guarded: the times must be in order and the slope finite."""
    rises = offsets[1:] - offsets[:-1]
    ordered = ((rises >= 0).all() | (rises <= 0).all()) & (abs(offsets) < inf).all()
    message = "odeint: ts must be finite, and either increase or decrease"
    y = _guard(y, ordered, message, errors.ArgumentError)
    finite = (abs(slope) < inf).all()
    message = "odeint: dy/dt is not finite at the start; check y0 and f there"
    return y, _guard(slope, finite, message, errors.ConvergenceError)


def _attempt(field: Callable, y: Tensor, first: Tensor, slope: Tensor, at, h) -> list[Tensor]:
    """The slopes of all stages, then the state at the step's end."""
    slopes, end, length = [slope], y, h.to(y.dtype)
    for node, weights in zip(NODES[1:], STAGES[1:], strict=True):
        end = y + length * _combine(slopes, weights)
        slopes.append(field(end, first + (at + node * h).to(first.dtype)))
    return [*slopes, end]


def _combine(values: list[Tensor], weights) -> Tensor:
    terms = [v * w for v, w in zip(values, weights, strict=True) if w != 0]
    return reduce(lambda a, b: a + b, terms)


def _within(y: Tensor, slopes: list[Tensor], h: Tensor, part: Tensor) -> Tensor:
    """The solution inside a step, one row for each fraction in `part`."""
    weights = stack(dense_weights(part.to(y.dtype)), 1)
    return y + h.to(y.dtype) * (weights @ stack(slopes, 0))


def _place_solution(found: Tensor, reached, part: Tensor, here: Callable) -> tuple[Tensor, Tensor]:
    """The solution at the times that a step covers, and which times have been reached."""
    now = (part <= 1) & ~reached

    def filled(found):
        return where(now.reshape((-1, 1)), here(), found)

    return cond(now.any(), filled, lambda found: found, found), reached | now


class _StepChoice:
    """The loop that chooses the steps."""

    def __init__(self, field: Callable, y, slope, first, offsets, control: StepControl):
        self.field, self.first, self.offsets, self.control = field, first, offsets, control
        self.span, self.y, self.slope = offsets[-1], y, slope

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        """The number of steps, their lengths, and the solution."""
        y, most = self.y, self.control.max_steps
        none, one = _number(0.0, y), _number(1e-4, y)
        reached = self.offsets == 0
        found = y + zeros((self.offsets.shape[0], 1), dtype=y.dtype, device=y.device)
        carry = {
            "y": y,
            "slope": self.slope,
            "at": none,
            "h": self.span if self.control.whole else self._first_length(),
            "before": one,
            "accepted": asarray(True, device=y.device),
            "tiny": asarray(False, device=y.device),
            "count": asarray(0, device=y.device),
            "lengths": zeros((most,), dtype=dtypes.float64, device=y.device),
            "found": found,
            "reached": reached,
        }
        message = (
            f"odeint: {most} steps did not reach the last time; allow more max_steps or larger "
            "rtol and atol, or use a method for stiff equations if these are"
        )
        carry["tries"] = asarray(0, device=y.device)
        end = while_loop(
            lambda c: ~c["reached"].all() & ~c["tiny"] & (c["tries"] < most), self._step, carry
        )
        tiny = (
            "odeint: a step would have to be shorter than numbers allow: the solution or its slope "
            "stops being finite or smooth there (a pole, a jump, an infinite slope); end before "
            "that time, or start anew after it"
        )
        count, found = end["count"], end["found"]
        for ok, said in ((~end["tiny"], tiny), (end["reached"].all(), message)):
            error = errors.ConvergenceError
            count, found = (_guard(x, ok, said, error) for x in (count, found))
        return count, end["lengths"], found

    def _step(self, c: dict) -> dict:
        """One attempt, accepted or rejected."""
        left = self.span - c["at"]
        last = abs(c["h"]) >= abs(left) * (1 - 1e-9)
        h = where(last, left, c["h"])
        size = maximum(abs(self.first.to(dtypes.float64) + c["at"]), abs(self.span))
        tiny = abs(h) <= 4 * 2.220446049250313e-16 * size
        *slopes, end = _attempt(self.field, c["y"], self.first, c["slope"], c["at"], h)
        length = h.to(end.dtype)
        wrong = _combine(slopes, ERROR) * length
        error = _norm(wrong, maximum(abs(c["y"]), abs(end)), self.control)
        ok = (error <= 1) & ~tiny

        def accepted(c: dict) -> dict:
            part = (self.offsets - c["at"]) / h
            found, reached = _place_solution(
                c["found"], c["reached"], part, lambda: _within(c["y"], slopes, h, part)
            )
            growth = SAFETY * maximum(error, 1e-10) ** -PROPORTIONAL * c["before"] ** INTEGRAL
            growth = minimum(where(c["accepted"], GROW, 1.0), maximum(growth, SHRINK))
            return c | {
                "y": end,
                "slope": slopes[-1],
                "at": c["at"] + h,
                "h": h * growth,
                "before": maximum(error, 1e-4),
                "count": c["count"] + 1,
                "lengths": c["lengths"].at[c["count"]].set(h),
                "found": found,
                "reached": reached,
            }

        def refused(c: dict) -> dict:
            shrunk = maximum(SAFETY * error**-0.2, SHRINK)
            return c | {"h": h * where(error < inf, shrunk, SHRINK)}

        made = cond(ok, accepted, refused, c)
        return made | {"accepted": error <= 1, "tiny": tiny, "tries": c["tries"] + 1}

    def _first_length(self) -> Tensor:
        """The length of the first step, from how fast the solution and its slope change."""
        y, slope, reach = self.y, self.slope, abs(self.span)
        way, size = where(self.span < 0, -1.0, 1.0).to(dtypes.float64), abs(y)
        value, change = (_norm(x, size, self.control) for x in (y, slope))
        h = where(minimum(value, change) >= 1e-5, 0.01 * value / change, 1e-6)
        h = minimum(h, reach)
        along = (way * h).to(y.dtype)
        there = self.field(y + along * slope, self.first + along.to(self.first.dtype))
        steep = maximum(change, _norm(there - slope, size, self.control) / h)
        best = where(steep > 1e-15, (0.01 / steep) ** 0.2, maximum(h * 1e-3, 1e-6))
        known = (best < inf) & (best > 0)
        return way * where(known, minimum(minimum(100 * h, best), reach), h)


def _number(value: float, beside: Tensor) -> Tensor:
    return asarray(value, dtype=dtypes.float64, device=beside.device)


def _norm(error: Tensor, sizes: Tensor, control: StepControl) -> Tensor:
    """The largest root mean square of a group; infinity if anything is not finite."""
    ratio = (error / (control.atol + control.rtol * sizes)).to(dtypes.float64)
    squares, worst, at = abs(ratio) ** 2, _number(0.0, error), 0
    for size in control.groups:
        if size:
            worst = maximum(worst, narrow(squares, 0, at, at + size).mean())
        at += size
    return where((abs(ratio) < inf).all(), worst**0.5, inf)


def _redo_steps(
    field: Callable, y: Tensor, slope: Tensor, first, offsets, count, lengths, control: StepControl
) -> Tensor:
    """The solution by steps of these lengths, to be differentiated."""
    start = y + (offsets.to(y.dtype)).reshape((-1, 1)) * slope  # right at the first time
    times = offsets.detach()

    def step(c: dict) -> dict:
        h = lengths[c["k"]]
        *slopes, end = _attempt(field, c["y"], first, c["slope"], c["at"], h)
        part = (offsets - c["at"]) / h
        found, reached = _place_solution(
            c["found"],
            c["reached"],
            part.detach(),
            lambda: _within(c["y"], slopes, h, part),
        )
        return {
            "k": c["k"] + 1,
            "y": end,
            "slope": slopes[-1],
            "at": c["at"] + h,
            "found": found,
            "reached": reached,
        }

    carry = {
        "k": asarray(0, device=y.device),
        "y": y,
        "slope": slope,
        "at": _number(0.0, y),
        "found": start,
        "reached": times == 0,
    }
    return while_loop(lambda c: c["k"] < count, step, carry, max_steps=control.max_steps)["found"]


@record
class OdeProblem:
    """A right-hand side (y, t) and the tolerances for solving it."""

    field: Callable
    control: StepControl


def carry_back(
    forwards: OdeProblem, backwards: OdeProblem, ys: Tensor, ts: Tensor, aq: Tensor
) -> Tensor:
    """The solution of `backwards` beside y at the first of two times, from that at the second.

    y is solved forwards again: solved backwards, what decays would grow. Of N steps about √N ends
    are kept; the steps between two of them are repeated.
    """
    first, field = ts[0].to(ys.dtype), forwards.field
    span = ts[1].to(dtypes.float64) - ts[0].to(dtypes.float64)
    offsets = stack([_number(0.0, span), span], 0)
    start, slope = _check_start(ys[0], field(ys[0], first), offsets)
    chosen = _StepChoice(field, start, slope, first, offsets, forwards.control)
    count, lengths, _ = chosen.run()
    room = isqrt(forwards.control.max_steps) + 1
    stride = maximum((count + (room - 1)) // room, 1)
    begins, times = _begins(
        field, start, first, _number(0.0, start), lengths, (0, count), stride, room
    )

    def between(c: dict) -> dict:
        """From the end of a segment of steps to its beginning."""
        k = c["k"]
        some = (k * stride, minimum((k + 1) * stride, count))
        inner, at = _begins(field, begins[k], first, times[k], lengths, some, 1, room)
        aq = _stepwise(backwards, ts, inner, at, some[1] - some[0], c)
        return {"k": k - 1, "y": begins[k], "t": times[k], "aq": aq}

    last = (count + (stride - 1)) // stride - 1
    carry = {"k": last, "y": ys[1], "t": span, "aq": aq}
    return while_loop(lambda c: c["k"] >= 0, between, carry)["aq"]


def _stepwise(problem: OdeProblem, ts: Tensor, begins, times, count, end: dict) -> Tensor:
    """The solution of the problem beside y, backwards from step to step."""
    n, origin = begins.shape[1], ts[0].to(dtypes.float64)

    def step(c: dict) -> dict:
        k = c["k"]
        back = origin + stack([c["t"], times[k]], 0)
        whole = concat([c["y"], c["aq"]], 0)
        found = integrate(problem.field, whole, back, problem.control)[1][n:]
        return {"k": k - 1, "y": begins[k], "t": times[k], "aq": found}

    carry = {"k": count - 1, "y": end["y"], "t": end["t"], "aq": end["aq"]}
    return while_loop(lambda c: c["k"] >= 0, step, carry)["aq"]


def _begins(field, y, first, at, lengths, some: tuple, stride, room: int) -> tuple[Tensor, Tensor]:
    """The solution at the beginning of every `stride`-th of some steps, and the times."""

    def step(c: dict) -> dict:
        k, h = c["k"], lengths[c["k"] + some[0]]
        place = where(k % stride == 0, k // stride, room)
        *slopes, end = _attempt(field, c["y"], first, c["slope"], c["at"], h)
        return {
            "k": k + 1,
            "y": end,
            "slope": slopes[-1],
            "at": c["at"] + h,
            "states": c["states"].at[place].set(c["y"]),
            "times": c["times"].at[place].set(c["at"]),
        }

    carry = {
        "k": asarray(0, device=y.device),
        "y": y,
        "slope": field(y, first + at.to(first.dtype)),
        "at": at,
        "states": zeros((room + 1, y.shape[0]), dtype=y.dtype, device=y.device),
        "times": zeros((room + 1,), dtype=dtypes.float64, device=y.device),
    }
    end = while_loop(lambda c: c["k"] < some[1] - some[0], step, carry)
    return end["states"], end["times"]
