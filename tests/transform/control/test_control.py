"""`scan`, `while_loop`, `cond` and `map`, beside JAX's and beside Python loops."""

from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.profile import Counter
from weft.transform.control import loops as control

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(3)
A = rng.normal(size=(3, 3)) / 2
XS = rng.normal(size=(7, 3))
H = rng.normal(size=3)
V = rng.normal(size=3)


def close(ours, theirs):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), np.asarray(b), rtol=1e-12, atol=1e-12)


def same(a, b):
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy(), strict=True)


def recurrent(np_, scan, **options):
    """A step with a container for a carry and one for a result, made for either library."""

    def run(a, h, xs):
        def step(carry, x):
            h, total = carry["h"], carry["total"]
            h = np_.tanh(a @ h + x)
            return {"h": h, "total": total + (h * h).sum()}, (h, h.sum())

        carry = {"h": h, "total": (h * 0.0).sum()}
        carry, (hs, sums) = scan(step, carry, xs, **options)
        return carry["total"] + (hs * hs[::-1]).sum() + (sums**3).sum()

    return run


@cache
def expected_gradients(reverse):
    theirs = recurrent(jnp, jax.lax.scan, reverse=reverse)
    return jax.value_and_grad(theirs, (0, 1, 2))(A, H, XS)


BATCH, ELEMENTS = rng.normal(size=(4, 3)), rng.normal(size=(4, 7, 3))
WEFT = SimpleNamespace(np=wf, make=wf.tensor, scan=wf.scan, jvp=wf.jvp, grad=wf.grad, vmap=wf.vmap)
JAX = SimpleNamespace(
    np=jnp, make=jnp.asarray, scan=jax.lax.scan, jvp=jax.jvp, grad=jax.grad, vmap=jax.vmap
)


def transformed(lib, **options):
    """Transformations of a scan, and transformations of those."""
    a, h, xs, v, batch, elements = (lib.make(x) for x in (A, H, XS, V, BATCH, ELEMENTS))
    f = recurrent(lib.np, lib.scan, **options)
    of_h = lambda h: f(a, h, xs)  # noqa: E731
    pushed = lambda f, h: lib.jvp(f, (h,), (v,))[1]  # noqa: E731
    return [
        pushed(of_h, h),
        pushed(lib.grad(of_h), h),
        lib.grad(lambda h: pushed(of_h, h))(h),
        lib.vmap(lib.grad(lambda h, x: f(a, h, x)))(batch, elements),
        lib.grad(lambda h: lib.vmap(lambda h, x: f(a, h, x))(h * batch, elements).sum())(h),
        lib.grad(lambda h: (lib.vmap(lib.grad(of_h))(h * batch) ** 2).sum())(h),
    ]


@cache
def expected_transformations():
    return jax.jit(lambda: transformed(JAX))()


class TestScan:
    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("segments", [None, "none", 1, 3, 100])
    def test_gradients_beside_jax(self, reverse, segments):
        ours = recurrent(wf, wf.scan, reverse=reverse, segments=segments)
        args = [wf.tensor(v) for v in (A, H, XS)]
        close(wf.value_and_grad(ours, (0, 1, 2))(*args), expected_gradients(reverse))

    @pytest.mark.parametrize("segments", ["none", 2])
    def test_transformations_beside_jax(self, segments):
        close(transformed(WEFT, segments=segments), expected_transformations())

    def test_derivatives_inside_and_around(self):
        def ours(x):
            def step(c, t):
                slope = wf.grad(lambda z: wf.sin(z * t).sum())(c)
                moved = wf.jvp(lambda z: wf.exp(-z * z), (c,), (slope,))[1]
                inner, _ = wf.scan(lambda d, _: (d * 0.5 + slope, None), moved, length=3)
                return inner, slope.sum()

            c, ys = wf.scan(step, x, wf.tensor([0.5, 1.0, 2.0]), segments=2)
            return (c * c).sum() + ys.sum()

        def theirs(x):
            def step(c, t):
                slope = jax.grad(lambda z: jnp.sin(z * t).sum())(c)
                moved = jax.jvp(lambda z: jnp.exp(-z * z), (c,), (slope,))[1]
                inner, _ = jax.lax.scan(lambda d, _: (d * 0.5 + slope, None), moved, length=3)
                return inner, slope.sum()

            c, ys = jax.lax.scan(step, x, jnp.asarray([0.5, 1.0, 2.0]))
            return (c * c).sum() + ys.sum()

        x = wf.tensor(H)
        close(wf.grad(ours)(x), jax.grad(theirs)(H))
        close(wf.hvp(ours, (x,), (wf.tensor(V),)), jax.jvp(jax.grad(theirs), (H,), (V,))[1])

    def test_without_elements_and_without_results(self):
        carry, ys = wf.scan(lambda c, x: (c * 2 if x is None else c, None), wf.tensor(1), length=5)
        assert carry.item() == 32 and ys is None

    def test_no_steps(self):
        carry, (a, b) = wf.scan(
            lambda c, x: (c + x.sum(), (c, x.reshape(3, 1) * c)), wf.tensor(2.0), wf.ones((0, 3))
        )
        assert carry.item() == 2.0 and a.shape == (0,) and b.shape == (0, 3, 1)
        carry, ys = wf.scan(lambda c, x: (c, c + 1), wf.tensor(2), length=0)
        assert (carry.item(), ys.shape, ys.dtype) == (2, (0,), wf.int64)
        x = wf.ones((0, 3), requires_grad=True)
        c = wf.tensor(3.0, requires_grad=True)
        assert wf.scan(lambda c, x: (c * x.sum(), c), c, x)[0].backward()[c].item() == 1.0

    def test_random_numbers_in_segments(self):
        def run(segments):
            wf.random.seed(11)
            x = wf.tensor(H, requires_grad=True)
            step = lambda c, _: (wf.sin(c) * wf.rand(3), c.sum())  # noqa: E731
            c, ys = wf.scan(step, x, length=30, segments=segments)
            return (c.sum() + ys.sum()).backward()[x]

        same(run("none"), run(5))

    def test_linear_cost_of_elements(self):
        """The cotangents of n slices are not n arrays as large as the whole."""
        x = wf.ones((4096, 1), requires_grad=True)
        total, _ = wf.scan(lambda c, x: (c + x, None), wf.zeros(1), x, segments="none")
        sizes = []
        seen = {total._node}
        stack = list(seen)
        while stack:
            for p in getattr(stack.pop(), "parents", ()):
                if p is not None and p not in seen:
                    seen.add(p)
                    stack.append(p)
                    sizes.append(p.shape[0])
        assert sum(sizes) < 4096 * 20
        assert total.backward()[x].numpy().sum() == 4096


class TestSegments:
    @staticmethod
    def saved(steps, segments):
        """Bytes saved after a scan, the most of them in its backward pass, and the gradient."""
        wf.clear_tape()
        w = wf.Parameter(wf.ones(100, dtype="float64") * 0.9)
        seen, calls = [], []

        def step(c, _):
            h = wf.sin(c * w)
            if len(calls) in (0, steps // 2, steps - 1):  # most are there after a replay's last
                h.register_hook(lambda g: seen.append(wf.memory_stats().bytes))
            calls.append(1)
            return wf.exp(h) * 0.3, None

        c, _ = wf.scan(step, wf.ones(100, dtype="float64"), length=steps, segments=segments)
        after = wf.memory_stats().bytes
        gradient = c.sum().backward()[w]
        return after, max(seen), gradient

    def test_saved_bytes_grow_as_the_root(self):
        few, many, everything = self.saved(64, 8), self.saved(1024, 32), self.saved(1024, "none")
        same(many[2], everything[2])
        assert everything[0] >= 1024 * 3 * 800
        assert many[0] <= 34 * 800 and many[1] <= (34 + 3 * 32) * 800
        for k in (0, 1):  # four times as much for sixteen times the steps
            assert 3.5 * few[k] <= many[k] <= 4.2 * few[k]

    def test_ten_thousand_steps(self):
        """√n segments: memory as for 3√n steps, and each step runs twice."""
        steps, root, calls = 10_000, 100, []
        w = wf.tensor(rng.normal(size=(64, 64)) * 0.1, requires_grad=True)

        def step(c, _):
            calls.append(1)
            return wf.tanh(c @ w), None

        with Counter() as counter:
            c, _ = wf.scan(step, wf.ones(64, dtype="float64"), length=steps, segments=root)
            gradient = c.sum().backward()[w]
        assert len(calls) == 2 * steps and gradient is not None
        one_step = 2 * 64 * 8  # what a product and a tanh save
        assert counter.peak <= 3 * root * one_step + 3 * w.nbytes

    def test_default(self, monkeypatch):
        assert control.LARGE == 2**26
        plain = self.saved(200, "none")
        assert self.saved(200, None)[0] == plain[0] == (200 * 3 + 1) * 800 + 8
        monkeypatch.setattr(control, "LARGE", 200 * 3 * 800)
        large = self.saved(200, None)
        assert large[0] <= (14 + 3 * 3 + 2) * 800 and large[1] <= plain[1] / 7
        same(large[2], plain[2])
        monkeypatch.setattr(control, "LARGE", 200 * 4 * 800)
        assert self.saved(200, None)[0] == plain[0]

    @pytest.mark.parametrize("reverse", [False, True])
    def test_default_is_exact(self, monkeypatch, reverse):
        args = [wf.tensor(v) for v in (A, H, rng.normal(size=(40, 3)))]
        grads = []
        for large in (2**40, 1):
            monkeypatch.setattr(control, "LARGE", large)
            f = recurrent(wf, wf.scan, reverse=reverse)
            grads.append((f(*args), *wf.grad(f, (0, 1, 2))(*args)))
        for a, b in zip(*grads, strict=True):
            same(a, b)


BAD_STEPS = {
    "shape": (lambda c, x: ((c[0][:1], c[1]), x), r"carry\[0\] was float32 of shape \(2,\)"),
    "dtype": (lambda c, x: ((c[0], c[1] * 1.5), x), r"carry\[1\] was int64 .* float32"),
    "structure": (
        lambda c, x: ([*c], x),
        r"carry was \(tensor, tensor\) .* \[tensor, tensor\]",
    ),
    "no pair": (lambda c, x: c[0], r"must return \(carry, y\), it returned Tensor"),
}


class TestBadScans:
    @pytest.mark.parametrize("name", BAD_STEPS)
    def test_carry(self, name):
        f, words = BAD_STEPS[name]
        with pytest.raises(errors.WeftError, match=words) as e:
            wf.scan(f, (wf.ones(2), wf.tensor(1)), wf.ones(3))
        assert e.match(r"^scan: .*\(test_control.py:\d+\).* \(at test_control.py:\d+\)$")

    def test_results(self):
        shapes = [(1,), (2,)]
        with pytest.raises(errors.ShapeError, match=r"y\['a'\] was float32 of shape \(1,\)"):
            wf.scan(lambda c, x: (c, {"a": wf.ones(shapes.pop(0))}), wf.tensor(1), length=2)

    def test_lengths(self):
        f = lambda c, x: (c, None)  # noqa: E731
        for xs, length in ((None, None), (wf.ones(3), 4), ((wf.ones(3), wf.ones(4)), None)):
            with pytest.raises(errors.ShapeError, match="number of steps"):
                wf.scan(f, wf.tensor(0), xs, length)
        with pytest.raises(errors.ArgumentError, match="length=-1"):
            wf.scan(f, wf.tensor(0), length=-1)
        with pytest.raises(errors.AxisError, match="0-d"):
            wf.scan(f, wf.tensor(0), wf.tensor(1.0))

    @pytest.mark.parametrize("segments", [0, -1, "all", 1.5])
    def test_segments(self, segments):
        with pytest.raises(errors.ArgumentError, match="segments"):
            wf.scan(lambda c, x: (c, None), wf.tensor(0), wf.ones(3), segments=segments)


class TestWhileLoop:
    @staticmethod
    def newton(lib, loop):
        """√a by Newton's method; the number of steps depends on a."""

        def root(a):
            def going(c):
                return abs(c["x"] * c["x"] - a) > 1e-10

            def step(c):
                return {"x": (c["x"] + a / c["x"]) / 2, "n": c["n"] + 1}

            return loop(going, step, {"x": lib.ones_like(a), "n": lib.zeros_like(a)})

        return root

    def test_both_modes(self):
        ours, theirs = self.newton(wf, wf.while_loop), self.newton(jnp, jax.lax.while_loop)
        a, one = wf.tensor(5.0, dtype="float64"), wf.tensor(1.0, dtype="float64")
        close(ours(a), theirs(5.0))
        slope = lambda a: jax.jvp(lambda a: theirs(a)["x"], (a,), (1.0,))[1]  # noqa: E731
        close(wf.grad(lambda a: ours(a)["x"])(a), slope(5.0))
        close(wf.jvp(lambda a: ours(a)["x"], (a,), (one,))[1], slope(5.0))
        curvature = jax.jvp(slope, (5.0,), (1.0,))[1]
        close(wf.grad(wf.grad(lambda a: ours(a)["x"]))(a), curvature)

    def test_batched_condition(self):
        a = np.array([1.0, 5.0, 1e4, 0.01])
        ours, theirs = (self.newton(*k) for k in ((wf, wf.while_loop), (jnp, jax.lax.while_loop)))
        found, expected = wf.vmap(ours)(wf.tensor(a)), jax.vmap(theirs)(a)
        close(found, expected)
        assert len(set(found["n"].tolist())) == 4
        slopes = jax.jvp(lambda a: jax.vmap(theirs)(a)["x"], (a,), (np.ones(4),))[1]
        close(wf.vmap(wf.grad(lambda a: ours(a)["x"]))(wf.tensor(a)), slopes)
        close(wf.grad(lambda a: wf.vmap(ours)(a)["x"].sum())(wf.tensor(a)), slopes)
        ones = wf.ones(4, dtype="float64")
        close(wf.jvp(lambda a: wf.vmap(ours)(a)["x"], (wf.tensor(a),), (ones,))[1], slopes)
        twice = wf.vmap(wf.vmap(lambda a: ours(a)["x"]))(wf.tensor(a.reshape(2, 2)))
        close(twice, expected["x"].reshape(2, 2))

    def test_frozen_elements_bring_no_nan(self):
        """A step after the end would divide by zero, and multiply what comes of it."""

        def f(x):
            def step(c):
                n, y = c
                return n - 1, y * x * n / n

            return wf.while_loop(lambda c: c[0] > 0, step, (x.detach(), x * 0.0 + 1.0))[1]

        x = np.array([0.0, 1.0, 3.0])
        close(wf.vmap(f)(wf.tensor(x)), x**x)
        slopes = wf.vmap(wf.grad(f))(wf.tensor(x))
        assert slopes.tolist() == [0.0, 1.0, 27.0]

    def test_condition_that_becomes_batched(self):
        def f(x):
            return wf.while_loop(lambda c: c < 10.0, lambda c: c + x, wf.tensor(0.0))

        assert wf.vmap(f)(wf.tensor([4.0, 10.0, 3.0])).tolist() == [12.0, 10.0, 12.0]

    def test_checkpointed_body(self):
        def f(x, body):
            return wf.while_loop(lambda y: y.sum() < 50.0, body(lambda y: y + wf.exp(y * x)), x)

        x = wf.tensor([0.5, 0.2])
        a, b = (wf.grad(lambda x: f(x, g).sum())(x) for g in (lambda f: f, wf.checkpoint))  # noqa: B023
        same(a, b)

    def test_guard(self):
        count = lambda n: wf.while_loop(lambda c: c < 5, lambda c: c + 1, 0, max_steps=n)  # noqa: E731
        assert count(5).item() == 5
        with pytest.raises(errors.LoopLimit, match=r"max_steps=4 .*test_control.py"):
            count(4)

    def test_bad_loops(self):
        with pytest.raises(errors.ShapeError, match=r"while_loop: .*carry was float32 .*\(1,\)"):
            wf.while_loop(lambda c: c < 5, lambda c: c.reshape(1), wf.tensor(1.0))
        with pytest.raises(errors.ShapeError, match=r"predicate of shape \(2,\)"):
            wf.while_loop(lambda c: c < 5, lambda c: c, wf.ones(2))


class TestCond:
    def test_one_branch_runs(self):
        ran = []

        def branch(name, f):
            return lambda x: (ran.append(name), f(x))[1]

        f = lambda x: wf.cond(x > 0, branch("yes", wf.log), branch("no", wf.exp), x)  # noqa: E731
        assert wf.grad(f)(wf.tensor(2.0)).item() == 0.5
        assert wf.cond(False, lambda: wf.tensor(1), lambda: wf.tensor(2)).item() == 2
        assert ran == ["yes"]
        wf.vmap(lambda y: y * f(wf.tensor(2.0)))(wf.ones(3))
        assert ran == ["yes", "yes"]

    def test_batched_predicate(self):
        def make(lib, cond):
            def f(x, y):
                yes = lambda x, d: {"a": lib.log(x), "b": d["y"] * x}  # noqa: E731
                no = lambda x, d: {"a": -x, "b": x + d["y"].sum()}  # noqa: E731
                return cond(x > 0, yes, no, x, {"y": y})

            return f

        ours = make(wf, wf.cond)
        x, y = np.array([-1.0, 0.0, 2.0]), rng.normal(size=(3,))
        theirs = jax.vmap(make(jnp, jax.lax.cond))(x, y)
        close(wf.vmap(ours)(wf.tensor(x), wf.tensor(y)), theirs)

    def test_branches_not_taken_bring_no_nan(self):
        """x·log x at 0 and at -1: the plain product of a zero cotangent and log x is NaN."""

        def f(x):
            return wf.cond(x > 0, lambda x: x * wf.log(x) / x, lambda x: x * 3.0, x)

        x = wf.tensor([-1.0, 0.0, 2.0])
        expected = [3.0, 3.0, 0.5]
        assert wf.vmap(wf.grad(f))(x).tolist() == expected
        assert wf.grad(lambda x: wf.vmap(f)(x).sum())(x).tolist() == expected
        assert wf.jvp(wf.vmap(f), (x,), (wf.ones(3),))[1].tolist() == expected
        assert wf.vmap(wf.grad(wf.grad(f)))(x).tolist() == [0.0, 0.0, -0.25]

    def test_numbers_as_predicates(self):
        f = lambda n: wf.cond(n % 2, lambda: wf.tensor(1), lambda: wf.tensor(0))  # noqa: E731
        assert f(wf.tensor(3)).item() == 1
        assert wf.vmap(f)(wf.tensor([1, 2, 3])).tolist() == [1, 0, 1]

    def test_bad_branches(self):
        f = lambda x: wf.cond(x > 0, lambda: wf.ones(2), lambda: wf.ones(3))  # noqa: E731
        with pytest.raises(errors.ShapeError, match=r"cond: the result was .*\(2,\).*\(3,\)"):
            wf.vmap(f)(wf.tensor([1.0, -1.0]))
        with pytest.raises(errors.ShapeError, match="one truth value"):
            wf.cond(wf.ones(2) > 0, lambda: 1, lambda: 2)


class TestMap:
    @pytest.mark.parametrize("batch_size", [None, 1, 3, 7, 100])
    def test_beside_jax(self, batch_size):
        def make(lib):
            return lambda d: {"s": lib.sin(d["x"]).sum() * d["k"], "x": d["x"] ** 2}

        xs = {"x": XS, "k": rng.normal(size=7)}
        ours = {k: wf.tensor(v) for k, v in xs.items()}
        close(wf.map(make(wf), ours, batch_size=batch_size), jax.lax.map(make(jnp), xs))

        def total(lib, map_):
            def f(d):
                out = map_(make(lib), d)
                return (out["s"] ** 2).sum() + (out["x"] * out["s"][:, None]).sum()

            return f

        g = wf.grad(total(wf, lambda f, d: wf.map(f, d, batch_size=batch_size)))(ours)
        close(g, jax.grad(total(jnp, jax.lax.map))(xs))

    @pytest.mark.parametrize("batch_size", [None, 2])
    def test_nothing(self, batch_size):
        assert wf.map(lambda x: x.sum(), wf.ones((0, 3)), batch_size).shape == (0,)

    def test_inside_vmap(self):
        x = wf.tensor(XS)
        double = wf.vmap(lambda r: wf.map(lambda v: v * r[0], r, batch_size=2))(x)
        close(double, XS * XS[:, :1])

    @pytest.mark.parametrize("batch_size", [0, -2, 1.5])
    def test_bad_sizes(self, batch_size):
        with pytest.raises(errors.ArgumentError, match="batch_size"):
            wf.map(lambda x: x, wf.ones(3), batch_size)


def test_the_builtin_map_is_not_ours():
    assert wf.map.__module__ == "weft.transform.control.loops"
    assert control.__builtins__["map"] is map and not hasattr(control, "map")
