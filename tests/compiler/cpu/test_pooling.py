"""Pooling in compiled programs: against PyTorch, eager mode and itself."""

import numpy as np
import pytest
import torch

import weft as wf
import weft.nn.functional as F
from weft.compiler.cpu.routines.pool import Pool, Unpool
from weft.compiler.cpu.routines.windows import Side
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.passes.pooling import pooling
from weft.core.record import record
from weft.ops.pool import max_pool, pool_pick, pool_put, spread_pool, sum_pool

from ..layers import draw, library_calls, near, ours, pulled, theirs
from ..passes.graphs import lines, traced
from ..schedules import call_routine, optimised, shared_alike

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@pytest.fixture(autouse=True)
def pool():
    before = threads.width()
    yield
    threads.resize(before)


MAXIMA = {
    "pairs": ((2, 3, 16, 32), 2, {}),
    "odd": ((2, 3, 9, 11), 2, {"ceil_mode": True}),
    "overlapping": ((2, 3, 13, 37), 3, {"stride": 2, "padding": 1}),
    "by ones": ((1, 2, 7, 20), 3, {"stride": 1, "padding": 1}),
    "by threes": ((2, 2, 14, 50), (2, 3), {"stride": 3}),
    "by fours": ((1, 2, 9, 70), (3, 5), {"stride": (2, 4), "padding": (1, 2)}),
    "dilated": ((1, 2, 15, 24), 3, {"stride": 2, "dilation": 2, "padding": 1}),
    "tiny": ((2, 1, 2, 2), 2, {}),
}


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", MAXIMA)
def test_largest_elements_like_pytorch(name, dtype):
    shape, kernel, how = MAXIMA[name]
    x = draw(*shape, dtype=dtype)
    f = torch.nn.functional.max_pool2d
    g = draw(*f(torch.tensor(x), kernel, **how).shape, dtype=dtype)
    found, eager = ours(pulled(lambda x: F.max_pool2d(x, kernel, **how)), g, x)
    want = theirs(lambda x: f(x, kernel, **how), g, x)
    for got, same, right in zip(found, eager, want, strict=True):
        np.testing.assert_array_equal(got, same)
        near(got, right, 16)


@pytest.mark.parametrize("padding,included", [(0, True), (1, True), (1, False)])
def test_averages_like_pytorch(padding, included):
    how = {"stride": 2, "padding": padding, "count_include_pad": included}
    x = draw(2, 3, 14, 35)
    f = torch.nn.functional.avg_pool2d
    g = draw(*f(torch.tensor(x), 3, **how).shape)
    found, _ = ours(pulled(lambda x: F.avg_pool2d(x, 3, **how)), g, x)
    for got, right in zip(found, theirs(lambda x: f(x, 3, **how), g, x), strict=True):
        near(got, right, 16)


def test_one_window_for_all_is_a_fold():
    x, g = draw(2, 3, 20, 18), draw(2, 3, 1, 1)
    f = pulled(lambda x: F.avg_pool2d(x, (20, 18)))
    found, _ = ours(f, g, x)
    want = theirs(lambda x: torch.nn.functional.avg_pool2d(x, (20, 18)), g, x)
    for got, right in zip(found, want, strict=True):
        near(got, right, 16)
    graph = optimised(traced(f, g, x))
    assert not {e.op.name for e in graph.equations} & {"sum_pool", "spread_pool"}


def test_along_one_axis_like_pytorch():
    x = draw(2, 3, 41)
    f = torch.nn.functional.max_pool1d
    g = draw(*f(torch.tensor(x), 4, 3, 2).shape)
    found, _ = ours(pulled(lambda x: F.max_pool1d(x, 4, 3, 2)), g, x)
    for got, right in zip(found, theirs(lambda x: f(x, 4, 3, 2), g, x), strict=True):
        near(got, right, 16)


GEOMETRIES = [
    ((3, 3), (2, 2), ((1, 1), (1, 0)), (1, 1), (4, 17)),
    ((2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1), (3, 9)),
    ((2, 3), (1, 1), ((0, 1), (2, 1)), (2, 1), (5, 16)),
    ((1, 2), (3, 5), ((-1, 0), (1, -1)), (1, 3), (2, 7)),
    ((2,), (4,), ((1, 2),), (1,), (33,)),
    ((17, 17), (1, 1), ((8, 8), (8, 8)), (1, 1), (3, 4)),  # taps that are no bytes
]


@pytest.mark.parametrize("how", GEOMETRIES, ids=str)
def test_every_row_like_eager_mode_to_the_bit(how):
    """Ties, infinities and NaN among the elements."""
    *geometry, counts = how
    kernel, stride, padding, dilation = geometry
    axes = zip(counts, kernel, stride, padding, dilation, strict=True)
    size = [(p - 1) * s + d * (k - 1) + 1 - a - b for p, k, s, (a, b), d in axes]
    rng = np.random.default_rng(1)
    x = rng.integers(-3, 3, (2, 3, *size)).astype(F32)
    x[rng.random(x.shape) < 0.05], x[0, 1], x[1, 0] = np.nan, -np.inf, 0.0
    g = draw(2, 3, *counts)

    def f(x, g):
        y, taps = max_pool(x, *geometry)
        return y, taps, pool_pick(x, taps, *geometry), pool_put(g, taps, *geometry)

    def sums(x, g):
        return sum_pool(x, *geometry[:3]), spread_pool(g, *geometry[:3])

    if len(kernel) == 2 and kernel[0] == 17:
        compiled = wf.compile(f)
        compiled(wf.tensor(x), wf.tensor(g))
        said = {why for _, why in library_calls(compiled)}
        assert said == {"its windows have more than 256 taps"}
        return
    found, eager = ours(f, x, g)
    if set(dilation) == {1}:
        more, same = ours(sums, np.where(np.isfinite(x), x, 1).astype(F32), g)
        found, eager = [*found, *more], [*eager, *same]
    for got, same in zip(found, eager, strict=True):
        np.testing.assert_array_equal(got, same)


def test_no_images_and_three_axes_say_why():
    f = wf.compile(lambda x: F.max_pool2d(x, 2))
    assert f(wf.tensor(np.zeros((0, 3, 4, 4), F32))).shape == (0, 3, 2, 2)
    assert library_calls(f) == [("max_pool", "it is empty")]
    g = wf.compile(lambda x: F.max_pool3d(x, 2))
    g(wf.tensor(np.zeros((1, 3, 4, 4, 4), F32)))
    assert library_calls(g) == [("max_pool", "it is along 3 axes")]


def test_second_derivatives_pick_at_taps():
    x, v = draw(2, 2, 6, 10, dtype=F64), draw(2, 2, 6, 10, dtype=F64)

    def second(x, v):
        def loss(x):
            return (F.max_pool2d(x, 3, 2, 1) ** 3).sum()

        return (wf.jvp(wf.grad(loss), (x,), (v,))[1],)

    found, eager = ours(second, x, v)
    np.testing.assert_allclose(found[0], eager[0], rtol=1e-12, atol=1e-12)


def test_the_same_bits_for_any_number_of_threads():
    compiled = wf.compile(pulled(lambda x: F.max_pool2d(x, 3, 2, 1)))
    arrays = draw(8, 16, 32, 32), draw(8, 16, 64, 64)
    assert shared_alike(compiled, arrays) == 2


SIDES = Side(9, 4, 2, 1, 0, 3), Side(20, 20, 1, 1, 1, 3)


@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_pieces_in_any_order(pieces):
    x, y, taps = draw(3, 9, 20), np.zeros((3, 4, 20), F32), np.zeros((3, 4, 20), np.uint8)
    call_routine(Pool("max", F32, taps.dtype, 3, SIDES), [x, y, taps], pieces)
    want = torch.nn.functional.max_pool2d(
        torch.tensor(np.pad(x, ((0, 0), (0, 0), (1, 1)))), 3, (2, 1)
    )
    inner = want.numpy()[..., 1:-1]  # there padding is zero, here there is none
    np.testing.assert_array_equal(y[..., 1:-1], inner)


@record
class _Sure(Side):
    """A side that believes all its elements to be there."""

    @property
    def inside(self) -> bool:
        return True


def test_wrong_routines_are_caught_when_accesses_are_checked():
    down, across = _Sure(9, 4, 2, 1, -2, 3), Side(20, 18, 1, 1, 0, 3)
    wrong = Pool("sum", F32, np.dtype(np.uint8), 3, (down, across))
    arrays = [np.zeros(4 * a.size, F32) for a in (*wrong.operands, *wrong.results)]
    with pytest.raises(AssertionError, match="array 0 was left"):
        call_routine(wrong, arrays)
    side = Side(4, 9, 1, 1, 0, 1, first=0, step=2)
    wide = Unpool("spread", F32, np.dtype(np.uint8), 1, (9, 9), (9, 9), (side,), (side,), 1)
    arrays = [np.zeros(4 * a.size, F32) for a in (*wide.operands, *wide.results)]
    with pytest.raises(AssertionError, match="array 1 was left"):
        call_routine(wide, arrays)


# -- the pass -----------------------------------------------------------------------------------


def _loss(x):
    return (F.max_pool2d(wf.relu(x), 2) ** 2).sum()


def test_relu_goes_behind_the_pool():
    graph = traced(lambda x: F.max_pool2d(wf.relu(x), 2), draw(2, 3, 4, 4))
    made = [e.op.name for e in pooling(graph).equations]
    assert made.index("max_pool") < len(made) - 1 and made[-1] == "relu"


def test_gradients_are_gated_before_they_are_put():
    graph = optimised(traced(wf.grad(_loss), draw(2, 3, 4, 4)))
    assert [e.op.name for e in graph.equations][-2:] == ["gate", "pool_put"], lines(graph)
    sizes = [graph.avals[e.outputs[0]].shape for e in graph.equations if e.op.name == "gate"]
    assert sizes == [(2, 3, 2, 2)]


def test_taps_that_someone_sees_stay():
    def f(x):
        return max_pool(wf.relu(x), (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1))

    graph = traced(f, draw(2, 3, 4, 4))
    assert lines(pooling(graph)) == lines(graph)


@pytest.mark.parametrize("how", ["another array", "seen", "another pool"])
def test_what_else_is_put_stays(how):
    geometry = (2, 2), (2, 2), ((0, 0), (0, 0)), (1, 1)
    other = (2, 2), (2, 2), ((2, -2), (0, 0)), (1, 1)

    def f(x, z):
        y, taps = max_pool(wf.relu(x), *geometry)
        put = pool_put(y, taps, *(other if how == "another pool" else geometry))
        _, pull = wf.vjp(wf.relu, z if how == "another array" else x)
        return (*pull(put), *([put] if how == "seen" else []))

    x = draw(2, 3, 4, 4)
    graph = traced(f, x, draw(2, 3, 4, 4))
    assert lines(pooling(graph)) == lines(graph)
    found, eager = ours(f, np.round(x), draw(2, 3, 4, 4))
    for got, same in zip(found, eager, strict=True):
        np.testing.assert_array_equal(got, same)


@pytest.mark.parametrize("values", ["mixed", "below zero", "ties", "nan"])
def test_the_pass_changes_no_value(values):
    x = draw(2, 3, 8, 8)
    if values == "below zero":
        x = -np.abs(x)
    elif values == "ties":
        x = np.round(x)
    elif values == "nan":
        x[0, 0, :3, :3] = np.nan
    b = draw(3)

    def f(x, b):
        y, pull = wf.vjp(lambda x, b: F.max_pool2d(wf.relu(x + b[:, None, None]), 2), x, b)
        return y, *pull(wf.exp(y))

    found, eager = ours(f, x, b)
    np.testing.assert_array_equal(found[0], eager[0])
    for got, same in zip(found[1:], eager[1:], strict=True):
        np.testing.assert_allclose(got, same, rtol=1e-5, atol=1e-5)
