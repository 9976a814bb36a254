"""Derivatives of compiled functions that overwrite what their derivative needs.

Eager mode refuses them. A program either does too, or has kept what it read: then the derivative is
that of a function which reads a copy.
"""

import numpy as np
import pytest

import weft as wf

START = np.arange(1.0, 9.0)
READS = {
    "whole": lambda b: b,
    "a slice": lambda b: b[2:5],
    "every second": lambda b: b[::2],
    "turned around": lambda b: wf.flip(b),
    "a matrix": lambda b: b.reshape((2, 4)).T,
    "computed": lambda b: wf.tanh(b),
    "a copy": lambda b: b.clone(),
}
USES = {
    "multiply": lambda x, b: (x * b).sum(),
    "power": lambda x, b: ((x + 1.0) ** b).sum(),
    "divide": lambda x, b: (x / b + b / (x + 3.0)).sum(),
    "outer": lambda x, b: wf.outer(wf.reshape(b, (-1,)), x * x).sum(),
    "matmul": lambda x, b: (wf.reshape(b, (1, -1)) * x @ wf.reshape(b, (-1, 1))).sum(),
}
WRITES = {
    "copy_": lambda b: b.copy_(b * 0 + 100.0),
    "add": lambda b: b.copy_(wf.sin(b) + b),
}


def function(read, use, write, memory, copies: bool):
    def f(x):
        result = USES[use](x, READS[read](memory.clone() if copies else memory))
        with wf.no_grad():
            WRITES[write](memory)
        return result

    return f


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("read", READS)
def test_derivatives_are_those_of_what_was_read(read, use, write, device):
    x = wf.tensor(0.7, dtype="float64", device=device)
    ours, theirs = (wf.tensor(START, device=device) for _ in range(2))
    expected = wf.grad(function(read, use, write, theirs, copies=True))
    found = wf.grad(wf.compile(function(read, use, write, ours, copies=False)))
    for _ in range(3):
        want = expected(x)
        try:
            got = found(x)
        except wf.errors.SavedValueOverwritten:
            return
        np.testing.assert_allclose(got.tolist(), want.tolist(), rtol=1e-12)
        np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-12)
