"""Kernels of any length that the pipeline makes of random graphs: the same bits as NumPy's rows."""

import os

import numpy as np
import pytest

from weft.compiler.eager.flat import MOST, FlatKernel
from weft.compiler.eager.lowering import lower
from weft.core.aval import Aval

RUNS = 200 if os.environ.get("WEFT_SOAK") else 12
ONE = {"negative": np.negative, "sqrt": np.sqrt, "positive": np.positive, "abs": np.abs}
TWO = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
}


def program(rng, lines: int, numbers: int):
    """Rows by name with the indices of their operands, and which values are results.

    Values are lines, numbers, and what is computed; a rule does what it does with numbers alone in
    Python, so of every row one operand is a line.
    """
    written, moving, count = [], list(range(lines)), lines + numbers
    for _ in range(rng.integers(2, 9)):
        rows = ONE if rng.random() < 0.3 else TWO
        used = [int(rng.choice(moving)), int(rng.integers(count))][: 1 if rows is ONE else 2]
        written.append((str(rng.choice(list(rows))), tuple(rng.permutation(used).tolist())))
        moving.append(count)
        count += 1
    earlier = rng.permutation(moving[lines:-1])[: rng.integers(0, 3)]
    return written, [count - 1, *earlier.tolist()]


@pytest.mark.parametrize("run", range(RUNS))
def test_kernels_of_random_graphs(run):
    rng = np.random.default_rng(run)
    dtype = np.dtype(rng.choice(["float32", "float64"]))
    lines, numbers = int(rng.integers(1, 5)), int(rng.integers(0, 4))
    written, results = program(rng, lines, numbers)

    def write(b, *values):
        values = list(values)
        for row, used in written:
            values.append(b.emit(row, *[values[i] for i in used]))
        return [values[i] for i in results]

    avals = [Aval((MOST,), dtype, "cpu")] * lines + [Aval((), dtype, "cpu")] * numbers
    made = FlatKernel(lower(avals, write))
    for size in (1, int(rng.integers(2, 200)), 1024):
        given = [rng.standard_normal(size).astype(dtype) for _ in range(lines)]
        given += [rng.standard_normal(1).astype(dtype) for _ in range(numbers)]
        outs = [np.empty(size, dtype) for _ in results]
        made([*given, *outs], size)
        with np.errstate(all="ignore"):
            values = list(given)
            for row, used in written:
                values.append((ONE | TWO)[row](*[values[i] for i in used]))
        for found, i in zip(outs, results, strict=True):
            np.testing.assert_array_equal(found, values[i])


def test_operands_and_results_are_in_the_order_of_the_graph():
    lines = [Aval((MOST,), np.dtype("float32"), "cpu")] * 3
    kernel = lower(lines, lambda b, x, y, z: [b.emit("negative", z), b.emit("sqrt", x)])
    assert [o.strides for o in kernel.operands] == [(1,), (0,), (1,)]  # y is not read
    rows = [kernel.steps[r.value - 3] for r in kernel.results]  # which share no operand
    assert [(s.row, s.inputs) for s in rows] == [("negative", (2,)), ("sqrt", (0,))]
