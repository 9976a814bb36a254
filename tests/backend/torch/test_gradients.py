"""Kernels that take all gradients of a step, beside what NumPy gives for each of them."""

import numpy as np
import pytest
import torch

import weft as wf
from weft.backend.torch import gradients

DTYPES = ("float32", "float64", "bfloat16", "float16", "complex64", "complex128")
FACTORS = {"a number": 0.25, "an array": torch.tensor(0.25, dtype=torch.float64)}


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("second", DTYPES)
@pytest.mark.parametrize("first", DTYPES)
def test_multiples_keep_dtypes(first, second, factor):
    """Arrays of one dtype and of two, with axes and without."""
    rng = np.random.default_rng(1)
    shapes = [(5,), (), (0,), (2, 3)]
    given = [
        wf.tensor(rng.standard_normal(s), dtype=d, device="torch")
        for s in shapes
        for d in (first, second)
    ]
    found = gradients.multiples([x._data for x in given], FACTORS[factor])
    for x, y in zip(given, found, strict=True):
        assert y.dtype == x._data.dtype
        wide = x.to("cpu").numpy().astype("complex128")
        assert np.array_equal(wf.asarray(y).to("cpu").numpy().astype("complex128"), wide * 0.25)
