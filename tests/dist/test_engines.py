"""Both engines between processes, beside NumPy's functions of all ranks' arrays."""

import functools

import numpy as np
import pytest

from weft.core import dtypes

from . import grid
from .processes import MPIEXEC, launch

ENGINES = ("torch", pytest.param("mpi", marks=pytest.mark.skipif(not MPIEXEC, reason="no mpiexec")))
EXTREMES = {"max": np.maximum, "min": np.minimum}


def in_order(every):
    """The sum in the order of ranks; of half precision in float32, rounded once."""
    half = every.dtype.itemsize == 2 and every.dtype.kind not in "iu"
    total = every[0].astype(np.float32) if half else every[0]
    for x in every[1:]:
        total = np.add(total, x)
    return np.asarray(total).astype(every.dtype)


def expected(case, every, rank):
    if case.collective == "all_gather":
        return every
    if case.collective == "broadcast":
        return every[case.argument]
    if case.collective == "all_to_all":
        return every[:, rank]
    if case.collective == "reduce_scatter":
        return in_order(every[:, rank])
    return in_order(every) if case.argument == "sum" else functools.reduce(
        EXTREMES[case.argument], every
    )  # fmt: skip


def check(case, size, results):
    """One case of all ranks: bit for bit where the order is known, else to rounding."""
    every = case.draw(size)
    with np.errstate(all="ignore"):
        wanted = [np.asarray(expected(case, every, r)) for r in range(size)]
    summed = case.argument == "sum" or case.collective == "reduce_scatter"
    exact = case.ordered or not summed or case.dtype.itemsize == 2 or case.dtype.kind in "iub"
    for r, (result, want) in enumerate(zip(results, wanted, strict=True)):
        got = result.view(case.dtype).reshape(want.shape)
        if exact:
            if case.dtype == dtypes.bfloat16:  # whose NaNs NumPy's comparison does not know
                got, want = got.astype(np.float32), want.astype(np.float32)
            np.testing.assert_array_equal(got, want, err_msg=f"{case} on rank {r}", strict=True)
        else:
            scale = np.abs(every).sum(0)
            scale = scale[r] if case.collective == "reduce_scatter" else scale
            error = np.abs(got - want)
            assert (error <= size * np.finfo(case.dtype).eps * scale).all(), f"{case} on rank {r}"
        if case.collective == "all_reduce":
            assert np.array_equal(result, results[0]), f"{case}: ranks 0 and {r} differ"


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_collective_dtype_shape_and_layout(engine, size, tmp_path):
    for outcome in launch(size, "tests.dist.grid", [engine, tmp_path], engine, timeout=120):
        assert outcome.code == 0, outcome.err
    results = [dict(np.load(tmp_path / f"{r}.npz")) for r in range(size)]
    for case in grid.cases(size):
        check(case, size, [found[str(case.number)] for found in results])
