"""Computing a graph equation by equation with NumPy's kernels: what compiled code must equal."""

import numpy as np

from weft.core.backends import BACKENDS, KERNELS
from weft.core.dispatch import beside_bfloat16
from weft.graph.graph import Graph, Literal


def interpret(graph: Graph, values: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs for these inputs, each in memory of its own."""
    numpy_ = BACKENDS[np.ndarray]
    held = {**graph.constants, **dict(zip(graph.inputs, values, strict=True))}
    last = {i: k for k, e in enumerate(graph.equations) for i in e.inputs if _is_value(i)}
    kept = {*graph.outputs, *held}
    with numpy_.quiet():
        for k, e in enumerate(graph.equations):
            operands = [held[i] if _is_value(i) else i.value for i in e.inputs]
            operands = beside_bfloat16(e.op, operands)
            z = e.op.call(KERNELS[e.op][np.ndarray], operands, e.static)
            for i, v in zip(e.outputs, (z,) if e.op.outputs == 1 else z, strict=True):
                held[i] = numpy_.whole(v)
            for i in {i for i in e.inputs if _is_value(i)}:
                if last[i] == k and i not in kept:
                    del held[i]
    return _apart([held[i] for i in graph.outputs], [*values, *graph.constants.values()])


def _is_value(i: int | Literal) -> bool:
    return i.__class__ is not Literal


def _apart(outputs: list[np.ndarray], others: list[np.ndarray]) -> list[np.ndarray]:
    """Outputs that share no memory with what was given, nor with each other."""
    taken = {id(v) for v in others}
    apart = []
    for raw in outputs:
        if raw.base is not None or not raw.flags.owndata or id(raw) in taken:
            raw = raw.copy()
        taken.add(id(raw))
        apart.append(raw)
    return apart
