"""Casts across slices and concatenations: graphs before and after."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.passes.dead import dead
from weft.compiler.passes.narrow import narrow
from weft.graph.verify import verify

from ..schedules import by_rows
from .graphs import traced

HALF = np.linspace(-3.0, 3.0, 24, dtype=np.float32).reshape(4, 6).astype(np.float16)


def outcome(f, x=HALF):
    """The rows of a function's graph after the pass, which changes no bit."""
    graph = traced(f, x)
    made = dead(narrow(graph))
    verify(made)
    for a, b in zip(by_rows(made, [x]), by_rows(graph, [x]), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    return made


def stored(made, row: str) -> set[str]:
    """The dtypes of what a row gives."""
    return {str(made.avals[e.outputs[0]].dtype) for e in made.equations if e.op.name == row}


def test_what_is_sliced_is_narrow():
    def f(x):
        wide = x.to("float32").reshape(4, 3, 2).swapaxes(0, 1)
        return wide[..., 0] * wide[..., 1]

    assert stored(outcome(f), "slice_") == {"float16"}


def test_what_is_put_side_by_side_is_narrow():
    def f(x):
        wide = x.to("float32")
        y = wf.stack([wf.sin(wide), wide * 3], axis=-1).reshape(4, 12).to("float16")
        return y, wf.concat([wide, wide + 1], axis=1).to("float16")

    made = outcome(f)
    assert stored(made, "stack") == stored(made, "concat") == {"float16"}


@pytest.mark.parametrize(
    "f, row, dtype",
    [
        (lambda x: (lambda y: (y[:2], y))(x.to("float32")), "slice_", "float32"),
        (lambda x: (lambda y: y[:2] + y.sum(0))(x.to("float32")), "slice_", "float32"),
        (lambda x: (lambda y: (y[:3], y[1:]))(x.to("float32")), "slice_", "float32"),
        (lambda x: x.to("int8")[:2], "slice_", "int8"),
        (lambda x: wf.concat([x, x]).to("float32"), "concat", "float16"),
        (
            lambda x: (lambda y: (y.to("float16"), y))(wf.concat([x.to("float32")] * 2)),
            "concat",
            "float32",
        ),
    ],
    ids=["returned", "read", "overlapping", "narrower", "wider", "shared"],
)
def test_what_others_need_stays(f, row, dtype):
    assert stored(outcome(f), row) == {dtype}
