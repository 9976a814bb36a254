"""Jacobians from sweeps over a trace: many tangents or cotangents at once, in chunks."""

from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from ...arrays.make import zeros
from ...arrays.manipulation import concat, reshape
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.box import Level, tags
from ...core.record import record
from ...core.settings import current, override_settings
from ...graph.graph import Equation
from ...graph.symbol import Trace
from ...ops.batching import spread
from ...ops.index import take
from ...ops.positions import index_like
from ..modes.batch import Batch
from ..modes.dual import to_tensor
from ..modes.trace import Reverse, Traced, active, forward
from .seeds import Seeds


@record
class Structure:
    """Facts that depend on a trace's equations alone: which carry a derivative, and the memory."""

    active: tuple[int, ...]
    bytes_per_seed: int


class Sweeper:
    """A traced function, ready for forward and reverse sweeps between any of its values."""

    trace: Trace
    memory_limit: int

    def __init__(self, traced: Traced, memory_limit: int):
        self.trace = traced.trace
        self.memory_limit = memory_limit
        self.structure: Structure | None = None

    @cached_property
    def equations(self) -> list[Equation]:
        """The equations that carry a derivative from the inputs."""
        if self.structure is not None:
            return [self.trace.equations[k] for k in self.structure.active]
        return active(self.trace, self.trace.inputs)

    def extract_structure(self) -> "Structure":
        """The structure, for further traces of the same equations."""
        index = {id(e): k for k, e in enumerate(self.trace.equations)}
        return Structure(tuple(index[id(e)] for e in self.equations), self.bytes_per_seed)

    @cached_property
    def recorded(self) -> Reverse:
        return Reverse(self.trace, self.equations, self.trace.inputs)

    @cached_property
    def bytes_per_seed(self) -> int:
        """An upper bound on the memory for one more seed: every value that carries a derivative."""
        if self.structure is not None:
            return self.structure.bytes_per_seed
        avals = [self.trace.avals[i] for e in self.equations for i in e.outputs]
        avals += [self.trace.avals[i] for i in self.trace.inputs]
        return max(1, sum(prod(a.shape) * a.dtype.itemsize for a in avals))

    @property
    def chunk(self) -> int:
        """The number of seeds that one chunk can hold within the memory limit."""
        return max(1, self.memory_limit // self.bytes_per_seed)

    def size(self, values: Any) -> int:
        return sum(prod(self.trace.avals[i].shape) for i in values)

    def forward(self, seeds: Seeds, starts: Any, ends: Any) -> Tensor:
        """J·s for each seed s, from the values `starts` to `ends`, both flattened.

        The starts are independent variables, even if one is computed from another.
        """
        return self._sweep_chunks(seeds, starts, ends, self._forward_once)

    def reverse(self, seeds: Seeds, starts: Any, ends: Any) -> Tensor:
        """Jᵀ·s for each seed s, from the values `starts` back to `ends`, which are inputs."""
        return self._sweep_chunks(seeds, starts, ends, self._reverse_once)

    def _sweep_chunks(self, seeds: Seeds, starts, ends, once) -> Tensor:
        parts = []
        for first in range(0, seeds.count, self.chunk):
            rows = (first, min(first + self.chunk, seeds.count))
            level = Level(Batch, next(tags), rows[1] - rows[0])
            with override_settings(levels=(*current.get().levels, level)):
                boxes = self._boxes(level.tag, seeds, rows, starts)
                units = self._units(seeds, rows, starts)
                found = once(boxes, starts, ends, units)
            parts.append(self._join_rows(level.tag, rows[1] - rows[0], found, ends))
        if not parts:
            return zeros((0, self.size(ends)), dtype=self.dtype(ends), device=self.device(ends))
        return parts[0] if len(parts) == 1 else concat(parts, axis=0)

    def dtype(self, values: Any) -> Any:
        """The common dtype of some values."""
        return dtypes.promote_all(self.trace.avals[i].dtype for i in values)

    def device(self, values: Any) -> str:
        """The device of some values, of which there is at least one."""
        return self.trace.avals[values[0]].device

    def _forward_once(self, tangents: dict, starts, ends, units: frozenset) -> list:
        return forward(self.trace, self.equations, tangents, starts, ends, units)

    def _reverse_once(self, cotangents: dict, _starts, ends, _units: frozenset) -> list:
        return self.recorded.sweep(cotangents, ends)

    def _units(self, seeds: Seeds, rows, starts) -> frozenset:
        """The values whose seeds are all unit vectors, one for each element in order."""
        whole = seeds.matrix is None and rows == (0, seeds.count) and len(starts) == 1
        return frozenset(starts if whole else ())

    def _boxes(self, tag: float, seeds: Seeds, rows, starts) -> dict:
        """The seeds of each start as a batch; starts with zero seeds only are left out."""
        boxes, at = {}, 0
        for i in starts:
            aval = self.trace.avals[i]
            piece = seeds.piece(rows, at, aval)
            at += prod(aval.shape)
            if piece is not None:
                if i in boxes:  # a value that is returned twice has the seeds of both
                    piece = boxes[i].data + piece
                boxes[i] = Batch(tag, piece, rows[1] - rows[0])
        return boxes

    def _join_rows(self, tag: float, count: int, found: list, ends) -> Tensor:
        """The derivatives of all ends, one row for each seed."""
        parts = []
        for i, c in zip(ends, found, strict=True):
            aval = self.trace.avals[i]
            flat = (count, prod(aval.shape))
            if c is None:
                parts.append(zeros(flat, dtype=aval.dtype, device=aval.device))
                continue
            raw = c._data if isinstance(c, Tensor) else c
            at_level = raw.__class__ is Batch and raw.level == tag
            c = raw.data if at_level and raw.mapped else spread(raw.data if at_level else c, count)
            parts.append(reshape(to_tensor(c), flat))
        return parts[0] if len(parts) == 1 else concat(parts, axis=1)


def dense_forward(s: Sweeper, seeds: Seeds) -> Tensor:
    """The whole Jacobian, (m, n), by one tangent for each input element."""
    return s.forward(seeds, s.trace.inputs, s.trace.outputs).T


def dense_reverse(s: Sweeper, seeds: Seeds) -> Tensor:
    """The whole Jacobian, (m, n), by one cotangent for each output element."""
    return s.reverse(seeds, s.trace.outputs, s.trace.inputs)


def through_cut(s: Sweeper, cut: list[int], seeds: Seeds) -> Tensor:
    """The whole Jacobian as a product at a cut: forward sweeps after it, reverse ones before.

    Every path from inputs to outputs goes through the cut C, so the outputs are a function y(C) of
    its values as independent variables, and C is a function of the inputs: J = ∂y/∂C · dC/dx. That
    also holds if values of C depend on each other: the first factor keeps the others fixed, the
    second goes through them.
    """
    after = s.forward(seeds, cut, s.trace.outputs)
    before = s.reverse(seeds, cut, s.trace.inputs)
    return after.T @ before


def entries(s: Sweeper, gather: np.ndarray, forward: Seeds, reverse: Seeds) -> Tensor:
    """The Jacobian's entries in the order of the pattern, from compressed sweeps."""
    parts = []
    if forward.count:
        parts.append(reshape(s.forward(forward, s.trace.inputs, s.trace.outputs), (-1,)))
    if reverse.count:
        parts.append(reshape(s.reverse(reverse, s.trace.outputs, s.trace.inputs), (-1,)))
    if not parts:
        return zeros((0,), dtype=s.dtype(s.trace.outputs), device=s.device(s.trace.outputs))
    flat = parts[0] if len(parts) == 1 else concat(parts)
    return take(flat, index_like(flat, gather), 0)
