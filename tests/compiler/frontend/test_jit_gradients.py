"""New gradients in the memory of old ones: only where nobody can tell."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft as wf
from weft import errors

START = np.linspace(0.5, 2.0, 6).reshape(2, 3)


def square_step(p, compiled=True):
    """A step whose gradient is 2·p·x²; p itself stays, so that gradients depend on x alone."""

    def step(x):
        p.grad = None
        loss = ((p * x) ** 2).sum()
        loss.backward()
        return loss.detach()

    return wf.compile(step) if compiled else step


def full(value: float):
    return wf.tensor(np.full(START.shape, value))


def want(value: float) -> np.ndarray:
    return 2 * START * value**2


def address(tensor) -> int:
    return tensor._data.__array_interface__["data"][0]


def test_the_memory_of_a_gradient_that_nobody_holds_is_used_again():
    p = wf.Parameter(START)
    step = square_step(p)
    step(full(1.0))
    memory = address(p.grad)
    for value in (2.0, 3.0, 4.0):
        step(full(value))
        assert address(p.grad) == memory
        np.testing.assert_allclose(p.grad.numpy(), want(value), rtol=1e-14)
    assert step.recompilations == []


def test_a_whole_training_step_keeps_the_memory_of_its_gradients():
    model = wf.nn.Sequential(wf.nn.Linear(8, 16), wf.nn.Tanh(), wf.nn.Linear(16, 4))
    optimizer = wf.optim.AdamW(model.parameters(), lr=0.01)
    rng = np.random.default_rng(0)
    x = wf.tensor(rng.standard_normal((12, 8)).astype(np.float32))
    y = wf.tensor(rng.integers(0, 4, 12))

    @wf.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = wf.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    step(x, y)
    memory = [address(p.grad) for p in model.parameters()]
    step(x, y)
    assert [address(p.grad) for p in model.parameters()] == memory
    before = [p.grad.numpy().copy() for p in model.parameters()]
    values = [p.detach().numpy().copy() for p in model.parameters()]
    with pytest.raises(IndexError):
        step(x, wf.tensor(np.full(12, 7)))
    for p, g, v in zip(model.parameters(), before, values, strict=True):
        assert (p.grad.numpy() == g).all() and (p.detach().numpy() == v).all()


def saved_by_a_graph(g):
    w = wf.tensor(np.ones(START.shape), requires_grad=True)
    y = (g.detach() * w).sum()

    def read():
        y.backward()
        return w.grad.numpy()

    return read


class Keeper:
    """What a callback keeps."""

    def __init__(self, value):
        self.value = value


HOLDS = {
    "the tensor": lambda g: g.numpy,
    "its array": lambda g: (lambda a: lambda: a)(g.numpy()),
    "the raw array": lambda g: (lambda a: lambda: a)(g._data),
    "a view": lambda g: (lambda v: lambda: v.numpy().reshape(START.shape))(g.reshape((3, 2))),
    "a slice": lambda g: (lambda v: lambda: np.stack([v.numpy(), want(1.0)[1]]))(g[0]),
    "a transpose of its array": lambda g: (lambda a: lambda: a.T)(g.numpy().T),
    "a detached tensor": lambda g: g.detach().numpy,
    "DLPack": lambda g: (lambda a: lambda: a)(np.from_dlpack(g)),
    "the buffer": lambda g: (lambda m: lambda: np.asarray(m))(memoryview(g._data)),
    "a graph": saved_by_a_graph,
    "a list": lambda g: (lambda kept: lambda: kept[0].numpy())([g]),
    "an object": lambda g: (lambda kept: lambda: kept.value.numpy())(Keeper(g)),
    "another gradient": lambda g: (lambda q: (setattr(q, "grad", g), q.grad.numpy)[1])(
        wf.Parameter(START)
    ),
}


@pytest.mark.parametrize("how", HOLDS)
def test_a_gradient_that_somebody_holds_stays(how):
    p = wf.Parameter(START)
    step = square_step(p)
    for value in (3.0, 1.0):  # the second gradient is in the first one's memory
        step(full(value))
    memory, read = address(p.grad), HOLDS[how](p.grad)
    step(full(2.0))
    assert address(p.grad) != memory
    np.testing.assert_allclose(p.grad.numpy(), want(2.0), rtol=1e-14)
    step(full(5.0))
    np.testing.assert_allclose(p.grad.numpy(), want(5.0), rtol=1e-14)
    np.testing.assert_allclose(read(), want(1.0), rtol=1e-14)


def test_a_gradient_that_torch_holds_stays():
    torch = pytest.importorskip("torch")
    p = wf.Parameter(START)
    step = square_step(p)
    step(full(1.0))
    held = torch.from_dlpack(p.grad)
    step(full(2.0))
    np.testing.assert_allclose(held.numpy(), want(1.0), rtol=1e-14)
    np.testing.assert_allclose(p.grad.numpy(), want(2.0), rtol=1e-14)


def test_gradients_that_the_function_returns():
    p = wf.Parameter(START)

    @wf.compile
    def step(x):
        p.grad = None
        grads = ((p * x) ** 2).sum().backward()
        return grads, p.grad, p.grad.reshape((6,))

    kept = []
    for value in (1.0, 2.0, 3.0):
        kept.append((value, *step(full(value))))
    for value, grads, gradient, flat in kept:
        for g in (grads[p], gradient, flat.reshape(START.shape)):
            np.testing.assert_allclose(g.numpy(), want(value), rtol=1e-14)
    np.testing.assert_allclose(p.grad.numpy(), want(3.0), rtol=1e-14)


def test_an_old_gradient_that_the_function_returns():
    p = wf.Parameter(START)

    @wf.compile
    def step(x):
        old, p.grad = p.grad, None
        ((p * x) ** 2).sum().backward()
        return old

    p.grad = full(7.0)
    found = [step(full(value)) for value in (1.0, 2.0, 3.0)]
    assert (found[0].numpy() == 7.0).all()
    for value, old in ((1.0, found[1]), (2.0, found[2]), (3.0, p.grad)):
        np.testing.assert_allclose(old.numpy(), want(value), rtol=1e-14)


def test_old_gradients_that_are_added_to():
    results = []
    for compiled in (False, True):
        p = wf.Parameter(START)

        def step(x, p=p):
            old = p.grad * 1
            ((p * x) ** 2).sum().backward()
            return (old * p.grad).sum().detach()

        f = wf.compile(step) if compiled else step
        p.grad = full(0.25)
        made = [f(full(value)).item() for value in (1.0, 2.0, 3.0)]
        results.append((made, p.grad.numpy()))
    np.testing.assert_allclose(results[1][0], results[0][0], rtol=1e-13)
    np.testing.assert_allclose(results[1][1], results[0][1], rtol=1e-13)


def test_a_gradient_that_is_an_argument():
    p = wf.Parameter(START)
    step = square_step(p)
    step(full(1.0))
    for _ in range(3):  # the gradient is 2·p·x², and x is the last one
        expected = 2 * START * p.grad.numpy() ** 2
        step(p.grad.detach())
        np.testing.assert_allclose(p.grad.numpy(), expected, rtol=1e-14)
    with pytest.raises(wf.errors.GradientNotRecorded, match="detach"):  # as in eager mode
        step(p.grad)


def test_two_leaves_with_one_gradient():
    p, q = wf.Parameter(START), wf.Parameter(START)

    @wf.compile
    def step(x):
        p.grad = q.grad = None
        (p * x + q * x * 2).sum().backward()

    step(full(1.0))
    q.grad = p.grad
    step(full(3.0))
    assert (p.grad.numpy() == 3.0).all() and (q.grad.numpy() == 6.0).all()

    @wf.compile
    def alike(x):
        p.grad = q.grad = None
        ((p + q) * x).sum().backward()

    for value in (1.0, 2.0, 3.0):  # one value, which is the gradient of both
        alike(full(value))
        assert (p.grad.numpy() == value).all() and (q.grad.numpy() == value).all()


def test_gradients_that_are_forgotten_outside():
    p = wf.Parameter(START)

    @wf.compile
    def step(x):
        ((p * x) ** 2).sum().backward()

    for value in (1.0, 2.0, 3.0):
        p.grad = None
        step(full(value))
        np.testing.assert_allclose(p.grad.numpy(), want(value), rtol=1e-14)


def test_gradients_of_arguments():
    @wf.compile
    def f(x):
        x.grad = None
        (x * x).sum().backward()

    x = wf.tensor(START, requires_grad=True)
    f(x)
    kept = x.grad
    x.detach().copy_(full(5.0))
    f(x)
    assert (kept.numpy() == 2 * START).all() and (x.grad.numpy() == 10.0).all()


def given(kind: str):
    """A gradient that is no memory of ours, and what must not change."""
    wide = np.zeros((4, 3))
    if kind == "a part of another array":
        return wf.asarray(wide[:2]), wide
    if kind == "read-only":
        raw = np.zeros(START.shape)
        raw.flags.writeable = False
        return wf.asarray(raw), raw
    if kind == "by columns":
        return wf.tensor(np.zeros((3, 2))).T, None
    if kind == "of another library":
        memory = bytearray(START.nbytes)
        return wf.asarray(np.frombuffer(memory).reshape(START.shape)), np.frombuffer(memory)
    return None, None


@pytest.mark.parametrize(
    "kind",
    ["none", "a part of another array", "read-only", "by columns", "of another library"],
)
def test_gradients_that_the_user_has_put_there(kind):
    p = wf.Parameter(START)
    step = square_step(p)
    step(full(1.0))
    p.grad, other = given(kind)
    step(full(2.0))
    np.testing.assert_allclose(p.grad.numpy(), want(2.0), rtol=1e-14)
    assert other is None or not other.any()


# Calls that fail


def picks(p, x, index):
    """A gradient, and then an element at an index that is checked only after it is known."""
    p.grad = None
    ((p * x) ** 2).sum().backward()
    late = (p.grad.detach() * 0).to("int64")[0] + index
    return x[0][late]


def test_a_check_after_a_gradient_leaves_the_old_one():
    p = wf.Parameter(START)
    step = wf.compile(lambda x, index: picks(p, x, index))
    for value in (1.0, 2.0):
        step(full(value), wf.tensor([0, 1, 2]))
        np.testing.assert_allclose(p.grad.numpy(), want(value), rtol=1e-14)
    with pytest.raises(IndexError):
        step(full(5.0), wf.tensor([0, 1, 9]))
    np.testing.assert_allclose(p.grad.numpy(), want(2.0), rtol=1e-14)


def test_a_library_call_after_a_gradient_leaves_the_old_one():
    p, seen = wf.Parameter(START), []

    class Picky(wf.CustomOp):
        def forward(self, inputs):
            x = inputs[0].numpy()
            seen.append(p.grad)
            if x[0, 0] > 10:
                raise ValueError("too much")
            return wf.asarray(x * 1)

        def backward(self, grad_output, inputs):
            return [grad_output]

    picky = Picky()

    @wf.compile
    def step(x):
        p.grad = None
        ((p * x) ** 2).sum().backward()
        return picky(p.grad.detach())

    with pytest.warns(errors.SideEffectWarning):  # it is tried while the step is compiled
        step(full(1.0))
    seen.clear()
    step(full(2.0))
    with pytest.raises(ValueError, match="too much"):
        step(full(5.0))
    np.testing.assert_allclose(p.grad.numpy(), want(2.0), rtol=1e-14)
    held = [g.numpy() for g in seen]  # what the operation found, it may keep
    np.testing.assert_allclose(held, [want(1.0), want(2.0)], rtol=1e-14)


def test_an_argument_that_is_refused_leaves_the_old_gradient():
    p, state = wf.Parameter(START), wf.tensor(np.zeros(START.shape))

    @wf.compile
    def step(x):
        p.grad = None
        ((p * x) ** 2).sum().backward()
        state.copy_(state + p.grad.detach())

    step(full(1.0))
    step(full(2.0))
    with pytest.raises(errors.StagingError, match="shares its memory"):
        step(state.detach())
    np.testing.assert_allclose(p.grad.numpy(), want(2.0), rtol=1e-14)


# Several callers


def test_threads_that_make_steps_at_once():
    size = 400 * 300
    p = wf.Parameter(np.zeros(size))
    optimizer = wf.optim.SGD([p], lr=1.0)

    @wf.compile
    def step(x):
        optimizer.zero_grad()
        (p * x).sum().backward()
        optimizer.step()

    def other(x):
        p.grad = None
        (p * x).sum().backward()

    compiled = wf.compile(other)  # another function with a lock of its own
    xs = [wf.tensor(np.full(size, float(k))) for k in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            jobs = [pool.submit(f, x) for x in xs for f in (step, compiled)]
            for job in jobs:
                job.result()
    assert (p.detach().numpy() == -5.0 * sum(range(8))).all()
    step(xs[3])
    assert (p.grad.numpy() == 3.0).all()


def test_a_gradient_that_a_thread_holds_stays():
    p = wf.Parameter(START)
    step = square_step(p)
    step(full(1.0))
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(lambda: p.grad).result()
        step(full(2.0))
        np.testing.assert_allclose(held.numpy(), want(1.0), rtol=1e-14)
