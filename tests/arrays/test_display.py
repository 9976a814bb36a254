"""How tensors look: short, with shape, dtype, device and state of differentiation."""

import numpy as np
import pytest

import weft as wf
from weft import errors

LOOKS = {
    "scalar": (lambda: wf.tensor(1.0), "tensor(1.)"),
    "vector": (lambda: wf.tensor([1.0, 2.5]), "tensor([1. , 2.5])"),
    "matrix": (lambda: wf.tensor([[1, 2], [3, 4]]), "tensor([[1, 2],\n        [3, 4]])"),
    "booleans": (lambda: wf.tensor([True]), "tensor([ True])"),
    "complex": (lambda: wf.tensor([1j]), "tensor([0.+1.j])"),
    "dtype": (lambda: wf.ones(2, dtype="float64"), "tensor([1., 1.], dtype=float64)"),
    "bfloat16": (lambda: wf.ones(2, dtype="bfloat16"), "tensor([1., 1.], dtype=bfloat16)"),
    "device": (lambda: wf.ones(2, device="torch"), "tensor([1., 1.], device='torch')"),
    "leaf": (lambda: wf.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
    "result": (lambda: wf.ones(1, requires_grad=True) * 2, "tensor([2.], made_by=multiply)"),
    "empty": (lambda: wf.zeros(0), "tensor([])"),
    "empty matrix": (lambda: wf.zeros((2, 0)), "tensor([], shape=(2, 0))"),
    "empty integers": (lambda: wf.zeros(0, dtype="int64"), "tensor([], dtype=int64)"),
    "large": (
        lambda: wf.arange(2000),
        "tensor([   0,    1,    2, ..., 1997, 1998, 1999], shape=(2000,))",
    ),
    "not finite": (lambda: wf.tensor([np.nan, np.inf]), "tensor([nan, inf])"),
    "parameter": (
        lambda: wf.Parameter([1.0]),
        "Parameter(tensor([1.], requires_grad=True))",
    ),
}


@pytest.mark.parametrize("name", LOOKS)
def test_repr(name):
    make, expected = LOOKS[name]
    t = make()
    assert repr(t) == str(t) == f"{t}" == expected


def test_a_large_tensor_stays_short():
    text = repr(wf.randn((100, 100), dtype="float64"))
    assert len(text) < 1000 and "shape=(100, 100)" in text and "dtype=float64" in text


def test_html():
    x = wf.ones((2, 2), dtype="float64", device="torch", requires_grad=True)
    page = x._repr_html_()
    assert "shape (2, 2) · float64 · torch · requires_grad=True" in page
    assert "<pre>[[1., 1.],\n [1., 1.]]</pre>" in page and page.count("torch") == 1
    assert "made_by=multiply" in (x * 2)._repr_html_()
    assert "<b>Parameter</b>" in wf.Parameter([1.0])._repr_html_()


def test_format():
    x = wf.tensor([3.14159], requires_grad=True)
    assert f"{x.sum():.2f}" == f"{x[0]:.2f}" == f"{x:.2f}" == "3.14"
    assert f"{wf.tensor(7):>4d}" == "   7"
    with pytest.raises(errors.ShapeError, match=r"'.2f'.*\(3,\).*test_display.py"):
        f"{wf.ones(3):.2f}"
