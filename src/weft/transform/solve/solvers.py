"""Iterative solvers on vectors, written with operations: on a batch, every element at once.

They return the solution, whether it was reached, and the largest element of the residual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ... import errors
from ...arrays.dtype_functions import finfo
from ...arrays.linalg import eigh, pinv, slogdet, solve
from ...arrays.make import eye, full
from ...arrays.manipulation import concat, expand_dims
from ...arrays.tensor import Tensor
from ...core.settings import current
from ...ops.elementwise import where
from ..control.loops import cond, while_loop
from ..modes.functional import jvp, value_and_grad
from ..modes.vmap import vmap

if TYPE_CHECKING:
    from ...arrays.types import DTypeLike

SUFFICIENT = 1e-4  # of the decrease that the slope promises (Armijo)
NOISE = 1e3  # times the rounding of 1 + |value|: smaller differences are noise
SHORTEST = 2.0**-30  # part of a step that is still tried
GROWTH = 10.0  # of the residual, at which Anderson's acceleration restarts
MEMORY = 5  # iterates that Anderson's acceleration combines

Found = tuple[Tensor, Tensor, Tensor]


def columns(f: Callable, x: Tensor) -> Tensor:
    """The Jacobian of a function of vectors, by one tangent for each element."""
    unit = eye(x.shape[0], dtype=x.dtype, device=x.device)
    return vmap(lambda v: jvp(f, (x,), (v,))[1], out_axes=1)(unit)


def newton(f: Callable, x0: Tensor, tol: float, max_steps: int) -> Found:
    """A zero of f by Newton's method, the steps halved until the residual decreases."""

    def evaluate(x):
        r = f(x)
        return (r * r).sum() / 2, r

    def direction(x, r):
        slopes = columns(f, x).detach()
        step = _newton_step(slopes, r)
        slope, promised = (r * (slopes @ step)).sum(), -(r * r).sum()
        return step, slope, slope <= promised / 2

    return _descend(evaluate, direction, x0, tol, max_steps)


def _newton_step(slopes: Tensor, r: Tensor) -> Tensor:
    """−J⁻¹r, or the least-squares step if J is singular (for any element of a batch)."""
    if current.get().staging is not None:  # a traced program cannot catch an error
        regular = slogdet(slopes)[0] != 0
        return cond(regular, lambda: solve(slopes, -r), lambda: pinv(slopes) @ -r)
    try:
        return solve(slopes, -r)
    except errors.LinAlgError:
        return pinv(slopes) @ -r


def newton_minimum(f: Callable, x0: Tensor, tol: float, max_steps: int) -> Found:
    """A minimum of f by Newton's method with |H|, the Hessian with its eigenvalues made positive.

    So every step is a direction of descent; it is halved until f decreases by enough.
    """
    both = value_and_grad(f)

    def spectrum(x):
        curvature = columns(lambda x: both(x)[1], x).detach()
        return eigh((curvature + curvature.T) / 2)

    def direction(x, slope):
        values, vectors = spectrum(x)
        sizes = abs(values)
        largest = sizes.max()
        floor = where(largest > 0, largest * rounding(x.dtype), 1.0)
        step = -(vectors @ ((vectors.T @ slope) / where(sizes > floor, sizes, floor)))
        return step, (step * slope).sum(), size(slope) < float("inf")

    x, good, left = _descend(both, direction, x0, tol, max_steps)
    if not x.shape[0]:
        return x, good, left
    values = spectrum(x)[0]
    return x, good & (values.min() >= -(rounding(x.dtype) ** 0.5) * size(values)), left


def _descend(evaluate: Callable, direction: Callable, x0: Tensor, tol: float, max_steps: int):
    """Steps along directions of descent until a step is small, or no step decreases the value.

    In the second case the residual must be small.

    evaluate   x -> the value, which must decrease, and the residual, which must vanish
    direction  (x, residual) -> the full step, the slope of the value along it, and whether the
               step solves the linear problem
    """

    def stopped(x):
        value, r = evaluate(x)
        return value.detach(), r.detach()

    def going(state):
        *_, step, good, stuck = state
        return ~good & ~stuck & (step < max_steps)

    def body(state):
        x, value, r, step, _, _ = state
        full_step, slope, sound = direction(x, r)
        part, value, r = _line_search(stopped, x, full_step, slope, value, r)
        x = x + part * full_step
        fine = max(tol, 4 * rounding(x.dtype))
        good = (size(r) == 0) | (sound & (size(full_step) <= fine * size(x)))
        return x, value, r, step + 1, good, part == 0

    value, r = stopped(x0)
    good = size(r) == 0
    begin = (x0, value, r, full((), 0, device=x0.device), good, good & ~good)
    x, _, r, _, good, _ = while_loop(going, body, begin)
    return x, good | (size(r) <= tol), size(r)


def _line_search(
    evaluate: Callable, x: Tensor, step: Tensor, slope: Tensor, value: Tensor, r: Tensor
):
    """The largest of 1, ½, ¼ … of a step that decreases the value, and what it evaluates to.

    0 if none does; NaN is no decrease. Near a minimum a decrease is lost in rounding: there the
    residual decides.
    """
    noise = NOISE * rounding(x.dtype) * (1 + abs(value))

    def attempt(part):
        there, residual = evaluate(x + part * step)
        lower = there <= value + SUFFICIENT * part * slope
        flatter = (there <= value + noise) & (size(residual) <= size(r) / 2)
        return part, there, residual, lower | flatter

    def going(state):
        part, *_, accepted = state
        return ~accepted & (part > SHORTEST)

    one = full((), 1.0, dtype=x.dtype, device=x.device)
    part, there, new, accepted = while_loop(going, lambda s: attempt(s[0] / 2), attempt(one))
    return where(accepted, part, 0.0), where(accepted, there, value), where(accepted, new, r)


def anderson(g: Callable, x0: Tensor, tol: float, max_steps: int) -> Found:
    """A fixed point of g by iteration, accelerated by Anderson's mixing of the last iterates.

    The next iterate is Σ αᵢ g(xᵢ), where the αᵢ add up to one and make Σ αᵢ (g(xᵢ) − xᵢ) least.
    If that makes the residual much larger, it restarts with g(x).
    """

    def evaluate(x):
        y = g(x).detach()
        return y, y - x

    def filled(row):
        return expand_dims(row, 0) + full((MEMORY, 1), 0.0, dtype=row.dtype, device=row.device)

    def small(x, r):
        return size(r) <= max(tol, rounding(r.dtype)) * (1 + size(x))

    def going(state):
        *_, x, r, step = state
        return ~small(x, r) & (step < max_steps) & (size(r) < float("inf"))

    def body(state):
        ys, rs, _, r, step = state
        x = mixing_weights(rs) @ ys
        y, now = evaluate(x)
        grew = ~(size(now) <= GROWTH * size(r))
        ys = where(grew, filled(y), concat([ys[1:], expand_dims(y, 0)]))
        rs = where(grew, filled(now), concat([rs[1:], expand_dims(now, 0)]))
        return ys, rs, x, now, step + 1

    y, r = evaluate(x0)
    begin = (filled(y), filled(r), x0, r, full((), 0, device=x0.device))
    _, _, x, r, _ = while_loop(going, body, begin)
    return x, small(x, r), size(r)


def mixing_weights(rs: Tensor) -> Tensor:
    """The weights, with sum one, for which the weighted sum of the rows is least."""
    products = rs @ rs.T
    largest = products.max()
    scaled = products / where(largest > 0, largest, 1.0)
    m, dtype = rs.shape[0], rs.dtype
    unit = eye(m, dtype=dtype, device=rs.device)
    weights = solve(
        scaled + 100 * rounding(rs.dtype) * unit, full(m, 1.0, dtype=dtype, device=rs.device)
    )
    return weights / weights.sum()


def size(x: Tensor) -> Tensor:
    """The largest magnitude."""
    return abs(x).max() if x.shape[0] else full((), 0.0, dtype=x.dtype, device=x.device)


def rounding(dtype: DTypeLike) -> float:
    """The spacing of a dtype's numbers near one."""
    return float(finfo(dtype).eps)
