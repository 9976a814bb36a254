"""Composite rows written out: every case of every such row has the row's own values."""

import numpy as np
import pytest
from tests.table.rows import cases, load

import weft as wf
from weft.compiler.passes.expand import EXPANSIONS, expand
from weft.core import dtypes
from weft.core.call import caller
from weft.errors import IndexingError
from weft.graph.verify import verify

from ..schedules import Machine, by_rows, compare, compiled
from .graphs import X, traced

TABLE = load()
ROWS = sorted(EXPANSIONS)
inf, nan = np.inf, np.nan
DIFFICULT = np.array(
    [
        *([0.0, -0.0, 1.0, 2.0], [inf, 0.0, 1.0, 2.0], [-inf, 0.0, 1.0, 2.0], [-inf] * 4),
        *([inf, inf, 1.0, 0.0], [nan, 0.0, 1.0, 2.0], [88.0, 89.0, 700.0, -700.0]),
        [-1e30, 0.0, 0.0, 0.0],
    ],
    np.float32,
)


def graph_of(op, case, dtype=None):
    """A row's graph at a case's arrays."""
    args = list(case.args)
    if dtype is not None:
        floats = [isinstance(a, np.ndarray) and a.dtype.kind == "f" for a in args]
        with np.errstate(over="ignore"):
            args = [a.astype(dtype) if f else a for a, f in zip(args, floats, strict=True)]
    places = [k for k, a in enumerate(args) if isinstance(a, np.ndarray)]

    def f(*arrays):
        call = list(args)
        for k, a in zip(places, arrays, strict=True):
            call[k] = a
        operands = [call] if op.arity is None else call
        return caller(op)(*operands, *case.static)

    with np.errstate(all="ignore"):
        graph = traced(f, *(args[k] for k in places))
    return graph, [args[k] for k in places]


@pytest.mark.parametrize("dtype", [None, np.float32, dtypes.float16], ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_an_expansion_has_the_rows_values(name, dtype):
    expanded = 0
    for case in cases(TABLE[name]):
        if any(isinstance(a, np.ndarray) and a.dtype.kind == "c" for a in case.args):
            continue
        graph, arrays = graph_of(TABLE[name], case, dtype)
        made = expand(graph)
        verify(made)
        expanded += name not in {e.op.name for e in made.equations}
        # A result that is stated to be wider is not computed in more digits than its operands.
        got, want = (_whole(name, by_rows(g, arrays)) for g in (made, graph))
        compare(got, want, units=16, least=dtype)
    assert expanded


def _whole(name: str, results: list) -> list:
    """Results that are one number in two, a rounded one and the rest, as that number."""
    if not name.endswith("cross_entropy"):
        return results
    loss, lse, rest = results
    return [loss, lse + rest]


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "shares"])
def test_infinities_and_nan(name):
    static = {"logsumexp": ((1,), True), "shares": ((1,),)}.get(name, (1,))
    with np.errstate(all="ignore"):
        graph = traced(lambda x: caller(TABLE[name])(x, *static), DIFFICULT)
        np.testing.assert_allclose(
            by_rows(expand(graph), [DIFFICULT])[0], by_rows(graph, [DIFFICULT])[0], rtol=1e-6
        )


def test_complex_numbers_and_empty_arrays_stay():
    for x in (X.astype(np.complex64), X[:0]):
        graph = traced(lambda z: wf.sum(wf.var(z, axis=0)) if z.shape[0] else wf.softmax(z, 1), x)
        names = {e.op.name for e in expand(graph).equations}
        assert names & {"var", "softmax"}


def test_a_class_that_is_out_of_range_is_an_error():
    def loss(x, classes):
        return wf.nn.functional.cross_entropy(x, classes)

    classes = np.array([0, 3, 1])
    graph = traced(loss, X, classes)
    schedule = compiled(graph)
    compare(Machine(schedule, [X, classes]).run(), by_rows(graph, [X, classes]))
    for wrong in (4, -1):
        with pytest.raises(IndexingError, match=f"class {wrong} of 4; expected 0 to 3"):
            Machine(schedule, [X, np.array([0, wrong, 1])]).run()


def test_a_planted_mistake_is_found(monkeypatch):
    """The comparison sees an expansion that forgets to subtract the largest element's shift."""

    def wrong(b, x, axis):
        return b.emit("exp", b.emit("subtract", x, b.emit("amax", x, (axis,), True)))

    monkeypatch.setitem(EXPANSIONS, "softmax", wrong)
    with pytest.raises(AssertionError):
        test_an_expansion_has_the_rows_values("softmax", None)
