"""Every row under autocast: it computes what it computes on arguments cast by hand."""

import numpy as np
import pytest
from tests.table.rows import cases, load

import weft as wf
from weft.core import dtypes
from weft.core.call import caller
from weft.core.op import Op, Partials

from .devices import DEVICES, host

TABLE = load()
LOW = wf.bfloat16
# The rows that gain from a half type: sums of products, and what goes around them in networks.
HALF = {
    "attention",
    "convolution",
    "convolution_biased",
    "convolution_transposed",
    "convolution_weight",
    "einsum",
    "gru_cell",
    "linear",
    "lstm_cell",
    "matmul",
}


def test_every_row_has_a_column():
    assert {op.precision for op in TABLE.values()} == {"half", "single", "any"}
    assert {op.name for op in TABLE.values() if op.precision == "half"} == HALF


def arguments(op: Op, case, device: str, dtype) -> list:
    """The case's arguments as tensors, real ones of the dtype, to be differentiated by."""
    kinds = {wf.float64: dtype, wf.complex128: wf.complex64}
    partials = op.rule.d if isinstance(op.rule, Partials) else [1] * len(case.args)
    made = []
    for a, d in zip(case.args, partials, strict=True):
        if isinstance(a, np.ndarray):
            own = dtypes.canonical(kinds.get(dtypes.canonical(a.dtype), a.dtype))
            leaf = d is not None and dtypes.is_inexact(own)
            a = wf.tensor(a, dtype=own, device=device, requires_grad=leaf)
        made.append(a)
    return made


def cast_by_hand(op: Op, args: list) -> list:
    """What the column asks for, in operations of its own."""
    target = {"half": LOW, "single": wf.float32, "any": None}[op.precision]
    places = [i for i in op.promote or range(len(args)) if isinstance(args[i], wf.Tensor)]
    if target is None or any(args[i].dtype in (wf.complex64, wf.float64) for i in places):
        return args
    small = (wf.float16, wf.bfloat16, wf.float32)
    return [
        a.to(target) if i in places and a.dtype in small and a.dtype != target else a
        for i, a in enumerate(args)
    ]


def results(op: Op, args: list, static: tuple) -> tuple:
    call = caller(op, True)
    out = call(args, *static) if op.arity is None else call(*args, *static)
    return out if isinstance(out, tuple) else (out,)


def gradients(ys: tuple, args: list) -> list:
    for y in ys:
        if y.requires_grad:
            grads = y.backward(wf.ones_like(y))
            return [grads.get(a) for a in args if isinstance(a, wf.Tensor) and a.requires_grad]
    return []


def same(a, b) -> bool:
    if a is None or b is None:
        return a is b
    return a.dtype == b.dtype and np.array_equal(host(a).view(np.uint8), host(b).view(np.uint8))


def bits(x):
    """Contiguous, with an axis, so that its bytes can be compared."""
    return None if x is None else wf.asarray(np.atleast_1d(np.ascontiguousarray(host(x))))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(n for n, op in TABLE.items() if op.sample is not None))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_row(name, device):
    op = TABLE[name]
    if op.precision == "any":
        dtypes_given = [wf.float32]
    else:
        dtypes_given = [wf.float32, LOW]
    for case in cases(op):
        for dtype in dtypes_given:
            if not any(isinstance(a, np.ndarray) and a.dtype.kind in "fc" for a in case.args):
                continue
            args = arguments(op, case, device, dtype)
            expected = results(op, cast_by_hand(op, args), case.static)
            with wf.amp.autocast(LOW):
                found = results(op, args, case.static)
            for y, z in zip(found, expected, strict=True):
                assert y.dtype == z.dtype, (case.label, dtype)
                assert same(bits(y), bits(z)), (case.label, dtype)
            if op.rule is None:
                continue
            pulled, wanted = gradients(found, args), gradients(expected, args)
            leaves = [a for a in args if isinstance(a, wf.Tensor) and a.requires_grad]
            for a, g, h in zip(leaves, pulled, wanted, strict=False):
                assert g is None or g.dtype == a.dtype, (case.label, dtype)
                assert same(bits(g), bits(h)), (case.label, dtype)
