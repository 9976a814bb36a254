"""Sums of products and a bias on an emulated GPU: values as in eager mode, in one array."""

import os
from dataclasses import replace

import numpy as np
import pytest
from bench.gpu_cases import weft_side
from bench.gpu_cases.problems import OURS_COMPILED, PROBLEMS
from bench.gpu_cases.sides import Place

import weft as wf
from weft import errors
from weft.compiler.cuda import sums
from weft.compiler.cuda.runtime import executable
from weft.compiler.explain.report import what_of
from weft.compiler.ir.schedule import GemmStep, KernelStep, LibraryStep, Schedule, step_text
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.core.late import raise_late
from weft.profile.work import step_work

torch = pytest.importorskip("torch")
F = wf.nn.functional
EPS = {"float64": 2**-52, "float32": 2**-23, "bfloat16": 2**-8, "float16": 2**-11}
FLOPS = sums.FLOPS


SOAK = os.environ.get("WEFT_SOAK") == "1"


@pytest.fixture(autouse=True)
def small(gpu, monkeypatch):
    """All products are large enough."""
    monkeypatch.setattr(sums, "FLOPS", 0)
    monkeypatch.setenv("WEFT_CACHE_DIR", "")  # schedules there are made with other limits


def array(rng, *shape: int, dtype="float32"):
    return wf.asarray(torch.tensor(rng.normal(size=shape))).to(dtype).to("torch")


def schedule_of(compiled) -> Schedule:
    return compiled._last().executable.schedule


def products(compiled) -> list[GemmStep]:
    return [s for s in schedule_of(compiled).steps if isinstance(s, GemmStep)]


def added(compiled) -> int:
    """The additions in kernels."""
    kernels = [s for s in schedule_of(compiled).steps if isinstance(s, KernelStep)]
    return sum(s.rows.count("add") for s in kernels)


def wide(x) -> np.ndarray:
    return x.to("float64").to("cpu").numpy()


def compare(f, arguments, dtype: str, scale: float = 1.0):
    """Compile f and compare with eager: called, captured, and both as far from float64.

    scale  the largest number in between, by which values are rounded
    """
    compiled = wf.compile(f)
    exact = [x.to("float64") if str(x.dtype) == dtype else x for x in arguments]
    want, truth = f(*arguments), f(*exact)
    for _ in range(3):
        for got, x, y in zip(compiled(*arguments), want, truth, strict=True):
            got, x, y = wide(got), wide(x), wide(y)
            bound = 8 * EPS[dtype] * max(scale, np.abs(y).max(initial=1.0))
            assert got.shape == x.shape
            np.testing.assert_allclose(got, y, rtol=0, atol=bound)
            np.testing.assert_allclose(got, x, rtol=0, atol=2 * bound)
    return compiled


# -- random sums ---------------------------------------------------------------------------------

TAKEN = {
    "vector": lambda n, m: ((n,), lambda v, like: v),
    "row": lambda n, m: ((1, n), lambda v, like: v),
    "aligned part": lambda n, m: ((n + 24,), lambda v, like: v[16 : 16 + n]),
    "row of a matrix": lambda n, m: ((2, n), lambda v, like: v[0]),
    "computed": lambda n, m: ((n,), lambda v, like: wf.tanh(v) * 2),
    "cast": lambda n, m: ((n,), lambda v, like: v.to(like.dtype)),
    "spread": lambda n, m: ((n,), lambda v, like: wf.broadcast_to(v, (m, n))),
}
OTHERS = {
    "odd part": lambda n, m: ((n + 1,), lambda v, like: v[1:]),
    "strided": lambda n, m: ((2 * n,), lambda v, like: v[::2]),
    "reversed": lambda n, m: ((n,), lambda v, like: wf.flip(v)),
    "column": lambda n, m: ((n, 3), lambda v, like: v[:, 1]),
    "scalar": lambda n, m: ((), lambda v, like: v),
    "one number": lambda n, m: ((1,), lambda v, like: v),
    "by rows": lambda n, m: ((m, 1), lambda v, like: v),
    "whole": lambda n, m: ((m, n), lambda v, like: v),
    "python": lambda n, m: ((), lambda v, like: 0.75),
}
BIASES = TAKEN | OTHERS
LEADS = ((), (), (1,), (3,), (2, 1))
USES = {
    "it": lambda s, p, bias: (s,),
    "it twice": lambda s, p, bias: (s, s * 2.0),
    "behind it": lambda s, p, bias: (wf.tanh(s),),
    "column sums": lambda s, p, bias: (s.sum(tuple(range(s.ndim - 1))), wf.tanh(s)),
    "halves": lambda s, p, bias: (s[..., : s.shape[-1] // 2] * 3.0, wf.tanh(s[..., 1:])),
    "lines": lambda s, p, bias: (s.reshape((-1,)) * 1.0,),
    "product, too": lambda s, p, bias: (s, wf.tanh(p)),
    "bias, too": lambda s, p, bias: (s, bias * 2.0),
    "joined": lambda s, p, bias: (wf.concat([wf.tanh(s), s], axis=-1),),
    "activated": lambda s, p, bias: (F.gelu(s, approximate="tanh"),),
    "activated twice": lambda s, p, bias: (
        F.gelu(F.gelu(s.reshape((-1,)).reshape(s.shape), approximate="tanh"), approximate="tanh"),
    ),
    "activated, too": lambda s, p, bias: (F.gelu(s, approximate="tanh"), s * 2.0),
    "stacked": lambda s, p, bias: (wf.concat([s, wf.tanh(s)], axis=0),),
}


def matrix(rng, lead, rows, columns, turn, dtype):
    """A matrix of numbers around 1 / √columns, and what turns it."""
    shape = (*lead, columns, rows) if turn else (*lead, rows, columns)
    made = array(rng, *shape) * max(columns, 1) ** -0.5
    return made.to(dtype), (wf.matrix_transpose if turn else lambda x: x)


def random_sum(seed: int):
    """A function of arrays, these, and their dtype."""
    rng = np.random.default_rng(seed)

    def pick(things):
        return [*things][rng.integers(len(things))]

    dtype, lead = pick(EPS), pick(LEADS)
    m, k, n = pick((0, 1, 2, 7, 33)), pick((0, 1, 2, 5, 64)), pick((0, 1, 2, 9, 48))
    if seed % 8:  # most are products
        m, k, n = max(m, 2), max(k, 2), max(n, 2)
    if seed % 10 == 0:
        m, k, n = 130, 70, 257
    name, use = pick(BIASES), pick(USES)
    shape, look = BIASES[name](n, m)
    held = dtype if name != "cast" else "float64" if dtype == "float32" else "float32"
    arrays, turns = [array(rng, *shape, dtype=held)], []
    ranks = [k, *[pick((1, 2, 5, 80)) for _ in range(pick((0, 0, 1, 2)))]]
    scales = [None, *[pick((None, 0.25, -2.0)) for _ in ranks]]
    for r in ranks:
        for which, sizes in enumerate(((m, r), (r, n))):
            x, turn = matrix(rng, () if which else lead, *sizes, pick((0, 0, 1)), dtype)
            arrays.append(x)
            turns.append(turn)
    order, pairs, flat = rng.permutation(len(ranks) + 1), pick((0, 1)), pick((0, 0, 1))

    def f(v, *matrices):
        matrices = [turn(x) for turn, x in zip(turns, matrices, strict=True)]
        made = []
        for i, scale in zip(range(len(ranks)), scales, strict=False):
            p = matrices[2 * i] @ matrices[2 * i + 1]
            made.append(p if scale is None else p * scale)
        if flat and name not in ("by rows", "whole", "spread"):
            made = [p.reshape((-1, n)) if n else p for p in made]
        bias = look(v, matrices[0])
        terms = [[bias, *made][i] for i in order]
        if pairs and len(terms) == 4:
            s = (terms[0] + terms[1]) + (terms[2] + terms[3])
        else:
            s = sum(terms[1:], start=terms[0])
        return USES[use](s, made[0], bias)

    return f, arrays, dtype


@pytest.mark.parametrize("seed", range(1000 if SOAK else 80))
def test_random_sums(seed, monkeypatch):
    monkeypatch.setattr(executable, "_FEW", 0)
    f, arrays, dtype = random_sum(seed)
    compiled = compare(f, arrays, dtype, scale=16.0)
    for step in products(compiled):  # what the library's epilogue needs
        assert step.bias is None or (not step.batch and step.ldc == step.n)


def test_random_sums_have_all_kinds_of_steps():
    found = set()
    for seed in range(80):
        f, arrays, _ = random_sum(seed)
        compiled = wf.compile(f)
        compiled(*arrays)
        steps = products(compiled)
        found |= {("bias", s.alpha == 1, s.transpose_b) for s in steps if s.bias is not None}
        found |= {("sum", s.alpha == 1, s.transpose_b) for s in steps if s.beta}
    assert len(found) >= 7, found


# -- biases --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BIASES)
def test_which_biases_products_take(name):
    rng = np.random.default_rng(0)
    shape, look = BIASES[name](10, 6)
    v = array(rng, *shape, dtype="float64" if name == "cast" else "float32")
    x, w = array(rng, 6, 4), array(rng, 4, 10)
    compiled = compare(lambda v, x, w: (x @ w + look(v, x),), [v, x, w], "float32", 8.0)
    (step,) = products(compiled)
    assert (step.bias is not None) == (name in TAKEN)
    assert added(compiled) == (name not in TAKEN)


@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
@pytest.mark.parametrize("dtype", EPS)
def test_a_linear_layer_is_one_step(lead, dtype):
    rng = np.random.default_rng(0)
    x, w = array(rng, *lead, 6, 4, dtype=dtype), array(rng, 10, 4, dtype=dtype)
    b = array(rng, 10, dtype=dtype)
    compiled = compare(lambda x, w, b: (F.linear(x, w, b),), [x, w, b], dtype, 8.0)
    (step,) = schedule_of(compiled).steps
    assert step.bias is not None and not step.batch


@pytest.mark.parametrize(
    "f",
    [
        lambda p, b: (p + b, p),
        lambda p, b: (p + b, p + 2.0 * b),
        lambda p, b: (p + b + p[0],),
        lambda p, b: (p * p + b,),
        lambda p, b: (p[:, 1:] + b[1:],),
    ],
)
def test_a_product_that_others_read_takes_none(f):
    rng = np.random.default_rng(0)
    x, w, b = array(rng, 6, 4), array(rng, 4, 10), array(rng, 10)
    compiled = compare(lambda x, w, b: f(x @ w, b), [x, w, b], "float32", 16.0)
    assert [s.bias for s in products(compiled)] == [None]


@pytest.mark.parametrize(
    ("left", "right", "shape"),
    [
        *[((4,), (4,), s) for s in ((), (1,), (10,), (6, 10))],
        *[((4,), (4, 10), s) for s in ((), (1,), (10,), (6, 10))],
        *[((6, 4), (4,), s) for s in ((), (1,), (6,), (5, 6))],
    ],
)
def test_products_of_vectors_take_none(left, right, shape):
    rng = np.random.default_rng(0)
    arrays = [array(rng, *s) for s in (left, right, shape)]
    compiled = compare(lambda x, w, v: (x @ w + v + wf.tanh(x) @ w,), arrays, "float32", 8.0)
    assert {s.bias for s in products(compiled)} == {None}


@pytest.mark.parametrize("sizes", [(1, 4, 10), (6, 1, 10), (6, 4, 1)])
def test_what_the_library_has_no_epilogue_for_takes_none(sizes):
    rng = np.random.default_rng(0)
    m, k, n = sizes
    x, w, b = array(rng, m, k), array(rng, k, n), array(rng, n)
    compiled = compare(lambda x, w, b: (x @ w + b,), [x, w, b], "float32", 8.0)
    assert [s.bias for s in products(compiled)] == [None]


def test_batches_of_matrices_take_none():
    rng = np.random.default_rng(0)
    x, w, b = array(rng, 3, 6, 4), array(rng, 3, 4, 10), array(rng, 10)
    compiled = compare(lambda x, w, b: (x @ w + b,), [x, w, b], "float32", 8.0)
    assert [s.bias for s in products(compiled)] == [None]


def test_small_products_take_none(monkeypatch):
    monkeypatch.setattr(sums, "FLOPS", FLOPS)
    rng = np.random.default_rng(0)
    x, w, b = array(rng, 11, 13), array(rng, 13, 17), array(rng, 17)
    compiled = compare(lambda x, w, b: (x @ w + b,), [x, w, b], "float32", 8.0)
    assert [s.bias for s in products(compiled)] == [None]


def test_a_bias_of_two_products():
    rng = np.random.default_rng(0)
    x, w, b = array(rng, 6, 4), array(rng, 4, 10), array(rng, 10)
    compiled = compare(
        lambda x, w, b: ((x @ w + b) @ w.T, wf.tanh(x) @ w + b), [x, w, b], "float32", 32.0
    )
    assert [s.bias is not None for s in products(compiled)].count(True) == 2


@pytest.mark.parametrize(("axis", "copies"), [(0, 0), (1, 2)])
def test_products_beside_each_other_have_no_gaps(axis, copies):
    """Where rows have gaps, the library has no epilogue."""
    rng = np.random.default_rng(0)
    x, w, b = array(rng, 6, 4), array(rng, 4, 16), array(rng, 16)

    def f(x, w, b):
        return (wf.concat([x @ w + b, wf.tanh(x) @ w + b], axis=axis) * 2.0,)

    compiled = compare(f, [x, w, b], "float32", 16.0)
    assert [(s.bias is not None, s.ldc) for s in products(compiled)] == [(True, 16)] * 2
    kernels = [s for s in schedule_of(compiled).steps if isinstance(s, KernelStep)]
    assert len([s for s in kernels if not s.rows]) == copies


@pytest.mark.parametrize("axis", [0, 1])
def test_a_bias_that_is_part_of_an_array_computed(axis):
    rng = np.random.default_rng(0)
    x, w, b = array(rng, 6, 4), array(rng, 4, 16), array(rng, 16)

    def f(x, w, b):
        bias = wf.tanh(b)
        return x @ w + bias, wf.stack([bias, wf.exp(b)], axis=axis)

    compiled = compare(f, [x, w, b], "float32", 16.0)
    assert [s.bias is not None for s in products(compiled)] == [True]


# -- sums ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0), (2, 0, 1)])
@pytest.mark.parametrize("right", [False, True])
def test_an_adapter_is_added_to_the_layer(order, right):
    """In whatever order: first the thin product, scaled, with the bias, then the large one."""
    rng = np.random.default_rng(0)
    x, w, b = (array(rng, *s, dtype="bfloat16") for s in ((2, 8, 16), (24, 16), (24,)))
    a, c = array(rng, 3, 16), array(rng, 24, 3)

    def f(x, w, b, a, c):
        a, c = (y.to(x.dtype) for y in (a, c))
        terms = [x @ w.T, b, ((x @ a.T) @ c.T) * 0.25]
        one, two, three = (terms[i] for i in order)
        return (one + (two + three) if right else (one + two) + three,)

    compiled = compare(f, [x, w, b, a, c], "bfloat16", 64.0)
    steps = products(compiled)
    assert {(s.n, s.k, s.beta, s.alpha, s.bias is not None) for s in steps} == {
        (3, 16, 0.0, 1.0, False),
        (24, 3, 0.0, 0.25, True),
        (24, 16, 1.0, 1.0, False),
    }
    assert steps[-1].beta == 1.0 and added(compiled) == 0


def test_the_smallest_of_many_products_comes_first():
    rng = np.random.default_rng(0)
    ranks = (2, 5, 3, 16, 4)
    arrays = [array(rng, *s) for r in ranks for s in ((6, r), (r, 8))]

    def f(*arrays):
        pairs = zip(arrays[::2], arrays[1::2], strict=True)
        return (wf.tanh(sum([x @ y for x, y in pairs][1:], start=arrays[0] @ arrays[1])),)

    compiled = compare(f, arrays, "float32", 32.0)
    assert products(compiled)[0].k == 2
    assert [s.beta for s in products(compiled)] == [0.0, 1.0, 1.0, 1.0, 1.0]


def test_two_sums_are_one():
    rng = np.random.default_rng(0)
    x, y, w, v, b = (array(rng, *s) for s in ((6, 8), (6, 3), (8, 10), (3, 10), (10,)))

    def f(x, y, w, v, b):
        return ((x @ w + y @ v) + ((x * 2.0) @ w + y @ (v * 3.0)) + b,)

    compiled = compare(f, [x, y, w, v, b], "float32", 64.0)
    assert [s.beta for s in products(compiled)] == [0.0, 1.0, 1.0, 1.0]
    assert added(compiled) == 0


def test_two_layers_with_biases_are_added_by_a_kernel():
    rng = np.random.default_rng(0)
    x, w, v, b, c = (array(rng, *s) for s in ((6, 8), (8, 10), (8, 10), (10,), (10,)))

    def f(x, w, v, b, c):
        return ((x @ w + b) + (x @ v + c),)

    compiled = compare(f, [x, w, v, b, c], "float32", 64.0)
    assert [(s.beta, s.bias is not None) for s in products(compiled)] == [(0.0, True)] * 2


def test_a_step_of_flux_adds_adapters_to_layers(monkeypatch):
    made, compile_ = [], wf.compile
    monkeypatch.setattr(wf, "compile", lambda f: made.append(compile_(f)) or made[0])
    place = Place("torch", "cpu", True)
    side = weft_side.side(PROBLEMS["lora"], PROBLEMS["lora"].data(place), place, OURS_COMPILED)
    side.call()
    steps = products(made[0])
    layers = [s for s in steps if s.bias is not None]
    assert len(layers) == 10
    for s in layers:  # the adapter is of rank 2
        (large,) = [t for t in steps if t.beta and t.c == s.c and t.n == s.n]
        assert s.k == 2 < large.k and large.alpha == 1.0
    kernels = [s for s in schedule_of(made[0]).steps if isinstance(s, KernelStep)]
    assert not [s for s in kernels if s.rows == ("add", "add")]
    assert all(s.k > 2 for s in steps if s.beta)


# -- gradients, memory, loops --------------------------------------------------------------------


@pytest.mark.parametrize("lead", [(), (2,)])
def test_gradients(lead):
    rng = np.random.default_rng(0)
    x, w, b, a, c = (array(rng, *s) for s in ((*lead, 6, 8), (10, 8), (10,), (2, 8), (10, 2)))

    def loss(x, w, b, a, c):
        y = F.linear(x, w, b) + F.linear(F.linear(x, a), c) * 0.5
        return (wf.tanh(y) ** 2).sum()

    compiled = compare(wf.grad(loss, argnums=(0, 1, 2, 3, 4)), [x, w, b, a, c], "float32", 256.0)
    assert [s.bias is not None for s in products(compiled)].count(True) == 1


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("bias", ["given", "in the result", "written, too"])
def test_results_in_the_memory_of_inputs(guarded, adapted, bias, monkeypatch):
    """Also where a check fails: nothing is written then."""
    monkeypatch.setattr(executable, "_FEW", 0)
    seen = []
    for compiles in (False, True):
        rng = np.random.default_rng(0)
        x, w, v, b, y = (array(rng, *s) for s in ((6, 8), (8, 10), (6, 10), (10,), (6, 10)))

        def f(x, i, w=w, v=v, b=b, y=y):
            loss = F.cross_entropy(y, i) if guarded else y.sum()
            added = y[0] if bias == "in the result" else b
            z = x @ w + added
            y.copy_(z + (x * 0.5) @ w if adapted else z)
            if bias == "written, too":
                b.copy_((x @ w + b).sum(0) * 0.125)
            return loss + v.sum() * 0.0

        g = wf.compile(f) if compiles else f
        good = wf.asarray(torch.arange(6))
        losses = [g(x, good) for _ in range(3)]
        if guarded:
            before = wide(y).copy(), wide(b).copy()
            with pytest.raises(errors.IndexingError):
                g(x, wf.asarray(torch.arange(6) + 7))
                raise_late()
            np.testing.assert_array_equal(wide(y), before[0])
            np.testing.assert_array_equal(wide(b), before[1])
        seen.append([*losses, y, b])
        if compiles:
            assert any(s.bias is not None for s in products(g))
    for a, b in zip(*seen, strict=True):
        np.testing.assert_allclose(wide(b), wide(a), rtol=1e-4, atol=1e-4)


def test_layers_that_run_again():
    """Under a budget of bytes; the biases are cast again, too."""
    rng = np.random.default_rng(0)
    weights = [(array(rng, 32, 32) * 0.2, array(rng, 32)) for _ in range(6)]
    x = array(rng, 512, 32)

    def loss(x, *weights):
        for w, b in zip(weights[::2], weights[1::2], strict=True):
            x = wf.tanh(x.to("bfloat16") @ w.to("bfloat16") + (b * 2.0).to("bfloat16"))
        return x.to("float32").sum()

    given = [x, *[y for pair in weights for y in pair]]
    step = wf.grad(loss, argnums=tuple(range(1, 13)))
    plain = wf.compile(step)
    want = plain(*given)
    config = wf.CheckpointConfig("auto", memory_budget_mb=0.51)
    compiled = wf.compile(step, checkpoint=config)
    for a, b in zip(compiled(*given), want, strict=True):
        np.testing.assert_array_equal(wide(a), wide(b))
    count = [sum(s.bias is not None for s in products(c)) for c in (plain, compiled)]
    assert count[0] == 6 < count[1]


def test_loops_have_the_bias_in_their_kernels():
    rng = np.random.default_rng(0)
    x, w, b = array(rng, 4, 8), array(rng, 8, 8) * 0.3, array(rng, 8)

    def f(x, w, b):
        return (wf.scan(lambda h, _: (wf.tanh(h @ w + b), None), x, None, length=5)[0] @ w + b,)

    compiled = compare(f, [x, w, b], "float32", 16.0)
    assert not [s for s in schedule_of(compiled).steps if isinstance(s, LibraryStep)]
    assert [s.bias is not None for s in products(compiled)] == [True]


# -- steps ---------------------------------------------------------------------------------------


def layer():
    """A compiled layer whose bias is a part of an array, and its schedule."""
    rng = np.random.default_rng(0)
    x, w, b = array(rng, 6, 4), array(rng, 4, 10), array(rng, 30)
    compiled = wf.compile(lambda x, w, b: x @ w + b[16:26])
    compiled(x, w, b)
    return compiled, schedule_of(compiled)


def test_what_is_said_of_a_bias():
    compiled, schedule = layer()
    (step,) = schedule.steps
    assert step.bias in step.reads and schedule.buffers[step.bias].offset == 16
    assert step_text(step).startswith(f"gemm    b{step.c} = b0·b1 + b{step.bias} 6×10×4")
    assert what_of(step) == "+ bias" and "+ bias" in str(compiled.explain())
    assert step_work(schedule, step).nbytes == 4 * (6 * 4 + 4 * 10 + 6 * 10 + 10)


def test_a_stored_schedule_has_its_bias():
    assert layer()[1] == layer()[1]


def test_wrong_biases_are_refused():
    _, schedule = layer()
    (step,) = schedule.steps
    bias = schedule.buffers[step.bias]
    verify(schedule)
    for wrong, buffer in (
        (replace(step, beta=1.0), bias),
        (step, replace(bias, offset=21)),
        (step, replace(bias, dtype=np.dtype("float64"))),
        (replace(step, bias=step.c), bias),
    ):
        buffers = list(schedule.buffers)
        buffers[step.bias] = buffer
        with pytest.raises(MalformedSchedule):
            verify(replace(schedule, buffers=tuple(buffers), steps=(wrong,)))
