"""SciPy functions that dispatch on the array namespace keep the gradient (SCIPY_ARRAY_API=1)."""

import numpy as np
import pytest
import scipy.fft
import scipy.integrate
import scipy.linalg
import scipy.signal
import scipy.special
import scipy.stats
from scipy.spatial.transform import Rotation

import weft as wf
from weft import errors

rng = np.random.default_rng(3)
KERNEL = rng.normal(size=5)
POINTS = rng.normal(size=(4, 3))

# A scalar function of an array, written once for NumPy arrays and tensors.
FUNCTIONS = {
    "logsumexp": lambda x: scipy.special.logsumexp(x),
    "logsumexp of rows": lambda x: scipy.special.logsumexp(x.reshape((2, -1)), axis=1).sum(),
    "softmax": lambda x: (scipy.special.softmax(x) ** 2).sum(),
    "log_softmax": lambda x: (scipy.special.log_softmax(x) ** 2).sum(),
    "erf": lambda x: (scipy.special.erf(x) ** 2).sum(),
    "gammaln": lambda x: scipy.special.gammaln(x * x + 0.5).sum(),
    "fft.rfft": lambda x: (abs(scipy.fft.rfft(x)) ** 3).sum(),
    "fft.fft": lambda x: (abs(scipy.fft.fft(x, n=9)) ** 3).sum(),
    "fftconvolve": lambda x: (scipy.signal.fftconvolve(x, like(x, KERNEL)) ** 3).sum(),
    "trapezoid": lambda x: scipy.integrate.trapezoid(x * x, dx=0.1),
    "zscore": lambda x: (scipy.stats.zscore(x) ** 3).sum(),
    "skew": lambda x: scipy.stats.skew(x),
    "Rotation": lambda x: (
        Rotation.from_rotvec(x[:3]).apply(like(x, POINTS)) * like(x, POINTS[::-1].copy())
    ).sum(),
}


def like(x, a):
    return wf.asarray(a) if isinstance(x, wf.Tensor) else a


def numerical(f, x, h=1e-6):
    """Central differences with one Richardson step: the error is O(h⁴)."""
    out = np.empty_like(x)
    for i in range(x.size):
        e = np.zeros_like(x)
        e[i] = h

        def slope(k, e=e):
            return (f(x + k * e) - f(x - k * e)) / (2 * k * h)

        out[i] = (4 * slope(0.5) - slope(1)) / 3
    return out


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_is_kept_and_right(name):
    f = FUNCTIONS[name]
    x0 = rng.normal(size=6)
    x = wf.tensor(x0, requires_grad=True)
    y = f(x)
    assert isinstance(y, wf.Tensor) and y.requires_grad
    np.testing.assert_allclose(y.item(), f(x0), rtol=1e-12)
    # Rounding in f divided by the step bounds the error of the differences.
    noise = 100 * np.finfo(float).eps * max(1.0, abs(f(x0))) / 1e-6
    np.testing.assert_allclose(y.backward()[x].numpy(), numerical(f, x0), rtol=1e-6, atol=noise)


DROPPING = {
    "optimize-like conversion": lambda x: np.asarray(x),
    "linalg.expm": lambda x: scipy.linalg.expm(x.reshape((2, 3))[:, :2]),
    # SciPy 1.17 calls np.asarray in simpson itself, so there is no namespace to dispatch on.
    "simpson": lambda x: scipy.integrate.simpson(x, dx=0.1),
    "gaussian_kde": lambda x: scipy.stats.gaussian_kde(x),
}


@pytest.mark.parametrize("name", DROPPING)
def test_what_would_drop_the_gradient_raises(name):
    x = wf.tensor(rng.normal(size=6), requires_grad=True)
    with pytest.raises((errors.InterchangeError, TypeError)):
        DROPPING[name](x)
