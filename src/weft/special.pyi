"""Public special functions: `wf.special`, under SciPy's names."""

# Written by tools/stubs.py; do not edit.

from .arrays.tensor import Tensor
from .arrays.types import ArrayLike, Axes

def beta(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`beta`, element by element; `out=` writes into a tensor's memory."""

def betainc(x: ArrayLike, y: ArrayLike, z: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`betainc`, element by element; `out=` writes into a tensor's memory."""

def betaln(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`betaln`, element by element; `out=` writes into a tensor's memory."""

def digamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`digamma`, element by element; `out=` writes into a tensor's memory."""

def entr(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`entr`, element by element; `out=` writes into a tensor's memory."""

def erf(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`erf`, element by element; `out=` writes into a tensor's memory."""

def erfc(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`erfc`, element by element; `out=` writes into a tensor's memory."""

def erfcx(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`erfcx`, element by element; `out=` writes into a tensor's memory."""

def erfinv(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`erfinv`, element by element; `out=` writes into a tensor's memory."""

def expit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`expit`, element by element; `out=` writes into a tensor's memory."""

def gamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`gamma`, element by element; `out=` writes into a tensor's memory."""

def gammainc(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`gammainc`, element by element; `out=` writes into a tensor's memory."""

def gammaincc(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`gammaincc`, element by element; `out=` writes into a tensor's memory."""

def gammaln(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`gammaln`, element by element; `out=` writes into a tensor's memory."""

def i0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`i0`, element by element; `out=` writes into a tensor's memory."""

def i0e(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`i0e`, element by element; `out=` writes into a tensor's memory."""

def i1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`i1`, element by element; `out=` writes into a tensor's memory."""

def i1e(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`i1e`, element by element; `out=` writes into a tensor's memory."""

def j0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`j0`, element by element; `out=` writes into a tensor's memory."""

def j1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`j1`, element by element; `out=` writes into a tensor's memory."""

def k0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`k0`, element by element; `out=` writes into a tensor's memory."""

def k0e(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`k0e`, element by element; `out=` writes into a tensor's memory."""

def k1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`k1`, element by element; `out=` writes into a tensor's memory."""

def k1e(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`k1e`, element by element; `out=` writes into a tensor's memory."""

def kl_div(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`kl_div`, element by element; `out=` writes into a tensor's memory."""

def lgamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`gammaln`, element by element; `out=` writes into a tensor's memory."""

def log_ndtr(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`log_ndtr`, element by element; `out=` writes into a tensor's memory."""

def log_softmax(x: ArrayLike, /, axis: Axes = None) -> Tensor:
    """x − log Σ exp(x) over all elements, or over an axis or several."""

def logit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`logit`, element by element; `out=` writes into a tensor's memory."""

def logsumexp(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """log Σ exp(x) over `axis`, without overflow."""

def ndtr(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`ndtr`, element by element; `out=` writes into a tensor's memory."""

def ndtri(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`ndtri`, element by element; `out=` writes into a tensor's memory."""

def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """The n-th derivative of `digamma`; n is a nonnegative integer."""

def psi(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`digamma`, element by element; `out=` writes into a tensor's memory."""

def rel_entr(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`rel_entr`, element by element; `out=` writes into a tensor's memory."""

def sinc(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`sinc`, element by element; `out=` writes into a tensor's memory."""

def softmax(x: ArrayLike, /, axis: Axes = None) -> Tensor:
    """exp(x) / Σ exp(x) over all elements, or over an axis or several."""

def xlog1py(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`xlog1py`, element by element; `out=` writes into a tensor's memory."""

def xlogy(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`xlogy`, element by element; `out=` writes into a tensor's memory."""

def y0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`y0`, element by element; `out=` writes into a tensor's memory."""

def y1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """`y1`, element by element; `out=` writes into a tensor's memory."""

def zeta(x: ArrayLike, q: ArrayLike | None = None, /) -> Tensor: ...

__all__ = [
    "beta",
    "betainc",
    "betaln",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "expit",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "j0",
    "j1",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kl_div",
    "lgamma",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "rel_entr",
    "sinc",
    "softmax",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "zeta",
]
