"""Schedules beside the graphs that they are made of: rows, random programs, training steps."""

import os
from itertools import pairwise

import numpy as np
import pytest
from tests import test_fuzz
from tests.table.rows import EXEMPT, cases, load

import weft as wf
from weft.compiler.ir.kernel import FoldStep
from weft.compiler.ir.schedule import GemmStep, GuardStep, KernelStep, LibraryStep
from weft.core.call import caller
from weft.transform.modes.trace import trace_of

from ..passes.graphs import ROW, X, Y, traced
from ..schedules import Machine, by_rows, compare, compiled, optimised, scheduled

TABLE = load()
PROGRAMS = 4000 if os.environ.get("WEFT_SOAK") else 60
F = wf.nn.functional

# Rows whose results have a shape that only their values tell: nothing static can hold them.
UNSHAPED = {"flatnonzero", "argwhere", "unique_values", "unique_all"}
ROWS = sorted(set(TABLE) - UNSHAPED - set(EXEMPT))


def kinds(schedule) -> list[str]:
    return [type(s).__name__.removesuffix("Step") for s in schedule.steps]


def kernels(schedule):
    return [s for s in schedule.steps if isinstance(s, KernelStep)]


def of(f, *arrays, donated=None):
    """A function's schedule, whose values are found to be the function's."""
    graph = traced(f, *arrays)
    schedule = compiled(graph, donated)
    compare(Machine(schedule, arrays).run(), by_rows(graph, arrays))
    return schedule


# -- every row -------------------------------------------------------------------------------


def graph_of(op, case):
    """A row's graph at a case's arrays, and those; None where there is no array."""
    listed = op.arity is None
    args = list(case.args[0] if listed and isinstance(case.args[0], (list, tuple)) else case.args)
    places = [k for k, a in enumerate(args) if isinstance(a, np.ndarray)]

    def f(*arrays):
        for k, a in zip(places, arrays, strict=True):
            args[k] = a
        return caller(op)(args, *case.static) if listed else caller(op)(*args, *case.static)

    arrays = [args[k] for k in places]
    with np.errstate(all="ignore"):
        return (traced(f, *arrays), arrays) if places else None


@pytest.mark.parametrize("name", ROWS)
def test_a_rows_schedule_computes_the_row(name):
    for case in cases(TABLE[name]):
        found = graph_of(TABLE[name], case)
        if found is not None:
            graph, arrays = found
            with np.errstate(all="ignore"):
                got = Machine(compiled(graph), arrays).run()
            compare(got, [np.asarray(graph.values[i]) for i in graph.outputs])


# -- random programs -------------------------------------------------------------------------


def random_graph(seed: int):
    """A program of the fuzz test with its gradient."""
    rng = np.random.default_rng(seed)
    steps = test_fuzz.program(rng)
    arrays = [rng.normal(size=s) for s in ((3, 4), (4,), (), (3, 1))]

    def f(*leaves):
        value, grads = wf.value_and_grad(lambda xs: test_fuzz.run(steps, xs, 0))(list(leaves))
        return (value, *grads)

    return traced(f, *arrays), arrays


def check_program(seed: int, by_native: bool) -> None:
    graph, arrays = random_graph(seed)
    got = Machine(compiled(graph), arrays, by_native).run()
    want = [np.asarray(graph.values[i]) for i in graph.outputs]
    # A few hundred roundings, amplified by at most the largest entry, as in the fuzz test.
    scale = max(1.0, *(np.abs(w).max() for w in want))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * scale)


@pytest.mark.parametrize("batch", range(10))
def test_random_programs_by_rows(batch):
    for seed in range(batch, PROGRAMS, 10):
        check_program(seed, by_native=False)


@pytest.mark.parametrize("seed", range(100, 100 + PROGRAMS // 10))
def test_random_programs_by_native_kernels(seed):
    check_program(seed, by_native=True)


# Two folds over the two axes of a square, in groups whose results meet (found at random).
@pytest.mark.parametrize("seed", [1041, 1133])
def test_folds_over_different_axes_of_a_square(seed):
    check_program(seed, by_native=False)


def test_what_is_repeated_along_a_folded_axis_is_stored_along_it():
    """A kernel computes a repeated value once for each fold: it cannot store it more often."""

    def f(x, r):
        spread = wf.tanh(wf.broadcast_to(r[:, None], (3, 4)))
        return spread, (x * spread).sum(1)

    of(f, X, ROW[:3].copy())


# -- what becomes one kernel -----------------------------------------------------------------


def test_a_chain_is_one_kernel():
    schedule = of(lambda x, y: wf.tanh(x * y + 1.5) - wf.exp(-x) / y, X, Y)
    assert kinds(schedule) == ["Kernel"]


@pytest.mark.parametrize("rows, kernels", [(200, 2), (2, 1)])
def test_dear_rows_of_smaller_arrays_are_not_computed_again(rows, kernels):
    """Unless those are few, or do not change along the lanes."""
    x, columns = np.ones((rows, 100), np.float32), np.ones(100, np.float32)
    schedule = of(lambda x, r: wf.sqrt(x) * wf.tanh(r), x, columns)
    assert kinds(schedule) == ["Kernel"] * kernels
    schedule = of(lambda x, r: wf.sqrt(x) * wf.tanh(r), x, np.ones((rows, 1), np.float32))
    assert kinds(schedule) == ["Kernel"]
    schedule = of(lambda x, r: wf.sqrt(x) * (r * r - 1), x, columns)
    assert kinds(schedule) == ["Kernel"]


def test_a_long_program_of_numbers_is_one_straight_line():
    def f(x, y):
        for k in range(200):
            x, y = x * 0.9 + wf.sin(y) * 0.1, y - x * (k / 1000)
        return x, y

    (step,) = of(f, np.array(0.3), np.array(0.7)).steps
    assert step.routine.line.steps > 900 and len(step.results) == 2


def test_a_long_program_of_arrays_is_several_kernels():
    def f(x):
        for k in range(150):
            x = wf.sin(x) * (k + 0.5)
        return x

    assert {len(s.kernel.steps) <= 96 for s in kernels(of(f, X))} == {True}


def test_softmax_is_one_kernel_of_three_sweeps():
    (step,) = kernels(of(lambda x: wf.softmax(x * 2, -1), X))
    assert step.kernel.sweeps == 3
    assert [s.kind for s in step.kernel.steps if isinstance(s, FoldStep)] == ["max", "sum"]


def test_a_layer_norm_with_what_comes_before_and_after_is_one_kernel():
    def f(x, y, w, b):
        return wf.relu(F.layer_norm(x + y, (4,), w, b))

    assert kinds(of(f, X, Y, ROW, ROW)) == ["Kernel"]


def test_values_that_share_operands_come_from_one_kernel():
    schedule = of(lambda x, y: (x * y, x + y, wf.exp(x)), X, Y)
    (step,) = kernels(schedule)
    assert len(step.results) == 3 and len(step.operands) == 2


def test_two_sums_over_one_array_are_one_pass():
    (step,) = kernels(of(lambda x, y: ((x * y).sum(0), x.sum(0)), X, Y))
    assert len(step.results) == 2


def test_a_cross_entropy_and_its_gradient():
    classes = np.array([0, 3, 1])

    def f(x, classes):
        return wf.value_and_grad(lambda z: F.cross_entropy(z, classes))(x)

    schedule = of(f, X, classes)
    assert "Library" not in kinds(schedule)
    assert sum(isinstance(s, GuardStep) for s in schedule.steps) == 1
    guard = kinds(schedule).index("Guard")
    reads = [schedule.inputs[0] in s.reads for s in schedule.steps]
    assert reads.index(True) > guard


def test_long_columns_are_summed_up_apart_from_the_array():
    tall = np.linspace(0, 1, 4000, dtype=np.float32).reshape(1000, 4)
    assert len(kernels(of(lambda x: (wf.exp(x), wf.exp(x).sum(0)), tall))) == 2
    assert len(kernels(of(lambda x: wf.exp(x).sum(0), tall))) == 1
    assert len(kernels(of(lambda x: (wf.exp(x), wf.exp(x).sum(1)), tall))) == 1


def test_few_long_lines_are_not_swept_over_twice():
    flat = np.linspace(0, 1, 1 << 16, dtype=np.float32)
    assert len(kernels(of(lambda x: x / x.sum(), flat))) == 3  # the sum has two stages
    assert len(kernels(of(lambda x: x / x.sum(), flat[:1000]))) == 1


def test_nothing_that_comes_between_is_swallowed():
    """exp(x), then a library call on it, then both together: three steps, in order."""
    schedule = of(lambda x: wf.polygamma(1, wf.exp(x)) * wf.exp(x), X)
    assert kinds(schedule) == ["Kernel", "Library", "Kernel"]
    (call,) = (s for s in schedule.steps if isinstance(s, LibraryStep))
    assert call.reason == "no kernel computes it" and call.line.startswith("test_fuse.py:")


def test_complex_numbers_are_the_backends():
    schedule = of(lambda z: z * z, X.astype(np.complex64))
    assert kinds(schedule) == ["Library"] and "complex64" in schedule.steps[0].reason


# -- views -----------------------------------------------------------------------------------

VIEWS = {
    "transposed": lambda x: x.T + 1,
    "sliced": lambda x: x[1:, ::2] * 2,
    "backwards": lambda x: wf.flip(x) - 1,
    "picked": lambda x: wf.exp(x[1]),
    "reshaped": lambda x: x.reshape((2, 6)) * 3,
    "broadcast": lambda x: wf.broadcast_to(x[0], (5, 4)) * 2,
    "new axes": lambda x: x[:, None] * x[None],
}


@pytest.mark.parametrize("f", VIEWS.values(), ids=VIEWS)
def test_views_are_strides_and_no_steps(f):
    assert kinds(of(f, X)) == ["Kernel"]


def test_a_transposed_reshape_is_written_in_place():
    """(3, 4) → (4, 3) → 12: one kernel computes and lays out."""
    assert kinds(of(lambda x: wf.exp(x).T.reshape((12,)), X)) == ["Kernel"]


def test_parts_are_copied_into_their_places():
    assert kinds(of(lambda x, y: wf.concat([x * 2, y]), X, Y)) == ["Kernel"] * 3
    assert kinds(of(lambda x, y: wf.stack([x, y], axis=1), X, Y)) == ["Kernel"] * 2


def test_outputs_of_inputs_are_copies():
    schedule = of(lambda x: (x, x, x.T), X)
    assert len({schedule.storage(i) for i in schedule.outputs}) == 3
    assert not set(schedule.outputs) & set(schedule.inputs)


# -- products --------------------------------------------------------------------------------

CUBE = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)


def gemms(schedule) -> list[GemmStep]:
    return [s for s in schedule.steps if isinstance(s, GemmStep)]


@pytest.mark.parametrize(
    ("f", "flags"),
    [
        (lambda x, y: x @ y.T, (False, True)),
        (lambda x, y: x.T @ y, (True, False)),
        (lambda x, y: (y @ x.T).T, (False, True)),
        (lambda x, y: x.T.T @ y.T, (False, True)),
    ],
)
def test_transposes_are_flags(f, flags):
    schedule = of(f, X, Y)
    (step,) = gemms(schedule)
    assert kinds(schedule) == ["Gemm"]
    assert (step.transpose_a, step.transpose_b) == flags


def test_one_matrix_for_a_batch_is_one_product():
    (step,) = gemms(of(lambda c, x: c @ x.T, CUBE, X))
    assert (step.batch, step.m) == ((), 6)


def test_batches_go_by_strides():
    (step,) = gemms(of(lambda c: c @ c.swapaxes(1, 2), CUBE))
    assert (step.batch, step.m, step.transpose_b) == ((2,), 3, True)
    (step,) = gemms(of(lambda c, x: x.T @ c, CUBE, X))
    assert (step.batch, step.a_strides, step.transpose_a) == ((2,), (0,), True)


@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (1, 0, 2, 3), (2, 0, 1, 3)])
def test_heads_are_strides_of_a_batch(axes):
    """Attention's products over heads that lie side by side, without a copy."""
    q = np.linspace(-1, 1, 2 * 3 * 4 * 5).reshape(2, 3, 4, 5)

    def f(q):
        q = caller(TABLE["permute"])(q, axes)
        return q @ q.swapaxes(2, 3)

    assert kinds(of(f, q)) == ["Gemm"]


def test_vectors_are_matrices_of_one_row_or_column():
    for f in (lambda x, r: x @ r, lambda x, r: r @ x.T, lambda x, r: r @ r):
        assert kinds(of(f, X, ROW)) == ["Gemm"]


def test_a_bias_and_an_activation_follow_a_product_in_one_kernel():
    schedule = of(lambda x, w, b: wf.relu(F.linear(x, w, b)), X, Y, ROW[:3].copy())
    assert kinds(schedule) == ["Gemm", "Kernel"]


# -- memory that is given ---------------------------------------------------------------------


def adamw(p, g, m, v):
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p * 0.99 - 0.01 * m / (wf.sqrt(v) + 1e-8), m, v


def test_an_update_is_one_kernel_in_place():
    schedule = of(adamw, X, Y, X * 0, X * 0 + 1, donated={0: 0, 1: 2, 2: 3})
    (step,) = kernels(schedule)
    assert kinds(schedule) == ["Kernel"] and len(step.results) == 3
    assert set(schedule.donated) == {schedule.inputs[k] for k in (0, 2, 3)}


def test_a_donated_input_is_read_before_it_is_written():
    """The gradient of x needs w, which the step replaces."""

    def f(w, x):
        dw, dx = wf.grad(lambda w, x: wf.tanh(x @ w).sum(), argnums=(0, 1))(w, x)
        return w - 0.1 * dw, dx

    schedule = of(f, Y.T.copy(), X, donated={0: 0})
    assert schedule.donated == schedule.inputs[:1]


def test_inputs_that_exchange_their_memory_are_copied_at_the_end():
    schedule = of(lambda x, y: (y * 2, x + 1), X, Y, donated={0: 0, 1: 1})
    assert set(schedule.donated) == set(schedule.inputs)
    compare(Machine(schedule, [X, Y], by_native=True).run(), [Y * 2, X + 1])


@pytest.mark.parametrize(
    "f", [lambda x: x.T + x, lambda x: wf.flip(x) * 2, lambda x: x - x.sum(1, keepdims=True)]
)
def test_a_result_is_not_written_over_what_is_read_elsewhere(f):
    square = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    schedule = of(f, square, donated={0: 0})
    compare(Machine(schedule, [square], by_native=True).run(), by_rows(traced(f, square), [square]))


# -- training steps --------------------------------------------------------------------------


def training_graph(loss, params: dict, *data):
    """A step of AdamW by a loss of parameters and data, and which memory it may take."""
    names = list(params)

    def f(*leaves):
        n = len(names)
        mine, ms, vs = (leaves[k * n : k * n + n] for k in range(3))
        by_name = dict(zip(names, mine, strict=True))
        value, grads = wf.value_and_grad(lambda p: loss(p, *leaves[3 * n :]))(by_name)
        new = [adamw(p, grads[k], m, v) for k, p, m, v in zip(names, mine, ms, vs, strict=True)]
        return (value, *(x for column in zip(*new, strict=True) for x in column))

    values = list(params.values())
    # Second moments that are not near zero: a ratio of two roundings would be any number.
    arrays = [*values, *(v * 0 for v in values), *(v * 0 + 1 for v in values), *data]
    graph = trace_of("step", f, [wf.asarray(a) for a in arrays], tuple).trace
    return graph, arrays, {k + 1: k for k in range(3 * len(names))}


def perceptron(rng):
    sizes = (6, 16, 16, 5)
    params = {}
    for k, (a, b) in enumerate(pairwise(sizes)):
        params[f"w{k}"] = (rng.standard_normal((b, a)) / np.sqrt(a)).astype(np.float32)
        params[f"b{k}"] = np.zeros(b, np.float32)

    def loss(p, x, classes):
        for k in range(3):
            x = F.linear(x, p[f"w{k}"], p[f"b{k}"])
            x = wf.relu(x) if k < 2 else x
        return F.cross_entropy(x, classes)

    x = rng.standard_normal((8, 6)).astype(np.float32)
    return training_graph(loss, params, x, rng.integers(0, 5, 8))


def transformer(rng):
    """One block of a GPT."""
    width, heads, words = 8, 2, 11
    shapes = {"tokens": (words, width), "qkv": (3 * width, width), "qkv_b": (3 * width,)}
    shapes |= {"proj": (width, width), "proj_b": (width,), "up": (16, width), "up_b": (16,)}
    shapes |= {"down": (width, 16), "down_b": (width,), "w": (width,), "b": (width,)}
    params = {k: (0.3 * rng.standard_normal(s)).astype(np.float32) for k, s in shapes.items()}

    def loss(p, ids, targets):
        x = F.embedding(ids, p["tokens"])
        n, t, _ = x.shape
        y = F.layer_norm(x, width, p["w"], p["b"])
        qkv = F.linear(y, p["qkv"], p["qkv_b"]).reshape(n, t, 3, heads, width // heads)
        q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(y.swapaxes(1, 2).reshape(n, t, width), p["proj"], p["proj_b"])
        y = F.gelu(F.linear(F.layer_norm(x, width, p["w"], p["b"]), p["up"], p["up_b"]))
        x = x + F.linear(y, p["down"], p["down_b"])
        return F.cross_entropy((x @ p["tokens"].T).reshape(n * t, words), targets)

    ids = rng.integers(0, words, (3, 5))
    return training_graph(loss, params, ids, np.roll(ids, -1, 1).reshape(-1))


@pytest.mark.parametrize("given", [False, True], ids=["own memory", "donated memory"])
@pytest.mark.parametrize("model", [perceptron, transformer])
def test_a_training_step(model, given):
    graph, arrays, donated = model(np.random.default_rng(0))
    schedule = compiled(graph, donated if given else None)
    want = [np.asarray(graph.values[i]) for i in graph.outputs]
    for by_native in (False, True):
        compare(Machine(schedule, arrays, by_native).run(), want, units=256)
    if given:
        assert set(schedule.donated) == set(schedule.inputs[: len(donated)])
    calls = {s.op.name for s in schedule.steps if isinstance(s, LibraryStep)}
    assert calls <= {"take", "segment_sum", "attention", "attention_gradient"}


def test_kernels_of_equal_walks_are_equal():
    """Updates of parameters of one size are compiled once, whatever their shapes."""

    def f(p, q, g, h):
        return *adamw(p, g, p, p), *adamw(q, h, q, q)

    tall = Y.reshape(4, 3)
    schedule = of(f, Y, tall, Y + 1, tall + 1)
    found = kernels(schedule)
    assert len(found) == 2 and found[0].kernel == found[1].kernel


def test_a_schedule_is_the_same_every_time():
    graph, _, donated = perceptron(np.random.default_rng(0))
    first, second = (scheduled(optimised(graph), donated) for _ in range(2))
    assert first.steps == second.steps and first.buffers == second.buffers


# -- folds of everything ---------------------------------------------------------------------

LONG = np.linspace(0.1, 1, 1 << 16, dtype=np.float32)
WHOLE = {
    "sum": lambda x: x.sum(),
    "mean of squares, scaled": lambda x: (x * x).mean() * 3 + 1,
    "several": lambda x: (x.sum(), x.max() - x.min(), (x > 2).any(), wf.exp(x)),
    "value and gradient": wf.value_and_grad(lambda x: (wf.tanh(x) * x).sum()),
    "beside numbers": lambda x: (x * x[0]).sum() / x[1],
    "of a matrix": lambda x: wf.exp(x.reshape((256, 256)).T).sum(),
    "in half precision": lambda x: wf.astype(x, "float16").sum(),
}


@pytest.mark.parametrize("by_native", [False, True], ids=["rows", "native"])
@pytest.mark.parametrize("name", WHOLE)
def test_folds_of_everything_have_two_stages(name, by_native):
    graph = traced(WHOLE[name], LONG)
    schedule = compiled(graph)
    first, second = kernels(schedule)[:2]
    assert len(first.kernel.domain) > 1 and 0 not in first.kernel.folded
    assert second.kernel.folded == (0,) and second.kernel.domain[0] <= 1 << 10
    compare(Machine(schedule, [LONG], by_native).run(), by_rows(graph, [LONG]), units=512)


def test_pieces_of_half_types_are_kept_in_float32():
    schedule = of(WHOLE["in half precision"], LONG)
    first, _ = kernels(schedule)
    assert {schedule.buffers[i].dtype for i in first.results} == {np.dtype(np.float32)}


@pytest.mark.parametrize("by_native", [False, True], ids=["rows", "native"])
@pytest.mark.parametrize("name", sorted({*WHOLE} - {"of a matrix"}))
def test_what_is_left_over_behind_pieces_is_a_kernel_of_its_own(name, by_native):
    prime = LONG[:65521].copy()
    graph = traced(WHOLE[name], prime)
    schedule = compiled(graph)
    first, rest, second = kernels(schedule)[:3]
    sizes = first.kernel.domain[0] * first.kernel.domain[1] + rest.kernel.domain[-1]
    assert sizes == 65521 and second.kernel.domain[0] == first.kernel.domain[0] + 1
    compare(Machine(schedule, [prime], by_native).run(), by_rows(graph, [prime]), units=512)


def test_kernels_that_differ_in_the_sign_of_a_zero_are_two():
    def f(x, y):
        return wf.clip(x, 0.0, 9.0), wf.clip(x @ y, -0.0, 9.0)

    below, same = -np.ones((40, 40), np.float32), np.eye(40, dtype=np.float32)
    up, down = wf.compile(f)(wf.tensor(below), wf.tensor(same))
    assert not np.signbit(up.numpy()).any() and np.signbit(down.numpy()).all()
