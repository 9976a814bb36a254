"""Layout, contractions and copies: graphs before and after."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.passes import PASSES
from weft.compiler.passes.algebra import algebra
from weft.compiler.passes.copies import apart
from weft.compiler.passes.dead import dead
from weft.compiler.passes.layout import layout
from weft.graph.verify import verify

from ..schedules import by_rows, compare, optimised
from .graphs import ROW, X, Y, check, lines, traced

contract, copies = (dict(PASSES)[name] for name in ("contract", "copies"))
CUBE = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(2, 3, 4)


def laid_out(graph):
    return dead(layout(graph))


def test_a_transposed_product_is_a_product_of_transposes():
    check(
        *(laid_out, lambda x, y: (x @ y.T).T, X, Y),
        before=[
            "v2 = permute(v1, (1, 0))",
            "v3 = matmul(v0, v2)",
            "v4 = permute(v3, (1, 0))",
            "outputs v4",
        ],
        after=["v2 = permute(v0, (1, 0))", "v3 = matmul(v1, v2)", "outputs v3"],
    )


def test_a_product_that_others_need_is_not_computed_twice():
    shared = laid_out(traced(lambda x, y: (lambda z: (z.T, z + 1))(x @ y.T), X, Y))
    assert sum(e.op.name == "matmul" for e in shared.equations) == 1


def test_rows_broadcast_by_themselves():
    check(
        *(laid_out, lambda x, r: x * wf.broadcast_to(r, (3, 4)), X, ROW),
        before=["v2 = broadcast_to(v1, (3, 4))", "v3 = multiply(v0, v2)", "outputs v3"],
        after=["v2 = multiply(v0, v1)", "outputs v2"],
    )


def test_one_of_two_broadcast_operands_keeps_the_shape():
    made = laid_out(traced(lambda r: wf.broadcast_to(r, (3, 4)) * wf.broadcast_to(r, (3, 4)), ROW))
    verify(made)
    assert [made.avals[i].shape for i in made.outputs] == [(3, 4)]


def test_parts_that_are_added_to_zeros_are_stacked():
    def f(x):
        a, b, c = (x[:, i] for i in range(3))
        return wf.vjp(lambda z: tuple(z[:, i] for i in range(3)), x)[1]((a, b * 2, c))[0]

    made = laid_out(traced(f, CUBE))
    names = [e.op.name for e in made.equations]
    assert "stack" in names and "unslice" not in names and "add" not in names
    compare(by_rows(made, [CUBE]), by_rows(traced(f, CUBE), [CUBE]))


def test_pieces_are_put_side_by_side():
    def f(x):
        return wf.vjp(lambda z: (z[:, :1], z[:, 1:]), x)[1]((x[:, :1] * 3, x[:, 1:]))[0]

    made = laid_out(traced(f, CUBE))
    names = [e.op.name for e in made.equations]
    assert "concat" in names and "unslice" not in names
    compare(by_rows(made, [CUBE]), by_rows(traced(f, CUBE), [CUBE]))


@pytest.mark.parametrize("keys", [(slice(0, 1), slice(2, 3)), (slice(0, 2), slice(1, 3)), (0, 0)])
def test_parts_with_gaps_or_overlaps_stay_sums(keys):
    def f(x):
        pieces = tuple(x[:, k] for k in keys)
        return wf.vjp(lambda z: tuple(z[:, k] for k in keys), x)[1](pieces)[0]

    graph = traced(f, CUBE)
    made = laid_out(graph)
    assert not {"stack", "concat"} & {e.op.name for e in made.equations}
    compare(by_rows(made, [CUBE]), by_rows(graph, [CUBE]))


def test_a_linear_layer_is_a_product_and_a_sum():
    check(
        *(contract, wf.nn.functional.linear, X, Y, ROW[:3].copy()),
        before=["v3 = linear(v0, v1, v2)", "outputs v3"],
        after=[
            "v3 = permute(v1, (1, 0))",
            "v4 = matmul(v0, v3)",
            "v5 = add(v4, v2)",
            "outputs v5",
        ],
    )


EINSUMS = {
    "ij,kj->ik": (X, Y),
    "ij,kj->ki": (X, Y),
    "ij,ij->i": (X, Y),
    "ij,ij->": (X, Y),
    "bij,kj->bik": (CUBE, X),
    "bij,bkj->kib": (CUBE, CUBE),
    "bij,kl->bl": (CUBE, X),
    "i,j->ij": (ROW, ROW),
    "bij,j->bi": (CUBE, ROW),
}


@pytest.mark.parametrize("subscripts", EINSUMS)
def test_contractions_are_products(subscripts):
    arrays = EINSUMS[subscripts]
    graph = traced(lambda a, b: wf.einsum(subscripts, a, b), *arrays)
    made = contract(graph)
    verify(made)
    names = [e.op.name for e in made.equations]
    assert "matmul" in names and "einsum" not in names
    compare(by_rows(made, arrays), by_rows(graph, arrays))


def test_products_of_other_dtypes_are_left_to_the_backend():
    half = X.astype(np.float16)
    graph = traced(wf.nn.functional.linear, half, half, half[:, 0])
    assert lines(contract(graph)) == lines(graph)
    among = contract.func(graph, dtypes=(*contract.keywords["dtypes"], half.dtype))
    assert [e.op.name for e in among.equations] == ["permute", "matmul", "add"]


def test_a_reshape_that_strides_cannot_express_reads_a_copy():
    check(
        *(copies, lambda x: x.T.reshape((12,)), X),
        after=[
            "v1 = permute(v0, (1, 0))",
            "v2 = copy(v1)",
            "v3 = reshape(v2, (12,))",
            "outputs v3",
        ],
    )
    check(copies, lambda x: x.reshape((2, 6)), X, after=["v1 = reshape(v0, (2, 6))", "outputs v1"])


def test_blas_reads_transposes_but_not_every_slice():
    plain = copies(traced(lambda x, y: x @ y.T, X, Y))
    assert "copy" not in {e.op.name for e in plain.equations}
    sliced = copies(traced(lambda x, y: x[:, ::2] @ y.T[::2], X, Y))
    assert [e.op.name for e in sliced.equations].count("copy") == 2


def test_outputs_share_no_memory():
    check(
        *(apart, lambda x: (x, x.T, x + 1, (x + 1).reshape((12,))), X),
        after=[
            "v1 = permute(v0, (1, 0))",
            "v2 = add(v0, 1)",
            "v3 = add(v0, 1)",
            "v4 = reshape(v3, (12,))",
            "v5 = copy(v0)",
            "v6 = copy(v1)",
            "outputs v5 v6 v2 v4",
        ],
    )


def test_one_value_twice_is_copied_once():
    def f(x):
        y = x * 2
        return y, y

    assert [e.op.name for e in apart(traced(f, X)).equations] == ["multiply", "copy"]


def test_the_passes_are_checked_one_by_one():
    seen = []
    optimised(traced(lambda x: wf.softmax(x / 2, -1), X), lambda g: (verify(g), seen.append(g)))
    assert len(seen) == len(PASSES)


def test_algebra_does_not_run_after_copies():
    names = [name for name, _ in PASSES]
    passes = [p for _, p in PASSES]
    assert algebra not in passes[names.index("copies") :]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_that_take_turns_are_stacked(count, axis):
    x = np.linspace(-1.0, 1.0, 72, dtype=np.float32).reshape(6, 12)

    def pieces(z):
        return tuple(z[(slice(None),) * axis + (slice(k, None, count),)] for k in range(count))

    def f(x):
        return wf.vjp(pieces, x)[1](tuple(p * p for p in pieces(x)))[0]

    graph = traced(f, x)
    made = laid_out(graph)
    verify(made)
    names = [e.op.name for e in made.equations]
    assert "stack" in names and "unslice" not in names and "add" not in names
    compare(by_rows(made, [x]), by_rows(graph, [x]))


@pytest.mark.parametrize(
    "keys",
    [
        (slice(0, None, 2), slice(2, None, 2)),  # one of them misses the first of its turns
        (slice(0, None, 3), slice(1, None, 3)),  # a third one is missing
        (slice(0, 3, 2), slice(1, 4, 2)),  # they end early
    ],
)
def test_parts_that_do_not_take_every_turn_stay_sums(keys):
    x = np.linspace(-1.0, 1.0, 36, dtype=np.float32).reshape(6, 6)

    def f(x):
        pieces = tuple(x[k] * 2 for k in keys)
        return wf.vjp(lambda z: tuple(z[k] for k in keys), x)[1](pieces)[0]

    graph = traced(f, x)
    made = laid_out(graph)
    assert "stack" not in {e.op.name for e in made.equations}
    compare(by_rows(made, [x]), by_rows(graph, [x]))
