"""Python integers beside tensors that do not hold them: one error, whoever computes."""

import numpy as np
import pytest

import weft as wf
from weft import errors

SMALL = ["uint8", "int8", "uint16", "int16", "int32", "uint32", "int64", "uint64"]
BEYOND = [300, -1, -200, 70_000, -70_000, 1 << 40, -(1 << 40), 1 << 70, -(1 << 70)]

REFUSED = {
    "add": lambda x, v: x + v,
    "subtract": lambda x, v: v - x,
    "multiply": lambda x, v: x * v,
    "floor_divide": lambda x, v: x // v,
    "remainder": lambda x, v: x % v,
    "bitwise_and": lambda x, v: x & v,
    "bitwise_or": lambda x, v: v | x,
    "maximum": lambda x, v: wf.maximum(x, v),
    "minimum": lambda x, v: wf.minimum(v, x),
    "clip": lambda x, v: wf.clip(x, *((v, v + 1) if v > 0 else (v - 1, v))),
    "where": lambda x, v: wf.where(x > 1, x, v),
    "where, number first": lambda x, v: wf.where(x > 1, v, x),
    "pow": lambda x, v: x**v,
    "pow of a number": lambda x, v: v**x,
    "pad": lambda x, v: wf.pad(x, (1, 1), constant_values=v),
    "full": lambda x, v: wf.full((2,), v, dtype=x.dtype),
    "full_like": lambda x, v: wf.full_like(x, v),
    "tensor": lambda x, v: wf.tensor([1, v], dtype=x.dtype),
}
COMPARED = {
    "less": lambda x, v: x < v,
    "less_equal": lambda x, v: v >= x,
    "greater": lambda x, v: v < x,
    "greater_equal": lambda x, v: x >= v,
    "equal": lambda x, v: x == v,
    "not_equal": lambda x, v: v != x,
}


def _beyond(dtype: str) -> list[int]:
    info = np.iinfo(dtype)
    return [v for v in BEYOND if not info.min <= v <= info.max]


def _ways(f, v):
    """The function of x as it is, at a level, and compiled."""
    return {
        "eager": lambda x: f(x, v),
        "vmap": lambda x: wf.vmap(lambda x: f(x, v))(wf.stack([x, x]))[0],
        "compiled": wf.compile(lambda x: f(x, v)),
    }


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint64", "int64"])
@pytest.mark.parametrize("name", REFUSED)
def test_an_integer_that_does_not_fit_is_refused_alike(name, dtype):
    x = wf.tensor(np.array([1, 2, 3])).to(dtype)
    for v in _beyond(dtype):
        said = set()
        for way in _ways(REFUSED[name], v).values():
            with pytest.raises(errors.IntegerOutOfRange, match=f"{v} out of bounds for") as caught:
                way(x)
            assert isinstance(caught.value, (OverflowError, errors.ArgumentError))
            assert "test_integer_bounds.py:" in str(caught.value)
            said.add(caught.value.message)
        assert len(said) == 1, said


def test_numpy_refuses_the_same():
    x = np.array([1, 2, 3], "uint8")
    for name in ("add", "subtract", "multiply", "floor_divide", "remainder", "pow"):
        with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
            REFUSED[name](x, 300)


@pytest.mark.parametrize("dtype", SMALL)
def test_bounds_of_clip_that_limit_nothing(dtype):
    a = np.array([1, 2, 3], dtype)
    for lo, hi in ((-(1 << 70), 2), (2, 1 << 70), (-(1 << 70), 1 << 70), (None, 1 << 70)):
        want = [min(max(int(n), -9 if lo is None else lo), hi) for n in a]
        for way in _ways(lambda x, bounds: wf.clip(x, *bounds), (lo, hi)).values():
            got = way(wf.tensor(a))
            assert got.dtype == dtype
            np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("dtype", SMALL)
def test_comparisons_take_any_integer(dtype):
    info = np.iinfo(dtype)
    a = np.array([info.min, 0, 1, info.max], dtype)
    x = wf.tensor(a)
    for v in (*BEYOND, info.min, info.max, info.min - 1, info.max + 1):
        for f in COMPARED.values():
            want = np.array([f(int(n), v) for n in a])
            for way in _ways(f, v).values():
                np.testing.assert_array_equal(way(x).numpy(), want)


@pytest.mark.parametrize("name", [n for n in REFUSED if n not in ("pow", "clip")])
def test_the_bounds_themselves_are_fine(name):
    f = REFUSED[name]
    x = wf.tensor(np.array([1, 2, 3])).to("uint8")
    want = f(x, 255)
    for way in _ways(f, 255).values():
        np.testing.assert_array_equal(way(x).numpy(), want.numpy())


def test_what_makes_floats_takes_any_integer():
    x = wf.tensor(np.array([1, 2, 3])).to("uint8")
    for way in _ways(lambda x, v: x / v, 300).values():
        np.testing.assert_allclose(way(x).numpy(), np.array([1, 2, 3]) / np.float32(300))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_integers_beside_floats_go_as_far_as_floats(dtype):
    x = wf.tensor([1.0]).to(dtype)
    for f in (REFUSED[n] for n in ("add", "multiply", "maximum", "where")):
        with np.errstate(over="ignore"):
            want = f(x, 1 << 200)
            for way in _ways(f, 1 << 200).values():
                np.testing.assert_array_equal(way(x).numpy(), want.numpy())
        for way in _ways(f, 1 << 1100).values():
            with pytest.raises(errors.IntegerOutOfRange, match="of 1101 bits out of bounds"):
                way(x)


def test_the_error_names_a_dtype_that_holds_the_number():
    x = wf.tensor(np.array([1, 2, 3])).to("uint8")
    for v, wide in ((300, "int16"), (-1, "int16"), (70_000, "int32"), (1 << 63, "uint64")):
        with pytest.raises(errors.IntegerOutOfRange, match=f'convert with .to."{wide}".'):
            x + v
        assert (x.to(wide) + v).dtype == wide


def test_integers_to_negative_powers_are_refused_alike():
    x = wf.tensor(np.array([1, 2, 3]))
    for way in _ways(lambda x, v: x**v, -1).values():
        with pytest.raises(errors.ArgumentError, match="int64 to the power -1"):
            way(x)


def test_margins_of_integers_are_integers():
    x = wf.tensor(np.array([1, 2, 3])).to("uint8")
    for way in _ways(lambda x, v: wf.pad(x, (1, 0), constant_values=v), float("nan")).values():
        with pytest.raises(errors.ArgumentError, match="pad: nan around uint8"):
            way(x)
    for way in _ways(lambda x, v: wf.pad(x, (1, 0), constant_values=v), 300.0).values():
        with pytest.raises(errors.IntegerOutOfRange, match="pad: Python integer 300"):
            way(x)


def test_torch_refuses_the_same():
    pytest.importorskip("torch")
    x = wf.tensor(np.array([1, 2, 3])).to("uint8").to("torch")
    for f in REFUSED.values():
        for v in (300, -1):
            with pytest.raises(errors.IntegerOutOfRange, match=f"{v} out of bounds for uint8"):
                f(x, v)
    for f in COMPARED.values():
        for v in (300, -1, 1 << 70):
            want = np.array([f(n, v) for n in (1, 2, 3)])
            np.testing.assert_array_equal(f(x, v).to("cpu").numpy(), want)
    assert (x / 300).dtype == wf.float32


def test_floats_that_integers_do_not_hold():
    for data in (-1.5, [300.0, 1.0], np.float64(-2.0).item()):
        with pytest.raises(errors.IntegerOutOfRange, match="cannot make a tensor of uint8"):
            wf.tensor(data, dtype="uint8")
    x = wf.tensor(np.array([1, 2, 3])).to("uint8")
    for way in (lambda x: _assigned(x, -1.5), wf.compile(lambda x: _assigned(x, -1.5))):
        with pytest.raises(errors.IntegerOutOfRange, match="of uint8"):
            way(x)


def _assigned(x, value):
    y = x.clone()
    y[0] = value
    return y
