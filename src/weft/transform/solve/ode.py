"""`odeint`: solutions of ordinary differential equations, differentiated in either order.

"discrete" differentiates the accepted steps; "adjoint" solves the differential equations of the
derivatives along the solution, and saves nothing of the steps for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ... import errors
from ...arrays.dtype_functions import finfo
from ...arrays.make import asarray, zeros
from ...arrays.tensor import Tensor
from ...backend.device import as_numpy
from ...core import dtypes
from ...core.box import BOXED, BOXES, ground
from ...core.record import record
from ...core.recording import inexact
from ...core.settings import current, override_settings
from ...core.types import Array
from ...core.value import TENSORS, aval_of
from ...graph.symbol import Symbol
from ...ops.elementwise import maximum, where
from ...ops.structural import concat, narrow, stack
from ..checkpoint.lineage import is_recorded
from ..modes import trees
from ..modes.functional import jvp, vjp
from ..modes.trace import trace_of
from ..modes.vmap import vmap
from . import staged_ode
from .dormand_prince import StepControl, choose_steps, integrate, redo_steps
from .packing import Packing, numbers, pack, unpack
from .replay import PureProgram, close_trace
from .solution import trajectory

if TYPE_CHECKING:
    from ...arrays.types import ArrayLike


GRADIENTS = ("discrete", "adjoint")
ANCHORS = 8  # states that the adjoint keeps at a time, at each depth of recursion


def odeint(
    f: Callable[..., Any],
    y0: Any,
    ts: ArrayLike,
    *args: Any,
    rtol: float = 1e-6,
    atol: float = 1e-9,
    method: str = "dopri5",
    gradient: str = "discrete",
    max_steps: int = 10_000,
) -> Any:
    """The solution of dy/dt = f(y, t, *args) at the times ts, where y is y0 at the first.

    f          the slope, of the structure and shapes of y; t is a 0-d tensor
    y0         a tensor, a list of numbers, or a tree of tensors
    ts         the times, increasing or decreasing; the solution goes from the first to the last
    args       what f also depends on
    rtol       the error of a step is kept below atol + rtol·|y|: the root mean square over each
    atol       tensor of y, the largest of which counts. Inside vmap all elements make the same
               steps, by the largest error among them
    method     "dopri5": adaptive steps of order 5(4) by Dormand and Prince, between which the
               solution is interpolated with order 4
    gradient   "discrete": the derivative of the steps that were made, their lengths held
               constant; exact for the computed solution, and what the steps computed is kept
               for the backward pass. "adjoint": the adjoint equation is solved backwards
               (forward mode: the variational equation forwards), by the same rtol and atol;
               nothing is kept of the steps. The backward pass solves the equation forwards
               again, with a few states kept at a time, and the adjoint from step to step beside
               it: its error stays near rtol for solutions that cannot be solved backwards, too
               (but in a second derivative in a compiled function). f must then do the same
               operations at all times (wf.where, no `if`, no loop that ends when it is done),
               which is checked
    max_steps  raise `weft.errors.ConvergenceError` after so many steps

    Returns y at all ts, each tensor with one more axis in front. Differentiable by y0, ts, the
    args and whatever else f reads, in both modes and to any order.

    >>> import weft as wf
    >>> decay = lambda k: wf.odeint(lambda y, t: -k * y, wf.tensor(1.0), [0.0, 1.0])[-1]
    >>> k = wf.tensor(2.0)
    >>> round(decay(k).item(), 5), round(wf.grad(decay)(k).item(), 5)
    (0.13534, -0.13534)
    """
    _one_of("method", method, ("dopri5",))
    _one_of("gradient", gradient, GRADIENTS)
    packing = Packing("odeint", y0, beside=(ts, args))
    start = pack(packing.start, packing.dtype)
    ts = _times(ts, start)
    control = StepControl(float(rtol), float(atol), max_steps, packing.sizes)

    def field(y: Tensor, t: Tensor, args: tuple) -> Tensor:
        return packing.vector(f(packing.tree(y), t, *args), "f(y, t)")

    if gradient == "discrete":
        found = integrate(lambda y, t: field(y, t, args), start, ts, control)
    else:
        found = _by_adjoint(field, start, ts, args, control)
    return packing.trajectory(found)


def _one_of(name: str, value, allowed) -> None:
    if value not in allowed:
        names = ", ".join(map(repr, allowed))
        raise errors.ArgumentError(f"odeint: {name}={value!r}, expected one of {names}")


def _times(ts, y: Tensor) -> Tensor:
    """The times as a tensor on y's device; plain numbers get y's precision."""
    ts = asarray(ts, dtype=y.dtype) if isinstance(ts, list | tuple) else asarray(ts)
    ts = ts.to(y.device)
    if ts.ndim != 1 or not ts.shape[0] or dtypes.is_complex(ts.dtype):
        raise errors.ArgumentError(
            f"odeint: ts is {ts.dtype} of shape {ts.shape}, expected a vector of times, the first "
            "of which belongs to y0"
        )
    return ts if dtypes.is_inexact(ts.dtype) else ts.to(dtypes.default_float())


def _by_adjoint(
    field: Callable[..., Any], start: Tensor, ts: Tensor, args: tuple, control: StepControl
):
    """The solution as one recorded operation; the values that f reads become its arguments."""
    first = ts[0].to(start.dtype)
    traced = trace_of("odeint", lambda y, t: field(y, t, args), [start, first], lambda xs: xs)
    program, others = close_trace(traced)
    constants = [v.detach() for v in others]
    leaves, rebuild = trees.flatten(args)
    stopped = rebuild([x.detach() if x.__class__ in TENSORS else x for x in leaves])

    def watch(y, t, slope):
        _refuse_other_operations(program(y, t, *constants)[0], slope, t)

    moves = any([may_move(v) or v.__class__ in BOXED for v in (start, ts, *others)])
    with override_settings(grad=False):
        found = integrate(
            lambda y, t: field(y, t, stopped).detach(),
            start.detach(),
            ts.detach(),
            control,
            watch if moves else None,
        )
    flow = flow_of(Field(program), control, others)
    return trajectory([found, start, ts, *others], flow) if moves else found


def _refuse_other_operations(replayed: Tensor, slope: Tensor, t: Tensor) -> None:
    """Refuse a function that did other operations at a later time: the adjoint uses the first."""
    got, had = (as_numpy(ground(x)).astype(float) for x in (replayed, slope))
    allowed = float(finfo(slope.dtype).eps) ** 0.5 * abs(had).max(initial=0.0)
    if got.size == had.size and abs(got - had).max(initial=0.0) <= allowed:
        return
    raise errors.ArgumentError(
        f"odeint: near t = {float(as_numpy(ground(t))):g} f did other operations than at the "
        "start; gradient='adjoint' needs the same ones at all times: replace an `if` by wf.where, "
        "or, if a loop or a solver in f makes other numbers of steps, use gradient='discrete'"
    )


def may_move(x: Array) -> bool:
    """Whether a derivative with respect to a value may be taken."""
    value = x
    while value.__class__ in TENSORS or value.__class__ in BOXES:
        if value.__class__ is Symbol:
            return inexact(x)
        value = value.inner if value.__class__ in BOXES else value._data
    return is_recorded(x) and inexact(x)


@record
class Field:
    """The user's right-hand side."""

    program: PureProgram

    def __call__(self, y: Tensor, t: Tensor, others: list[Tensor]) -> Tensor:
        return self.program(y, t, *others)[0]


@record
class Variational:
    """(y, δy)' = (f, ∂f·(δy, δθ)), where the tangents δθ follow the values that f reads."""

    field: "AnyField"
    moving: tuple[int, ...]

    def __call__(self, state: Tensor, t: Tensor, others: list[Tensor]) -> Tensor:
        n, count = state.shape[0] // 2, len(others) - len(self.moving)
        f, here = _restrict(self.field, t, others[:count], self.moving)
        tangents = (narrow(state, 0, n, 2 * n), *others[count:])
        return concat(list(jvp(f, (narrow(state, 0, 0, n), *here), tangents)), 0)


@record
class Adjoint:
    """(y, a, q)' = (f, −aᵀ∂f/∂y, −aᵀ∂f/∂θ), for the θ to differentiate by."""

    field: "AnyField"
    size: int
    picked: tuple[int, ...]

    def __call__(self, state: Tensor, t: Tensor, others: list[Tensor]) -> Tensor:
        f, here = _restrict(self.field, t, others, self.picked)
        slope, pull = vjp(f, narrow(state, 0, 0, self.size), *here)
        pulled = list(pull(narrow(state, 0, self.size, 2 * self.size)))
        return concat([slope, -pack(pulled, state.dtype)], 0)


def _restrict(field, t: Tensor, others: list, which: tuple[int, ...]) -> tuple[Callable, list]:
    """The field as a function of y and of some of the values it reads, and those values."""

    def f(y, *moved):
        values = list(others)
        for k, v in zip(which, moved, strict=True):
            values[k] = v
        return field(y, t, values)

    return f, [others[k] for k in which]


# (y, t, other values that it reads) -> the slope.
AnyField = Field | Variational | Adjoint


@record
class Flow:
    """The problem that defines ys from (y0, ts, *others): ys solves the equation at the times ts.

    wanted  which of the others can be differentiated by
    """

    field: "AnyField"
    control: StepControl
    wanted: tuple[bool, ...]

    def solve(self, y0: Tensor, ts: Tensor, others: list[Tensor]) -> Tensor:
        """The solution at the times ts, differentiable again."""
        fixed = [v.detach() for v in others]
        with override_settings(grad=False):
            field = self.field
            ys = integrate(lambda y, t: field(y, t, fixed), y0.detach(), ts.detach(), self.control)
        return trajectory([ys, y0, ts, *others], self)

    def _slopes(self, ys: Tensor, ts: Tensor, others: list[Tensor]) -> Tensor:
        return vmap(lambda y, t: self.field(y, t, others))(ys, ts.to(ys.dtype))

    def push(self, tangents: list[Any], ys: Tensor, args: list[Tensor]) -> Tensor:
        """The solution of the variational equation; δts moves along the slopes."""
        _, y0, ts, *others = args
        _, dy0, dts, *changes = tangents
        moving = [k for k, c in enumerate(changes) if c is not None]
        n, dtype = y0.shape[0], y0.dtype
        dy0 = zeros(n, dtype=dtype, device=y0.device) if dy0 is None else dy0
        along = None
        if dts is not None:
            along = dts.to(dtype).reshape((-1, 1)) * self._slopes(ys, ts, others)
            dy0 = dy0 - along[0]
        scale = _scale([dy0, *[changes[k] for k in moving]], dtype)
        variational = Variational(self.field, tuple(moving))
        control = replace(self.control, groups=self.control.groups * 2)
        values = [*others, *[changes[k] / scale.to(_real(changes[k])) for k in moving]]
        flow = flow_of(variational, control, values)
        found = narrow(flow.solve(concat([y0, dy0 / scale], 0), ts, values), 1, n, 2 * n) * scale
        return found if along is None else found + along

    def _carry_back(self, flow, ys: Tensor, ts: Tensor, aq: Tensor, others: list[Tensor]) -> Tensor:
        """(a, q) at the first of two times, from those at the second.

        The solution is solved forwards again: solved backwards, what decays would grow. The adjoint
        goes from the end of each step to its beginning, with the solution known at both.
        """
        if current.get().staging is not None:
            return self._carry_back_staged(flow, ys, ts, aq, others)
        fixed = [v.detach() for v in others]

        def field(y: Tensor, t: Tensor) -> Tensor:
            return self.field(y, t, fixed).detach()

        steps = choose_steps(field, ys[0].detach(), ts.detach(), self.control)
        return self._along(flow, field, steps, ts[0].to(ys.dtype).detach(), ys, ts, aq, others)

    def _along(self, flow, field, steps: list, first, ys: Tensor, ts: Tensor, aq, others: list):
        """`_carry_back` along given steps.

        Of many steps only `ANCHORS` ends are kept at a time; the steps between two of them are
        treated in the same way, recursively.
        """
        n, stride = ys.shape[1], -(-len(steps) // ANCHORS)
        if len(steps) > 1:
            inner = redo_steps(field, ys[0].detach(), first, steps, stride)
            states = stack([ys[0].detach(), *[y for y, _ in inner], ys[1].detach()], 0)
            ts = stack([ts[0], *[t.to(ts.dtype) for _, t in inner], ts[1]], 0)
            del inner  # `states` is a copy
            ys = trajectory([states, ys[0], ts, *others], self)
        for i in range(ts.shape[0] - 2, -1, -1):
            ends, here = ys[i : i + 2], ts[i : i + 2]
            if stride > 1:
                part = steps[i * stride : (i + 1) * stride]
                aq = self._along(flow, field, part, first, ends, here, aq, others)
            else:
                back = stack([here[1], here[0]], 0)
                aq = flow.solve(concat([ends[1], aq], 0), back, others)[1][n:]
        return aq

    def _carry_back_staged(
        self, flow, ys: Tensor, ts: Tensor, aq: Tensor, others: list[Tensor]
    ) -> Tensor:
        """`_carry_back` while tracing, where the number of steps is not known.

        If it may be differentiated again, the solution is solved backwards with the adjoint.
        """
        if any([staged_ode.may_move(v) for v in (ys, ts, aq, *others)]):
            end = flow.solve(concat([ys[1], aq], 0), stack([ts[1], ts[0]], 0), others)[1]
            return end[ys.shape[1] :]
        forwards = staged_ode.OdeProblem(lambda y, t: self.field(y, t, others), self.control)
        backwards = staged_ode.OdeProblem(lambda y, t: flow.field(y, t, others), flow.control)
        return staged_ode.carry_back(forwards, backwards, ys, ts, aq)

    def pull(self, g: Tensor, ys: Tensor, args: list[Tensor]) -> list[Tensor | None]:
        """The solution of the adjoint equation, backwards from each time to the one before."""
        _, y0, ts, *others = args
        n, dtype, scale = y0.shape[0], y0.dtype, _scale([g], y0.dtype)
        g, slopes = g / scale, self._slopes(ys, ts, others)
        picked = [k for k, wanted in enumerate(self.wanted) if wanted]
        avals = [aval_of(others[k]) for k in picked]
        sizes = [numbers(a) for a in avals]
        adjoint = Adjoint(self.field, n, tuple(picked))
        groups = (*self.control.groups * 2, *sizes)
        flow = flow_of(adjoint, replace(self.control, groups=groups, whole=True), others)
        aq = concat([g[-1], zeros(sum(sizes), dtype=dtype, device=y0.device)], 0)
        for i in range(ts.shape[0] - 1, 0, -1):
            aq = self._carry_back(flow, ys[i - 1 : i + 1], ts[i - 1 : i + 1], aq, others)
            aq = concat([narrow(aq, 0, 0, n) + g[i - 1], narrow(aq, 0, n, aq.shape[0])], 0)
        a, q = narrow(aq, 0, 0, n), narrow(aq, 0, n, aq.shape[0])
        by_time = (g * slopes).sum(axis=1)
        by_time = concat([(by_time[0] - (a * slopes[0]).sum()).reshape((1,)), by_time[1:]], 0)
        found: list[Tensor | None] = [
            None,
            a * scale,
            (by_time * scale).to(ts.dtype),
            *[None] * len(others),
        ]
        for k, c in zip(picked, unpack(q * scale, avals), strict=True):
            found[3 + k] = c
        return found


def flow_of(field: AnyField, control: StepControl, others: list[Tensor]) -> Flow:
    """The flow of a field that reads these values."""
    return Flow(field, control, tuple([may_move(v) for v in others]))


def _real(x: Tensor):
    return dtypes.to_real(x.dtype)


def _scale(values: list, dtype) -> Tensor:
    """The largest magnitude, as a constant: atol then means the same for small (co)tangents."""
    largest = zeros((), dtype=dtype, device=values[0].device)
    for x in values:
        if x.size:
            largest = maximum(largest, abs(x.detach()).max().to(dtype))
    return where(largest > 0, largest, 1.0)
