"""Activations beside PyTorch's: values, gradients, kinks, memory."""

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors

from .alike import F, agree, same, saved_bytes

rng = np.random.default_rng(5)
X = rng.normal(size=(3, 4)) * 3
DEVICES = ("cpu", "torch")

# name, further arguments
CASES = [
    ("relu", {}),
    ("relu6", {}),
    ("leaky_relu", {}),
    ("leaky_relu", {"negative_slope": 0.2}),
    ("elu", {"alpha": 1.3}),
    ("selu", {}),
    ("celu", {"alpha": 0.5}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("silu", {}),
    ("mish", {}),
    ("softplus", {"beta": 2.0, "threshold": 1.5}),
    ("softsign", {}),
    ("hardtanh", {"min_val": -0.5, "max_val": 2.0}),
    ("hardsigmoid", {"rtol": 2.0**-23}),  # PyTorch has its 1/6 in single precision
    ("hardswish", {}),
    ("hardshrink", {"lambd": 0.8}),
    ("softshrink", {"lambd": 0.8}),
    ("logsigmoid", {}),
    ("tanhshrink", {}),
    ("threshold", {"threshold": 0.3, "value": -2.0}),
    ("sigmoid", {}),
    ("tanh", {}),
    ("softmax", {"dim": 0}),
    ("softmin", {"dim": 1}),
    ("log_softmax", {"dim": -1}),
    ("glu", {"dim": -1}),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_values_and_gradients(name, options, device):
    agree(name, X, device=device, **options)


@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh", "hardsigmoid", "hardswish"])
def test_kinks(name):
    kinks = np.array([[-3.0, -1.0, 0.0, 1.0, 3.0, 6.0]])
    agree(name, kinks, rtol=2.0**-23)


def test_softplus_without_a_threshold_is_within_rounding_of_one_at_20():
    agree("softplus", X, rtol=3e-9)


def test_gated_units():
    a, b = (lambda x: x[:, :2]), (lambda x: x[:, 2:])
    t = torch.nn.functional
    same(F.geglu, lambda x: a(x) * t.gelu(b(x)), X)
    same(F.swiglu, lambda x: a(x) * t.silu(b(x)), X)
    same(lambda x: F.geglu(x, 1, "tanh"), lambda x: a(x) * t.gelu(b(x), approximate="tanh"), X)
    same(lambda x: F.swiglu(x, 0), lambda x: x[:2] * t.silu(x[2:]), rng.normal(size=(4, 3)))


@pytest.mark.parametrize("weight", [np.array([0.3]), np.array([0.3, -0.1, 0.2, 1.5])])
def test_prelu(weight):
    agree("prelu", X, weight)
    agree("prelu", rng.normal(size=(2, 4, 3)) if weight.size > 1 else X, weight)


def test_softmax_in_another_dtype():
    y = F.softmax(wf.tensor([1.0, 2.0], dtype="float16"), -1, dtype="float32")
    assert y.dtype == wf.float32


@pytest.mark.parametrize("name", ["gelu", "silu", "softplus"])
def test_a_row_keeps_its_argument_only(name):
    x = wf.tensor(rng.normal(size=1000), requires_grad=True)
    assert saved_bytes(lambda: getattr(F, name)(x)) == x.nbytes
    assert saved_bytes(lambda: getattr(wf, name)(x)) == x.nbytes


@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh"])
def test_clipping_keeps_a_byte_an_element(name):
    x = wf.tensor(rng.normal(size=1000), requires_grad=True)
    assert saved_bytes(lambda: getattr(F, name)(x)) == 1000


@pytest.mark.parametrize("name", ["elu", "celu", "selu", "softplus", "mish", "logsigmoid", "gelu"])
def test_large_arguments_overflow_nowhere(name):
    x = wf.tensor([-1e4, -800.0, 800.0, 1e4], dtype="float64", requires_grad=True)
    y = getattr(F, name)(x)
    assert np.isfinite(y.detach().numpy()).all()
    assert np.isfinite(y.sum().backward()[x].numpy()).all()


def test_float32_gelu_has_the_digits_of_float32():
    from scipy.special import ndtr

    x = np.linspace(-8, 8, 200_001).astype(np.float32)
    wide = x.astype(np.float64)
    slope = ndtr(wide) + wide * np.exp(-wide * wide / 2) / np.sqrt(2 * np.pi)
    t = wf.tensor(x, requires_grad=True)
    y = F.gelu(t)
    found = y.sum().backward()[t].numpy()
    bound = np.finfo(np.float32).eps * (4 + wide * wide)  # exp(-x²/2) amplifies rounding so
    assert (
        np.abs(y.detach().numpy() - wide * ndtr(wide)) <= bound * np.abs(wide * ndtr(wide))
    ).all()
    near = np.abs(wide) < 6
    assert (np.abs(found - slope) <= bound * (ndtr(wide) + np.abs(slope)))[near].all()


@pytest.mark.parametrize("length", [20_000, 700_000])  # by NumPy, and compiled
def test_blocks_and_threads_change_nothing(length):
    x = rng.normal(size=(3, length)).astype(np.float32)
    for name in ("gelu", "silu", "softplus"):
        whole = getattr(F, name)(wf.tensor(x)).numpy()
        parts = [
            getattr(F, name)(wf.tensor(np.ascontiguousarray(x[:, k::7]))).numpy() for k in range(7)
        ]
        for k, part in enumerate(parts):
            np.testing.assert_array_equal(whole[:, k::7], part)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.gelu(wf.ones(3), "fast"), "approximate='fast', expected 'none' or 'tanh'"),
        (lambda: F.glu(wf.ones((2, 3))), "length 3, expected an even one"),
        (lambda: F.glu(wf.ones((2, 3)), 5), "axis 5 is out of range"),
        (lambda: F.prelu(wf.ones((2, 3)), wf.ones(2)), "expected one number or 3"),
        (lambda: F.celu(wf.ones(3), 0.0), "alpha=0, but"),
        (lambda: F.softplus(wf.ones(3), beta=0.0), "beta=0, but"),
        (lambda: F.hardtanh(wf.ones(3), 2.0, 1.0), "min_val=2.0, max_val=1.0; expected min_val ≤"),
        (lambda: F.softshrink(wf.ones(3), -1.0), "lambd=-1.0, expected 0 or more"),
    ],
)
def test_arguments_that_make_no_sense(call, message):
    with pytest.raises(errors.WeftError, match=message.replace("(", r"\(")):
        call()
