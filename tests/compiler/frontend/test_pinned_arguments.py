"""Compiled functions hold no arguments of calls that are over."""

import gc
from weakref import ref

import numpy as np
import pytest

import weft as wf

W = wf.Parameter(np.ones((30, 30), np.float32))


def through_gradients(x):
    W.grad = None
    loss = (x @ W).sum()
    loss.backward()
    return loss


FUNCTIONS = {
    "plain": lambda x: wf.sin(x).sum(),
    "list": lambda xs: sum((x * x).sum() for x in xs),
    "captured": lambda x: (x @ W).sum(),
    "gradients": through_gradients,
    "two variants": lambda x: wf.sin(x).sum() if x.shape[0] < 31 else wf.cos(x).sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_are_freed(name):
    f = wf.compile(FUNCTIONS[name])

    def call(n):
        x = wf.ones((n, 30))
        f([x, x + 1] if name == "list" else x)
        return ref(x._data)

    lengths = (30, 40, 30, 40, 30) if name == "two variants" else (30,) * 4
    with wf.no_grad() if name == "captured" else wf.enable_grad():
        found = [call(n) for n in lengths]
    gc.collect()
    assert [r() is None for r in found] == [True] * len(lengths)
