"""Elementwise rows at nasty numbers: eager, eager on large arrays and compiled give one answer.

Every row that takes numbers one by one, in every dtype, on every combination of zeros, infinities,
NaN, denormal numbers, extremes and the thresholds of kernels: the same dtype, the same NaN and
infinities, values to a few units, and gradients.
"""

import os

import ml_dtypes
import numpy as np
import pytest
from tests.compiler.emit.test_rows import ELEMENTWISE
from tests.table.rows import cases, load

import weft as wf
from weft.compiler.eager import kernels as eager
from weft.core import dtypes
from weft.core.call import caller

TABLE = load()
SOAK = os.environ.get("WEFT_SOAK") == "1"
FLOATS = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
WHOLE = (dtypes.bool_, *dtypes.SIGNED, *dtypes.UNSIGNED)
DTYPES = (*FLOATS, *WHOLE) if SOAK else (*FLOATS, dtypes.bool_, dtypes.int8, dtypes.uint32)
# Their functions check or convert what the rows themselves would take for something else.
LEFT_OUT = {"complex_", "extreme_share", "one_hot", "ravel_index", "transfer", "polygamma", "zeta"}
LEFT_OUT |= {"bessel_i", "bessel_ie", "bessel_j", "spherical_j"}  # SciPy's own, in both
ROWS = sorted(set(ELEMENTWISE) - LEFT_OUT)
inf, nan = np.inf, np.nan
# Numbers around which kernels change their ways.
EDGES = (0.3, 0.5, 0.65, 1, 1.5, 2, 2.5, 3, 5.5, 8.3, 13.2, 14, 16, 17.3, 20, 36.7, 37.1, 38, 64)
EDGES += (87.3, 88.7, 89, 103.9, 104.5, 150, 200, 255, 256, 700, 709.7, 710, 745, 746, 800)
EDGES += (1e5, 1e10, 1e-5, 1e-10, 1e-20, 1e-30, 2.0**31, 2.0**32, 2.0**63, 2.0**64, np.pi)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def numbers(dtype: np.dtype) -> np.ndarray:
    """What is nasty in a dtype."""
    if dtype == dtypes.bool_:
        return np.array([False, True])
    if dtype in WHOLE:
        least, most = dtypes.bounds(dtype)
        near = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 100, least, least + 1, most, most - 1]
        return np.array(
            sorted({v for v in (*near, -1, -2, -3, -8, -100) if least <= v <= most}), dtype
        )
    info = ml_dtypes.finfo(dtype)
    tiny, top, eps = float(info.tiny), float(info.max), float(info.eps)
    ends = (0.0, inf, top, top / 2, tiny, tiny / 2, float(info.smallest_subnormal))
    near = (eps, 1 - eps / 2, 1 + eps)
    line = np.array([*ends, *near, *EDGES]).astype(dtype)
    return np.unique(
        np.concatenate([line, -line, [nan]]).astype(dtype).view(f"u{dtype.itemsize}")
    ).view(dtype)


def arguments(name: str, dtype: np.dtype) -> list[np.ndarray]:
    """All combinations for one or two arguments, some for three."""
    values, rng = numbers(dtype), np.random.default_rng(0)
    if TABLE[name].arity == 1:
        return [values]
    grid = [g.ravel() for g in np.meshgrid(values, values)]
    args = [*grid, *[rng.permutation(grid[0]) for _ in range(TABLE[name].arity - 2)]]
    masks = {"where": 0, "gate": 1, "masked_scale": 1}
    if name in masks:
        args[masks[name]] = rng.integers(0, 2, grid[0].size).astype(bool)
    if name == "sign_product":
        args[2] = np.abs(args[1])
    return args


STATIC = {
    "cast": [(d,) for d in (*FLOATS, *WHOLE)],
    "power_scalar": [
        (n,) for n in (0, 1, 2, 3, 4, 5, -1, -2, -3, 0.5, -0.5, 2.5, 1 / 3, 3.0, inf, nan)
    ],
    "clip": [(-1.0, 2.0), (None, 3.0), (nan, 2.0), (0.0, nan), (2.0, -1.0), (nan, None), (0, 2)],
}
STATIC["clip"] += [(None, None), (-inf, inf), (1e-40, 1.0)]
STATIC_WHOLE = {
    "power_scalar": [(0,), (1,), (3,), (7,)],
    "clip": [(1, 2), (None, 3), (5, None), (3, 1)],
}


def statics(name: str, dtype: np.dtype) -> list[tuple]:
    if dtype == dtypes.bool_ and name in STATIC_WHOLE:
        return []  # the functions make integers of them first
    known = (STATIC_WHOLE if dtype in WHOLE else {}).get(name) or STATIC.get(name)
    drawn = {repr(c.static): c.static for c in cases(TABLE[name])}
    return known or list(drawn.values()) or [()]


# Rows that choose among equal numbers: which zero it is, nobody says.
CHOOSING = {
    "maximum",
    "minimum",
    "clip",
    "clip_lower",
    "clip_upper",
    "relu",
    "sign",
    "sign_product",
}
CHOOSING |= {"strong_quotient", "scale_shift"}
# Rows whose exponent, of that size, is rounded before it is used: eˣ multiplies its error.
EXPONENTS = dict.fromkeys(("gelu", "gelu_slope", "ndtr", "log_ndtr"), lambda x: x * x)
EXPONENTS |= {"erfc": lambda x: 2 * x * x, "erfcx": lambda x: 2 * x * x}
EXPONENTS |= dict.fromkeys(("gelu_tanh", "gelu_tanh_slope"), lambda x: abs(x) + abs(x**3) / 8)
# Differences of terms of about that size.
TERMS = {
    "silu_slope": lambda x: 1 + np.minimum(abs(x), 800),
    "gelu_slope": lambda x: 1,
    "gelu_tanh_slope": lambda x: 1,
    "scale_shift": lambda x, w, b: abs(x * w),
    "kl_div": lambda x, y: abs(x) + abs(y),
    "logaddexp": lambda a, b: np.minimum(abs(a), abs(b)),
    "betaln": lambda a, b: 1 + abs(a) + abs(b),
    "digamma": lambda x: 1 + abs(x),
    "gammaln": lambda x: 1 + abs(x),
    "floor_divide": lambda a, b: abs(a / b) * 0,
}
UNITS = {"kl_div": 8, "rel_entr": 16, "log_ndtr": 64}  # where they are not 4


def allowed(name: str, want: np.ndarray, args: list[np.ndarray]) -> np.ndarray:
    """How far apart values may be."""
    info = ml_dtypes.finfo(want.dtype)
    wide = [np.asarray(a, np.float64) for a in args]
    size = np.abs(want.astype(np.float64))
    units = UNITS.get(name, 4) + (EXPONENTS[name](wide[0]) if name in EXPONENTS else 0)
    apart = float(info.eps) * (units * size + (4 * TERMS[name](*wide) if name in TERMS else 0))
    # SciPy's distribution functions are zero a little too early.
    least = float(info.tiny if name in EXPONENTS else 4 * info.smallest_subnormal)
    return np.nan_to_num(apart, nan=0.0, posinf=inf) + least


def beyond(name: str, want: np.ndarray, args: list[np.ndarray]) -> np.ndarray:
    """Where a product overflows in eager mode only, which rounds it before it is added."""
    if name != "scale_shift":
        return np.zeros(want.shape, bool)
    top = float(ml_dtypes.finfo(want.dtype).max)
    product = np.abs(np.asarray(args[0], np.float64) * np.asarray(args[1], np.float64))
    return (product >= 0.99 * top) & np.isfinite(args[0]) & np.isfinite(args[1])


def compare(name: str, want: np.ndarray, got: np.ndarray, args: list, label: str) -> None:
    assert want.dtype == got.dtype, label
    if want.dtype.kind in "biu":
        wrong = want != got
    else:
        a, b = want.astype(np.float64), got.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | beyond(name, want, args)
        finite = np.isfinite(a) & np.isfinite(b)
        wrong = ~same & ~(finite & (np.abs(a - b) <= allowed(name, want, args)))
        if name not in CHOOSING:
            wrong |= (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    first = np.flatnonzero(wrong)[:3]
    shown = [(*[a[i] for a in args], want[i], got[i]) for i in first]
    assert not first.size, f"{label}, {wrong.sum()} of {wrong.size}: {shown}"


def outcome(f, args):
    """What a call gives, or the kind of its error."""
    try:
        return f(*[wf.tensor(a) for a in args]).detach().numpy()
    except (wf.errors.WeftError, TypeError, ValueError) as e:
        return type(e)


def enlarged(args: list[np.ndarray]) -> list[np.ndarray]:
    """The same numbers again and again, until eager kernels are compiled ones."""
    return [np.tile(a, eager.LARGE // a.size + 1) for a in args]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_values(name, dtype):
    op = TABLE[name]
    args = arguments(name, dtype)
    for static in statics(name, dtype):

        def f(*given, static=static):
            return caller(op, True)(*given, *static)

        want, label = outcome(f, args), f"{name}{static} of {dtype}"
        others = {"compiled": outcome(wf.compile(f), args)}
        if isinstance(want, type):
            assert isinstance(others["compiled"], type), label
            continue
        if args[0].size < 200 or SOAK:
            large = outcome(f, enlarged(args))
            others["large"] = large[: want.size]
            compare(name, large[want.size : 2 * want.size], large[: want.size], args, label)
        for kind, got in others.items():
            assert not isinstance(got, type), f"{label}, {kind}: {got}"
            compare(name, want, got, args, f"{label}, {kind}")


def pulled(f):
    def gradients(*args):
        leaves = [a.detach().requires_grad_() if a.dtype in FLOATS else a for a in args]
        out = f(*leaves)
        if not out.requires_grad:
            return ()
        found = out.sum().backward()
        return tuple(found[x] for x in leaves if x in found)

    return gradients


# In half types rules round in between, and results near zero are differences of larger numbers.
ROUGH = {dtypes.float32: 32, dtypes.float64: 256, dtypes.float16: 8, dtypes.bfloat16: 8}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", [n for n in ROWS if TABLE[n].rule is not None])
def test_gradients(name, dtype):
    """The same NaN and infinities, and values beside the largest of the partial's terms."""
    op, args = TABLE[name], [wf.tensor(a) for a in arguments(name, dtype)]
    for static in statics(name, dtype):
        f = pulled(lambda *given, static=static: caller(op, True)(*given, *static))
        try:
            want = f(*args)
        except wf.errors.WeftError:
            continue
        got = wf.compile(f)(*args)
        for a, b in zip(want, got, strict=True):
            assert a.dtype == b.dtype
            a, b = (v.numpy().astype(np.float64) for v in (a, b))
            label = f"gradient of {name}{static} of {dtype}"
            np.testing.assert_array_equal(np.isnan(b), np.isnan(a), err_msg=label)
            eps = float(ml_dtypes.finfo(dtype).eps)
            unit = ROUGH[dtype] * eps
            top = float(ml_dtypes.finfo(dtype).max)
            near = np.abs(b - a) <= unit * np.abs(a) + unit
            edge = (np.abs(a) > 0.9 * top) & (np.abs(b) > 0.9 * top) & (np.sign(a) == np.sign(b))
            wrong = np.flatnonzero(~(near | np.isnan(a) | (a == b) | edge))[:3]
            assert not wrong.size, f"{label}: {[(a[i], b[i]) for i in wrong]} at {wrong}"


def test_python_numbers_beside_arrays():
    """A nasty number that is written in the function, not an argument of it."""
    names = ["add", "subtract", "multiply", "divide", "pow", "maximum", "minimum", "nextafter"]
    names += [
        "remainder",
        "floor_divide",
        "atan2",
        "hypot",
        "logaddexp",
        "copysign",
        "less",
        "equal",
    ]
    written = (0.0, -0.0, inf, -inf, nan, 1.0, -2.5, 1e-40, 3e38, 2)
    for dtype in FLOATS:
        x = numbers(dtype)
        for name in names:
            call = caller(TABLE[name], True)
            for order in (1, -1):

                def f(x, call=call, order=order):
                    return tuple([call(*(x, v)[::order]) for v in written])

                want, got = f(wf.tensor(x)), wf.compile(f)(wf.tensor(x))
                for v, a, b in zip(written, want, got, strict=True):
                    pair = [x, np.full(x.shape, v)][::order]
                    label = f"{name} of {dtype} beside {v}"
                    compare(name, a.numpy(), b.numpy(), pair, label)


@pytest.mark.parametrize("target", (*dtypes.SIGNED, *dtypes.UNSIGNED), ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_casts_to_integers_do_not_depend_on_the_place(source, target):
    """Numbers that fit are cut; of others every way gives what C does on x86-64, wherever it is."""
    x = numbers(source)
    wide = x.astype(np.float64)
    fits = (wide > dtypes.bounds(target)[0] - 1) & (wide < dtypes.bounds(target)[1] + 1)
    one = np.array([wf.tensor(v.reshape(1)).to(target).numpy()[0] for v in x])
    np.testing.assert_array_equal(one[fits], [int(v) for v in np.trunc(wide[fits])])
    for start in range(0, 33, 3):
        shifted = np.concatenate([np.zeros(start, source), x])
        ways = {
            "eager": wf.tensor(shifted).to(target),
            "asarray": wf.asarray(shifted, dtype=target),
        }
        ways["compiled"] = wf.compile(lambda v: v.to(target))(wf.tensor(shifted))
        for label, got in ways.items():
            np.testing.assert_array_equal(got.numpy()[start:], one, err_msg=label)


@pytest.mark.parametrize("dtype", [*FLOATS, dtypes.int32, dtypes.uint8], ids=str)
@pytest.mark.parametrize("largest", [True, False])
def test_the_first_of_equals_are_the_best(dtype, largest):
    """topk among ties, NaN and infinities: as a stable sort, eager and compiled, with gradients."""
    rng = np.random.default_rng(0)
    pool = np.array([0, 1, 2, 3] if dtype in WHOLE else [0.0, -0.0, 1, 1, 2, nan, inf, -inf])
    for shape, axis in [
        ((5,), 0),
        ((40,), 0),
        ((130,), 0),
        ((3, 90), 1),
        ((70, 4), 0),
        ((2000,), 0),
    ]:
        for few in (pool[:2], pool):
            x = wf.tensor(rng.choice(few, shape).astype(dtype))
            order = wf.argsort(x, axis=axis, descending=largest)
            for k in {1, 2, 3, 9, shape[axis] // 3, shape[axis]} - {0}:
                if k > shape[axis]:
                    continue
                best = wf.take(order, wf.arange(k), axis=axis)

                def f(x, k=k, axis=axis):
                    return tuple(wf.topk(x, k, axis=axis, largest=largest))

                for run in (f, wf.compile(f)):
                    values, indices = run(x)
                    label = f"{shape}, {k}"
                    np.testing.assert_array_equal(indices.numpy(), best.numpy(), err_msg=label)
                    there = wf.take_along_axis(x, best, axis=axis).to("float64").numpy()
                    got = values.to("float64").numpy()
                    np.testing.assert_array_equal(got, there, err_msg=label)
