"""Loops and branches that have no kernel of their own: their bodies by the library's kernels.

Their steps are launched one after the other. Both sides of a branch are computed, and one is chosen
on the GPU. Only the test of a `while` is read by the host, which no graph can capture.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ....core.backends import BACKENDS, KERNELS
from ....graph.graph import Graph, Literal
from ....graph.structured import STRUCTURED, Branch, Loop, Repeat
from ...raw.arrays import RawArrays


def is_structured(static: Sequence[Any]) -> bool:
    """Whether the static parameters are those of a loop or a branch."""
    return len(static) == 1 and isinstance(static[0], STRUCTURED)


class Bodies:
    """Computes loops and branches on the arrays of a device.

    The constants of bodies are brought there once: what is captured must not read the host's.
    """

    def __init__(self, arrays: RawArrays):
        self._arrays = arrays
        self._constants: dict[int, dict[int, Any]] = {}  # by the identity of the graph
        self._graphs: list[Graph] = []  # so that these stay

    def results(self, structure: Any, operands: list[Any]) -> tuple[Any, ...]:
        """The results of a loop or a branch."""
        if isinstance(structure, Loop):
            return tuple(self._scan(structure, operands))
        if isinstance(structure, Branch):
            return tuple(self._choose(structure, operands))
        assert isinstance(structure, Repeat)
        return tuple(self._repeat(structure, operands))

    def _scan(self, loop: Loop, operands: list[Any]) -> list[Any]:
        arrays = self._arrays
        carry, xs, constants = loop.parts(operands)
        avals = [loop.body.avals[i] for i in loop.body.outputs[loop.carries :]]
        ys = [arrays.empty((loop.length, *a.shape), a.dtype) for a in avals]
        steps = range(loop.length)
        for k in reversed(steps) if loop.reverse else steps:
            out = self._body(loop.body, [*carry, *[x[k] for x in xs], *constants])
            carry = out[: loop.carries]
            for y, value in zip(ys, out[loop.carries :], strict=True):
                y[k] = value
        return [*map(arrays.copy, carry), *ys]

    def _choose(self, branch: Branch, operands: list[Any]) -> list[Any]:
        yes, no = (self._body(g, operands[1:]) for g in branch.graphs)
        return [torch.where(operands[0], a, b) for a, b in zip(yes, no, strict=True)]

    def _repeat(self, loop: Repeat, operands: list[Any]) -> list[Any]:
        carry, constants, steps = operands[: loop.carries], operands[loop.carries :], 0
        while going := bool(self._body(loop.test, [*carry, *constants])[0]):
            if steps == loop.most:
                break
            carry, steps = self._body(loop.body, [*carry, *constants]), steps + 1
        return [*map(self._arrays.copy, carry), self._arrays.whole(not going)]

    def _body(self, graph: Graph, values: list[Any]) -> list[Any]:
        """The outputs of a body, equation by equation."""
        held = dict(self._constants_of(graph))
        held.update(zip(graph.inputs, values, strict=True))
        with BACKENDS[torch.Tensor].quiet():
            for e in graph.equations:
                operands = [i.value if isinstance(i, Literal) else held[i] for i in e.inputs]
                if is_structured(e.static):
                    made = self.results(e.static[0], operands)
                else:
                    z = e.op.call(KERNELS[e.op][torch.Tensor], operands, e.static)
                    made = (z,) if e.op.outputs == 1 else tuple(z)
                held.update(zip(e.outputs, map(self._arrays.whole, made), strict=True))
        return [held[i] for i in graph.outputs]

    def _constants_of(self, graph: Graph) -> dict[int, Any]:
        if id(graph) not in self._constants:
            found = {i: self._arrays.whole(x) for i, x in graph.constants.items()}
            self._constants[id(graph)] = found
            self._graphs.append(graph)
        return self._constants[id(graph)]
