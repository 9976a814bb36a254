"""Rows for values that a solver found: their derivative is that of the problem they solve.

The problem is the row's static parameter. It has `push` and, for the row that states one, `pull`:

    push(tangents, y, args) -> the tangent of y; absent tangents are None
    pull(g, y, args) -> a cotangent or None for each argument

where y is the value itself and args[0] the value as the solver found it, a constant. Both are
written with operations on tensors, at y, so that they can be differentiated for higher orders.
"""

from collections.abc import Callable
from typing import Any

from ...arrays.tensor import Tensor
from ...core.box import BOXES, Level, level_of
from ...core.call import caller
from ...core.op import Jvp, Op
from ...core.record import record
from ...core.settings import current, override_settings
from ...core.value import TENSORS
from ...ops.batching import spread
from ...ops.structural import sum_
from ..modes.dual import to_tensor, unwrap_if_plain
from ..modes.vmap import vmap


@record
class Vmapped:
    """One problem for each element of a batch, which is axis 0 of the mapped arguments."""

    problem: Any
    mapped: tuple[bool, ...]

    def push(self, tangents: list[Tensor | None], y: Tensor, args: list[Tensor]) -> Tensor:
        moving = [k for k, t in enumerate(tangents) if t is not None]

        def one(y, args, given):
            full = [None] * len(args)
            for k, t in zip(moving, given, strict=True):
                full[k] = t
            return self.problem.push(full, y, args)

        axes = self._axes(range(len(args)))
        return vmap(one, (0, axes, self._axes(moving)))(y, args, [tangents[k] for k in moving])

    def pull(self, g: Tensor, y: Tensor, args: list[Tensor]) -> list[Tensor | None]:
        found = vmap(self.problem.pull, (0, 0, self._axes(range(len(args)))))(g, y, args)
        return [
            c if m or c is None else sum_(c, (0,), False)
            for m, c in zip(self.mapped, found, strict=True)
        ]

    def _axes(self, which) -> list:
        return [0 if self.mapped[k] else None for k in which]


def _push(tangents, y, *rest):
    *args, problem = rest
    given = (*tangents, y, *args)
    with _at_level(given):
        out = problem.push(_release(tangents), to_tensor(y), _release(args))
    return _like(given, out)


def _pull(g, y, *rest):
    *args, problem = rest
    given = (g, y, *args)
    with _at_level(given):
        out = problem.pull(to_tensor(g), to_tensor(y), _release(args))
    return [None if c is None else _like(given, c) for c in out]


def _release(values) -> list:
    return [None if v is None else to_tensor(v) for v in values]


def _at_level(given):
    """Settings in which the innermost transformation is the highest level among the values.

    Transformations that started later have no part in a rule. The level of a sweep's batch of seeds
    is not among the running ones, and is added.
    """
    top = max([v for v in given if v is not None], key=level_of)
    levels = [at for at in current.get().levels if at.tag <= level_of(top)]
    box: Any = top if top.__class__ in BOXES else getattr(top, "_data", None)
    if box.__class__ in BOXES and (not levels or levels[-1].tag < box.level):
        size, trace = getattr(box, "size", None), getattr(box, "trace", None)
        levels.append(Level(box.__class__, box.level, size, trace))
    return override_settings(levels=tuple(levels))


def _like(given, out):
    """The tensor `out`, or its raw value if there is no tensor among `given`."""
    return out if any([type(v) in TENSORS for v in given]) else unwrap_if_plain(out)


def _batch(call, size, mapped, args, static):
    found, *rest = args
    found = found if mapped[0] else spread(found, size)
    return call([found, *rest], Vmapped(static[0], (True, *mapped[1:])))


def _row(name: str, rule: Jvp):
    """A row that is not in the table.

    Its value is its first argument, whatever the others are. So the finite differences that test
    the table's rows would see no derivative by the others. It is tested together with the solvers.
    """
    op = Op(
        name,
        compute=lambda xp, args, problem: args[0],
        shape=lambda avals, problem: avals[0],
        rule=rule,
        arity=None,
        batch=_batch,
        stage=_stage,
    )
    return caller(op)


def _stage(operands: list, static: tuple):
    """The value in a trace: the first argument itself, without an equation."""
    found, boxes = operands[0], [x for x in operands if getattr(x, "staged", False)]
    return found if any([x is found for x in boxes]) else boxes[0].beside(found)


# (arguments, problem) -> value. The pull-back of `equilibrium` is its push-forward's transpose.
equilibrium: Callable[..., Any] = _row("implicit", Jvp(_push))
trajectory: Callable[..., Any] = _row("odeint", Jvp(_push, _pull))
