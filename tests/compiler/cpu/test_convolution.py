"""Convolution in compiled programs: against PyTorch, eager mode and itself."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch

import weft as wf
import weft.nn.functional as F
from weft.compiler.cpu import lanes
from weft.compiler.cpu.passes.convolve import windows
from weft.compiler.cpu.routines import blocking, items
from weft.compiler.cpu.routines.blocking import blocks_of
from weft.compiler.cpu.routines.correlate import Correlation
from weft.compiler.cpu.routines.depthwise import ChannelWeights
from weft.compiler.cpu.routines.weigh import Weights
from weft.compiler.cpu.routines.windows import Side, transposed_sides
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.ir.schedule import KernelStep, NativeStep
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.ops.convolve import convolution_weight

from ..layers import draw, library_calls, near, ours, pulled, schedule_of, theirs
from ..passes.graphs import traced
from ..schedules import by_rows, call_routine, shared_alike

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


@pytest.fixture(autouse=True)
def pool():
    before = threads.width()
    yield
    threads.resize(before)


# images, channels, size, channels of the result, kernel, and PyTorch's settings
LAYERS = {
    "plain": (2, 3, (16, 16), 8, (3, 3), {"padding": 1}),
    "wide": (2, 4, (5, 37), 19, (3, 3), {"padding": 1}),
    "no padding": (3, 5, (9, 20), 7, (3, 2), {}),
    "steps": (2, 3, (17, 18), 10, (3, 3), {"stride": 2, "padding": 1}),
    "wide steps": (2, 3, (17, 40), 6, (5, 4), {"stride": (3, 5), "padding": (2, 1)}),
    "steps over the kernel": (2, 2, (11, 14), 3, (1, 2), {"stride": (2, 4)}),
    "dilated": (2, 3, (15, 16), 5, (3, 3), {"dilation": 2, "padding": 2}),
    "dilated steps": (2, 3, (23, 24), 5, (3, 3), {"dilation": (3, 2), "stride": (2, 4)}),
    "groups": (2, 6, (10, 12), 9, (3, 3), {"groups": 3, "padding": 1}),
    "depthwise": (2, 5, (12, 33), 5, (3, 3), {"groups": 5, "padding": 1}),
    "pointwise": (3, 7, (6, 6), 17, (1, 1), {}),
    "large kernel": (1, 2, (20, 31), 3, (7, 17), {"padding": (3, 8)}),
    "small images": (9, 16, (2, 3), 33, (3, 3), {"padding": 1}),
    "one pixel": (2, 3, (1, 1), 4, (3, 3), {"padding": 1}),
    "a line": (2, 3, (50,), 5, (5,), {"padding": 2}),
    "a long line": (1, 2, (5000,), 3, (31,), {"stride": 2, "padding": 15}),
    "a line of many taps": (2, 2, (100,), 4, (25,), {"stride": 3, "dilation": 2}),
    "many channels": (1, 300, (9, 16), 4, (5, 5), {"padding": 2}),
}
CASES = [(name, F32) for name in LAYERS] + [(name, F64) for name in ("plain", "steps", "a line")]


@pytest.mark.parametrize("name,dtype", CASES)
def test_like_pytorch_and_eager_mode(name, dtype):
    n, c, size, o, kernel, how = LAYERS[name]
    call = "conv1d" if len(size) == 1 else "conv2d"
    x, b = draw(n, c, *size, dtype=dtype), draw(o, dtype=dtype)
    w = draw(o, c // how.get("groups", 1), *kernel, dtype=dtype)
    their = getattr(torch.nn.functional, call)
    g = draw(*their(torch.tensor(x), torch.tensor(w), **how).shape, dtype=dtype)
    f = pulled(lambda x, w, b: getattr(F, call)(x, w, b, **how))
    found, eager = ours(f, g, x, w, b)
    want = theirs(lambda x, w, b: their(x, w, b, **how), g, x, w, b)
    positions = g.size // o
    terms = w[0].size, prod(kernel) * o, positions, positions
    for got, same, right, many in zip(found, eager, want, terms, strict=True):
        assert got.dtype == same.dtype == dtype
        near(got, right, many)
        near(got, same.astype(F64), many)


@pytest.mark.parametrize(
    "stride,padding,dilation,groups", [(1, 0, 1, 1), (2, 1, 1, 2), (3, 2, 2, 1)]
)
def test_transposed_layers_like_pytorch(stride, padding, dilation, groups):
    x, w, b = draw(2, 4, 7, 9), draw(4, 6 // groups, 3, 4), draw(6)
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    their = torch.nn.functional.conv_transpose2d
    g = draw(*their(*map(torch.tensor, (x, w, b)), **how).shape)
    found, _ = ours(pulled(lambda x, w, b: F.conv_transpose2d(x, w, b, **how)), g, x, w, b)
    want = theirs(lambda x, w, b: their(x, w, b, **how), g, x, w, b)
    for got, right in zip(found, want, strict=True):
        near(got, right, g.size // 2)


@pytest.mark.parametrize("taps", [(3, 3), (5, 7)])
def test_each_channel_by_itself_has_a_routine_of_its_own(taps):
    x, y = draw(5, 3, 40, 23), draw(5, 3, 20, 12)
    sides = Side(40, 20, 2, 1, 1, taps[0]), Side(23, 12, 2, 1, 1, taps[1])
    routine = ChannelWeights(F32, 5, 3, sides)
    parts = np.full(routine.results[0].shape, np.nan, F32)
    call_routine(routine, [x, y, parts], 4)
    leaf = torch.zeros(3, 1, *taps, requires_grad=True)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 6), (1, 6)))
    made = torch.nn.functional.conv2d(torch.tensor(padded), leaf, stride=2, groups=3)
    made[..., :20, :12].backward(torch.tensor(y))
    near(parts.sum(0).reshape(3, 1, *taps), leaf.grad.numpy().astype(F64), 1200)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_added_up_in_float32(dtype):
    arrays = draw(2, 4, 5, 6), draw(2, 3, 11, 12), draw(4, 3, 3, 3), draw(4)

    def f(*arrays):
        g, *rest = [a.astype(getattr(wf, dtype)) for a in arrays]
        step = pulled(lambda x, w, b: F.max_pool2d(F.conv2d(x, w, b, padding=1), 2))
        return [y.astype(wf.float32) for y in step(g, *rest)]

    found, eager = ours(f, *arrays)
    for got, same in zip(found, eager, strict=True):
        eps = 2**-10 if dtype == "float16" else 2**-7
        np.testing.assert_allclose(got, same, rtol=eps, atol=eps * np.abs(same).max())


def test_second_derivatives_like_eager_mode():
    x, w = draw(2, 3, 6, 7, dtype=F64), draw(4, 3, 3, 3, dtype=F64)

    def loss(x, w):
        return (F.conv2d(x, w, stride=2, padding=1) ** 3).sum()

    def second(x, w):
        return wf.grad(lambda w: (wf.grad(loss)(x, w) ** 2).sum())(w), wf.grad(loss)(x, w)

    found, eager = ours(second, x, w)
    for got, same in zip(found, eager, strict=True):
        np.testing.assert_allclose(got, same, rtol=1e-11, atol=1e-10)


def test_no_images_and_no_padding_read_outside():
    for n in (0, 1):
        found, eager = ours(lambda x, w: (F.conv2d(x, w),), draw(n, 3, 5, 5), draw(4, 3, 3, 3))
        assert found[0].shape == (n, 4, 3, 3)
        near(found[0], eager[0].astype(F64), 27)


def test_an_infinite_weight_beside_padding_is_nan_as_in_pytorch():
    x, w = np.ones((1, 1, 4, 20), F32), np.ones((1, 1, 3, 3), F32)
    w[0, 0, 0, 0] = np.inf
    found = wf.compile(lambda x, w: F.conv2d(x, w, padding=1))(wf.tensor(x), wf.tensor(w)).numpy()
    want = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), padding=1)
    np.testing.assert_array_equal(found, want.numpy())
    assert np.isnan(found[0, 0, 0, 0]) and np.isinf(found[0, 0, 2, 9])


@pytest.mark.parametrize(
    "x,w,dtype,how,reason",
    [
        ((2, 3, 8, 8), (4, 3, 3, 3), "complex64", {}, "routines do not convolve complex64"),
        ((1, 2, 4, 4, 4), (3, 2, 3, 3, 3), "float32", {}, "it is along 3 axes"),
        ((1, 1, 1, 300), (1, 1, 1, 99), "float32", {"stride": 99}, "its windows are too large"),
    ],
)
def test_what_stays_a_library_call_says_why(x, w, dtype, how, reason):
    f = wf.compile(lambda x, w: (F.conv3d if x.ndim == 5 else F.conv2d)(x, w, **how))
    y = f(wf.tensor(np.ones(x, dtype)), wf.tensor(np.ones(w, dtype)))
    assert (y.numpy() == prod(w[1:])).all()
    assert [r for _, r in library_calls(f)] == [reason]
    assert reason in f.explain()


# -- the pass -----------------------------------------------------------------------------------


def test_weights_are_a_sum_of_parts():
    how = (1, 1), ((1, 1), (1, 1)), (1, 1), 2
    arrays = [draw(2, 4, 5, 6), draw(2, 6, 5, 6)]
    graph = traced(lambda x, y: convolution_weight(x, y, *how), *arrays)
    made = windows(graph)
    rows = ["convolution_parts", "sum", "slice_", "permute", "reshape"]
    assert [e.op.name for e in made.equations] == rows
    (got,), (want,) = by_rows(made, arrays), by_rows(graph, arrays)
    near(got, want.astype(F64), 60)


def test_half_types_are_cast_around_a_convolution():
    arrays = [draw(2, 3, 5, 6, dtype=np.float16), draw(4, 3, 3, 3, dtype=np.float16)]
    graph = traced(lambda x, w: F.conv2d(x, w), *arrays)
    made = windows(graph)
    assert [e.op.name for e in made.equations] == ["cast", "cast", "convolution", "cast"]
    np.testing.assert_array_equal(*by_rows(made, arrays), *by_rows(graph, arrays))


# -- one training step --------------------------------------------------------------------------


def _network(p, x):
    h = F.max_pool2d(wf.relu(F.conv2d(x, p["w1"], p["b1"], padding=1)), 2)
    h = F.max_pool2d(wf.relu(F.conv2d(h, p["w2"], p["b2"], padding=1)), 2)
    return h.reshape(h.shape[0], -1) @ p["w3"].mT


def _step(values):
    params = {k: wf.Parameter(v.copy()) for k, v in values.items()}
    optimizer = wf.optim.SGD(list(params.values()), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = (_network(params, x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return step, params


def _values():
    shapes = {"w1": (20, 3, 3, 3), "b1": (20,), "w2": (33, 20, 3, 3), "b2": (33,), "w3": (5, 528)}
    return {k: F32.type(0.05) * draw(*s) for k, s in shapes.items()}


def test_a_training_step_has_no_library_call_and_no_gradient_of_its_input():
    values, x = _values(), wf.tensor(draw(4, 3, 16, 16))
    step, params = _step(values)
    eager, others = _step(values)
    compiled = wf.compile(step)
    for _ in range(3):
        np.testing.assert_allclose(compiled(x).item(), eager(x).item(), rtol=1e-5)
    for k in params:
        near(params[k].detach().numpy(), others[k].detach().numpy().astype(F64), 64)
    assert library_calls(compiled) == []
    kinds = [s.routine for s in schedule_of(compiled).steps if isinstance(s, NativeStep)]
    turned = [r for r in kinds if isinstance(r, Correlation) and r.turned]
    assert [r.outs for r in turned] == [20]  # of the second layer only
    assert sum(isinstance(r, Weights) for r in kinds) == 2


def test_a_training_step_with_checked_accesses(monkeypatch):
    monkeypatch.setenv("WEFT_CHECK_BOUNDS", "1")
    values, x = _values(), wf.tensor(draw(2, 3, 16, 16))
    (step, _), (eager, _) = _step(values), _step(values)
    compiled = wf.compile(step)
    np.testing.assert_allclose(compiled(x).item(), eager(x).item(), rtol=1e-5)
    assert compiled._last().executable.checked


def test_arrays_with_axes_of_one_length_are_walked_alike():
    """Of a block with a way around it, every kernel goes along the last axis of its arrays."""
    nn = wf.nn
    first = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
    block = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.BatchNorm2d(4))
    params = [*first.parameters(), *block.parameters()]

    @wf.compile
    def f(x):
        h = first(x)
        loss = (wf.relu(block(h) + h) ** 2).sum()
        loss.backward()
        return loss, *[p.grad for p in params]

    shape = 24, 4, 24, 24
    f(wf.tensor(draw(*shape)))
    large = [s.kernel for s in schedule_of(f).steps if isinstance(s, KernelStep)]
    large = [k for k in large if prod(k.domain) >= prod(shape)]
    assert len(large) >= 2
    for kernel in large:
        assert {a.strides[-1] for a in (*kernel.operands, *kernel.results)} <= {0, 1}


def test_the_same_bits_for_any_number_of_threads():
    f = pulled(lambda x, w, b: F.conv2d(x, w, b, padding=1))
    arrays = draw(12, 24, 20, 20), draw(12, 8, 20, 20), draw(24, 8, 3, 3), draw(24)
    compiled = wf.compile(f)
    assert shared_alike(compiled, arrays) == 3


# -- routines by themselves ---------------------------------------------------------------------

SIDES = Side(9, 5, 2, 1, 1, 3), Side(20, 20, 1, 1, 1, 3)


def _correlation(**how) -> Correlation:
    sizes = (9, 20), (5, 20), (3, 3)
    return replace(Correlation(F32, 2, 1, 5, 3, *sizes, False, True, (SIDES,)), **how)


@pytest.mark.parametrize("pieces", [1, 2, 100])
def test_pieces_in_any_order(pieces):
    x, w, b = draw(2, 3, 9, 20), draw(5, 3, 3, 3), draw(5)
    out = np.full((2, 5, 5, 20), np.nan, F32)
    call_routine(_correlation(), [x, w, b, out], pieces)
    want = torch.nn.functional.conv2d(*map(torch.tensor, (x, w, b)), (2, 1), 1)
    near(out, want.numpy().astype(F64), 27)


@pytest.mark.parametrize(
    "wrong,array",
    [
        ({"parts": ((SIDES[0], replace(SIDES[1], count=21)),)}, 3),
        ({"parts": ((replace(SIDES[0], first=1), SIDES[1]),)}, 3),
        ({"parts": ((replace(SIDES[0], taps=4), SIDES[1]),)}, 1),
        ({"parts": ((replace(SIDES[0], size=10), SIDES[1]),), "size": (10, 20)}, 0),
    ],
)
def test_a_wrong_routine_is_caught_when_accesses_are_checked(wrong, array):
    """Its arrays are of the sizes that it says, those that it was made for are smaller."""
    right, made = _correlation(), _correlation(**wrong)
    arrays = [np.zeros(2 * a.size, F32) for a in (*made.operands, *made.results)]
    if array == 0:  # of an array that is larger than what it says nothing is left
        call_routine(made, arrays)
        step = NativeStep(made, (0, 1, 2), (3,))
        x, w, b = map(wf.tensor, (draw(2, 3, 9, 20), draw(5, 3, 3, 3), draw(5)))
        f = wf.compile(lambda x, w, b: F.conv2d(x, w, b, (2, 1), 1))
        f(x, w, b)
        schedule = schedule_of(f)
        assert schedule.steps[0].routine == right
        wrong = replace(schedule, steps=(replace(step, results=schedule.steps[0].results),))
        with pytest.raises(MalformedSchedule, match="is accessed from 0 to 1200 of 1080"):
            verify(wrong)
        return
    with pytest.raises(AssertionError, match=f"array {array} was left"):
        call_routine(made, arrays)


class _Forgetful(Weights):
    """A routine that reads one image more than it says."""

    @property
    def operands(self):
        return replace(Weights(*vars(self).values()), images=self.images - 1).operands


def test_wrong_weights_are_caught_when_accesses_are_checked():
    right = Weights(F32, 2, 1, 5, 3, SIDES)
    arrays = [np.zeros(a.size, F32) for a in (*right.operands, *right.results)]
    call_routine(right, arrays)
    with pytest.raises(AssertionError, match=r"array [01] was left"):
        call_routine(_Forgetful(*vars(right).values()), arrays)


@pytest.mark.parametrize("width", [32, 16])
def test_narrower_registers(width, monkeypatch):
    """Processors with other registers cut work up otherwise."""
    monkeypatch.setattr(lanes, "_register", lambda: width)
    items.cut_of.cache_clear()
    x, w, b, g = draw(2, 3, 9, 20), draw(5, 3, 3, 3), draw(5), draw(2, 5, 5, 20)
    out = np.full((2, 5, 5, 20), np.nan, F32)
    call_routine(_correlation(), [x, w, b, out])
    leaf = torch.tensor(w, requires_grad=True)
    want = torch.nn.functional.conv2d(torch.tensor(x), leaf, torch.tensor(b), (2, 1), 1)
    near(out, want.detach().numpy().astype(F64), 27)
    want.backward(torch.tensor(g))
    routine = Weights(F32, 2, 1, 5, 3, SIDES)
    parts = np.full(routine.results[0].shape, np.nan, F32)
    call_routine(routine, [x, g, parts])
    made = parts.sum(0)[0, :, :, :5].transpose(2, 0, 1).reshape(5, 3, 3, 3)
    near(made, leaf.grad.numpy().astype(F64), 200)
    items.cut_of.cache_clear()


@pytest.mark.parametrize(
    "name", ["wide", "steps", "groups", "dilated steps", "a long line", "depthwise"]
)
def test_small_tiles(name, monkeypatch):
    """Work that is cut in more rows, columns and channels than these sizes ask for."""
    monkeypatch.setattr(blocking, "TILE", 10_000)
    monkeypatch.setattr(items, "_COPY", 12_000)
    monkeypatch.setattr(items, "_TURNED", 8_000)
    items.cut_of.cache_clear()
    n, c, size, o, kernel, how = LAYERS[name]
    call = "conv1d" if len(size) == 1 else "conv2d"
    x, w = draw(n, c, *size), draw(o, c // how.get("groups", 1), *kernel)
    their = getattr(torch.nn.functional, call)
    g = draw(*their(torch.tensor(x), torch.tensor(w), **how).shape)
    found, _ = ours(pulled(lambda x, w: getattr(F, call)(x, w, **how)), g, x, w)
    for got, right in zip(found, theirs(lambda x, w: their(x, w, **how), g, x, w), strict=True):
        near(got, right, g.size // o)
    items.cut_of.cache_clear()


@pytest.mark.parametrize("rows,columns,outs", [(16, 16, 64), (32, 32, 32), (8, 8, 256), (1, 7, 1)])
def test_blocks_fill_registers_but_not_more(rows, columns, outs):
    blocks = blocks_of(rows, columns, outs, 16, 24)
    sums = blocks.outs * blocks.rows * blocks.across
    assert sums <= 24 and blocks.rows <= rows and blocks.outs <= outs
    assert sums >= min(16, outs * rows)
    assert blocks.across <= -(-columns // blocks.lanes)


def test_sides_of_a_transposed_convolution():
    """Every element sees the windows that it is in, each at its tap."""
    for count, taps, stride, dilation, before in np.ndindex(4, 4, 4, 3, 3):
        count, taps, stride, dilation = count + 1, taps + 1, stride + 1, dilation + 1
        size = (count - 1) * stride + dilation * (taps - 1) + 1 - before
        if size < 1:
            continue
        seen = {q: set() for q in range(size)}
        for i, t in np.ndindex(count, taps):
            if 0 <= i * stride + t * dilation - before < size:
                seen[i * stride + t * dilation - before].add((i, t))
        found = {}
        for side in transposed_sides(count, size, taps, stride, dilation, before):
            for u in range(side.count):
                pairs = [(u + t * side.dilation - side.before, t) for t in range(side.taps)]
                found[side.first + u * side.step] = {
                    (i, side.first_tap + t * side.tap_step) for i, t in pairs if 0 <= i < count
                }
        assert found == seen
