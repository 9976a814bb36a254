"""Every elementwise row: compiled as the eager call computes it, in every dtype."""

import ml_dtypes
import numpy as np
import pytest
from tests.table.rows import cases, load

import weft as wf
from weft import errors
from weft.compiler.emit.scalar import WITHOUT, NotSupported, has_emitter
from weft.core import dtypes
from weft.core.call import caller
from weft.core.op import Partials
from weft.ops.batching import pointwise

from ..kernels import of_row

TABLE = load()
ELEMENTWISE = sorted(
    name
    for name, op in TABLE.items()
    if isinstance(op.rule, Partials)
    or (op.batch is pointwise and not op.collective)
    or name == "gate"
)
ROWS = [name for name in ELEMENTWISE if has_emitter(name)]
FLOATS = (dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16)
WHOLE = (dtypes.bool_, dtypes.int8, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint32)
WHOLE += (dtypes.uint64,)
inf, nan = np.inf, np.nan
NASTY = [0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 0.5, -2.5, 1e-30, -1e-40, 3e38, -87.5, 700.0, 1.5e5]
INTEGERS = [0, 1, 2, 3, 7, 127, 128, 200, 255, -1, -2, -128, 2**31 - 1, -(2**31), 40, 63, 64]

# Kinds that a row refuses, though NumPy computes something: an integer power raises for negative
# exponents, which a kernel cannot; the derivative of |x| is of floats; half types step otherwise.
REFUSED = {("pow", "i"), ("pow", "u"), ("pow", "b"), ("power_scalar", "b"), ("clip", "b")}
REFUSED |= {("sign_product", "i"), ("sign_product", "u"), ("nextafter", "half")}


# Differences of larger numbers: the eager kernel loses units of those as the compiled one does.
LOSSY = {"gelu_slope", "gelu_tanh_slope", "silu_slope", "gelu_tanh", "kl_div", "rel_entr"}
LOSSY |= {"logaddexp", "scale_shift", "betaln", "digamma", "gammaln", "entr", "logit", "sinc"}
# The reference's own error, in units, where it is larger than ours.
REFERENCE = {"log_ndtr": 32}
# What a row is depends on the dtype that it is computed in.
OWN_DTYPE = {"nextafter", "cast", "signbit", "floor_divide", "remainder", "isinf", "isfinite"}


def test_every_elementwise_row_has_an_emitter_or_a_reason():
    assert set(WITHOUT) == {name for name in ELEMENTWISE if not has_emitter(name)}
    assert all(WITHOUT.values())


def eager(op, args, static) -> np.ndarray | None:
    """The eager call's result; None where it refuses the arguments."""
    tensors = [wf.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
    try:
        with np.errstate(all="ignore"):
            return caller(op)(*tensors, *static).numpy()
    except (errors.WeftError, TypeError, ValueError):
        return None


def widened(args) -> tuple:
    """Floats in float64, in which a value has digits to spare."""
    return tuple(
        a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype in FLOATS else a for a in args
    )


def bound(want: np.ndarray, dtype: np.dtype, name: str, args) -> np.ndarray:
    """Two units of the dtype, and the reference's own."""
    eps = float(ml_dtypes.finfo(dtype).eps)
    sizes = np.abs(want)
    units = REFERENCE.get(name, 4) if dtype == dtypes.float64 else 2.5
    if name in LOSSY:
        parts = [np.abs(np.asarray(a, np.float64)) for a in args]
        sizes = np.maximum(sizes, max(p[np.isfinite(p)].max(initial=1.0) for p in parts))
        units = 8
    return np.maximum(units * eps * sizes, 2 * float(ml_dtypes.finfo(dtype).smallest_subnormal))


def check(op, args, static, label) -> bool:
    """Compare; False if the eager call refuses the arguments."""
    same = eager(op, args, static)
    if same is None:
        return False
    got = of_row(op.name, args, static, same.dtype)
    if same.dtype.kind in "biu":
        wrong = np.flatnonzero(got != same)
        want = same
    else:
        exact = op.name in OWN_DTYPE or dtypes.float64 == same.dtype
        want = same if exact else eager(op, widened(args), static)
        want = want.astype(np.float64)
        with np.errstate(all="ignore"):
            limit = np.asarray(bound(want, same.dtype, op.name, args))
            held = want.astype(same.dtype).astype(np.float64)
            near = np.abs(got.astype(np.float64) - want) <= limit
            equal = (got.astype(np.float64) == held) | (np.isnan(got) & np.isnan(want))
        wrong = np.flatnonzero(~(near | equal))
    first = wrong[:1]
    shown = [np.broadcast_to(np.asarray(a), got.shape).ravel()[first] for a in args]
    assert not wrong.size, (
        f"{label} {static}: {got.ravel()[first]}, expected {want.ravel()[first]}, of {shown}"
    )
    return True


def narrowed(args, dtype) -> tuple:
    return tuple(
        a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a for a in args
    )


def nasty(count: int, dtype: np.dtype) -> tuple:
    """All combinations of difficult numbers for one or two arguments, some for three."""
    numbers = INTEGERS if dtype in WHOLE else NASTY
    with np.errstate(all="ignore"):
        values = np.array(numbers).astype(dtype)
    if count == 1:
        return (values,)
    grid = [g.ravel() for g in np.meshgrid(values, values)]
    return (*grid, *(np.roll(grid[0], 5 * k + 3) for k in range(count - 2)))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_row_on_its_samples(name, dtype):
    op = TABLE[name]
    # Half types differ in how they are read and rounded, which a few cases show.
    for case in cases(op)[: 4 if dtype in dtypes.HALF else None]:
        if any(isinstance(a, np.ndarray) and a.dtype.kind == "c" for a in case.args):
            continue
        if any(isinstance(a, complex) for a in case.args) or dtypes.complex128 in case.static:
            continue
        args = narrowed(case.args, dtype)
        kinds = {a.dtype.kind for a in args if isinstance(a, np.ndarray)}
        half = name == "nextafter" and dtype in dtypes.HALF
        if half or any((name, k) in REFUSED for k in kinds):
            with pytest.raises(NotSupported):
                check(op, args, case.static, case.label)
            continue
        check(op, args, case.static, case.label)


STATIC = {"power_scalar": [(3,), (0,), (2.5,), (-1,)], "clip": [(-1.0, 2.0), (None, 3.0)]}
STATIC |= {"masked_scale": [(1.25,)], "cast": [(d,) for d in (*FLOATS, *WHOLE)]}
STATIC_WHOLE = {"power_scalar": [(3,), (0,), (7,)], "clip": [(-1, 2), (None, 3), (5, None)]}


@pytest.mark.parametrize("dtype", (*FLOATS, *WHOLE), ids=str)
@pytest.mark.parametrize("name", ROWS)
def test_row_at_difficult_numbers(name, dtype):
    op = TABLE[name]
    args = nasty(op.arity, dtype)
    if name in ("where", "gate", "masked_scale"):
        k = 0 if name == "where" else 1
        with np.errstate(invalid="ignore"):
            args = tuple(np.isfinite(a) & (a > 0) if i == k else a for i, a in enumerate(args))
    if name == "pow" and dtype in WHOLE:
        args = tuple(a & 1 for a in args)
    if name == "sign_product":
        args = (args[0], args[1], np.abs(args[1]))
    statics = (STATIC_WHOLE if dtype in WHOLE else {}).get(name) or STATIC.get(name, [()])
    kind = "half" if dtype in dtypes.HALF else dtype.kind
    for static in statics:
        if (name, kind) in REFUSED:
            with pytest.raises(NotSupported):
                check(op, args, static, "difficult")
        else:
            check(op, args, static, "difficult")


def test_complex_numbers_are_refused_with_the_reason():
    z = np.ones(3, np.complex64)
    with pytest.raises(NotSupported, match="complex64 yet; expected one of bool, int8"):
        of_row("add", (z, z), (), dtypes.complex64)
    with pytest.raises(NotSupported, match="another shape"):
        of_row("one_hot", (np.zeros(3, np.int64),), (), dtypes.float32)
