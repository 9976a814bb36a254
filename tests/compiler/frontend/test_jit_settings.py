"""Compiled functions among everything else: hooks, contexts, threads, copies, odd arguments."""

import copy
import math
import pickle
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import weft as wf
from weft import errors

X = [1.0, -2.0, 3.0]


def smooth(x):
    return (wf.sin(x) * x).sum()


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-6)


def gradient(f, x=None, run=lambda f, x: f(x).backward()):
    """`.grad` after a backward pass, eager and compiled."""
    found = []
    for g in (f, wf.compile(f)):
        x = wf.tensor(X, requires_grad=True)
        run(g, x)
        found.append(x.grad.numpy())
    close(*found)
    return found[0]


# Hooks


def hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return (y * y).sum()


def test_a_hook_on_what_the_function_computes():
    assert gradient(hooked).tolist() == [24.0, -48.0, 72.0]
    assert gradient(lambda x: hooked(x).backward(), run=lambda f, x: f(x)).tolist() == [24, -48, 72]


@pytest.mark.parametrize("inside", [True, False])
def test_a_hook_on_an_argument(inside):
    def run(f, x):
        x.register_hook(lambda g: g * 10)
        out = f(x)
        if not inside:
            out.backward()

    f = (lambda x: (x * x).sum().backward()) if inside else (lambda x: (x * x).sum())
    assert gradient(f, run=run).tolist() == [20.0, -40.0, 60.0]


def test_hooks_that_come_and_go():
    w = wf.Parameter(X)
    f = wf.compile(lambda: (w * w).sum().backward())

    def result():
        w.grad = None
        f()
        return w.grad.tolist()

    assert result() == [2.0, -4.0, 6.0]
    handle = w.register_hook(lambda g: g * 10)
    assert result() == [20.0, -40.0, 60.0]
    handle.remove()
    assert result() == [2.0, -4.0, 6.0]
    assert "the hooks on the gradient of the tensor" in f.recompilations[0]


def test_what_is_saved_goes_through_the_users_hooks():
    packed = []

    def pack(x):
        packed.append(x.shape)
        return x

    def run(f, x):
        with wf.saved_tensors_hooks(pack, lambda x: x * 2):
            y = f(x)
        y.backward()

    gradient(lambda x: (x**3).sum(), run=run)
    assert packed


# Contexts


def test_tapes_checkpoints_and_gradients_around_a_call():
    def taped(f, x):
        with wf.GradientTape() as tape:
            y = f(x)
        x.grad = tape.gradient(y, [x])[0]

    gradient(smooth, run=taped)
    gradient(smooth, run=lambda f, x: wf.checkpoint(f, x).backward())
    gradient(lambda x: wf.checkpoint(smooth, x))
    gradient(smooth, run=lambda f, x: (f(x) * f(x * 2)).backward())
    gradient(smooth, run=lambda f, x: wf.checkpoint(lambda t: f(t) + f(t), x).backward())


def test_autocast_inside_and_outside():
    a = wf.tensor(np.random.default_rng(0).standard_normal((4, 4)).astype("float32"))
    plain = wf.compile(lambda x: x @ x)
    inner = wf.compile(lambda x: wf.amp.autocast("bfloat16")(lambda: x @ x)())
    for _ in range(2):
        assert plain(a).dtype == wf.float32 and inner(a).dtype == wf.bfloat16
        with wf.amp.autocast("bfloat16"):
            assert plain(a).dtype == wf.bfloat16
            close(plain(a).to("float32"), (a @ a).to("float32"))
    assert (
        plain.recompilations == [plain.recompilations[0]] and "autocast" in plain.recompilations[0]
    )


def test_a_backward_pass_that_would_go_on_outside():
    w = wf.tensor(X, requires_grad=True)
    with pytest.raises(errors.StagingError, match=r"reaches argument 0, which was computed from"):
        wf.compile(lambda h: (h * h).sum().backward())(w * 2)
    assert w.grad is None


def test_a_value_from_before_the_call_wrote_into_it():
    w, buffer = wf.Parameter(X), wf.tensor(X)

    def f(x):
        y = w * buffer * x
        buffer.copy_(buffer + 1)
        return y.sum()

    for g in (f, wf.compile(f)):
        with pytest.raises(errors.SavedValueOverwritten):
            g(wf.tensor(X)).backward()


def test_marks_of_gradients_without_a_graph_travel_under_no_grad():
    def f(x):
        t = x.detach().requires_grad_()
        g = (t * t).sum().backward()[t]
        with wf.no_grad():
            g = wf.tanh(g) * g
        return g.sum()

    for g in (wf.grad(f), wf.compile(wf.grad(f))):
        with pytest.raises(errors.GradientNotRecorded):
            g(wf.tensor(X))


def test_narrow_gradients_of_rows_with_several_results():
    x = wf.tensor(X, dtype="bfloat16", requires_grad=True)
    got = wf.compile(wf.grad(lambda x: wf.var(x, axis=0)))(x)
    assert got.dtype == wf.bfloat16
    want = wf.grad(lambda x: wf.var(x, axis=0))(x)
    close(got.detach().to("float32"), want.detach().to("float32"))


# Threads, errors, copies


def test_threads_that_compile_at_once():
    f = wf.compile(lambda x: (x * 2).sum())
    right = []

    def work():
        for k in range(30):
            n = k % 4 + 1
            right.append(f(wf.ones(n)).item() == 2.0 * n)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(right) and len(right) == 180 and len(f.recompilations) == 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_function_that_is_interrupted_and_called_again(error):
    w = wf.Parameter(X)
    optimizer = wf.optim.SGD([w], lr=0.5)
    calls = []

    @wf.compile
    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        if not calls:
            raise error
        optimizer.step()
        return (w * x).sum()

    x = wf.ones(3)
    with pytest.raises(error):
        step(x)
    assert w.tolist() == X and w.grad is None and (w * 1).requires_grad
    calls.append(1)
    step(x)
    assert w.tolist() == [0.5, -2.5, 2.5] and w.grad.tolist() == [1.0, 1.0, 1.0]


def doubled(x):
    return x * 2


@wf.compile
def decorated(x):
    return x * 3


class Layer(wf.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = wf.nn.Linear(2, 2)
        self.run = wf.compile(self.inner.forward)

    @wf.compile
    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_programs_of_their_own(how):
    f = wf.compile(doubled, max_variants=3)
    f(wf.ones(2))
    again = how(f)
    assert again.max_variants == 3 and "0 of at most 3" in str(again.explain())
    assert again(wf.ones(2)).tolist() == [2.0, 2.0]
    assert how(decorated) is decorated

    layer, x = Layer(), wf.ones((1, 2))
    want = layer(x).tolist()
    layer.run(x)
    other = how(layer)
    with wf.no_grad():
        for p in other.parameters():
            p.copy_(p * 0)
    assert other(x).tolist() == other.run(x).tolist() == [[0.0, 0.0]]
    assert layer(x).tolist() == layer.run(x).tolist() == want


def test_compiled_functions_call_each_other_and_themselves():
    inner = wf.compile(lambda x: x * wf.tensor(X))
    assert wf.compile(lambda x: inner(x) + 1)(wf.ones(3)).tolist() == [2.0, -1.0, 4.0]

    @wf.compile
    def power(x, n=3):
        return x if n == 0 else power(x * 2, n - 1)

    assert power(wf.ones(2)).tolist() == [8.0, 8.0]


@pytest.mark.parametrize("kind", ["generator", "coroutine"])
def test_functions_that_run_later_are_refused(kind):
    def generator(x):
        yield x

    async def coroutine(x):
        return x

    with pytest.raises(errors.DTypeError, match="generator or coroutine function"):
        wf.compile({"generator": generator, "coroutine": coroutine}[kind])
    with pytest.raises(errors.StagingError, match="returns a generator"):
        wf.compile(lambda x: (x * k for k in range(3)))(wf.ones(2))


# Arguments and results

Pair = namedtuple("Pair", "a b")


@dataclass(frozen=True)
class Options:
    n: int


def test_trees_of_arguments_and_results():
    x = wf.tensor(X)
    f = wf.compile(lambda p, d: (Pair(p.b, p.a * 2), OrderedDict(z=d["y"], y=None)))
    made, named = f(Pair(x, x + 1), {"y": x})
    assert type(made) is Pair and made.a.tolist() == [2.0, -1.0, 4.0]
    assert list(named) == ["z", "y"] and named["y"] is None
    g = wf.compile(lambda x, o: x * o.n)
    assert [g(x, Options(k))[0].item() for k in (2, 3, 2)] == [2.0, 3.0, 2.0]
    assert len(g.recompilations) == 1


def test_arguments_of_every_spelling():
    def f(x, *rest, scale=2.0, **more):
        return x * scale + sum(rest) + more["z"]

    x = wf.ones(2)
    want = f(x, x, x, scale=3.0, z=x).tolist()
    assert wf.compile(f)(x, x, x, scale=3.0, z=x).tolist() == want
    assert wf.compile(f)(x, z=x).tolist() == f(x, z=x).tolist()


def test_python_values_that_are_alike_are_told_apart():
    f = wf.compile(lambda x, v: x * v)
    whole, x = wf.tensor([3]), wf.tensor(X)
    for v in (1, True, 1.0, 0.0, -0.0, 10**30, 1j, np.float64(2)):
        for t in (x, whole):
            if not (t is whole and v == 10**30):
                want, got = t * v, wf.compile(lambda x, v=v: x * v)(t)
                assert (want.dtype, str(want.tolist())) == (got.dtype, str(got.tolist()))
                assert f(t, v).dtype == want.dtype or isinstance(v, np.generic)
        f = wf.compile(lambda x, v: x * v)


@pytest.mark.parametrize(
    "f",
    [
        lambda u: u + 300,
        lambda u: u * -1,
        lambda u: wf.where(u > 1, u, 300),
        lambda u: wf.maximum(u, 300),
    ],
)
def test_integers_that_do_not_fit(f):
    u = wf.tensor([1, 2], dtype="uint8")
    for g in (f, wf.compile(f)):
        with pytest.raises(errors.ArgumentError, match="out of bounds for uint8"):
            g(u)
    with pytest.raises(errors.ArgumentError, match="out of bounds for int64"):
        wf.compile(lambda x, n: x * n)(wf.tensor([1]), 2**64)
    assert wf.compile(lambda u: u > 300)(u).tolist() == [False, False]


def test_a_number_of_each_call_is_a_number():
    def f(x, a):
        parts = a * 2, a > 1, int(a), float(a), round(a), str(a), f"{a:.3f}", -a, a**2, abs(a)
        made = wf.full((3,), a), wf.tensor(a, dtype="float64")
        return *parts, np.isfinite(a), x * math.sin(a), x * np.sin(a), np.float64(2) * a * x, *made

    compiled, x = wf.compile(f), wf.tensor(X)
    for a in (1.5, 0.1, 1.5):
        for want, got in zip(f(x, a), compiled(x, a), strict=True):
            if isinstance(want, wf.Tensor):
                assert want.dtype == got.dtype
                close(want, got)
            else:
                assert type(want) is type(got) and want == got
    with pytest.raises(errors.StagingError, match=r"wf\.stack\(\[wf\.tensor\(number\)"):
        wf.compile(lambda a: wf.tensor([a, 2.0]))(1.5)
    with pytest.raises(TypeError):
        wf.compile(lambda a: range(a))(1.5)


def test_arrays_that_are_returned_belong_to_the_caller():
    f = wf.compile(lambda x: np.ones(2))
    f(wf.ones(1))[0] = 5
    assert f(wf.ones(1)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("array", [np.array(["a"]), np.zeros(2, np.longdouble), np.array([None])])
def test_dtypes_that_no_tensor_has(array):
    with pytest.raises(errors.DTypeError, match="has no tensor"):
        wf.compile(lambda x: x + 1)(array)


def test_leaves_that_no_result_asked_for_have_no_gradient():
    def f(a, b):
        return (a * 2).sum(), (a * b).sum()

    for g in (f, wf.compile(f)):
        a, b = (wf.tensor(X, requires_grad=True) for _ in range(2))
        first, second = g(a, b)
        first.backward(retain_graph=True)
        assert a.grad.tolist() == [2.0] * 3 and b.grad is None
        second.backward()
        assert b.grad.tolist() == X


def test_a_call_that_fails_changes_nothing():
    state, v = wf.zeros(3), wf.Parameter(np.ones(2))
    optimizer = wf.optim.SGD([v], lr=0.1)

    @wf.compile
    def take(x, i):
        y = x[i]
        state.copy_(state + 1)
        return y

    @wf.compile
    def step(a):
        optimizer.zero_grad()
        loss = wf.linalg.inv(a).sum() + (v * v).sum()
        loss.backward()
        optimizer.step()
        state.copy_(state * 2)
        return loss

    take(wf.ones(3), wf.tensor([0, 1]))
    with pytest.raises(errors.IndexingError):
        take(wf.ones(3), wf.tensor([5, 0]))
    assert state.tolist() == [1.0, 1.0, 1.0]
    step(wf.eye(2, dtype="float64"))
    before = v.tolist()
    with pytest.raises(np.linalg.LinAlgError):
        step(wf.zeros((2, 2), dtype="float64"))
    assert v.tolist() == before and state.tolist() == [2.0, 2.0, 2.0]
    step(wf.eye(2, dtype="float64"))
    np.testing.assert_allclose(v.tolist(), [0.64, 0.64])


def test_constants_keep_their_dtype():
    def f(x):
        return wf.jvp(lambda t: t * 0.5, (x,), (wf.ones_like(x),))[1]

    half = wf.compile(f)(wf.tensor(X, dtype="bfloat16"))
    assert half.dtype == wf.bfloat16 and half.to("float32").tolist() == [0.5] * 3
