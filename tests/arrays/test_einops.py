"""einops on tensors: values and derivatives in every mode, and nothing imported on its behalf."""

import subprocess
import sys

import numpy as np
import pytest

import weft as wf

einops = pytest.importorskip("einops")
rng = np.random.default_rng(0)
X = rng.normal(size=(2, 6, 4))
CALLS = {
    "rearrange": lambda x: einops.rearrange(x, "b (h w) c -> b c h w", h=2),
    "rearrange a list": lambda x: einops.rearrange([x, x * 2], "k b s c -> b (k s) c"),
    "add an axis": lambda x: einops.rearrange(x, "b s c -> b () s c"),
    "sum": lambda x: einops.reduce(x, "b s c -> b c", "sum"),
    "mean": lambda x: einops.reduce(x, "b (h w) c -> h w", "mean", h=3),
    "max": lambda x: einops.reduce(x, "b s c -> b", "max"),
    "prod": lambda x: einops.reduce(x, "b s c -> c s", "prod"),
    "repeat": lambda x: einops.repeat(x, "b s c -> b (s 2) c r", r=3),
    "einsum": lambda x: einops.einsum(x, x[0], "b s c, t c -> b s t"),
    "pack": lambda x: einops.pack([x, x[:, 0]], "b * c")[0],
    "unpack": lambda x: einops.unpack(x, [(2,), (4,)], "b * c")[1],
}


@pytest.mark.parametrize("name", CALLS)
def test_values_and_derivatives(name):
    f = CALLS[name]
    want = f(X)
    got = f(wf.tensor(X))
    assert isinstance(got, wf.Tensor)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    wf.check_grads(f, (wf.tensor(X),), order=1)
    batch = wf.vmap(f)(wf.tensor(np.stack([X, X])))
    np.testing.assert_allclose(batch[1].numpy(), want, rtol=1e-12)
    np.testing.assert_allclose(wf.compile(f)(wf.tensor(X)).numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("first, second", [("einops", "weft"), ("weft", "einops")])
def test_in_either_order(first, second):
    program = (
        f"import {first}, sys; assert '{second}' not in sys.modules; import {second};"
        "import weft as wf; import einops; x = wf.ones((2, 3), requires_grad=True);"
        "y = einops.rearrange(x, 'a b -> b a'); assert y.shape == (3, 2) and y.requires_grad"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
