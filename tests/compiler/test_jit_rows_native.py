"""Every row of the table as native code: values and gradients as in eager mode, for each dtype."""

import zlib
from dataclasses import replace

import numpy as np
import pytest
from tests.compiler.test_jit_rows import UNKNOWN, call_of, gradients
from tests.table.rows import EXEMPT, TABLE, cases, load

import weft as wf
from weft.errors import NotDifferentiable, WeftError

load()
ROWS = sorted(set(TABLE) - set(EXEMPT))
DTYPES = ("float32", "float64")
HALVES = ("float16", "bfloat16")
# How many roundings of a result's largest element compiled and eager may differ by: both sum in an
# order of their own, and elementary functions are within a few units of each other.
ROUNDINGS = 32


def recast(case, dtype: str):
    """The case's arrays with their floats in a dtype; None if there are none."""
    if not any(isinstance(a, np.ndarray) and a.dtype.kind in "fc" for a in case.args):
        return None
    with np.errstate(all="ignore"):
        return [a.astype(_like(a, dtype)) if _floats(a) else a for a in case.args]


def _floats(a) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind in "fc"


def _like(a, dtype: str):
    if a.dtype.kind == "c":
        return np.complex64 if dtype != "float64" else np.complex128
    return wf.canonical_dtype(dtype)


def strided(x):
    """The same numbers, every second element of other memory, from the end."""
    raw = x.detach().numpy()
    if not raw.ndim or not raw.size:
        return x
    wide = np.empty((*raw.shape[:-1], 2 * raw.shape[-1]), raw.dtype)
    wide[..., ::2] = raw[..., ::-1]
    return wf.asarray(wide[..., ::2][..., ::-1])


def leaves(out) -> list:
    return [y.detach().numpy() for y in (out if isinstance(out, tuple | list) else (out,))]


def precision(x) -> float:
    """The unit that an array is computed with: halves are computed in single precision."""
    return float(wf.finfo(wf.float32 if x.dtype.itemsize == 2 else x.dtype).eps)


def alike(label: str, want, got, unit: float, nearby) -> None:
    """Equal to some roundings, or as near as eager results of inputs that differ by one."""
    assert len(want) == len(got), label
    for k, (a, b) in enumerate(zip(want, got, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), label
        if a.dtype.kind in "biu":
            np.testing.assert_array_equal(b, a, err_msg=label)
            continue
        eps = ROUNDINGS * max(float(wf.finfo(a.dtype).eps), unit)
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        a, b = a.astype(wide), b.astype(wide)
        allowed = eps * np.abs(a).max(initial=0.0, where=np.isfinite(a)) + eps / ROUNDINGS
        if not np.allclose(b, a, rtol=eps, atol=allowed, equal_nan=True):
            apart = [np.abs(n[k].astype(wide) - a).max(initial=0.0) for n in nearby()]
            allowed += ROUNDINGS * max(apart)
        np.testing.assert_allclose(b, a, rtol=eps, atol=allowed, err_msg=label)


def rounded(rng, x):
    """A float array with each element a rounding away."""
    if x.dtype.kind not in "fcV":
        return x
    wrong = 1 + float(wf.finfo(x.dtype).eps) * rng.choice([-1, 0, 1], x.shape)
    return wf.asarray((x.numpy() * wrong).astype(x.dtype))


def check(label: str, f, arrays) -> None:
    """Compiled is as eager; of strided arrays it is the same."""
    try:
        with np.errstate(all="ignore"):
            want = leaves(f(*arrays))
    except (WeftError, np.linalg.LinAlgError):
        return  # refused, or without a derivative
    rng = np.random.default_rng(0)
    unit = max([precision(x) for x in arrays if x.dtype.kind in "fcV"], default=0.0)

    def nearby():
        return [leaves(f(*[rounded(rng, x) for x in arrays])) for _ in range(8)]

    compiled = wf.compile(f)
    got = leaves(compiled(*arrays))
    alike(label, want, got, unit, nearby)
    again = leaves(compiled(*[strided(x) for x in arrays]))
    assert [a.tobytes() for a in got] == [a.tobytes() for a in again], f"{label}, strided"


@pytest.mark.parametrize("name", ROWS)
def test_a_row_compiled_equals_eager(name):
    op = TABLE[name]
    found = cases(op)
    assert found, f"{name} has no sample"
    if name in UNKNOWN:
        return  # refused: the shape of the result depends on the values
    for k, case in enumerate(found):
        f, arrays = call_of(op, case)
        check(case.label, f, arrays)
        if op.rule is not None:
            check(f"gradient of {case.label}", gradients(f), arrays)
        others = (*DTYPES, *HALVES) if k == 0 else ()
        for dtype in others:
            _check_dtype(op, case, dtype, arrays)


def _check_dtype(op, case, dtype: str, arrays) -> None:
    args = recast(case, dtype)
    if args is None:
        return
    f, cast = call_of(op, _with(case, args))
    if [x.dtype for x in cast] == [x.dtype for x in arrays]:
        return
    check(f"{case.label} in {dtype}", f, cast)
    if op.rule is not None and dtype in DTYPES:
        check(f"gradient of {case.label} in {dtype}", gradients(f), cast)


def _with(case, args):
    return replace(case, args=tuple(args))


SECOND = [n for n in ROWS if zlib.crc32(n.encode()) % 5 == 0]


@pytest.mark.parametrize("name", SECOND)
def test_a_second_derivative_compiled_equals_eager(name):
    op = TABLE[name]
    if op.rule is None or name in UNKNOWN:
        return
    case = cases(op)[0]
    f, arrays = call_of(op, case)
    check(f"second derivative of {case.label}", _again(gradients(f, create_graph=True)), arrays)


def _again(pulled):
    """The gradients of the squares of gradients."""

    def again(*arrays):
        inputs = [x.detach().requires_grad_() if x.dtype.kind in "fc" else x for x in arrays]
        first = [g for g in pulled(*inputs, keep=True) if g.requires_grad]
        if not first:
            raise NotDifferentiable("linear: there is no second derivative")
        total = sum([wf.real(g * wf.conj(g)).sum() for g in first])
        found = total.backward()
        return tuple(found[x] for x in inputs if x in found)

    return again
