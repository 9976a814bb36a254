"""A Python number never widens a tensor: at every level the dtype is the one without levels."""

import numpy as np
import pytest

import weft as wf

FLOATS = ["bfloat16", "float16", "float32", "float64"]
INTEGERS = ["bool", "int8", "uint8", "int32", "int64"]

# What takes an array and a Python number, in both orders where there are two. 0.3 is between two
# numbers of every half type, so that a comparison in a wider one is another comparison.
DIFFERENTIABLE = {
    "x + 0.3": lambda x: x + 0.3,
    "0.3 - x": lambda x: 0.3 - x,
    "x - 1": lambda x: x - 1,
    "x * 0.3": lambda x: x * 0.3,
    "2 * x": lambda x: 2 * x,
    "x * True": lambda x: x * True,
    "x / 0.3": lambda x: x / 0.3,
    "3 / x": lambda x: 3 / x,
    "x ** 2": lambda x: x**2,
    "x ** 2.5": lambda x: x**2.5,
    "0.3 ** x": lambda x: 0.3**x,
    "x % 0.3": lambda x: x % 0.3,
    "maximum": lambda x: wf.maximum(x, 0.3),
    "minimum": lambda x: wf.minimum(0.3, x),
    "clip": lambda x: wf.clip(x, 0.3, 0.6),
    "where": lambda x: wf.where(x > 0.3, x, 0.3),
    "where, number first": lambda x: wf.where(x > 0.3, 1, x),
    "atan2": lambda x: wf.atan2(x, 0.3),
    "hypot": lambda x: wf.hypot(0.3, x),
    "copysign": lambda x: wf.copysign(x, -0.3),
    "logaddexp": lambda x: wf.logaddexp(x, 0.3),
    "xlogy": lambda x: wf.xlogy(x, 0.3),
    "of a mean": lambda x: x.mean() * 0.3 + x,
    "of a sum": lambda x: 0.3 * x.sum() - x,
    "gelu": wf.nn.functional.gelu,
    "softplus": lambda x: wf.nn.functional.softplus(x, 0.3),
}
COMPARISONS = {
    "x > 0.3": lambda x: x > 0.3,
    "0.3 > x": lambda x: 0.3 > x,
    "x == 0.3": lambda x: x == 0.3,
    "0.3 <= x": lambda x: 0.3 <= x,
    "floor_divide": lambda x: x // 0.3,
}


def _numbers(dtype: str) -> wf.Tensor:
    return wf.tensor(np.array([0.3, 0.25, 0.7])).to(dtype)


def _same(got: wf.Tensor, want: wf.Tensor) -> None:
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*DIFFERENTIABLE, *COMPARISONS])
def test_values_at_a_level_are_those_without(name, dtype):
    f = (DIFFERENTIABLE | COMPARISONS)[name]
    x = _numbers(dtype)
    want, batch = f(x), wf.stack([x, x])
    if name in DIFFERENTIABLE:
        assert want.dtype == x.dtype
    _same(wf.vmap(f)(batch)[1], want)
    if name not in COMPARISONS:
        _same(wf.jvp(f, (x,), (x,))[0], want)
        _same(wf.jvp(wf.vmap(f), (batch,), (batch,))[0][1], want)
        _same(wf.vmap(lambda x: wf.jvp(f, (x,), (x,))[0])(batch)[1], want)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_have_the_dtype_of_their_values(name, dtype):
    f = DIFFERENTIABLE[name]
    x = _numbers(dtype)
    batch = wf.stack([x, x])

    def total(x):
        return f(x).sum()

    made = {
        "jvp": wf.jvp(f, (x,), (x,))[1],
        "jvp of jvp": wf.jvp(lambda x: wf.jvp(f, (x,), (x,))[1], (x,), (x,))[1],
        "jvp of vmap": wf.jvp(wf.vmap(f), (batch,), (batch,))[1],
        "vmap of jvp": wf.vmap(lambda x: wf.jvp(f, (x,), (x,))[1])(batch),
        "grad": wf.grad(total)(x),
        "vmap of grad": wf.vmap(wf.grad(total))(batch),
        "jvp of grad": wf.jvp(wf.grad(total), (x,), (x,))[1],
        "grad of jvp": wf.grad(lambda x: wf.jvp(f, (x,), (x,))[1].sum())(x),
        "jacobian": wf.jacobian(f)(x),
        "hessian": wf.hessian(total)(x),
    }
    assert {what: y.dtype.name for what, y in made.items()} == dict.fromkeys(made, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_derivatives_are_those_of_double_precision(name, dtype):
    f = DIFFERENTIABLE[name]
    x, exact = _numbers(dtype), _numbers(dtype).to("float64")
    # Each of some ten roundings is relative to a number of the size of 10 at most.
    close = {"rtol": 10 * float(wf.finfo(dtype).eps), "atol": 10 * float(wf.finfo(dtype).eps)}
    if name in ("x % 0.3", "where", "where, number first", "maximum", "minimum", "clip"):
        x, exact = x[1:], exact[1:]  # not at the kink
    got = wf.jvp(f, (x,), (x,))[1].to("float64")
    np.testing.assert_allclose(got.numpy(), wf.jvp(f, (exact,), (exact,))[1].numpy(), **close)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "name",
    [
        *("x + 0.3", "0.3 - x", "x * 0.3", "2 * x", "x / 0.3", "3 / x", "0.3 ** x", "maximum"),
        *("where", "where, number first", "hypot", "x > 0.3", "0.3 > x"),
    ],
)
def test_integers_beside_numbers_at_a_level(name, dtype):
    f = (DIFFERENTIABLE | COMPARISONS)[name]
    x = wf.tensor(np.array([1, 1, 1])).to(dtype)
    want = f(x)
    _same(wf.vmap(f)(wf.stack([x, x]))[1], want)
    moving = wf.tensor(np.ones(3, "float32"))
    value, tangent = wf.jvp(lambda t: f(x) * t, (moving,), (moving,))
    assert value.dtype == tangent.dtype == (want * moving).dtype
    np.testing.assert_array_equal(value.numpy(), (want * moving).numpy())


def test_dual_tensors_keep_their_dtype():
    x = _numbers("bfloat16")
    y = 0.3 * wf.DualTensor(x, x) + 1.5
    assert y.dtype == y.value.dtype == y.tangent.dtype == x.dtype
    _same(y.value, 0.3 * x + 1.5)
