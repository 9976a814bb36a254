"""The verifier accepts what tracing makes and refuses every kind of damage to it."""

import numpy as np
import pytest

import weft as wf
from weft.core.aval import Aval
from weft.core.dtypes import float32, float64
from weft.graph.graph import Literal
from weft.graph.verify import MalformedGraph, verify
from weft.transform.modes.trace import trace_of


@pytest.fixture
def graph():
    w = wf.asarray(np.ones((3, 2)))

    def f(x):
        y = wf.tanh(x @ w) * 2.0
        values, _ = wf.max_with_indices(y, axis=0)
        return values.sum(), wf.grad(lambda z: (z**3).sum())(x)

    x = wf.asarray(np.arange(12.0).reshape(4, 3))
    return trace_of("f", f, [x], tuple).trace


def test_traces_are_well_formed(graph):
    verify(graph)


def test_a_graph_reads_as_a_program(graph):
    assert "= tanh(v" in str(graph) and str(graph).startswith("inputs  v0:float64[4,3]")


def swap_first_two(g):
    g.equations[0], g.equations[1] = g.equations[1], g.equations[0]


def assign_twice(g):
    g.equations.append(g.equations[0])


def wrong_shape(g):
    i = g.equations[0].outputs[0]
    g.avals[i] = Aval((7,), g.avals[i].dtype)


def wrong_dtype(g):
    i = g.equations[0].outputs[0]
    g.avals[i] = g.avals[i].like(dtype=float32 if g.avals[i].dtype == float64 else float64)


def unknown_output(g):
    g.outputs.append(len(g.avals))


def missing_operand(g):
    e = next(e for e in g.equations if len(e.inputs) == 2)
    g.equations[g.equations.index(e)] = e._replace(inputs=e.inputs[:1])


def odd_literal(g):
    e = g.equations[-1]
    g.equations[-1] = e._replace(inputs=(Literal("two"), *e.inputs[1:]))


def mistyped_constant(g):
    i = next(iter(g.constants))
    g.constants[i] = np.zeros((9, 9))


def lost_result(g):
    e = next(e for e in g.equations if len(e.outputs) == 2)
    g.equations[g.equations.index(e)] = e._replace(outputs=e.outputs[:1])


@pytest.mark.parametrize(
    "damage",
    [
        swap_first_two,
        assign_twice,
        wrong_shape,
        wrong_dtype,
        unknown_output,
        missing_operand,
        odd_literal,
        mistyped_constant,
        lost_result,
    ],
)
def test_damage_is_found(graph, damage):
    damage(graph)
    with pytest.raises(MalformedGraph):
        verify(graph)
