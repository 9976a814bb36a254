"""The sparsity that is propagated covers every derivative that is there, for every row."""

import numpy as np
import pytest

import weft as wf
from weft.core.call import caller
from weft.core.op import Op
from weft.graph.verify import verify
from weft.transform.jacobian import sparsity
from weft.transform.jacobian.seeds import identity
from weft.transform.jacobian.sparsity import jacobian_pattern
from weft.transform.jacobian.sweeps import Sweeper, dense_reverse
from weft.transform.modes.trace import trace_of

from .rows import EXEMPT, cases, load

ROWS = [op for op in load().values() if op.rule is not None and op.name not in EXEMPT]


def traced(op: Op, case):
    """The row's program as a function of its real arguments, and those."""
    stated = getattr(op.rule, "d", None) or getattr(op.rule, "transpose", ())
    refused = [k for k, d in enumerate(stated) if d is None and op.arity is not None]
    inputs = [
        k
        for k, a in enumerate(case.args)
        if isinstance(a, np.ndarray) and a.dtype == np.float64 and k not in refused
    ]
    args = [wf.asarray(a) if isinstance(a, np.ndarray) else a for a in case.args]
    call = caller(op)

    def f(*xs):
        given = list(args)
        for k, x in zip(inputs, xs, strict=True):
            given[k] = x
        out = call(given, *case.static) if op.arity is None else call(*given, *case.static)
        outs = out if isinstance(out, tuple) else (out,)
        return [y for y in outs if y.dtype == wf.float64]

    leaves = [args[k] for k in inputs]
    return trace_of("f", f, leaves, tuple) if leaves else None


def uncovered(op: Op) -> list[str]:
    """The cases with a derivative outside of the pattern."""
    found = []
    for case in [*cases(op), *cases(op, draw=1)]:
        t = traced(op, case) if case.smooth else None
        if t is None or not t.outputs:
            continue
        verify(t.trace)
        sweeper = Sweeper(t, 1 << 30)
        pattern = jacobian_pattern(t.trace, sweeper.equations, 1.0).toarray()
        if not pattern.size:
            continue
        if (dense_reverse(sweeper, identity(sweeper.size(t.outputs))).numpy()[~pattern] != 0).any():
            found.append(case.label)
    return found


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_every_derivative_is_in_the_pattern(op):
    assert uncovered(op) == []


def test_a_pattern_that_is_too_small_is_found(monkeypatch):
    monkeypatch.setattr(
        sparsity, "_along", lambda pattern, in_shape, axes, shape: pattern[: int(np.prod(shape))]
    )
    assert uncovered(load()["softmax"])


@pytest.mark.parametrize(
    "f, density",
    [
        (lambda x: wf.sin(x) * x, 1 / 6),
        (lambda x: x[1:] * x[:-1], 2 / 6),
        (lambda x: wf.cumsum(x), 1.0),
        (lambda x: x.reshape(2, 3).sum(1), 1 / 2),
        (lambda x: wf.softmax(x.reshape(2, 3), axis=1).T, 1 / 2),
        (
            lambda x: wf.einsum("ij,kj->ik", x.reshape(2, 3), wf.ones((4, 3), dtype=wf.float64)),
            1 / 2,
        ),
        (lambda x: wf.take(x, wf.asarray([5, 0, 0])), 1 / 6),
        (lambda x: wf.concat([x[:2], wf.zeros(3, dtype=wf.float64)]), 2 / 30),
        (lambda x: wf.floor(x), 0.0),
        (lambda x: wf.where(x > 0, x, wf.flip(x)), 2 / 6),
        (lambda x: wf.linalg.det(x[:4].reshape(1, 2, 2)), 4 / 6),
    ],
)
def test_patterns_are_no_larger_than_they_must_be(f, density):
    x = wf.asarray(np.linspace(0.5, 2.0, 6))
    t = trace_of("f", f, [x], tuple)
    pattern = jacobian_pattern(t.trace, Sweeper(t, 1 << 30).equations, 1.0)
    assert pattern.nnz == round(density * np.prod(pattern.shape))
