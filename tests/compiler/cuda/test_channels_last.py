"""Convolutions on arrays that lie channels-last: the same values, and no transposing copies."""

import json
import os
from collections import Counter

import numpy as np
import pytest

import weft as wf
from weft.compiler.cache import schedules
from weft.compiler.cuda import channels_last, repeat
from weft.compiler.cuda.channels_last import there
from weft.compiler.ir.schedule import KernelStep, LibraryStep
from weft.core import dtypes

torch = pytest.importorskip("torch")
F = wf.nn.functional


SOAK = os.environ.get("WEFT_SOAK") == "1"


@pytest.fixture
def repeated(monkeypatch):
    """Light rows of small arrays are computed again, too."""
    monkeypatch.setattr(repeat, "ELEMENTS", 1)


@pytest.fixture
def exact(monkeypatch):
    """Convolutions of float64 are turned, too, so that a wrong axis is more than rounding."""
    monkeypatch.setattr(channels_last, "TURNED", frozenset((*dtypes.HALF, dtypes.float64)))


def schedule_of(compiled):
    return compiled._last().executable.schedule


def library(compiled) -> Counter:
    steps = schedule_of(compiled).steps
    return Counter(s.op.name for s in steps if isinstance(s, LibraryStep))


# -- random programs -------------------------------------------------------------------------


class Making:
    """What a random program takes while it is made: numbers and weights are drawn, and kept."""

    def __init__(self, rng):
        self.rng, self.numbers, self.weights = rng, [], []

    def below(self, n: int) -> int:
        self.numbers.append(int(self.rng.integers(n)))
        return self.numbers[-1]

    def weight(self, *shape):
        self.weights.append(0.5 * self.rng.normal(size=shape))
        return wf.tensor(self.weights[-1])


class Replay:
    """The same numbers again, and other weights."""

    def __init__(self, numbers, weights):
        self.numbers, self.weights = iter(numbers), iter(weights)

    def below(self, n: int) -> int:
        return next(self.numbers)

    def weight(self, *shape):
        return next(self.weights)


def run(parts, t, x):
    seen = [x]
    for part in parts:
        x = _PARTS[part](t, x, seen)
        seen.append(x)
    return x


def random_program(seed: int, parts=None):
    """Its parts, the numbers that it draws, and its arguments: an image and weights."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(*rng.integers(1, (4, 5)), *rng.integers(4, 9, 2)))
    if parts is None:
        parts = [str(rng.choice(list(_PARTS))) for _ in range(int(rng.integers(2, 7)))]
        parts[int(rng.integers(len(parts)))] = "conv"
    making = Making(rng)
    run(parts, making, wf.tensor(x))
    return tuple(parts), tuple(making.numbers), [x, *making.weights]


def _conv(t, x, seen):
    k, stride, out = (1, 3)[t.below(2)], 1 + t.below(2), 1 + t.below(5)
    if min(x.shape[2:]) < k:
        k = 1
    groups = x.shape[1] if t.below(7) == 0 else 1
    w = t.weight(out * groups, x.shape[1] // groups, k, k)
    b = t.weight(out * groups) if t.below(3) == 0 else None
    return F.conv2d(x, w, b, stride=stride, padding=k // 2, groups=groups)


def _up(t, x, seen):
    w = t.weight(x.shape[1], 1 + t.below(3), 2, 2)
    return F.conv_transpose2d(x, w, stride=1 + t.below(2))


def _norm(t, x, seen):
    c = x.shape[1]
    if x.size // c < 2:
        return x
    w, b = (t.weight(c) for _ in range(2))
    return F.batch_norm(x, None, None, w, b, training=True)


def _residual(t, x, seen):
    alike = [y for y in seen if y.shape == x.shape]
    return x + 0.5 * alike[t.below(len(alike))] if alike else x * 2


def _max_pool(t, x, seen):
    return F.max_pool2d(x, 3, stride=2, padding=1)


def _mean_pool(t, x, seen):
    return F.avg_pool2d(x, 2, stride=1) if min(x.shape[2:]) > 1 else x


def _excite(t, x, seen):
    return x * wf.sigmoid(x.mean(axis=(2, 3), keepdims=True))


def _per_pixel(t, x, seen):
    axis = (t.below(4),)
    return wf.tanh(x - x.mean(axis=axis, keepdims=True)) + x.sum(axis=axis, keepdims=True)


def _softmax(t, x, seen):
    return F.softmax(x, 1 + t.below(3))


def _shift(t, x, seen):
    shapes = [(x.shape[1], 1, 1), x.shape[1:], x.shape[-1:], (x.shape[0], 1, *x.shape[2:]), x.shape]
    return x * t.weight(*shapes[t.below(len(shapes))])


def _join(t, x, seen):
    axis = t.below(4)
    return wf.concat([x, wf.tanh(x)], axis=axis)


def _cut(t, x, seen):
    axis = t.below(4)
    n = x.shape[axis]
    a, step = t.below(max(n - 2, 1)), 1 + t.below(2)
    return x[(slice(None),) * axis + (slice(a, None, step),)]


def _pad(t, x, seen):
    return F.pad(x, tuple(t.below(2) for _ in range(4)))


def _flatten(t, x, seen):
    flat = x.reshape((x.shape[0], x.shape[1], x.shape[2] * x.shape[3]))
    return (flat * flat.amax(axis=2, keepdims=True)).reshape(x.shape)


def _turn(t, x, seen):
    orders = ((0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3), (0, 1, 3, 2), (3, 2, 1, 0))
    return wf.permute_dims(x, orders[t.below(5)])


def _mask(t, x, seen):
    return wf.where(x > 0.1, x, 0.2 * x)


_PARTS = {
    **{"conv": _conv, "conv again": _conv, "and again": _conv, "up": _up, "norm": _norm},
    **{"relu": lambda t, x, seen: F.relu(x), "residual": _residual, "max pool": _max_pool},
    **{"mean pool": _mean_pool, "excite": _excite, "per pixel": _per_pixel, "softmax": _softmax},
    **{"shift": _shift, "join": _join, "cut": _cut, "pad": _pad, "flatten": _flatten},
    **{"turn": _turn, "mask": _mask},
}


def gradients(parts, numbers, count, square):
    """The loss and the gradients by x and all weights, or those of a function of gradients."""

    def loss(x, *weights):
        y = run(parts, Replay(numbers, weights), x)
        return (wf.sin(y) * y).sum()

    def second(x, *weights):
        found = wf.grad(loss, tuple(range(1 + len(weights))))(x, *weights)
        return sum([(g * g).sum() for g in found])

    function = second if square else loss
    return lambda *given: wf.value_and_grad(function, tuple(range(count)))(*given)


@pytest.mark.parametrize("seed", range(200 if SOAK else 30))
def test_random_programs(gpu, exact, monkeypatch, seed):
    """Compiled, with gradients and some of second order, as NumPy computes it in eager mode."""
    if seed % 3:
        monkeypatch.setattr(channels_last._Regions, "pays", lambda self, region: True)
    if seed % 2:
        monkeypatch.setattr(repeat, "ELEMENTS", 1)
    parts, numbers, given = random_program(seed)
    function = gradients(parts, numbers, len(given), square=seed % 5 == 0)
    want, grads = function(*map(wf.tensor, given))
    compiled = wf.compile(function)
    got, made = compiled(*[wf.asarray(torch.tensor(a)) for a in given])
    np.testing.assert_allclose(got.to("cpu").numpy(), want.numpy(), rtol=1e-9)
    for a, b in zip(made, grads, strict=True):
        a, b = a.to("cpu").numpy(), b.numpy()
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9 * max(1, np.abs(b).max()))


def test_all_that_lies_between_is_turned(gpu, exact):
    """Each part between two convolutions, forward and back: there is no row of the usual order."""
    for part in ("norm", "relu", "residual", "max pool", "mean pool", "excite", "mask"):
        parts, numbers, given = random_program(3, ("conv", part, "conv", "norm", "conv"))
        compiled = wf.compile(gradients(parts, numbers, len(given), False))
        compiled(*[wf.asarray(torch.tensor(a)) for a in given])
        rows = {row for row in library(compiled) if row.startswith(("convolution", "max", "pool"))}
        assert rows and all(row.endswith("_last") for row in rows), (part, rows)


# -- a small residual network ----------------------------------------------------------------


def small_parameters(dtype=torch.float32):
    """Those of a stem and two bottlenecks, as in ResNet-50."""
    rng, params = np.random.default_rng(0), {}

    def conv(name, out, given, k):
        w = rng.normal(size=(out, given, k, k)) * (2 / (given * k * k)) ** 0.5
        for part, value in (("w", w), ("scale", np.ones(out)), ("shift", np.zeros(out))):
            params[f"{name}.{part}"] = wf.Parameter(wf.asarray(torch.tensor(value, dtype=dtype)))

    conv("stem", 8, 3, 3)
    for name, given, width in (("0", 8, 4), ("1", 16, 8)):
        conv(f"{name}.a", width, given, 1)
        conv(f"{name}.b", width, width, 3)
        conv(f"{name}.c", 4 * width, width, 1)
        conv(f"{name}.short", 4 * width, given, 1)
    return params


def conv_norm(params, name, x, stride=1):
    w, scale, shift = (params[f"{name}.{part}"] for part in ("w", "scale", "shift"))
    x = F.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
    return F.batch_norm(x, None, None, scale, shift, training=True)


def bottleneck(params, name, x, stride):
    h = F.relu(conv_norm(params, f"{name}.a", x))
    h = F.relu(conv_norm(params, f"{name}.b", h, stride))
    short = conv_norm(params, f"{name}.short", x, stride)
    return F.relu(conv_norm(params, f"{name}.c", h) + short)


def forward(params, x):
    x = F.max_pool2d(F.relu(conv_norm(params, "stem", x, 2)), 3, stride=2, padding=1)
    x = bottleneck(params, "1", bottleneck(params, "0", x, 1), 2)
    return (x.mean((2, 3)) ** 2).sum()


def small_step(params, autocast):
    optimizer = wf.optim.SGD(list(params.values()), lr=0.1, momentum=0.9)

    def step(x):
        for p in params.values():
            p.grad = None
        with wf.amp.autocast("bfloat16", enabled=autocast):
            loss = forward(params, x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def rows_of(step: KernelStep) -> list[str]:
    return [getattr(t, "row", "a fold") for t in step.kernel.steps]


def is_turned(b) -> bool:
    """Whether a buffer is read in another order than that of its memory."""
    steps = [s for n, s in zip(b.shape, b.strides, strict=True) if n > 1 and s]
    return steps != sorted(steps, reverse=True)


def test_a_residual_network_has_no_transposing_copies(gpu):
    """Only the image, small weights and their gradients are read in another order."""
    x = wf.asarray(torch.randn(4, 3, 32, 32))
    params = small_parameters()
    compiled = wf.compile(small_step(params, True))
    compiled(x)
    rows, schedule = library(compiled), schedule_of(compiled)
    assert rows["convolution_last"] == rows["convolution_weight_last"] == 9
    assert all(row.endswith("_last") for row in rows)
    most = max(p.size for p in params.values())
    for step in schedule.steps:
        arrays = [schedule.buffers[i] for i in (*step.reads, *step.writes)]
        turned = [b.shape for b in arrays if is_turned(b) and b.size > most]
        assert not turned or turned == [x.shape], turned
        assert not isinstance(step, KernelStep) or rows_of(step) != ["copy"]


def test_a_batch_norm_stores_nothing_in_between(gpu, repeated):
    """Its kernels read the convolution's result, in half precision, and keep only that."""

    def loss(x, v, w, scale, shift):
        with wf.amp.autocast("bfloat16"):
            y = F.batch_norm(F.conv2d(x, v, padding=1), None, None, scale, shift, training=True)
            return (F.conv2d(F.relu(y), w) ** 2).sum()

    shapes = ((4, 32, 16, 16), (32, 32, 3, 3), (8, 32, 3, 3), (32,), (32,))
    given = [wf.asarray(torch.randn(shape)) for shape in shapes]
    gradient = wf.grad(loss, (1, 2, 3, 4))
    compiled = wf.compile(gradient)
    for got, want in zip(compiled(*given), gradient(*given), strict=True):
        got, want = got.to("cpu").numpy(), want.to("cpu").numpy()
        np.testing.assert_allclose(got, want, rtol=0.05, atol=0.02 * np.abs(want).max())
    schedule = schedule_of(compiled)
    written = [schedule.buffers[i] for s in schedule.steps for i in s.writes]
    whole = [str(b.dtype) for b in written if b.shape == (4, 16, 16, 32)]
    # The images, the results of the convolution and of relu, and the gradients of both.
    assert whole == ["bfloat16"] * 5


@pytest.mark.usefixtures("repeated")
def test_a_residual_network_computes_the_same(gpu, exact):
    found = []
    for compile_it in (False, True):
        params = small_parameters(torch.float64)
        x = wf.asarray(torch.tensor(np.random.default_rng(1).normal(size=(2, 3, 16, 16))))
        step = small_step(params, False)
        step = wf.compile(step) if compile_it else step
        losses = [float(step(x)) for _ in range(3)]
        found.append((losses, [p.detach().to("cpu").numpy() for p in params.values()]))
        assert not compile_it or library(step)["convolution_last"] == 9
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-9)
    for a, b in zip(found[1][1], found[0][1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


# -- what stays ------------------------------------------------------------------------------


def compiled_rows(f, *shapes, dtype=torch.bfloat16):
    given = [wf.asarray(torch.randn(shape).to(dtype)) for shape in shapes]
    compiled = wf.compile(f)
    got, want = compiled(*given), f(*given)
    np.testing.assert_allclose(
        *(x.astype("float64").to("cpu").numpy() for x in (got, want)), 0.05, 0.05
    )
    return library(compiled)


def twice(x, w, **how):
    return F.conv2d(F.relu(F.conv2d(x, w, **how)), w, **how)


def test_what_is_not_turned(gpu):
    image, weight = (2, 4, 6, 6), (4, 4, 3, 3)
    assert compiled_rows(twice, image, weight) == {"convolution_last": 2}
    single = compiled_rows(twice, image, weight, dtype=torch.float32)
    grouped = compiled_rows(lambda x, w: twice(x, w, groups=4), image, (4, 1, 3, 3))
    nothing = compiled_rows(twice, (0, 4, 6, 6), weight)
    alone = compiled_rows(F.conv2d, image, weight)
    assert set(single) == set(grouped) == set(nothing) == set(alone) == {"convolution"}
    line = compiled_rows(lambda x, w: F.conv1d(F.relu(F.conv1d(x, w)), w), (2, 4, 9), (4, 4, 3))
    assert line == {"convolution": 2}


def test_a_batch_of_weights(gpu):
    def f(x, w):
        return wf.vmap(lambda w: twice(x, w))(w).sum(axis=0)

    compiled_rows(f, (2, 4, 6, 6), (3, 4, 4, 3, 3))
    compiled_rows(lambda x, w: wf.vmap(lambda x: twice(x, w))(x), (3, 2, 4, 6, 6), (4, 4, 3, 3))


def test_schedules_with_turned_rows_are_written_to_disk(gpu):
    given = [wf.asarray(torch.randn(shape).bfloat16()) for shape in ((2, 4, 6, 6), (4, 4, 3, 3))]
    compiled = wf.compile(twice)
    compiled(*given)
    found = compiled._last()
    graph, run = found.graph, found.executable
    writer = schedules._EntryWriter(graph)
    entry = json.loads(json.dumps(writer.entry(run.schedule, run.plan)))
    read, _ = schedules._Reader(graph, b"".join(writer.constants)).entry(entry)
    assert read.steps == run.schedule.steps


def test_axes_go_there_and_back():
    for n in range(3, 7):
        assert [there(n)[a] for a in channels_last.back(n)] == list(range(n))
