"""Functions of lines and composites at nasty numbers: compiled gives what eager mode gives."""

import os

import numpy as np
import pytest

import weft as wf

F = wf.nn.functional
SOAK = os.environ.get("WEFT_SOAK") == "1"
inf, nan = np.inf, np.nan
ALONG = """
    sum mean max min amax amin argmax argmin prod any all std var logsumexp softmax log_softmax
    cumsum
    cumprod cummax cummin sort argsort median norm count_nonzero max_with_indices min_with_indices
    logcumsumexp diff
""".split()
FUNCTIONS = {n: lambda x, n=n: getattr(wf, n)(x, axis=-1) for n in ALONG}
FUNCTIONS |= {
    n: lambda x, n=n: getattr(F, n)(x)
    for n in """
    mish hardswish elu selu logsigmoid softsign tanhshrink hardsigmoid relu6 celu softplus gelu silu
    leaky_relu hardtanh hardshrink softshrink normalize
""".split()
}
FUNCTIONS |= {
    "quantile": lambda x: wf.quantile(x, 0.3, axis=-1),
    "falling sort": lambda x: wf.sort(x, axis=-1, descending=True),
    "falling argsort": lambda x: wf.argsort(x, axis=-1, descending=True),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1]),
    "cross_entropy": lambda x: F.cross_entropy(x, wf.zeros(x.shape[0], dtype=wf.int64)),
    "max_pool1d": lambda x: F.max_pool1d(x[None], 3, 1),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).to(x.dtype)),
    "huber_loss": lambda x: F.huber_loss(x, x * 0),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x * 0),
}
POOLS = {
    "NaN": [0.0, -0.0, 1.0, -1.0, nan, 2.0],
    "infinities": [0.0, 1.0, inf, -inf, 2.0, -3.0],
    "all -inf": [-inf],
    "inf": [inf, 1.0],
    "ties": [1.0, 1.0, 0.0, -0.0, 2.0],
    "denormal": [1e-40, -1e-40, 1e-45, 0.0],
    "all of it": [nan, inf, -inf, 0.0, 1.0],
}
UNITS = {"float32": 1e-5, "float64": 1e-12, "bfloat16": 0.05, "float16": 0.01}


def leaves(out) -> list[np.ndarray]:
    return [y.detach().numpy() for y in (out if isinstance(out, tuple | list) else [out])]


def pulled(f):
    def gradient(x):
        x = x.detach().requires_grad_()
        out = f(x)
        out = [y for y in (out if isinstance(out, tuple | list) else [out]) if y.requires_grad]
        return sum([y.sum() for y in out]).backward()[x] if out else x.detach()

    return gradient


@pytest.mark.parametrize("dtype", UNITS if SOAK else ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_lines(name, dtype):
    rng = np.random.default_rng(0)
    for f in (FUNCTIONS[name], pulled(FUNCTIONS[name])):
        compiled = wf.compile(f)
        for shape in ((3, 7), (2, 40)):
            for kind, pool in POOLS.items():
                x = wf.tensor(rng.choice(pool, shape)).to(dtype)
                with np.errstate(all="ignore"):
                    want = leaves(f(x))
                for a, b in zip(want, leaves(compiled(x)), strict=True):
                    assert (a.shape, a.dtype) == (b.shape, b.dtype), kind
                    a, b = a.astype(np.float64), b.astype(np.float64)
                    unit = UNITS[dtype]
                    np.testing.assert_allclose(b, a, rtol=unit, atol=unit, err_msg=f"{kind}, {x}")
