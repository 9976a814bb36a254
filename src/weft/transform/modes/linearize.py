"""`linearize`: a function's derivative at a point, as a linear function of the tangents."""

from collections.abc import Callable
from typing import Any

from ... import errors
from ...arrays.make import zeros
from ...core.box import ground
from ...core.value import aval_of
from . import trees
from .dual import matching_tangent, to_tensor, unwrap_if_plain
from .trace import Traced, active, forward, trace_of


def linearize(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """f's result, and the linear function v ↦ J·v at these arguments; f is run only once.

    f        a function of tensors, or of trees of them
    primals  its arguments

    >>> import weft as wf
    >>> y, push = wf.linearize(lambda x: x**3, wf.tensor(2.0))
    >>> y.item(), push(wf.tensor(1.0)).item()
    (8.0, 12.0)
    """
    leaves, rebuild = trees.differentiable_arguments("linearize", tuple(primals))
    trees.differentiable("linearize", leaves)
    traced = trace_of("linearize", f, leaves, rebuild)
    equations = active(traced.trace, traced.inputs)

    def push(*tangents: Any) -> Any:
        directions, _ = trees.tensors("linearize", tuple(tangents))
        if len(directions) != len(leaves):
            raise errors.ArgumentError(
                f"linearize: {len(directions)} tangents for {len(leaves)} arguments"
            )
        moving = {
            i: unwrap_if_plain(matching_tangent("linearize", x, t))
            for i, x, t in zip(traced.inputs, leaves, directions, strict=True)
        }
        found = forward(traced.trace, equations, moving, traced.inputs, traced.outputs)
        return traced.rebuild(
            [
                _zeros(traced, i) if t is None else to_tensor(t)
                for i, t in zip(traced.outputs, found, strict=True)
            ]
        )

    return traced.value(), push


def _zeros(traced: Traced, i: int):
    aval = aval_of(ground(traced.trace.values[i]))
    return zeros(traced.trace.avals[i].shape, dtype=aval.dtype, device=aval.device)
