"""The form of a Jacobian: blocks in trees, SciPy matrices, or a linear operator."""

from math import prod
from typing import Any

import numpy as np

from ... import errors
from ...arrays.make import zeros
from ...arrays.manipulation import reshape
from ...arrays.tensor import Tensor
from ...core.aval import Aval
from ...core.box import ground
from ...ops.positions import index_like
from ..modes.trace import Traced
from ..modes.trees import Rebuild
from .plan import Plan
from .seeds import Seeds
from .sweeps import Sweeper


class JacobianLayout:
    """How a flat Jacobian is cut into blocks: the trees of results and arguments."""

    outputs: list[Aval]
    inputs: list[Aval]
    put_outputs: Rebuild
    put_inputs: Rebuild
    single: bool
    aux: Any

    def __init__(self, traced: Traced, rebuild_inputs: Rebuild, single: bool):
        trace = traced.trace
        self.outputs = [trace.avals[i] for i in traced.outputs]
        self.inputs = [trace.avals[i] for i in traced.inputs]
        self.put_outputs, self.put_inputs, self.single = traced.rebuild, rebuild_inputs, single
        self.aux = None

    def in_format(self, format: str, plan: Plan, found: Tensor) -> Any:
        """The Jacobian in the given format."""
        if format == "dense":
            matrix = self._fill(plan, found) if plan.compressed else found
            return self._blocks(matrix)
        return _sparse(format, plan, found)

    def _fill(self, plan: Plan, entries: Tensor) -> Tensor:
        m, n = plan.shape
        rows = np.repeat(np.arange(m), np.diff(plan.pattern.indptr))
        places = rows.astype(np.int64) * n + plan.pattern.indices
        flat = zeros((m * n,), dtype=entries.dtype, device=entries.device)
        return reshape(flat.at[index_like(flat, places)].set(entries), (m, n))

    def _blocks(self, matrix: Tensor):
        """The matrix as a tree of results, each a tree of arguments."""
        rows, at = [], 0
        for out in self.outputs:
            size = prod(out.shape)
            part = matrix if size == matrix.shape[0] else matrix[at : at + size]
            rows.append(self._row(part, out))
            at += size
        return self.put_outputs(rows)

    def _row(self, part: Tensor, out):
        blocks, at = [], 0
        for aval in self.inputs:
            size = prod(aval.shape)
            block = part if size == part.shape[1] else part[:, at : at + size]
            shape = (*out.shape, *aval.shape)
            blocks.append((block if block.shape == shape else reshape(block, shape)).to(out.dtype))
            at += size
        tree = self.put_inputs(blocks)
        return tree[0] if self.single else tree


def _sparse(format: str, plan: Plan, found: Tensor):
    from scipy.sparse import coo_array, csr_array

    raw = found._data
    if found.requires_grad or not isinstance(raw, np.ndarray):
        raise errors.InterchangeError(
            f"jacobian: format={format!r} is a SciPy matrix, which cannot carry a gradient, a "
            "batch or a device, and is no part of a compiled function; use format='dense' here"
        )
    m, n = plan.shape
    if raw.dtype.itemsize < 4:  # SciPy's matrices have no half precision
        raw = raw.astype(np.float32)
    if plan.pattern is None:  # too dense to be tracked: every entry may be nonzero
        matrix = csr_array(raw)
    else:
        indices, indptr = plan.pattern.indices, plan.pattern.indptr
        if not plan.compressed:
            raw = raw[np.repeat(np.arange(m), np.diff(indptr)), indices]
        matrix = csr_array((raw, indices, indptr), (m, n))
    return matrix if format == "csr" else coo_array(matrix)


def operator_of(s: Sweeper, layout: JacobianLayout) -> Any:
    """J as a SciPy `LinearOperator`: matvec by a forward sweep, rmatvec by a reverse sweep."""
    from scipy.sparse.linalg import LinearOperator

    inputs, outputs = s.trace.inputs, s.trace.outputs
    if any([ground(s.trace.values[i]).__class__ is Aval for i in inputs]):
        raise errors.StagingError(
            "jacobian: format='operator' is a SciPy object, which computes when it is asked, and "
            "no result of a compiled function; use format='dense', or call it outside"
        )

    def forward(v):
        rows = np.atleast_2d(np.asarray(v).T).reshape(-1, s.size(inputs))
        return s.forward(Seeds(rows), inputs, outputs).numpy().T

    def reverse(v):
        rows = np.atleast_2d(np.asarray(v).T).reshape(-1, s.size(outputs))
        return s.reverse(Seeds(rows), outputs, inputs).numpy().T

    operator: Any = LinearOperator  # its constructor returns a subclass
    return operator(
        (s.size(outputs), s.size(inputs)),
        matvec=lambda v: forward(v)[:, 0],
        rmatvec=lambda v: reverse(v)[:, 0],
        matmat=forward,
        rmatmat=reverse,
        dtype=np.result_type(*[a.dtype for a in layout.outputs]),
    )
