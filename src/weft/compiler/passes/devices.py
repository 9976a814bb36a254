"""Devices: a program of one device as one without any, whose constants are NumPy's."""

from dataclasses import fields, replace
from typing import Any

from ...core.aval import Aval
from ...core.backends import BACKENDS
from ...errors import DeviceError
from ...graph.graph import Equation, Graph, Literal
from ...graph.structured import STRUCTURED, inner_graphs


def erase_devices(graph: Graph, device: str) -> Graph:
    """The graph as if all its values were on "cpu": what other passes, verifier and cache know.

    device  of the program: moving a value there, from NumPy, is nothing at all
    """
    avals = [Aval(a.shape, a.dtype) for a in graph.avals]
    constants = {i: BACKENDS[type(x)].to_numpy(x) for i, x in graph.constants.items()}
    moved: dict[int, Any] = {}  # what the results of transfers stand for
    equations = []
    for e in graph.equations:
        inputs = tuple([i if i.__class__ is Literal else moved.get(i, i) for i in e.inputs])
        if e.op.name == "transfer":
            _refuse_other(e, device)
            moved[e.outputs[0]] = inputs[0]
        else:
            static = tuple([_erase_inside(s, device) for s in e.static])
            equations.append(e._replace(inputs=inputs, static=static))
    outputs = [moved.get(i, i) for i in graph.outputs]
    return Graph(avals, list(graph.inputs), constants, equations, outputs)


def without_devices(graph: Graph, device: str) -> Graph:
    """A traced graph as the passes take it: itself, if it is on "cpu" and moves nothing away."""
    if device != "cpu":
        return erase_devices(graph, device)
    _refuse_transfers(graph, device)
    return graph


def _refuse_transfers(graph: Graph, device: str) -> None:
    for e in graph.equations:
        if e.op.name == "transfer":
            _refuse_other(e, device)
        for body in inner_graphs(e.static):
            _refuse_transfers(body, device)


def _refuse_other(e: Equation, device: str) -> None:
    if e.static[0] != device:
        raise DeviceError(
            f"compile: a tensor is moved to {e.static[0]!r} in a function on {device!r}, and a "
            f"compiled function runs on one device; move it outside of the function (at {e.line})"
        )


def _erase_inside(static: Any, device: str) -> Any:
    if not isinstance(static, STRUCTURED):
        return static
    bodies = {f.name: getattr(static, f.name) for f in fields(static)}
    bodies = {name: g for name, g in bodies.items() if isinstance(g, Graph)}
    erased: dict[str, Any] = {name: erase_devices(g, device) for name, g in bodies.items()}
    whole: Any = static
    return replace(whole, **erased)
