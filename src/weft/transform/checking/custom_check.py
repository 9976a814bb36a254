"""Checking custom operations: rules that are linear, adjoint, and the derivative of forward."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import errors
from ...arrays.make import asarray
from ...arrays.manipulation import stack
from ...arrays.tensor import Tensor
from ...backend.device import as_numpy
from ...core.record import record
from ...core.value import aval_of
from ..custom.application import Application
from ..custom.custom_op import CustomOp
from ..custom.linear_map import describe_disagreement, describe_nonlinearity
from ..custom.rows import pull_map, push_map
from ..modes.vmap import vmap
from .check import MODES, compare_mode
from .differences import CheckProblem, is_inexact, problem_of, to_double
from .ridders import EPS, Estimate, size_of


@record
class OpReport:
    """What `check_op` found right about a custom operation."""

    name: str
    findings: dict[str, str]

    def __repr__(self) -> str:
        width = max(map(len, self.findings))
        lines = [f"  {what:<{width}}  {found}" for what, found in self.findings.items()]
        return "\n".join([f"{self.name}: its derivative is right", *lines])


def check_op(op: CustomOp, *args: Any, **params: Any) -> OpReport:
    """Check a custom operation at some arguments, which are taken in float64.

    op      what `wf.custom_op` made, or a `wf.CustomOp`
    args    its inputs
    params  its keywords

    Its rules must be linear in their (co)tangents, agree with each other, and give the
    derivative that differences of its forward show, element by element, in both modes; a batch
    rule must give what forward gives. Raises `errors.GradientCheckError` where one is wrong.

    >>> import weft as wf
    >>> double = wf.custom_op(lambda x: 2 * x, vjp=lambda g: 2 * g)
    >>> wf.check_op(double, wf.ones(3))
    <lambda>: its derivative is right
      vjp           linear
      reverse mode  error at most ...
      forward mode  error at most ..., derived from vjp
    """
    if not isinstance(op, CustomOp):
        raise errors.ArgumentError(
            f"check_op: got {type(op).__name__}, expected a wf.CustomOp; wf.check_grads takes "
            "functions"
        )
    functions = op._functions()
    if functions.reads is None:
        raise errors.NotDifferentiable(f"check_op: {functions.name} has neither vjp nor jvp")
    what = f"check_op: {functions.name}"
    inputs = [to_double(a) if is_inexact(a) else asarray(a) for a in args]
    findings: dict[str, str] = {}
    with np.errstate(all="ignore"):
        _check_rules(what, Application(functions, op._params(inputs, params)), inputs, findings)
        problem = problem_of(what, lambda *xs: op(*xs, **params), tuple(inputs))
        estimate = problem.estimate()
        for mode, given, other in (("rev", "vjp", "jvp"), ("fwd", "jvp", "vjp")):
            derived = None if getattr(functions, given) is not None else other
            findings[MODES[mode]] = _check_mode(problem, estimate, mode, derived)
        if callable(functions.batch):
            findings["batch"] = _check_batch(what, lambda *xs: op(*xs, **params), inputs)
    return OpReport(functions.name, findings)


def _check_rules(what: str, app: Application, inputs: list, findings: dict) -> None:
    """Check that the rules are linear in the (co)tangents, and adjoint to each other."""
    outputs = app.values(inputs)
    tracked = [k for k, y in enumerate(outputs) if is_inexact(y)]
    moving = [i for i, x in enumerate(inputs) if is_inexact(x)]
    kinds = {
        "vjp": (pull_map, [aval_of(outputs[k]) for k in tracked], "cotangent"),
        "jvp": (push_map, [aval_of(inputs[i]) for i in moving], "tangents"),
    }
    maps = {}
    for kind, (make, domain, carried) in kinds.items():
        rule = getattr(app.functions, kind)
        if rule is not None:
            maps[kind] = make(app, tracked, moving, inputs, outputs)
            why = describe_nonlinearity(maps[kind], domain)
            if why is not None:
                raise errors.GradientCheckError(
                    f"{what}: its {rule} is not linear in its {carried}: {why}"
                )
            findings[kind] = "linear"
    if len(maps) == 2:
        why = describe_disagreement(maps["jvp"], maps["vjp"], kinds["jvp"][1])
        if why is not None:
            raise errors.GradientCheckError(
                f"{what}: its vjp is not the transpose of its jvp (L): {why}"
            )
        findings["vjp and jvp"] = "adjoint"


def _check_mode(problem: CheckProblem, estimate: Estimate, mode: str, derived: str | None) -> str:
    if derived is None:
        return f"error at most {compare_mode(problem, estimate, mode).error.max(initial=0.0):.1e}"
    try:
        found = compare_mode(problem, estimate, mode)
    except errors.NotDifferentiable as e:
        return f"not there: {e.message}"
    return f"error at most {found.error.max(initial=0.0):.1e}, derived from {derived}"


def _check_batch(what: str, f: Callable[..., Any], inputs: list) -> str:
    """Check that the batch rule on two elements gives the results of forward on each."""
    moved = [x * 1.125 + 0.0625 if is_inexact(x) else x for x in inputs]
    together = vmap(f)(*[stack(pair) for pair in zip(inputs, moved, strict=True)])
    for k, one in enumerate((f(*inputs), f(*moved))):
        pairs = zip(one, together, strict=True) if isinstance(one, tuple) else [(one, together)]
        for y, z in pairs:
            if y.shape != z[k].shape or not _close(y, z[k]):
                raise errors.GradientCheckError(
                    f"{what}: its batch rule gives {z[k]} where forward gives {y}"
                )
    return "as forward"


def _close(y: Tensor, z: Tensor) -> bool:
    """Whether two tensors are equal up to another order of summation; NaN equals NaN."""
    a, b = as_numpy(y._data), as_numpy(z._data)
    return bool(np.allclose(b, a, rtol=EPS**0.5, atol=EPS**0.5 * size_of(a), equal_nan=True))
