"""Torch's elementwise ops in Weft's spelling."""

import math

import weft as wf

# Same arguments, only the name may differ.
DIRECT = {
    **{
        name: name
        for name in """
            abs acos acosh angle asin asinh atan atan2 atanh ceil conj copysign cos cosh exp exp2
            expm1 floor floor_divide hypot imag isclose isfinite isinf isnan log log10 log1p log2
            logaddexp logical_and logical_not logical_or logical_xor maximum minimum nextafter
            positive pow real reciprocal remainder rsqrt sign signbit sin sinh sqrt square tan tanh
            trunc sigmoid xlogy allclose
        """.split()
    },
    "__radd__": "Tensor.__radd__",
    "__rdiv__": "Tensor.__rtruediv__",
    "__rmatmul__": "Tensor.__rmatmul__",
    "__rmod__": "Tensor.__rmod__",
    "__rmul__": "Tensor.__rmul__",
    "__rpow__": "Tensor.__rpow__",
    "__rsub__": "Tensor.__rsub__",
    "conj_physical": "conj",
    "digamma": "special.digamma",
    "div/no_rounding_mode": "divide",
    "eq": "equal",
    "erf": "special.erf",
    "erfc": "special.erfc",
    "erfinv": "special.erfinv",
    "float_power": "pow",
    "ge": "greater_equal",
    "gt": "greater",
    "i0": "special.i0",
    "igamma": "special.gammainc",
    "igammac": "special.gammaincc",
    "le": "less_equal",
    "lgamma": "special.gammaln",
    "lt": "less",
    "max/binary": "maximum",
    "min/binary": "minimum",
    "mul": "multiply",
    "ne": "not_equal",
    "neg": "negative",
    "nn.functional.relu": "relu",
    "round": "round",
    "sgn": "sign",
    "sinc": "special.sinc",
    **{
        f"special.{name}": f"special.{name}"
        for name in "entr erfcx i0e i1 i1e log_ndtr ndtr ndtri xlog1py zeta".split()
    },
    **{f"special.bessel_{name}": f"special.{name}" for name in ("j0", "j1", "y0", "y1")},
    **{f"special.modified_bessel_{n}": f"special.{n}" for n in ("i0", "i1", "k0", "k1")},
    **{f"special.scaled_modified_bessel_{n}": f"special.{n}e" for n in ("k0", "k1")},
    "true_divide": "divide",
}


def add(x, y, *, alpha=1):
    return wf.add(x, y if alpha == 1 else wf.multiply(y, alpha))


def subtract(x, y, *, alpha=1):
    return wf.subtract(x, y if alpha == 1 else wf.multiply(y, alpha))


def reflected_subtract(x, y, *, alpha=1):
    return subtract(y, x, alpha=alpha)


def divide_to_integer(x, y, *, rounding_mode):
    return wf.floor_divide(x, y) if rounding_mode == "floor" else wf.trunc(wf.divide(x, y))


def rounded(x, *, decimals):
    return wf.divide(wf.round(wf.multiply(x, 10.0**decimals)), 10.0**decimals)


def clamp(x, low=None, high=None):
    return wf.clip(x, low, high)


def clamp_min(x, low):
    return wf.clip(x, low, None)


def clamp_max(x, high):
    return wf.clip(x, None, high)


def where(x, condition, y):
    return wf.where(condition, x, y)


def masked_fill(x, mask, value):
    return wf.where(mask, value, x)


def polygamma(x, n):
    return wf.special.polygamma(n, x)


def logit(x, eps=None):
    return wf.special.logit(x if eps is None else wf.clip(x, eps, 1 - eps))


def lerp(x, y, weight):
    return x + weight * (y - x)


def addcmul(x, a, b, *, value=1):
    return x + value * a * b


def addcdiv(x, a, b, *, value=1):
    return x + value * a / b


def complex_of(re, im):
    return re + 1j * im


def polar(r, phi):
    return r * wf.exp(1j * phi)


def view_as_real(x):
    return wf.stack([wf.real(x), wf.imag(x)], axis=-1)


def view_as_complex(x):
    return complex_of(x[..., 0], x[..., 1])


def fractional(x):
    return x - wf.trunc(x)


def is_real(x):
    return wf.imag(x) == 0


def logaddexp2(x, y):
    return wf.logaddexp(x * math.log(2), y * math.log(2)) / math.log(2)


def multigamma(x, p):
    shifted = [wf.special.gammaln(x - j / 2) for j in range(p)]
    return sum(shifted, p * (p - 1) / 4 * math.log(math.pi))


def gelu(x, approximate="none"):
    return wf.gelu(x, approximate)


def leaky_relu(x, negative_slope=0.01):
    return wf.leaky_relu(x, negative_slope)


def softplus(x, beta=1.0, threshold=20.0):
    """Torch returns x itself above the threshold."""
    return wf.where(beta * x > threshold, x, wf.softplus(beta * x) / beta)


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    top = float(wf.finfo(x.dtype).max)
    high, low = top if posinf is None else posinf, -top if neginf is None else neginf
    finite = wf.clip(wf.where(wf.isnan(x), nan, x), low, high)
    return finite


SPELLINGS = {
    **DIRECT,
    **{f"mvlgamma/mvlgamma_p_{p}": multigamma for p in (1, 3, 5)},
    **{f"polygamma/polygamma_n_{n}": polygamma for n in range(5)},
    **{f"round/decimals_{d}": rounded for d in ("0", "3", "neg_3")},
    "add": add,
    "addcdiv": addcdiv,
    "addcmul": addcmul,
    "clamp": clamp,
    "clamp_max": clamp_max,
    "clamp_min": clamp_min,
    "complex": complex_of,
    "deg2rad": lambda x: x * (math.pi / 180),
    "div/floor_rounding": divide_to_integer,
    "div/trunc_rounding": divide_to_integer,
    "frac": fractional,
    "isreal": is_real,
    "lerp": lerp,
    "logaddexp2": logaddexp2,
    "logit": logit,
    "masked_fill": masked_fill,
    "nan_to_num": nan_to_num,
    "nn.functional.elu": "elu",
    "nn.functional.gelu": gelu,
    "nn.functional.leaky_relu": leaky_relu,
    "nn.functional.silu": "silu",
    "nn.functional.softplus": softplus,
    "polar": polar,
    "rad2deg": lambda x: x * (180 / math.pi),
    "rsub": reflected_subtract,
    "special.polygamma/special_polygamma_n_0": polygamma,
    "sub": subtract,
    "view_as_complex": view_as_complex,
    "view_as_real": view_as_real,
    "where": where,
}
