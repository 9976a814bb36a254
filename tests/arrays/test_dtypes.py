"""Dtypes: promotion by the Array API's tables, half precision, and what is refused."""

import itertools

import numpy as np
import pytest

import weft as wf
from weft import errors

SIGNED = [wf.int8, wf.int16, wf.int32, wf.int64]
UNSIGNED = [wf.uint8, wf.uint16, wf.uint32, wf.uint64]
HALF = [wf.float16, wf.bfloat16]
REAL = [*HALF, wf.float32, wf.float64]
COMPLEX = [wf.complex64, wf.complex128]
ALL = [wf.bool, *SIGNED, *UNSIGNED, *REAL, *COMPLEX]


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def promoted(a, b):
    """The standard's tables, and ours where it leaves the result open."""
    if a == b:
        return a
    a, b = sorted((a, b), key=ALL.index)
    if a == wf.bool or (a in SIGNED + UNSIGNED and b in REAL + COMPLEX):
        return b  # between kinds the higher kind keeps its width
    if {a, b} == set(HALF):
        return wf.float32
    if wf.bfloat16 in (a, b):  # NumPy does not know it
        return b
    if a in SIGNED and b == wf.uint64:
        return None
    return np.promote_types(a, b) if wf.float16 not in (a, b) or b in REAL else b


@pytest.mark.parametrize(("a", "b"), list(itertools.product(ALL, ALL)), ids=str)
def test_promotion(device, a, b):
    expected = promoted(a, b)
    x, y = wf.ones(2, dtype=a, device=device), wf.ones(2, dtype=b, device=device)
    if expected is None:
        for use in (wf.result_type, lambda x, y: x == y, lambda x, y: wf.concat([x, y])):
            with pytest.raises(errors.DTypeError, match=r"no common integer type.*\.to\(\)"):
                use(x, y)
        return
    assert wf.result_type(x, y) == wf.result_type(a, b) == expected
    assert wf.can_cast(a, b) == (expected == b)
    found = [wf.concat([x, y]), wf.where(wf.asarray(True, device=device), x, y), wf.stack([x, y])]
    if device == "torch" and expected in UNSIGNED[1:]:
        with pytest.raises(errors.DTypeError, match="not implemented"):
            x + y  # PyTorch has no arithmetic on wide unsigned integers
    elif wf.bool not in (a, b):
        found += [x + y, x * y]
    assert [f.dtype for f in found] == [expected] * len(found)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_python_scalars(device, dtype):
    x = wf.ones(2, dtype=dtype, device=device)
    assert (x == True).dtype == wf.bool  # noqa: E712
    if dtype != wf.bool and (device == "cpu" or dtype not in UNSIGNED[1:]):
        assert (x + 1).dtype == dtype
    widened = {1.5: wf.float32, 1.5j: wf.complex64}
    for scalar, default in widened.items():
        kept = dtype in COMPLEX or (dtype in REAL and isinstance(scalar, float))
        wide = wf.complex128 if dtype == wf.float64 and not kept else default
        assert (x * scalar).dtype == wf.result_type(x, scalar) == (dtype if kept else wide)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_computes_and_differentiates(device, dtype):
    x = wf.tensor([0.5, 1.5, 2.0], dtype=dtype, device=device, requires_grad=True)
    y = (wf.exp(x) * x / 3 - wf.sqrt(x)).sum()
    assert y.dtype == dtype
    g = y.backward()[x]
    assert g.dtype == dtype and g.device == device
    v = np.array([0.5, 1.5, 2.0])
    expected = np.exp(v) * (v + 1) / 3 - 0.5 / np.sqrt(v)
    step = wf.finfo(dtype).eps
    np.testing.assert_allclose(g.tolist(), expected, rtol=8 * step)  # a few roundings
    m = wf.ones((3, 3), dtype=dtype, device=device)
    assert (m @ m).dtype == m.mean(axis=0).dtype == m[0].dtype == dtype
    assert (x.detach() > 1).tolist() == [False, True, True]


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_reductions_accumulate_in_float32(device, dtype):
    n = 4096
    x = wf.full(n, 1.0, dtype=dtype, device=device)
    assert wf.sum(x).item() == n and wf.mean(x).item() == 1.0 and (x @ x).item() == n
    assert wf.cumsum(x)[-1].item() == n and wf.var(x).item() == 0.0
    assert wf.norm(x).item() == 64.0
    assert wf.einsum("i,i->", x, x).item() == n
    one = wf.ones((1, 1), dtype=dtype, device=device).requires_grad_()
    spread = wf.broadcast_to(one, (n, 1))
    assert spread.sum().backward()[one].item() == n


def test_no_fractions_or_imaginary_parts_are_lost(device):
    z = wf.tensor([1 + 2j], device=device, requires_grad=True)
    for use in (
        lambda: z.to("float32"),
        lambda: wf.astype(z, "float32"),
        lambda: z.astype("int64"),
        lambda: wf.asarray(z, dtype="float64"),
        lambda: wf.zeros(1, device=device).at[0].set(z[0]),
    ):
        with pytest.raises(errors.DTypeError, match=r"imaginary part; take wf.real\(x\)"):
            use()
    assert wf.real(z).dtype == wf.float32 and z.real.tolist() == [1.0] and z.imag.tolist() == [2.0]


def test_astype(device):
    x = wf.tensor([1.5, 2.0], device=device, requires_grad=True)
    assert wf.astype(x, "float32").tolist() == x.tolist() and wf.astype(x, "float32") is not x
    assert wf.astype(x, "float32", copy=False) is x
    y = wf.astype(x, "float64", device="cpu")
    assert y.device == "cpu" and y.sum().backward()[x].dtype == wf.float32
    assert x.astype("int32").tolist() == [1, 2]


def test_kinds():
    assert wf.isdtype(wf.float32, "real floating") and wf.isdtype(wf.bfloat16, "numeric")
    assert wf.isdtype(wf.uint8, ("bool", "integral")) and not wf.isdtype(wf.bool, "integral")
    assert wf.isdtype("complex64", wf.complex64) and not wf.isdtype(wf.int8, wf.int16)
    with pytest.raises(errors.ArgumentError, match="real floating"):
        wf.isdtype(wf.float32, "float")


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_finfo(dtype):
    info = wf.finfo(dtype)
    one = wf.tensor(1.0, dtype=dtype)
    assert (one + info.eps).item() > 1.0 and (one + info.eps / 2).item() == 1.0
    assert info.bits == dtype.itemsize * 8 and info.dtype == dtype and info.min == -info.max
    assert wf.tensor(info.smallest_normal, dtype=dtype).item() == info.smallest_normal > 0
    assert wf.finfo(one).eps == info.eps
    with pytest.raises(errors.DTypeError, match="iinfo"):
        wf.finfo(wf.int8)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED, ids=str)
def test_iinfo(dtype):
    info, known = wf.iinfo(dtype), np.iinfo(dtype)
    assert (info.bits, info.min, info.max) == (known.bits, known.min, known.max)
    with pytest.raises(errors.DTypeError, match="finfo"):
        wf.iinfo(wf.float32)


def test_the_namespace_describes_itself():
    info = wf.__array_namespace_info__()
    assert info.default_device() == "cpu" and "cpu" in info.devices()
    assert info.default_dtypes()["real floating"] == wf.float32
    assert info.dtypes(kind="bool") == {"bool": wf.bool}
    assert "bfloat16" not in info.dtypes() and len(info.dtypes()) == 13
    assert info.capabilities()["boolean indexing"] and info.capabilities()["data-dependent shapes"]
    assert wf.__array_api_version__ == "2025.12"
    assert (wf.e, wf.pi, wf.inf, wf.newaxis) == (np.e, np.pi, np.inf, None) and wf.nan != wf.nan
