"""`wf.compile`: the same results as eager, variants, and what it says about them."""

import threading
from importlib import import_module

import numpy as np
import optree
import pytest

import weft as wf
from weft import errors
from weft.graph.verify import verify

RNG = np.random.default_rng(0)
VECTOR, MATRIX = RNG.standard_normal(5), RNG.standard_normal((5, 5))
BATCH = RNG.standard_normal((3, 5))


def loss(x):
    return (wf.tanh(wf.asarray(MATRIX) @ x) * wf.sin(x)).sum()


def curve(x):
    return wf.tanh(wf.asarray(MATRIX) @ x) * x


def alike(one, other):
    """Two results: the same structure, dtypes and, to rounding, numbers."""
    a, b = optree.tree_leaves(one), optree.tree_leaves(other)
    assert optree.tree_structure(one) == optree.tree_structure(other)
    for x, y in zip(a, b, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        unit = 0 if x.dtype.kind in "biu" else np.finfo(x.dtype).eps
        x, y = x.detach().numpy(), y.detach().numpy()
        scale = np.abs(x).max(initial=1.0)
        np.testing.assert_allclose(y, x, rtol=0, atol=64 * unit * scale)


FUNCTIONS = {
    "value": loss,
    "several results": lambda x: {"a": [x + 1, (x * 2, x > 0)], "b": x.sum()},
    "grad": wf.grad(loss),
    "value_and_grad": wf.value_and_grad(loss),
    "second order": wf.grad(lambda x: wf.grad(loss)(x).sum()),
    "gradient penalty": wf.grad(lambda x: (wf.grad(loss)(x) ** 2).sum()),
    "hvp": lambda x: wf.hvp(loss, (x,), (x,)),
    "jvp": lambda x: wf.jvp(curve, (x,), (2 * x,)),
    "vjp": lambda x: wf.vjp(curve, x)[1](x),
    "vmap": lambda x: wf.vmap(curve)(BATCH * x),
    "per-sample gradients": lambda x: wf.vmap(wf.grad(loss))(BATCH + x),
    "jacobian": wf.jacobian(curve),
    "jacfwd": wf.jacfwd(curve),
    "jacrev": wf.jacrev(curve),
    "compressed jacobian": wf.jacobian(lambda x: wf.sin(x) * x),
    "hessian": wf.hessian(loss),
    "laplacian": lambda x: wf.laplacian(loss)(x),
    "linearize": lambda x: wf.linearize(curve, x)[1](x),
    "checkpoint": wf.grad(lambda x: wf.checkpoint(loss, x)),
    "scan": lambda x: wf.scan(lambda c, y: (c * y + 1, c), x, wf.asarray(BATCH)),
    "gradient of a scan": wf.grad(
        lambda x: wf.scan(lambda c, y: (wf.tanh(c * y), c.sum()), x, wf.asarray(BATCH))[1].sum()
    ),
    "cond": lambda x: wf.cond(x.sum() > 0, lambda x: wf.log(wf.abs(x)), lambda x: -x, x),
    "gradient of a cond": wf.grad(
        lambda x: wf.cond(x[0] > 0, lambda x: wf.exp(x).sum(), lambda x: (x * x).sum(), x)
    ),
    "numpy's functions": lambda x: np.sin(x) + np.sum(x),
    "assignment": lambda x: assigned(x.clone()),
    "constants": lambda x: x * wf.arange(5) + wf.ones(5, dtype="float64") * 2.5,
    "a constant that is read": lambda x: x * wf.tensor(3.0).item(),
    "integer index": lambda x: x[wf.tensor([0, 2, 2])],
    "linear algebra": lambda x: wf.linalg.solve(wf.asarray(MATRIX) + wf.diag(x), x),
    "cast": lambda x: x.to("float32") * 2.5,
    "dual tensors": lambda x: (wf.DualTensor(x, wf.ones_like(x)) ** 2).tangent,
    "tape": lambda x: taped(x),
    "complex": lambda x: wf.real(wf.fft.ifft(wf.fft.fft(x) * 1j)),
}


def assigned(y):
    y[0] = y[1] * 2
    y[y > 0.5] = 0.0
    return y


def taped(x):
    with wf.GradientTape() as tape:
        tape.watch(x)
        y = loss(x)
    return tape.gradient(y, [x])[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_equals_eager(name):
    f = FUNCTIONS[name]
    compiled = wf.compile(f)
    for x in (VECTOR, -VECTOR, VECTOR + 0.5):
        alike(f(wf.tensor(x)), compiled(wf.tensor(x)))
    assert compiled.recompilations == []
    verify(compiled.graph)


def test_arguments_are_trees_numbers_and_static_values():
    @wf.compile
    def f(pair, scale, power=2, *, minus=False):
        a, b = pair["a"], pair["b"][0]
        y = (a * scale + b) ** power
        return -y if minus else y, scale * 2

    pair = {"a": wf.tensor([1.0, 2.0]), "b": [np.array([3.0, 4.0], np.float32)]}
    for args, kwargs in (
        ((pair, 0.5), {}),
        ((pair, 0.25), {}),
        ((pair, 0.25, 3), {}),
        ((pair, 0.5), {"minus": True}),
    ):
        want, got = f.__wrapped__(*args, **kwargs), f(*args, **kwargs)
        assert want[0].tolist() == got[0].tolist()
        assert want[1] == got[1]
    assert len(f.recompilations) == 2


def test_a_float_decides_by_guards():
    @wf.compile
    def f(x, rate):
        return x * rate if rate > 0.5 else x - rate

    x = wf.tensor([2.0])
    assert [f(x, r).item() for r in (1.0, 0.75, 0.25, 0.125, 2.0)] == [2.0, 1.5, 1.75, 1.875, 4.0]
    assert f.recompilations == ["(> 0.5) of number 0: was True, is False"]


def test_a_float_is_used_in_double_precision_before_it_meets_a_tensor():
    f = wf.compile(lambda x, a: x * (1.0 - a))
    x = wf.tensor([1.0])
    assert f(x, 1e-9).item() == (x * (1.0 - 1e-9)).item()


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ((wf.zeros(3),), (wf.zeros(4),), "argument 0: float32[3] became float32[4]"),
        ((wf.zeros(3),), (wf.zeros(3, dtype="float64"),), "float32[3] became float64[3]"),
        ((wf.zeros(3),), (wf.zeros(3), 1), "other arguments: 0 became 0, 1"),
        ((wf.zeros(3), 1), (wf.zeros(3), 2), "argument 1: 1 became 2"),
        (([wf.zeros(3)],), ((wf.zeros(3),),), "structure of the arguments"),
        ((wf.zeros(3),), (wf.zeros(3, requires_grad=True),), "float32[3] became float32[3] (leaf)"),
    ],
)
def test_reasons_of_recompilations(first, second, reason):
    f = wf.compile(lambda *args: args[0][0] + 1)
    f(*first)
    f(*first)
    assert f.recompilations == []
    f(*second)
    (why,) = f.recompilations
    assert reason in why
    assert why in f.explain()
    f(*first)
    f(*second)
    assert len(f.recompilations) == 1


def test_settings_are_part_of_a_variant():
    w = wf.tensor([2.0], requires_grad=True)
    f = wf.compile(lambda x: x * w)
    x = wf.tensor([3.0])
    assert f(x).requires_grad
    with wf.no_grad():
        assert not f(x).requires_grad
    assert f.recompilations == ["grad mode: True became False"]


def test_static_arguments_by_position_and_by_name():
    def f(x, axes, kind):
        return x.sum(axis=axes) if kind == "sum" else x.mean(axis=axes)

    for how in ({"static_argnums": (1, 2)}, {"static_argnames": ("axes", "kind")}):
        compiled = wf.compile(f, **how)
        x = wf.asarray(MATRIX)
        alike(f(x, (0, 1), "sum"), compiled(x, (0, 1), "sum"))
        alike(f(x, (0,), "mean"), compiled(x, (0,), kind="mean"))
        assert len(compiled.recompilations) == 1
    with pytest.raises(errors.ArgumentError, match="no parameter of f"):
        wf.compile(f, static_argnames="axis")
    with pytest.raises(errors.ArgumentError, match="has 3, and the function 3"):
        wf.compile(f, static_argnums=3)


def test_variants_run_out():
    f = wf.compile(max_variants=2)(lambda x: x + 1)
    f(wf.zeros(1))
    f(wf.zeros(2))
    last = r"(?s)2 times .*float32\[2\] became float32\[3\]"
    with pytest.raises(errors.VariantsExhausted, match=last):
        f(wf.zeros(3))
    assert f(wf.zeros(2)).shape == (2,)
    with pytest.raises(errors.ArgumentError, match="max_variants=0"):
        wf.compile(lambda x: x, max_variants=0)


def test_what_it_says_of_itself():
    @wf.compile
    def scaled(x):
        """Scales."""
        return (x * 2).sum()

    with pytest.raises(errors.ArgumentError, match="has not been compiled yet"):
        _ = scaled.graph
    scaled(wf.zeros(3))
    assert (scaled.__name__, scaled.__doc__) == ("scaled", "Scales.")
    assert [e.op.name for e in scaled.graph.equations] == ["multiply", "sum"]
    assert "multiply(v0, 2)" in str(scaled.graph)
    assert "scaled: 1 of at most 8 programs" in scaled.explain()
    (kernel,) = scaled.kernels
    assert "t0 = b0 · 2" in kernel and "sum of t0" in kernel
    assert repr(scaled) == "<compiled scaled>"


def test_a_method():
    class Scale:
        factor = 3.0

        @wf.compile
        def apply(self, x):
            return x * self.factor

    assert Scale().apply(wf.tensor(2.0)).item() == 6.0


def test_what_is_returned():
    buffer = wf.zeros(2)

    @wf.compile
    def f(x):
        return x, buffer, wf.ones(2), None, "name", 3

    x = wf.tensor([1.0])
    y, b, ones, *rest = f(x)
    assert y is x and b is buffer and rest == [None, "name", 3]
    ones[0] = 5.0
    assert f(x)[2].tolist() == [1.0, 1.0]


def test_results_do_not_share_memory_with_later_calls():
    f = wf.compile(lambda x: (x * 2, x.reshape((2, 2))))
    x = wf.tensor([1.0, 2.0, 3.0, 4.0])
    first = f(x)
    kept = [y.tolist() for y in first]
    f(x * 10)
    assert [y.tolist() for y in first] == kept


def test_vmap_jvp_and_compiled_functions_run_the_function_itself():
    inner = wf.compile(curve)
    x = wf.tensor(VECTOR)
    alike(wf.vmap(curve)(wf.asarray(BATCH)), wf.vmap(inner)(wf.asarray(BATCH)))
    alike(wf.jvp(curve, (x,), (x,)), wf.jvp(inner, (x,), (x,)))
    outer = wf.compile(lambda x: inner(x) * 2)
    alike(curve(x) * 2, outer(x))
    assert "0 of at most" in inner.explain()


def test_gradients_through_a_call():
    w = wf.Parameter(MATRIX)

    def f(x):
        return wf.tanh(w @ x), (x * x).sum()

    def gradients(f):
        w.grad = None
        x = wf.tensor(VECTOR, requires_grad=True)
        a, b = f(x * 2)
        ((a * wf.arange(5)).sum() + 3 * b).backward()
        return x.grad, w.grad

    compiled = wf.compile(f)
    for _ in range(2):
        alike(gradients(f), gradients(compiled))
    alike(
        wf.grad(lambda x: f(x)[0].sum())(wf.tensor(VECTOR)),
        wf.grad(lambda x: compiled(x)[0].sum())(wf.tensor(VECTOR)),
    )
    with pytest.raises(errors.NotDifferentiable, match="second derivative through a compiled"):
        wf.grad(lambda x: wf.grad(lambda x: compiled(x)[1])(x).sum())(wf.tensor(VECTOR))


def test_a_saved_value_that_is_overwritten_after_a_call_is_noticed():
    w = wf.Parameter(VECTOR)
    x = wf.tensor(VECTOR, requires_grad=True)
    y = wf.compile(lambda x: (x * w).sum())(x)
    with wf.no_grad():
        w.copy_(w * 2)
    with pytest.raises(errors.SavedValueOverwritten):
        y.backward()


def test_threads_share_a_function():
    f = wf.compile(lambda x, a: wf.tanh(x @ x * a).sum())
    inputs = [wf.tensor(RNG.standard_normal((20, 20))) for _ in range(4)]
    want = [f.__wrapped__(x, k / 4).item() for k, x in enumerate(inputs)]
    wrong = []

    def work(k):
        for _ in range(100):
            if abs(f(inputs[k], k / 4).item() - want[k]) > 1e-10:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and not f.recompilations


def test_random_numbers_are_those_of_eager_mode():
    def f(x):
        drawn = wf.randn((3,)), wf.rand((2, 2), dtype="float64"), wf.randint(0, 10, (4,))
        kept = wf.nn.functional.dropout(x, 0.5)
        return *drawn, wf.permutation(5), kept, wf.random.bernoulli(wf.sigmoid(x))

    compiled, x = wf.compile(f), wf.tensor(MATRIX)
    wf.random.seed(5)
    want = [f(x) for _ in range(3)]
    end = wf.random.get_state()
    wf.random.seed(5)
    for expected in want:
        for a, b in zip(expected, compiled(x), strict=True):
            assert a.tolist() == b.tolist()
    assert wf.random.get_state() == end


def test_random_numbers_in_a_replayed_call():
    x = wf.tensor(VECTOR, requires_grad=True)
    f = wf.compile(lambda x: wf.nn.functional.dropout(x * x, 0.5).sum())
    wf.random.seed(1)
    want = f(x).backward()[x]
    wf.random.seed(1)
    assert wf.checkpoint(f, x).backward()[x].tolist() == want.tolist()


def test_determinism_has_streams_of_its_own():
    f = wf.compile(lambda: wf.rand(3))
    with wf.deterministic(3, cudnn_deterministic=False):
        want = wf.rand(3).tolist()
    with wf.deterministic(3, cudnn_deterministic=False):
        assert f().tolist() == want


def test_no_module_hides_the_function():
    for name in ("weft.compiler.jit", "weft.compiler.ir.kernel", "weft.compiler"):
        import_module(name)
    assert wf.compile(lambda x: x + 1)(wf.tensor(1.0)).item() == 2.0


class Inside(wf.CustomOp):
    """x³ with wf's functions."""

    def forward(self, inputs):
        return inputs[0] ** 3

    def backward(self, grad_output, inputs):
        return [grad_output * 3 * inputs[0] ** 2]


class Outside(wf.CustomOp):
    """x³ with NumPy's."""

    def forward(self, inputs):
        return wf.asarray(inputs[0].numpy() ** 3)

    def backward(self, grad_output, inputs):
        return [wf.asarray(grad_output.numpy() * 3 * inputs[0].numpy() ** 2)]


@pytest.mark.parametrize(
    ("kind", "rows"), [(Inside, {"power_scalar"}), (Outside, {"Outside", "Outside.vjp"})]
)
def test_custom_operations_are_written_down_or_called(kind, rows):
    op = kind()

    def f(x):
        return (op(wf.sin(x)) * x).sum()

    compiled = wf.compile(wf.value_and_grad(f))
    for x in (VECTOR, -VECTOR):
        alike(wf.value_and_grad(f)(wf.tensor(x)), compiled(wf.tensor(x)))
    assert rows <= {e.op.name for e in compiled.graph.equations}
    assert ("library call Outside" in compiled.explain()) == (kind is Outside)


def test_a_custom_operation_that_fails_on_numbers_of_ours():
    class Picky(wf.CustomOp):
        def forward(self, inputs):
            if inputs[0].numpy()[0] == 0.5:
                raise ValueError("not this one")
            return inputs[0]

        def backward(self, grad_output, inputs):
            return [grad_output]

    with pytest.raises(errors.StagingError, match="ValueError: not this one"):
        wf.compile(lambda x: Picky()(x))(wf.tensor(VECTOR))
