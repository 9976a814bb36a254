"""Both engines between processes, beside NumPy's functions of all ranks' arrays."""

import functools
import itertools

import numpy as np
import pytest

from weft.core import dtypes

from . import grid
from .processes import MPIEXEC, launch

ENGINES = ("torch", pytest.param("mpi", marks=pytest.mark.skipif(not MPIEXEC, reason="no mpiexec")))
LIBRARY_ADDS = ("float32", "float64", "complex64", "complex128")
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
    # Only sums of an engine's library are in an order of its own.
    rounded = case.argument == "sum" and not case.ordered and case.dtype.name in LIBRARY_ADDS
    for r, (result, want) in enumerate(zip(results, wanted, strict=True)):
        got = result.view(case.dtype).reshape(want.shape)
        if rounded:
            error = size * np.finfo(case.dtype).eps * np.abs(every).sum(0)
            assert (np.abs(got - want) <= error).all(), f"{case} on rank {r}"
        else:
            if case.dtype == dtypes.bfloat16:  # whose NaNs NumPy's comparison does not know
                got, want = got.astype(np.float32), want.astype(np.float32)
            np.testing.assert_array_equal(got, want, err_msg=f"{case} on rank {r}", strict=True)
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


def test_the_gpu_engine_on_a_library_that_stands_in_for_nccl(tmp_path):
    for outcome in launch(2, "tests.dist.gpu_grid", [tmp_path]):
        assert outcome.code == 0, outcome.err
    results = [dict(np.load(tmp_path / f"{r}.npz")) for r in range(2)]
    for case in grid.cases(2):
        check(case, 2, [found[str(case.number)] for found in results])


def test_the_check_finds_one_wrong_bit_and_another_order():
    """Planted: of each case one bit of one rank's result, and of sums the order from behind."""
    size, missed, turned = 3, [], 0
    for case in itertools.islice(grid.all_cases(size), 0, None, 3):
        every = case.draw(size)
        with np.errstate(all="ignore"):
            wanted = [grid.bits(expected(case, every, r)).copy() for r in range(size)]
            from_behind = [grid.bits(expected(case, every[::-1], r)) for r in range(size)]
        check(case, size, wanted)
        summed = case.argument == "sum" and case.dtype.kind in "fc" and case.ordered
        if summed and not np.array_equal(from_behind[0], wanted[0]):
            turned += 1
            with pytest.raises(AssertionError):
                check(case, size, from_behind)
        if wanted[-1].size and case.dtype.kind != "b":
            last = wanted[-1].reshape(-1, case.dtype.itemsize)
            last[-1, -1] ^= 1 << 5  # of the sign and exponent
            try:
                check(case, size, wanted)
            except AssertionError:
                continue
            missed.append(case)
    assert turned > 3
    assert not missed, missed
