"""A case of a row as a function of one real vector, on a backend, with its sweeps.

A complex number is two coordinates, its real and its imaginary part. With conjugate gradients
(PyTorch's convention) the parts of the gradient are the derivatives by the parts, so in these
coordinates complex rows are checked as real ones.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from weft.core import dtypes
from weft.core.backends import BACKENDS
from weft.core.call import caller
from weft.core.node import Leaf
from weft.core.op import LinearRule, Op, Partials
from weft.core.value import wrap
from weft.ops.elementwise import add, multiply
from weft.ops.samples.case import Case
from weft.transform.modes.reverse import sweep

BACKEND_NAMES = ("numpy", "torch", *(("cuda",) if torch.cuda.is_available() else ()))


def raw(array: np.ndarray, backend: str):
    """The backend's own array with these elements (shared memory where that can be)."""
    if backend == "numpy":
        return array
    if array.dtype == dtypes.bfloat16:
        made = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        made = torch.from_numpy(array)
    return made.cuda() if backend == "cuda" else made


def to_numpy(x) -> np.ndarray:
    """A raw array of any backend as NumPy's."""
    if not isinstance(x, torch.Tensor):
        return np.asarray(x)
    x = x.detach().cpu().resolve_conj().resolve_neg()
    if x.dtype == torch.bfloat16:
        return x.contiguous().view(torch.int16).numpy().view(dtypes.bfloat16)
    return x.numpy()


def dtype_of(x) -> np.dtype:
    """The dtype of a raw array, in NumPy's vocabulary."""
    return BACKENDS[type(x)].dtype_of(x)


def inexact(a) -> bool:
    return isinstance(a, np.ndarray) and dtypes.is_inexact(a.dtype)


@dataclass(frozen=True)
class Layout:
    """How a list of real and complex arrays lies in one real vector."""

    shapes: tuple[tuple[int, ...], ...]
    kinds: tuple[np.dtype, ...]

    @staticmethod
    def of(arrays) -> "Layout":
        return Layout(tuple(tuple(a.shape) for a in arrays), tuple(dtype_of(a) for a in arrays))

    @cached_property
    def sizes(self) -> list[int]:
        """The number of coordinates of each array."""
        return [
            int(np.prod(s)) * (2 if k in dtypes.COMPLEX else 1)
            for s, k in zip(self.shapes, self.kinds, strict=True)
        ]

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @cached_property
    def slices(self) -> list[slice]:
        ends = np.cumsum([0, *self.sizes]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)]

    def pack(self, arrays) -> np.ndarray:
        """The coordinates of arrays; None stands for zeros."""
        out = np.zeros(self.size)
        for a, part, kind in zip(arrays, self.slices, self.kinds, strict=True):
            if a is None:
                continue
            flat = to_numpy(a).reshape(-1)
            if kind in dtypes.COMPLEX:
                flat = np.stack([flat.real, flat.imag], axis=-1).reshape(-1)
            out[part] = flat
        return out

    def unpack(self, x: np.ndarray, backend: str) -> list:
        """The arrays that have these coordinates."""
        out = []
        for shape, part, kind in zip(self.shapes, self.slices, self.kinds, strict=True):
            flat = x[part]
            if kind in dtypes.COMPLEX:
                flat = flat.reshape(-1, 2)
                flat = flat[:, 0] + 1j * flat[:, 1]
            out.append(raw(flat.astype(kind).reshape(shape), backend))
        return out


def attach_leaf(tensor) -> Leaf:
    """Make an untracked tensor one that is differentiated by."""
    tensor._node = Leaf(tuple(tensor._data.shape), tensor._data.dtype, None, False)
    return tensor._node


class Run:
    """One recorded evaluation: the tensors that went in and came out, and sweeps between."""

    def __init__(self, probe: "Probe", arrays: list):
        self.probe = probe
        self.leaves = []
        tensors = probe.place(arrays)
        for i in probe.moving:
            self.leaves.append(attach_leaf(tensors[i]))
        self.results = probe.call(tensors)
        self.outs = probe.differentiable(self.results)
        self.layout = Layout.of([t._data for t in self.outs])

    @property
    def y(self) -> np.ndarray:
        """The coordinates of the differentiable results."""
        return self.layout.pack([t._data for t in self.outs])

    def cotangents(self, seeds: list, record: bool, sources=None) -> list:
        """One sweep: what reaches each argument (None: nothing)."""
        joined: dict = {}
        for t, g in zip(self.outs if sources is None else sources, seeds, strict=True):
            if t is not None and t._node is not None:
                joined[t._node] = g if t._node not in joined else joined[t._node] + g
        reached = sweep(joined, record=record, retain=True)
        return [reached.get(leaf) for leaf in self.leaves]

    def pull(self, u: np.ndarray) -> np.ndarray:
        """Jᵀu; results that u does not look at get no cotangent at all."""
        seeds = self.layout.unpack(u, self.probe.backend)
        sources = [
            t if u[part].any() or not u.any() else None
            for t, part in zip(self.outs, self.layout.slices, strict=True)
        ]
        return self.probe.layout.pack(self.cotangents(seeds, False, sources))

    def pulled_graph(self, u: np.ndarray, curvature: float) -> list:
        """The gradient of u·f + curvature/2·|f|² as tensors that can be differentiated."""
        seeds = []
        for g, t in zip(self.layout.unpack(u, self.probe.backend), self.outs, strict=True):
            factor = raw(np.full(tuple(g.shape), curvature, dtype_of(g)), self.probe.backend)
            # At a pole f is infinite, and no curvature must not mean 0·∞.
            bent = curvature and t._node is not None
            seeds.append(add(wrap(g), multiply(t, wrap(factor))) if bent else wrap(g))
        return self.cotangents(seeds, record=True)

    def again(self, sources: list, p: np.ndarray, record: bool) -> list:
        """A sweep from tensors shaped like the arguments, seeded with the coordinates p."""
        seeds = self.probe.layout.unpack(p, self.probe.backend)
        if record:
            seeds = [wrap(s) for s in seeds]
        return self.cotangents(seeds, record, sources)


class Probe:
    """A row at a case on a backend: x ↦ f(x), and what reverse mode says about it."""

    def __init__(self, op: Op, case: Case, backend: str = "numpy", only: int | None = None):
        """`only` one argument is differentiated by, the others are constants; None: all."""
        self.op, self.case, self.backend = op, case, backend
        self._caller = caller(op)
        self.moving = [
            i
            for i, a in enumerate(case.args)
            if inexact(a) and not excluded(op, i) and only in (None, i)
        ]
        self.layout = Layout.of([case.args[i] for i in self.moving])
        self._fixed = [raw(a, backend) if isinstance(a, np.ndarray) else a for a in case.args]

    @cached_property
    def x(self) -> np.ndarray:
        """The coordinates of the case itself."""
        return self.layout.pack([self.case.args[i] for i in self.moving])

    def place(self, arrays: list) -> list:
        """All arguments as tensors, with these in the differentiable places."""
        out = list(self._fixed)
        for i, a in zip(self.moving, arrays, strict=True):
            out[i] = a
        return [wrap(a) if isinstance(a, np.ndarray | torch.Tensor) else a for a in out]

    def bare(self, tensors: list) -> tuple:
        """The row's own results."""
        positional = (tensors,) if self.op.arity is None else tensors
        out = self._caller(*positional, *self.case.static)
        return out if isinstance(out, tuple) else (out,)

    def posted(self, results: tuple) -> tuple:
        """The case's smooth functions of the results; they themselves, if it has none."""
        if self.case.post is None:
            return results
        out = self.case.post(*results)
        return tuple(out) if isinstance(out, tuple | list) else (out,)

    def call(self, tensors: list) -> tuple:
        return self.posted(self.bare(tensors))

    def differentiable(self, results: tuple) -> list:
        """Those results that carry a derivative."""
        chosen = range(len(results)) if self.case.post is not None else self.op.tracked
        return [results[k] for k in chosen if dtypes.is_inexact(dtype_of(results[k]._data))]

    def run(self, x: np.ndarray) -> Run:
        return Run(self, self.layout.unpack(x, self.backend))

    def value(self, x: np.ndarray) -> np.ndarray:
        """The coordinates of f(x)."""
        results = self.call(self.place(self.layout.unpack(x, self.backend)))
        outs = [t._data for t in self.differentiable(results)]
        return Layout.of(outs).pack(outs)

    def gradient(self, x: np.ndarray, u: np.ndarray, curvature: float) -> np.ndarray:
        """The gradient of u·f + curvature/2·|f|², by a plain sweep."""
        run = self.run(x)
        return run.pull(u + curvature * run.y if curvature else u)

    def hessian_product(self, x, u, curvature, p) -> np.ndarray:
        """The Hessian of that function times p, by a recorded sweep and a plain one."""
        run = self.run(x)
        gradient = run.pulled_graph(u, curvature)
        return self.layout.pack(run.again(gradient, p, record=False))

    def third_product(self, x, u, curvature, p, q) -> np.ndarray:
        """The third derivative of that function contracted with p and q."""
        run = self.run(x)
        gradient = run.pulled_graph(u, curvature)
        product = run.again(gradient, p, record=True)
        return self.layout.pack(run.again(product, q, record=False))


def excluded(op: Op, i: int) -> bool:
    """Whether the rule itself says that argument i carries no derivative."""
    rule = op.rule
    if isinstance(rule, Partials):
        return rule.d[i] is None
    return isinstance(rule, LinearRule) and op.arity is not None and rule.transpose[i] is None
