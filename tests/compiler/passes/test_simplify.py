"""Dead code, constants, common subexpressions and algebra: graphs before and after."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.passes.algebra import algebra
from weft.compiler.passes.common import common
from weft.compiler.passes.dead import dead
from weft.compiler.passes.fold import LARGE, fold
from weft.core.call import caller
from weft.core.op import TABLE
from weft.graph.graph import Literal
from weft.graph.verify import verify

from ..schedules import by_rows
from .graphs import ROW, X, Y, check, lines, traced

NUMBERS = np.array([0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 1e-42, 3e38], np.float32)


def row(name):
    return caller(TABLE[name])


def simplified(graph):
    return dead(algebra(graph))


def test_dead_code_goes_and_unread_inputs_stay():
    made = check(
        *(dead, lambda x, y: (wf.exp(x), wf.sin(x))[1], X, Y),
        before=["v2 = exp(v0)", "v3 = sin(v0)", "outputs v3"],
        after=["v2 = sin(v0)", "outputs v2"],
    )
    assert made.inputs == [0, 1]


def test_dead_constants_go():
    c = wf.asarray(X)
    assert not dead(traced(lambda x: (x + c, wf.exp(x))[1], X)).constants


def constant_chain():
    """v0·exp(tanh(c)): both equations are over a constant."""
    graph = traced(lambda x: x * wf.exp(wf.tanh(x)), ROW)
    (x,) = graph.inputs
    tanh, exp, product = graph.equations
    c = graph.constant(ROW.copy())
    graph.equations[0] = tanh._replace(inputs=(c,))
    assert exp.op is TABLE["exp"] and product.inputs[0] == x
    return graph


def test_a_chain_over_a_constant_is_one_constant():
    graph = constant_chain()
    made = dead(fold(graph))
    verify(made)
    assert lines(made) == ["v1 = multiply(v0, c0)", "outputs v1"]
    (value,) = made.constants.values()
    np.testing.assert_array_equal(value, np.exp(np.tanh(ROW)))


def test_what_would_grow_stays_an_equation():
    graph = traced(lambda x: wf.broadcast_to(x, (LARGE, 4)), ROW)
    (e,) = graph.equations
    graph.equations[0] = e._replace(inputs=(graph.constant(ROW.copy()),))
    assert [e.op.name for e in fold(graph).equations] == ["broadcast_to"]
    assert fold(traced(lambda x: wf.broadcast_to(x, (5, 4)), ROW)).equations


def test_constants_of_one_number_become_numbers():
    ones, half = wf.ones((3, 4)), wf.asarray(np.float32(0.5))
    check(
        *(lambda g: dead(fold(g)), lambda x: (x + ones) * half, X),
        before=["v1 = add(v0, c0)", "v2 = multiply(v1, c1)", "outputs v2"],
        after=["v1 = add(v0, 1.0)", "v2 = multiply(v1, 0.5)", "outputs v2"],
    )


def test_a_number_never_changes_the_type_of_a_result():
    wide, ones = wf.asarray(np.float64(0.5)), wf.ones((3, 4))
    for f in (lambda x: wf.multiply(x, wide), lambda x: wf.multiply(x, ones)):
        graph = traced(f, ROW)
        made = fold(graph)
        verify(made)
        assert [made.avals[i] for i in made.outputs] == [graph.avals[i] for i in graph.outputs]


def test_signed_zeros_are_not_one_number():
    mixed = wf.asarray(np.array([0.0, -0.0, 0.0, 0.0], np.float32))
    assert lines(fold(traced(lambda x: x + mixed, X)))[0] == "v1 = add(v0, c0)"


def test_equal_equations_are_one():
    check(
        *(common, lambda x: wf.exp(x) * wf.exp(x) + wf.exp(x * 2), X),
        after=[
            "v1 = exp(v0)",
            "v2 = multiply(v1, v1)",
            "v3 = multiply(v0, 2)",
            "v4 = exp(v3)",
            "v5 = add(v2, v4)",
            "outputs v5",
        ],
    )


def test_numbers_that_only_compare_equal_are_told_apart():
    made = common(traced(lambda x: (x + 0.0, x + -0.0, x * 1, x * 1.0, x * True), X))
    assert len(made.equations) == 5


def test_equal_constants_are_one():
    a, b = wf.asarray(ROW.copy()), wf.asarray(ROW.copy())
    made = common(traced(lambda x: (x + a, x * b, x + b), X))
    assert len(made.constants) == 1 and len(made.equations) == 2


SAME = {
    "times one": lambda x: x * 1,
    "over one": lambda x: x / 1.0,
    "minus zero": lambda x: x - 0.0,
    "plus negative zero": lambda x: x + -0.0,
    "twice negative": lambda x: wf.negative(wf.negative(x)),
    "transposed twice": lambda x: x.T.T,
    "reshaped there and back": lambda x: x.reshape((12,)).reshape((3, 4)),
    "cast without loss and back": lambda x: wf.astype(wf.astype(x, "float64"), "float32"),
    "cast to its own dtype": lambda x: wf.astype(x * 1, "float32"),
    "all of it": lambda x: x[:, 0:4],
    "first power": lambda x: row("power_scalar")(x, 1),
    "larger of itself": lambda x: wf.maximum(x, x),
    "either of itself": lambda x: wf.where(x > 0, x, x),
    "flipped twice": lambda x: wf.flip(wf.flip(x)),
    "detached": lambda x: x.detach(),
    "broadcast to its own shape": lambda x: row("broadcast_to")(x, (3, 4)),
}


@pytest.mark.parametrize("f", SAME.values(), ids=SAME)
def test_what_changes_nothing_goes(f):
    assert check(simplified, f, X, after=["outputs v0"]).outputs == [0]


KEPT = {
    "plus zero: minus zero would change": lambda x: x + 0.0,
    "times zero: an infinity would": lambda x: x * 0.0,
    "over three: rounding": lambda x: x / 3,
    "cast with loss": lambda x: wf.astype(wf.astype(x, "float16"), "float32"),
    "minus itself: NaN": lambda x: x - x,
}


@pytest.mark.parametrize("f", KEPT.values(), ids=KEPT)
def test_what_would_change_a_value_stays(f):
    graph = traced(f, X)
    assert lines(algebra(graph)) == lines(graph)


SIMPLER = {
    "v1 = multiply(v0, 0.25)": lambda x: x / 4,
    "v1 = negative(v0)": lambda x: x * -1,
    "v1 = multiply(v0, v0)": lambda x: x**2,
    "v1 = reshape(v0, (4, 3))": lambda x: x.reshape((12,)).reshape((4, 3)),
    "v1 = cast(v0, dtype('float16'))": lambda x: wf.astype(wf.astype(x, "float64"), "float16"),
}


@pytest.mark.parametrize(("line", "f"), SIMPLER.items(), ids=SIMPLER)
def test_what_becomes_simpler(line, f):
    check(simplified, f, X, after=[line, f"outputs {line.split()[0]}"])


def test_a_negative_operand_is_subtracted():
    check(simplified, lambda x, y: x + (-y), X, Y, after=["v2 = subtract(v0, v1)", "outputs v2"])
    check(simplified, lambda x, y: x - (-y), X, Y, after=["v2 = add(v0, v1)", "outputs v2"])


def test_sums_of_single_elements():
    check(
        *(simplified, lambda x: x.sum(0, keepdims=True).sum(0), X),
        before=["v1 = sum(v0, (0,), True)", "v2 = sum(v1, (0,), False)", "outputs v2"],
        after=["v1 = sum(v0, (0,), True)", "v2 = reshape(v1, (4,))", "outputs v2"],
    )


def test_integers_may_lose_a_zero():
    check(simplified, lambda x: x + 0, np.arange(4), after=["outputs v0"])


@pytest.mark.parametrize("n", [2.0, 0.5, 2.0**-20, -8, 2.0**126, 2.0**-126, 2.0**127, 2.0**-140])
def test_division_by_powers_of_two_is_exact(n):
    with np.errstate(all="ignore"):
        graph = traced(lambda x: x / n, NUMBERS)
        before, after = (by_rows(g, [NUMBERS])[0] for g in (graph, algebra(graph)))
    np.testing.assert_array_equal(before.view(np.uint32), after.view(np.uint32))


LINES = ("times one", "over one", "minus zero", "plus negative zero", "twice negative")


@pytest.mark.parametrize("name", LINES)
def test_difficult_numbers_keep_their_bits(name):
    with np.errstate(all="ignore"):
        graph = traced(SAME[name], NUMBERS)
        before, after = (by_rows(g, [NUMBERS])[0] for g in (graph, algebra(graph)))
    np.testing.assert_array_equal(before.view(np.uint32), after.view(np.uint32))


def test_a_condition_that_is_known():
    graph = traced(lambda c, x, y: wf.where(c, x, y), X > 0, X, Y)
    (e,) = graph.equations
    for truth, chosen in ((True, 1), (False, 2)):
        graph.equations[0] = e._replace(inputs=(Literal(truth), *e.inputs[1:]))
        assert algebra(graph).outputs == [chosen]
