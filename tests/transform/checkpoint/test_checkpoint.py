"""`wf.checkpoint`: the same gradients from inputs alone."""

import gc
from dataclasses import dataclass

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.transform.checkpoint.replayed import replaying

rng = np.random.default_rng(7)
W = wf.Parameter(rng.normal(size=(4, 4)))
B = wf.Parameter(rng.normal(size=4))
X = wf.tensor(rng.normal(size=(3, 4)))
V = wf.tensor(rng.normal(size=(3, 4)))


def same(a, b):
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy(), strict=True)


def layer(x):
    h = wf.tanh(x @ W + B)
    return wf.exp(h * x).sum() + (h**3).sum()


def row(x):
    return wf.sin(W @ x + B).sum() * wf.exp(x).sum()


def nested(x):
    @wf.checkpoint
    def inner(x, k):
        return wf.tanh(x @ W) + k * wf.sin(x)

    @wf.checkpoint
    def block(x):
        for k in range(3):
            x = inner(x, k=k)
        return x

    for _ in range(2):
        x = block(x)
    return (x * x).sum()


def unnested(x):
    for _ in range(2):
        for k in range(3):
            x = wf.tanh(x @ W) + k * wf.sin(x)
    return (x * x).sum()


def of_a_gradient(x):
    return (wf.grad(lambda z: wf.sin(z * x).sum())(x) ** 2).sum()


def twice(f):
    return wf.grad(lambda x: (wf.grad(f)(x) * V).sum())


ORDERS = {
    "grad": wf.grad,
    "grad of grad": twice,
    "third order": lambda f: wf.grad(lambda x: (twice(f)(x) * V).sum()),
    "jvp": lambda f: lambda x: wf.jvp(f, (x,), (V,))[1],
    "forward over reverse": lambda f: lambda x: wf.hvp(f, (x,), (V,)),
    "reverse over forward": lambda f: wf.grad(lambda x: wf.jvp(f, (x,), (V,))[1]),
    "reverse over forward over reverse": lambda f: wf.grad(
        lambda x: (wf.hvp(f, (x,), (V,)) * V).sum()
    ),
}
FUNCTIONS = {
    "layer": (layer, wf.checkpoint(layer)),
    "nested": (unnested, nested),
    "nested thrice": (unnested, wf.checkpoint(nested)),
    "of a gradient": (of_a_gradient, wf.checkpoint(of_a_gradient)),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_bitwise_equal(order, name):
    plain, checkpointed = FUNCTIONS[name]
    same(ORDERS[order](plain)(X), ORDERS[order](checkpointed)(X))


BATCHED = {
    "vmap": wf.vmap,
    "vmap of grad": lambda f: wf.vmap(wf.grad(f)),
    "grad of vmap": lambda f: wf.grad(lambda x: wf.vmap(f)(x).sum()),
    "grad of vmap of grad": lambda f: wf.grad(lambda x: (wf.vmap(wf.grad(f))(x) ** 2).sum()),
    "vmap of hvp": lambda f: wf.vmap(lambda x: wf.hvp(f, (x,), (V[0],))),
    "jvp of vmap of grad": lambda f: lambda x: wf.jvp(wf.vmap(wf.grad(f)), (x,), (V,))[1],
}


@pytest.mark.parametrize("order", BATCHED)
def test_bitwise_equal_in_batches(order):
    same(BATCHED[order](row)(X), BATCHED[order](wf.checkpoint(row))(X))


def test_gradients_of_parameters_and_create_graph():
    found = []
    for f in (layer, wf.checkpoint(layer)):
        first = f(X).backward(create_graph=True)
        penalty = (first[W] ** 2).sum() + (first[B] ** 2).sum()
        second = penalty.backward()
        found.append([first[W], first[B], second[W], second[B]])
    for a, b in zip(*found, strict=True):
        same(a, b)
    W.zero_grad(), B.zero_grad()


@pytest.mark.usefixtures("no_graphs")
def test_arguments_of_all_kinds():
    @dataclass
    class Result:
        value: wf.Tensor
        parts: list

    @wf.checkpoint
    def f(a, pair, *, scale, options):
        """The doc."""
        h = wf.exp(a * pair["w"]) * scale
        pair["w"] = None  # the replay must not see this
        return Result(h.sum(), [h, options["name"]])

    wf.clear_tape()  # of what other tests still hold
    a, w = wf.tensor([0.5, 1.0], requires_grad=True), wf.tensor([2.0, 3.0], requires_grad=True)
    out = f(a, {"w": w}, scale=2.0, options={"name": "n"})
    assert out.parts[1] == "n" and f.__doc__ == "The doc."
    assert wf.memory_stats().by_op == {"multiply": a.nbytes + w.nbytes}
    grads = (out.value + (out.parts[0] ** 2).sum()).backward()
    h = np.exp([1.0, 3.0]) * 2
    np.testing.assert_allclose(grads[a].numpy(), (h + 2 * h * h) * [2.0, 3.0], rtol=1e-6)


def test_methods():
    class Layer:
        def __init__(self):
            self.w = wf.Parameter(wf.tensor([2.0, 3.0]))

        @wf.checkpoint
        def __call__(self, x):
            return wf.exp(x * self.w).sum()

    f, x = Layer(), wf.tensor([0.5, 1.0])
    same(f(x).backward()[f.w], x * wf.exp(x * f.w.detach()))


def test_torch():
    x = wf.asarray(rng.normal(size=5), device="torch").requires_grad_()
    f = lambda x: (wf.exp(wf.sin(x)) * wf.rand(5, device="torch")).sum()  # noqa: E731
    wf.random.seed(1)
    plain = f(x).backward()[x]
    wf.random.seed(1)
    checked = wf.checkpoint(f, x).backward()[x]
    assert checked.device == "torch" and plain.tolist() == checked.tolist()


class TestMemory:
    @pytest.fixture(autouse=True)
    def nothing_live(self):
        gc.collect()
        wf.clear_tape()

    @staticmethod
    def deep(x, f, n):
        for _ in range(n):
            x = f(x)
        return x

    def test_only_inputs_are_saved(self):
        x = wf.ones(1000, dtype="float64", requires_grad=True)
        step = lambda x: wf.sin(wf.exp(wf.sin(x)))  # noqa: E731
        y = self.deep(x, step, 6)
        plain = wf.memory_stats().bytes
        z = self.deep(x, wf.checkpoint(step), 6)
        assert plain == 12 * x.nbytes
        assert wf.memory_stats().bytes - plain == 5 * x.nbytes  # x itself is saved already
        same(y.sum().backward()[x], z.sum().backward()[x])
        assert wf.memory_stats().bytes == 0

    def test_nested_checkpoints_give_up_inner_inputs(self):
        x = wf.ones(1000, dtype="float64", requires_grad=True)
        step = wf.checkpoint(lambda x: wf.sin(wf.exp(wf.sin(x))))
        y = self.deep(x, wf.checkpoint(lambda x: self.deep(x, step, 5)), 4)
        assert wf.memory_stats().bytes == 4 * x.nbytes
        plain = self.deep(x, lambda x: wf.sin(wf.exp(wf.sin(x))), 20)
        same(y.sum().backward()[x], plain.sum().backward()[x])

    def test_peak_of_nested_checkpoints(self):
        x, peaks = wf.ones(1000, dtype="float64", requires_grad=True), {}
        for name, wrapper in {"plain": lambda f: f, "nested": wf.checkpoint}.items():
            seen, calls = peaks.setdefault(name, []), []

            def step(x, seen=seen, calls=calls):
                h = wf.exp(wf.sin(x))
                calls.append(1)
                if len(calls) % 4 == 0:
                    h.register_hook(lambda g: seen.append(wf.memory_stats().bytes // x.nbytes))
                return wf.sin(h)

            inner = wrapper(step)
            block = wrapper(lambda x, f: self.deep(x, f, 5))
            self.deep(x, lambda x, f=inner, g=block: g(x, f), 4).sum().backward()
        assert max(peaks["plain"]) >= 38  # two values for each of 20 steps
        # The blocks' inputs, one block's steps' inputs, and the values of one step.
        assert max(peaks["nested"]) <= 4 + 5 + 2 and len(peaks["nested"]) == 5

    def test_retained_graphs_replay_each_time_and_keep_nothing(self):
        x = wf.ones(100, requires_grad=True)
        y = wf.checkpoint(lambda x: wf.exp(wf.sin(x)).sum())(x)
        first = y.backward(retain_graph=True)[x]
        assert wf.memory_stats().bytes == x.nbytes
        same(first, y.backward(retain_graph=True)[x])
        same(first, y.backward()[x])
        with pytest.raises(errors.GraphFreed):
            y.backward()

    def test_freed_by_reference_counting(self):
        gc.collect()
        gc.disable()
        try:
            x = wf.ones(10, requires_grad=True)
            f = wf.checkpoint(lambda x: wf.checkpoint(lambda x: wf.exp(wf.sin(x)), x).sum())
            f(x).backward()
            f(x)
            assert wf.memory_stats().tensors == 0
            assert gc.collect() == 0
        finally:
            gc.enable()

    def test_nothing_kept_where_nothing_is_recorded(self):
        x = wf.ones(10, requires_grad=True)
        with wf.no_grad():
            assert not wf.checkpoint(wf.exp, x).requires_grad
        assert not wf.checkpoint(wf.exp, x.detach()).requires_grad
        assert wf.memory_stats().tensors == 0


class TestRandomNumbers:
    @staticmethod
    def dropout(x, keep=0.5):
        kept = wf.random.bernoulli(keep, x.shape)
        return wf.where(kept, x / keep, 0.0) ** 2 * wf.randn(x.shape)

    def chain(self, x, f):
        for _ in range(4):
            x = f(x)
        return x.sum() * wf.rand()

    @pytest.mark.parametrize("nest", [False, True])
    def test_same_numbers_and_position(self, nest):
        def run(f, g):
            wf.random.seed(5)
            x = wf.ones(6, requires_grad=True)
            y = g(x, f)
            after = wf.random.default_generator.state_dict()
            wf.rand(100)  # somebody else draws in between
            moved = wf.random.default_generator.state_dict()
            grads = y.backward(retain_graph=True)[x], y.backward()[x]
            assert wf.random.default_generator.state_dict() == moved
            return y, *grads, after

        inner = wf.checkpoint(self.dropout)
        plain = run(self.dropout, self.chain)
        checked = run(inner, wf.checkpoint(self.chain) if nest else self.chain)
        for a, b in zip(plain[:3], checked[:3], strict=True):
            same(a, b)
        assert plain[3] == checked[3]

    def test_own_generators(self):
        def run(f):
            generator = wf.random.Generator(3)
            x = wf.ones(4, requires_grad=True)
            y = f(lambda x: (x**2 * wf.rand(4, generator=generator.split(1)[0])).sum())(x)
            return y.backward()[x], generator.state_dict()

        plain, checked = run(lambda f: f), run(wf.checkpoint)
        same(plain[0], checked[0])
        assert plain[1] == checked[1]

    def test_statistics_are_counted_once(self):
        counted = []

        @wf.checkpoint
        def outer(x):
            @wf.checkpoint
            def normalised(x):
                mean = x.mean()
                if not replaying():
                    counted.append(mean.item())
                return wf.exp(x - mean)

            return normalised(x).sum()

        x = wf.tensor([1.0, 2.0], requires_grad=True)
        outer(x).backward()
        assert counted == [1.5] and not replaying()


class TestRefusals:
    def test_other_operations(self):
        calls = []

        def fickle(x):
            calls.append(1)
            return wf.exp(x).sum() if len(calls) == 1 else wf.sin(x).sum()

        x = wf.ones(3, requires_grad=True)
        y = wf.checkpoint(fickle, x)
        with pytest.raises(errors.ReplayDiffers) as e:
            y.backward()
        here = r"test_checkpoint.py:\d+"
        assert e.match(rf"called at {here}.*did sin \(at {here}\).*had done exp \(at {here}\)")

    @pytest.mark.parametrize("longer", [1, 2])
    def test_more_or_fewer_operations(self, longer):
        calls = []

        def fickle(x):
            calls.append(1)
            return (wf.exp(x) * x if len(calls) == longer else wf.exp(x)).sum()

        x = wf.ones(3, requires_grad=True)
        y = wf.checkpoint(fickle, x)
        with pytest.raises(errors.ReplayDiffers, match=r"did (not do )?multiply"):
            y.backward()

    def test_other_shapes(self):
        state = {"n": 3}
        x = wf.ones(5, requires_grad=True)
        y = wf.checkpoint(lambda x: wf.exp(x[: state["n"]]).sum(), x)
        state["n"] = 4
        with pytest.raises(errors.ReplayDiffers, match=r"shape \(4,\).*shape \(3,\)"):
            y.backward()

    def test_other_requirements(self):
        x, w = wf.ones(3, requires_grad=True), wf.ones(3, requires_grad=True)
        y = wf.checkpoint(lambda x: wf.exp(x * w).sum(), x)
        w.requires_grad_(False)
        with pytest.raises(errors.ReplayDiffers, match=r"multiply .* saving 1.* saving 2"):
            y.backward()

    @pytest.mark.parametrize("number", [0, 2])
    def test_other_checkpoints_inside(self, number):
        numbers = [1, number]

        def f(x):
            for _ in range(numbers.pop(0)):
                x = wf.checkpoint(wf.exp, x)
            return wf.sin(x).sum()

        x = wf.ones(3, requires_grad=True)
        y = wf.checkpoint(f, x)
        with pytest.raises(errors.ReplayDiffers, match=f"made {number} checkpoints itself, not 1"):
            y.backward()

    def test_other_random_numbers(self):
        for first, second in ((2, 3), (2, 0), (0, 2)):
            draws = [first, second]
            x = wf.ones(3, requires_grad=True)
            y = wf.checkpoint(lambda x, d=draws: (wf.exp(x) + wf.rand((d.pop(0), 1))).sum(), x)
            with pytest.raises(errors.ReplayDiffers, match="random"):
                y.backward()

    def test_an_exception_inside_the_replay(self):
        calls = []

        def fails(x):
            calls.append(1)
            y = wf.exp(wf.sin(x) * wf.rand(3))
            if len(calls) == 2:
                raise ZeroDivisionError("mine")
            return y.sum()

        x = wf.ones(3, requires_grad=True)
        y = wf.checkpoint(fails, x)
        before = wf.random.default_generator.state_dict()
        with pytest.raises(ZeroDivisionError, match="mine") as e:
            y.backward(retain_graph=True)
        assert "replay of the checkpoint called at test_checkpoint.py" in e.value.__notes__[0]
        assert wf.random.default_generator.state_dict() == before
        assert wf.is_grad_enabled() and not replaying()
        assert np.isfinite(y.backward()[x].numpy()).all() and len(calls) == 3

    def test_an_argument_overwritten_by_the_function(self):
        x, buffer = wf.tensor([1.0, 2.0], requires_grad=True), wf.ones(2)
        y = wf.checkpoint(lambda x, b: wf.exp(x * wf.add(b, 1.0, out=b)), x, buffer)
        with pytest.raises(errors.SavedValueOverwritten):
            y.sum().backward()

    @pytest.mark.parametrize("how", ["argument", "closure", "constant", "unsaved leaf"])
    def test_overwritten_in_between(self, how):
        x = wf.tensor([1.0, 2.0], requires_grad=True)
        p, c = wf.Parameter(wf.tensor([3.0, 4.0])), wf.tensor([5.0, 6.0])
        calls = {
            "argument": lambda: wf.checkpoint(lambda x, p: wf.exp(x * p), x, p),
            "closure": lambda: wf.checkpoint(lambda x: wf.exp(x * p), x),
            "constant": lambda: wf.checkpoint(lambda x: wf.exp(x * c), x),
            "unsaved leaf": lambda: wf.checkpoint(lambda x: wf.exp(x + p), x),
        }
        y = calls[how]().sum()
        p.apply_update(wf.ones(2))
        wf.add(c, 1.0, out=c)
        with pytest.raises(errors.SavedValueOverwritten, match=r"called at test_checkpoint\.py"):
            y.backward()

    def test_memory_that_was_written_elsewhere_is_no_concern(self):
        x = wf.tensor([1.0, 2.0], requires_grad=True)
        scratch = wf.zeros(2)

        def f(x):
            wf.add(scratch, 1.0, out=scratch)
            wf.mul(scratch, 0.0, out=scratch)
            return wf.exp(x * scratch) * wf.sin(x)

        y = wf.checkpoint(f, x)
        for _ in range(20):  # arrays come and go at the addresses of the first run
            wf.add(wf.ones(2), 1.0, out=wf.zeros(2))
        same(y.sum().backward()[x], wf.cos(x))


class TestHooks:
    def test_hooks_outside_get_the_inputs(self):
        packed, unpacked = [], []

        def pack(t):
            packed.append(t.shape)
            return t.numpy().copy()

        def unpack(kept):
            unpacked.append(kept.shape)
            return wf.asarray(kept)

        x = wf.ones((2, 3), requires_grad=True)
        h = x * 2
        with wf.saved_tensors_hooks(pack, unpack):
            y = wf.checkpoint(lambda x, n: wf.exp(wf.sin(x)).sum() * n, h, 3.0)
        assert packed == [(2, 3)] and unpacked == []
        same(y.backward()[x], wf.grad(lambda x: wf.exp(wf.sin(x * 2)).sum() * 3.0)(x.detach()))
        assert unpacked == [(2, 3)]

    def test_hooks_inside_keep_what_they_were_given(self):
        x = wf.ones(3, requires_grad=True)

        def f(x):
            with wf.save_on_cpu():
                y = wf.exp(x)
            return wf.sin(y).sum()

        same(wf.checkpoint(f, x).backward()[x], wf.grad(f)(x.detach()))

    def test_gradient_hooks_set_inside_run_once(self):
        seen = []

        def f(x):
            h = wf.exp(x)
            h.register_hook(lambda g: seen.append(g.shape))
            return wf.sin(h).sum()

        x = wf.ones(3, requires_grad=True)
        same(wf.checkpoint(f, x).backward()[x], wf.grad(lambda x: wf.sin(wf.exp(x)).sum())(x))
        assert seen == [(3,)]


def test_watched_tensors_after_the_block_of_their_tape():
    t = wf.tensor([1.0, 2.0])
    with wf.GradientTape() as tape:
        tape.watch(t)
        y = wf.checkpoint(lambda u: wf.exp(t * u).sum(), wf.tensor(2.0))
    same(tape.gradient(y, t), 2 * wf.exp(2 * t))
    assert not t.requires_grad


def test_assignment_to_an_argument():
    def f(x, v):
        x[0] = x[0] * 2.0 + v
        return wf.exp(x * v).sum()

    found = []
    for call in (lambda f, *args: f(*args), wf.checkpoint):
        x, v = wf.ones(3), wf.tensor(0.5, requires_grad=True)
        y = call(f, x, v)
        assert x.tolist() == [2.5, 1.0, 1.0]
        found.append(y.backward()[v])
        assert x.tolist() == [2.5, 1.0, 1.0]
    same(*found)
