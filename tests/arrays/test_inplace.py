"""Results into given memory: `out=`, `mul_into`, `copy_`; no allocation, nothing dropped."""

import tracemalloc

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.arrays import elementwise, special

LARGE = 1 << 20


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


FUNCTIONS = elementwise.FUNCTIONS | special.FUNCTIONS
UNIQUE = {f.op.name: f for f in FUNCTIONS.values()}


def arguments(f, device, shape=(2000,)):
    """Numbers in the first dtype that the function takes."""
    value = 1.25 if f.op.name == "acosh" else 0.75
    for dtype in ("float32", "int64", "bool"):
        args = [wf.full(shape, v, device=device).to(dtype) for v in (value, 0.5, 0.25)]
        args = args[: f.op.arity]
        try:
            f(*args)
        except errors.DTypeError:
            continue
        return args
    raise AssertionError(f.op)


@pytest.mark.parametrize("name", sorted(UNIQUE))
def test_every_elementwise_function_takes_out(device, name):
    f = UNIQUE[name]
    args = arguments(f, device)
    expected = f(*args)
    buffer = wf.zeros_like(expected)
    memory = buffer.numpy()
    assert f(*args, out=buffer) is buffer
    assert buffer.dtype == expected.dtype
    np.testing.assert_array_equal(buffer.numpy(), expected.numpy())
    np.testing.assert_array_equal(memory, expected.numpy())  # the same memory, not a new one


def peak(f) -> int:
    f()  # what is bound or cached at the first call is no matter
    tracemalloc.start()
    try:
        f()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "sin", "less", "sqrt"])
def test_no_allocation(name):
    f = UNIQUE[name]
    args = arguments(f, "cpu", (LARGE,))
    buffer = wf.zeros_like(f(*args))
    assert peak(lambda: f(*args, out=buffer)) < 10_000


@pytest.mark.parametrize("name", ["relu", "rsqrt", "erf", "gammaln", "expit", "floor_divide"])
def test_composed_kernels_need_a_small_block_only(name):
    f = UNIQUE[name]
    args = arguments(f, "cpu", (16, LARGE // 16))
    buffer = wf.zeros_like(f(*args))
    assert peak(lambda: f(*args, out=buffer)) < LARGE // 4  # of the 4·LARGE bytes of a result


def test_scalars_methods_and_aliases(device):
    a, b = wf.arange(4.0, device=device), wf.full(4, 2.0, device=device)
    buffer = wf.empty_like(a)
    assert wf.mul(a, b, out=buffer).tolist() == [0.0, 2.0, 4.0, 6.0]
    assert wf.mul(a, 3, out=buffer).tolist() == [0.0, 3.0, 6.0, 9.0]
    assert wf.sub(1.0, a, out=buffer).tolist() == [1.0, 0.0, -1.0, -2.0]
    assert wf.pow(a, 2, out=buffer).tolist() == [0.0, 1.0, 4.0, 9.0]
    assert a.mul_into(b, buffer) is buffer and buffer.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert a.add_into(b, buffer).tolist() == [2.0, 3.0, 4.0, 5.0]
    assert a.sub_into(b, buffer).tolist() == [-2.0, -1.0, 0.0, 1.0]
    assert a.div_into(b, buffer).tolist() == [0.0, 0.5, 1.0, 1.5]
    assert wf.clip(a, 1.0, 2.0, out=buffer).tolist() == [1.0, 1.0, 2.0, 2.0]
    assert wf.clip(a, None, b, out=buffer).tolist() == [0.0, 1.0, 2.0, 2.0]
    assert wf.clip(a, out=buffer).tolist() == a.tolist()


def test_integers_are_converted_as_without_out(device):
    a, buffer = wf.arange(4, device=device), wf.zeros(4, device=device)
    np.testing.assert_array_equal(wf.sin(a, out=buffer).numpy(), wf.sin(a).numpy())
    assert wf.mul(a, 1.5, out=buffer).tolist() == (a * 1.5).tolist()
    assert wf.add(1.0, 2.0, out=wf.zeros((), device=device)).item() == 3.0


def test_broadcasting_arguments(device):
    row, column = wf.arange(3.0, device=device), wf.arange(4.0, device=device).reshape(4, 1)
    buffer = wf.zeros((4, 3), device=device)
    for f in (wf.add, wf.floor_divide, wf.hypot):
        np.testing.assert_array_equal(
            f(column, row + 1, out=buffer).numpy(), f(column, row + 1).numpy()
        )


@pytest.mark.parametrize("shape", [(3, 70_000), (70_000, 3), (2, 3, 40_000), (300_000,)])
@pytest.mark.parametrize("name", ["expit", "beta"])
def test_blocks_cover_every_element(device, shape, name):
    f = UNIQUE[name]
    rng = np.random.default_rng(0)
    x = wf.asarray(rng.uniform(0.5, 2, size=shape), device=device)
    y = wf.asarray(rng.uniform(0.5, 2, size=shape[-1]), device=device)
    args = (x, y)[: f.op.arity]
    buffer = wf.zeros_like(x)
    np.testing.assert_array_equal(f(*args, out=buffer).numpy(), f(*args).numpy())


@pytest.mark.parametrize("name", ["exp", "rsqrt", "add", "hypot"])
def test_the_buffer_may_be_an_argument(device, name):
    f = UNIQUE[name]
    values = np.random.default_rng(0).uniform(1, 2, size=40_000)
    x = wf.asarray(values.copy(), device=device)
    expected = f(*(x, x[::-1])[: f.op.arity]).numpy().copy()
    f(*(x, x[::-1])[: f.op.arity], out=x)
    np.testing.assert_array_equal(x.numpy(), expected)
    x = wf.asarray(values.copy(), device=device)
    expected = f(*(x[::-1], x)[: f.op.arity]).numpy().copy()
    f(*(x[::-1], x)[: f.op.arity], out=x)  # read in the other order than written
    np.testing.assert_array_equal(x.numpy(), expected)


def test_copy_overwrites(device):
    x = wf.zeros((2, 2), device=device)
    memory = x.numpy()
    assert x.copy_([[1.0, 2.0], [3.0, 4.0]]) is x
    assert x.copy_(wf.tensor(5)).tolist() == [[5.0, 5.0], [5.0, 5.0]]
    assert x.copy_(wf.arange(2.0, device="torch")).tolist() == [[0.0, 1.0], [0.0, 1.0]]
    assert memory.tolist() == [[0.0, 1.0], [0.0, 1.0]]


def test_memory_shared_by_gradients_is_not_overwritten(device):
    x = wf.ones(3, device=device, requires_grad=True)
    grads = (x * 2).sum().backward()
    g = grads[x]
    wf.mul(g, 10.0, out=g)
    assert g.tolist() == [20.0] * 3 and x.grad.tolist() == [2.0] * 3


def tracked(device):
    return wf.ones(3, device=device, requires_grad=True)


REFUSED = {
    "a leaf": (errors.InPlaceOnTracked, lambda d: wf.mul(plain(d), 2.0, out=tracked(d))),
    "a result": (errors.InPlaceOnTracked, lambda d: wf.mul(plain(d), 2.0, out=tracked(d) * 2)),
    "a tracked argument": (errors.InPlaceOnTracked, lambda d: wf.mul(tracked(d), 2, out=plain(d))),
    "mul_into": (errors.InPlaceOnTracked, lambda d: tracked(d).mul_into(plain(d), plain(d))),
    "clip": (errors.InPlaceOnTracked, lambda d: wf.clip(tracked(d), 0.0, 1.0, out=plain(d))),
    "copy_ into": (errors.InPlaceOnTracked, lambda d: tracked(d).copy_(plain(d))),
    "copy_ from": (errors.InPlaceOnTracked, lambda d: plain(d).copy_(tracked(d))),
    "shape": (errors.ShapeError, lambda d: wf.mul(plain(d), 2.0, out=wf.ones(4, device=d))),
    "dtype": (
        errors.DTypeError,
        lambda d: wf.mul(plain(d), 2.0, out=wf.ones(3, dtype="float64", device=d)),
    ),
    "integer buffer": (
        errors.DTypeError,
        lambda d: wf.mul(wf.arange(3, device=d), 2.5, out=wf.arange(3, device=d)),
    ),
    "device": (errors.DeviceError, lambda d: wf.mul(plain(d), 2.0, out=plain(other(d)))),
    "argument's device": (
        errors.DeviceError,
        lambda d: wf.mul(plain(d), plain(other(d)), out=plain(d)),
    ),
    "an array": (errors.DTypeError, lambda d: wf.mul(plain(d), 2.0, out=np.ones(3))),
    "copy_ shape": (errors.ShapeError, lambda d: plain(d).copy_(wf.ones(4))),
    "copy_ of more": (errors.ShapeError, lambda d: plain(d).copy_(wf.ones((2, 3)))),
    "copy_ complex": (errors.DTypeError, lambda d: plain(d).copy_(wf.asarray([1j] * 3, device=d))),
    "copy_ fractions": (errors.DTypeError, lambda d: wf.arange(3, device=d).copy_(plain(d))),
}


def plain(device):
    return wf.ones(3, device=device)


def other(device):
    return "cpu" if device == "torch" else "torch"


@pytest.mark.parametrize("name", REFUSED)
def test_refused(device, name):
    error, call = REFUSED[name]
    with pytest.raises(error, match=r"(out=…|multiply|copy_|clip).*\(at test_inplace.py:\d+\)"):
        call(device)


def test_no_grad_allows_leaves_and_tracked_arguments(device):
    x, buffer = tracked(device), plain(device)
    with wf.no_grad():
        wf.mul(x, 3.0, out=buffer)
        wf.add(buffer, 1.0, out=x)
        assert x.requires_grad and x.tolist() == [4.0] * 3
        with pytest.raises(errors.InPlaceOnTracked):
            wf.mul(buffer, 2.0, out=recorded(x))
    assert (x * x).sum().backward()[x].tolist() == [8.0] * 3


def recorded(x):
    with wf.enable_grad():
        return x * 2


def test_overwriting_what_backward_needs_raises(device):
    x, w = tracked(device), plain(device)
    y = (x * w).sum()
    wf.mul(w, 2.0, out=w)
    with pytest.raises(errors.SavedValueOverwritten, match=r"multiply \(at test_inplace.py"):
        y.backward()
    z = (x * w).sum()  # recorded after the change, so it is right
    assert z.backward()[x].tolist() == [2.0] * 3


def test_overwriting_a_view_of_what_backward_needs_raises(device):
    x, w = tracked(device), plain(device)
    y = (x * w).sum()
    part = w[1:]
    wf.mul(part, 2.0, out=part)
    with pytest.raises(errors.SavedValueOverwritten):
        y.backward()


def test_a_refused_call_counts_as_no_change(device):
    x, w = tracked(device), plain(device)
    y = (x * w).sum()
    with pytest.raises(errors.ShapeError):
        wf.mul(wf.ones(5, device=device), 2.0, out=w)
    assert y.backward()[x].tolist() == [1.0] * 3
