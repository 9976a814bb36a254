"""The elementary functions by the names of their rows.

All take float32 or float64 in any number of lanes. Those of `LIBRARY` call C code lane by lane:
libm's, or SciPy's in float64.
"""

from collections.abc import Callable

from .angles import acos, asin, atan, atan2
from .arithmetic import by_lanes, narrow, root, widen
from .capsules import find_export
from .circular import cos, sin, tan
from .code import LLValue
from .error_functions import erf, erfc, erfcx, gelu, gelu_slope, log_ndtr, ndtr
from .exponentials import cosh, exp, exp2, expit, expm1, sinh, tanh
from .logarithms import acosh, asinh, atanh, log, log1p, log2, log10, logaddexp, softplus
from .powers import cbrt, hypot, power


def wide(function: Callable[..., LLValue]) -> Callable[..., LLValue]:
    """A function that is computed in float64 for float32, too."""

    def call(*args: LLValue) -> LLValue:
        if args[0].type.element == "double":
            return function(*args)
        return narrow(function(*map(widen, args)))

    return call


ELEMENTARY: dict[str, Callable[..., LLValue]] = {
    "exp": exp,
    "exp2": exp2,
    "expm1": expm1,
    "log": log,
    "log2": log2,
    "log10": log10,
    "log1p": log1p,
    "softplus": softplus,
    "logaddexp": logaddexp,
    "expit": expit,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "atan2": atan2,
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asinh": wide(asinh),
    "acosh": wide(acosh),
    "atanh": wide(atanh),
    "erf": erf,
    "erfc": erfc,
    "erfcx": erfcx,
    "ndtr": ndtr,
    "log_ndtr": log_ndtr,
    "gelu": gelu,
    "gelu_slope": gelu_slope,
    "sqrt": root,
    "cbrt": cbrt,
    "hypot": hypot,
    "pow": power,
}

# Row: (the name in scipy.special.cython_special, how many arguments it has).
LIBRARY = {
    "gammaln": ("gammaln", 1),
    "digamma": ("psi", 1),
    "gamma": ("gamma", 1),
    "erfinv": ("erfinv", 1),
    "ndtri": ("ndtri", 1),
    "betaln": ("betaln", 2),
    "beta": ("beta", 2),
    "gammainc": ("gammainc", 2),
    "gammaincc": ("gammaincc", 2),
    "betainc": ("betainc", 3),
    **{name: (name, 1) for name in ("j0", "j1", "y0", "y1", "i0", "i0e", "i1", "i1e")},
    **{name: (name, 1) for name in ("k0", "k0e", "k1", "k1e")},
}
PREFIX = "scipy_"


def _library(symbol: str) -> Callable[..., LLValue]:
    return wide(lambda *args: by_lanes(PREFIX + symbol, args))


ELEMENTARY |= {row: _library(symbol) for row, (symbol, _) in LIBRARY.items()}


def address_of(name: str) -> int:
    """The address of SciPy's C function of this name, for float64 arguments."""
    for key in (name, f"__pyx_fuse_1{name}", f"__pyx_fuse_0{name}"):
        found = find_export("scipy.special.cython_special", key)
        if found and found[0].startswith("double (double"):
            return found[1]
    raise LookupError(f"SciPy has no C function {name} of float64 numbers")
