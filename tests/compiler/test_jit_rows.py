"""Every row written down: its shape rule tells what it makes, and the program computes it."""

import numpy as np
import pytest
from tests.table.rows import EXEMPT, cases, load

import weft as wf
from weft.compiler.frontend.arguments import flatten_arguments
from weft.compiler.frontend.trace import trace
from weft.core.call import caller
from weft.errors import StagingError, WeftError
from weft.graph.verify import verify

from .equations import interpret

TABLE = load()
# The shape of their results depends on values.
UNKNOWN = {"argwhere", "flatnonzero", "unique_all", "unique_values"}


def call_of(op, case):
    """The case as a function of its arrays."""
    places = [i for i, a in enumerate(case.args) if isinstance(a, np.ndarray)]

    def f(*arrays):
        args = list(case.args)
        for i, x in zip(places, arrays, strict=True):
            args[i] = x
        call = caller(op, True)
        return call(args, *case.static) if op.arity is None else call(*args, *case.static)

    return f, [wf.tensor(case.args[i]) for i in places]


def gradients(f, create_graph: bool = False):
    """The gradients of the sum of squares of what f gives."""

    def pulled(*arrays, keep: bool = False):
        inputs = [x if keep else x.detach() for x in arrays]
        inputs = [x.requires_grad_() if _floats(x) and not keep else x for x in inputs]
        out = f(*inputs)
        outs = [y for y in (out if isinstance(out, tuple) else (out,)) if y.requires_grad]
        if not outs:
            return ()
        squares = [wf.real(y * wf.conj(y)) if y.dtype.kind == "c" else y * y for y in outs]
        found = sum([s.sum() for s in squares]).backward(create_graph=create_graph)
        return tuple(found[x] for x in inputs if x in found)

    return pulled


def _floats(x) -> bool:
    return x.dtype.kind in "fcV"  # and bfloat16, which NumPy does not know


def written(f, arrays):
    """The program of a call, and what goes into it."""
    taken = flatten_arguments(tuple(arrays), {}, lambda name: False, True)
    program = trace("row", f, taken)
    return program.graph, [p.read(taken.call) for p in program.places]


def check(f, arrays, label):
    try:
        with np.errstate(all="ignore"):
            want = f(*arrays)
    except WeftError:
        return  # a case that is refused, or has no derivative
    graph, values = written(f, arrays)
    verify(graph)
    got = interpret(graph, values)
    want = want if isinstance(want, tuple | list) else (want,)
    assert len(want) <= len(got)
    for a, b in zip(want, got, strict=False):
        a = a.detach().numpy()
        assert (a.shape, a.dtype) == (b.shape, b.dtype), label
        unit = np.finfo(a.dtype).eps if a.dtype.kind in "fc" else 0
        np.testing.assert_allclose(b, a, rtol=16 * unit, atol=16 * unit, err_msg=label)


@pytest.mark.parametrize("name", sorted(set(TABLE) - set(EXEMPT)))
def test_a_row_is_written_down(name):
    op = TABLE[name]
    for case in cases(op):
        f, arrays = call_of(op, case)
        if name in UNKNOWN:
            with pytest.raises(StagingError, match="depends on the values"):
                written(f, arrays)
            continue
        check(f, arrays, case.label)
        if op.rule is not None:
            check(gradients(f), arrays, f"gradient of {case.label}")
