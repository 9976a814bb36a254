"""Rows of two operands for every pair of dtypes: compiled and eager give one dtype or one error."""

import itertools
import os
import random

import ml_dtypes
import numpy as np
import pytest
from tests.compiler.emit.test_rows import ELEMENTWISE
from tests.compiler.emit.test_values import LEFT_OUT as TAKEN_OTHERWISE
from tests.compiler.emit.test_values import TABLE

import weft as wf
from weft.core import dtypes
from weft.core.call import caller

SOAK = os.environ.get("WEFT_SOAK") == "1"
WHOLE = (dtypes.bool_, *dtypes.SIGNED, *dtypes.UNSIGNED)
FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
PAIRS = list(itertools.product((*WHOLE, *FLOATS), repeat=2))
ALWAYS = [(dtypes.int64, dtypes.uint64), (dtypes.uint64, dtypes.int8)]
LEFT_OUT = TAKEN_OTHERWISE | {"gate", "masked_scale"}  # whose second operand is a mask
ROWS = [n for n in sorted(set(ELEMENTWISE) - LEFT_OUT) if TABLE[n].arity == 2]


def attempt(f, *args):
    """The result of a call, or its error."""
    try:
        return f(*args)
    except wf.errors.WeftError as e:
        return type(e)


@pytest.mark.parametrize("name", ROWS)
def test_pairs_of_dtypes(name):
    f = caller(TABLE[name])
    sample = PAIRS if SOAK else ALWAYS + random.Random(name).sample(PAIRS, 8)
    args = [
        (wf.tensor(np.array([1, 0, 1]).astype(a)), wf.tensor(np.array([1, 1, 0]).astype(b)))
        for a, b in sample
    ]
    with np.errstate(all="ignore"):
        want = [attempt(f, *pair) for pair in args]
        fine = [k for k, w in enumerate(want) if not isinstance(w, type)]
        got = wf.compile(lambda args: [f(a, b) for a, b in args])([args[k] for k in fine])
        refused = [attempt(wf.compile(f), *args[k]) for k in range(len(args)) if k not in fine]
    assert refused == [w for w in want if isinstance(w, type)]
    for k, g in zip(fine, got, strict=True):
        assert g.dtype == want[k].dtype, sample[k]
        one, other = (y.numpy().astype("float64") for y in (g, want[k]))
        rtol = 4 * float(ml_dtypes.finfo(g.dtype).eps) if g.dtype in FLOATS else 0
        np.testing.assert_allclose(one, other, rtol, err_msg=str(sample[k]))
