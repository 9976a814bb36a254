"""Every row compiled for a GPU, real or emulated: launched, captured and replayed, as eager.

The emulated one takes one mode of each row and some of its cases in `make test`, and all of them in
`make soak`.
"""

import os
import zlib

import ml_dtypes
import numpy as np
import pytest
import torch
from tests.table.rows import EXEMPT, cases, load

import weft as wf
from weft.compiler.cuda.runtime import executable
from weft.errors import StagingError, WeftError

from ..test_jit_rows import UNKNOWN, call_of, gradients

TABLE = load()
MODES = ("value", "gradient", "tangent", "batched")
EVERY = os.environ.get("WEFT_SOAK") == "1" or torch.cuda.is_available()
CASES = 4  # of a row in `make test`
DEVICES = ["torch", *(["cuda"] if torch.cuda.is_available() else [])]
ROUNDINGS = 256  # of the largest number of a result: that of a row is a few, a gradient has more


def mode_of(name: str) -> tuple[str, ...]:
    return MODES if EVERY else (MODES[zlib.crc32(name.encode()) % len(MODES)],)


ROWS = [
    (name, mode) for name in sorted(set(TABLE) - set(EXEMPT) - UNKNOWN) for mode in mode_of(name)
]


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    monkeypatch.setattr(executable, "_FEW", 0)  # one launch is captured, too
    if request.param == "torch":
        request.getfixturevalue("gpu")
    return request.param


def used(mode: str, f, arrays):
    """The function of a mode, and its arguments."""
    if mode == "gradient":
        return gradients(f), arrays
    if mode == "tangent":
        return lambda *xs: wf.jvp(f, xs, tuple([tangent(x) for x in xs])), arrays
    if mode == "batched":
        return wf.vmap(f), [wf.stack([x, x]) for x in arrays]
    return f, arrays


def tangent(x):
    """Numbers that differ, so that none of the tangents of norms cancel."""
    if x.dtype.kind not in "fcV":
        return None
    return wf.tensor(np.cos(np.arange(x.size)).reshape(x.shape), device=x.device).to(x.dtype)


def size_of(x) -> float:
    """The largest number of an argument."""
    if x.dtype.kind not in "fcV":
        return 0.0
    a = np.abs(x.detach().to("cpu").numpy().astype("c16"))
    return float(np.max(a[np.isfinite(a)], initial=0))


def leaves(out) -> list:
    out = out if isinstance(out, tuple | list) else (out,)
    return [y for x in out for y in (leaves(x) if isinstance(x, tuple | list) else [x])]


def compare(got, want, scale: float, label: str) -> None:
    """scale  what results may cancel from"""
    assert len(got) == len(want), label
    for b, a in zip(got, want, strict=True):
        if not isinstance(a, wf.Tensor):
            assert a is b or a == b, label
            continue
        assert (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device), label
        unit = ml_dtypes.finfo(a.dtype).eps if a.dtype.kind in "fcV" else 0
        a, b = a.detach().to("cpu").numpy(), b.detach().to("cpu").numpy()
        a, b = (x.astype(np.float64) if unit and x.dtype.kind != "c" else x for x in (a, b))
        most = np.max(np.abs(a[np.isfinite(a)]), initial=scale) if unit else 0
        gap = ROUNDINGS * float(unit)
        np.testing.assert_allclose(b, a, rtol=gap, atol=gap * float(most), err_msg=label)


@pytest.mark.parametrize(("name", "mode"), ROWS)
def test_a_row_as_a_program(name, mode, device):
    op, ran = TABLE[name], 0
    every = cases(op)
    for case in every if EVERY else every[:: 1 + len(every) // CASES]:
        f, arrays = call_of(op, case)
        f, arrays = used(mode, f, [x.to(device) for x in arrays])
        try:
            with np.errstate(all="ignore"):
                want = leaves(f(*arrays))
        except (WeftError, TypeError, ValueError, RuntimeError):
            continue  # a case that is refused on this device, or has no derivative
        compiled, scale = wf.compile(f), max([size_of(x) for x in arrays], default=0.0)
        for call in range(3):
            try:
                got = leaves(compiled(*arrays))
            except StagingError as e:
                assert "captured" in str(e) or "depends on the values" in str(e), case.label
                ran += 1
                break
            compare(got, want, scale, f"{mode} of {case.label}, call {call}")
            ran += 1
    if mode == "value":
        assert ran or op.foreign or not cases(op), name
