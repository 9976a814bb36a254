"""Public special functions: `wf.special`, under SciPy's names."""

# Written by tools/stubs.py; do not edit.

from .arrays.tensor import Tensor
from .arrays.types import ArrayLike, Axes

def beta(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """B(x, y) = Γ(x)Γ(y)/Γ(x + y)."""

def betainc(x: ArrayLike, y: ArrayLike, z: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """∫₀ᶻ tˣ⁻¹ (1 − t)ʸ⁻¹ dt / B(x, y), from 0 to 1; differentiable in z."""

def betaln(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log |B(x, y)|, accurate for large arguments."""

def digamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """ψ(x) = Γ′(x)/Γ(x), the derivative of `gammaln`."""

def entr(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The entropy term −x·log(x); 0 at 0, −∞ below."""

def erf(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The error function 2/√π ∫₀ˣ exp(−t²) dt."""

def erfc(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """1 − erf(x), accurate where that is small."""

def erfcx(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """exp(x²)·erfc(x), without overflow."""

def erfinv(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The y with erf(y) = x; ±∞ at ±1, NaN beyond."""

def expit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The logistic function 1/(1 + e⁻ˣ)."""

def gamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """Γ(x) = ∫₀^∞ tˣ⁻¹ e⁻ᵗ dt, which is (x − 1)! for whole numbers."""

def gammainc(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """∫₀ʸ tˣ⁻¹ e⁻ᵗ dt / Γ(x), from 0 to 1; differentiable in y."""

def gammaincc(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """1 − gammainc(x, y), accurate where that is small; differentiable in y."""

def gammaln(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log |Γ(x)|."""

def i0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function I₀(x) of the first kind."""

def i0e(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """exp(−|x|)·I₀(x), without overflow."""

def i1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function I₁(x) of the first kind."""

def i1e(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """exp(−|x|)·I₁(x), without overflow."""

def j0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function J₀(x) of the first kind."""

def j1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function J₁(x) of the first kind."""

def k0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function K₀(x) of the second kind; ∞ at 0, NaN below."""

def k0e(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """eˣ·K₀(x), without underflow."""

def k1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function K₁(x) of the second kind; ∞ at 0, NaN below."""

def k1e(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """eˣ·K₁(x), without underflow."""

def kl_div(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x·log(x/y) − x + y; y where x = 0 ≤ y, ∞ outside."""

def lgamma(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log |Γ(x)|."""

def log_ndtr(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log Φ(x), accurate where Φ is small."""

def log_softmax(x: ArrayLike, /, axis: Axes = None) -> Tensor:
    """xᵢ − log Σ exp(xⱼ) over all elements, or over an axis or several, as in SciPy."""

def logit(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """log(x/(1 − x)), the inverse of `expit`; NaN outside [0, 1]."""

def logsumexp(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
    """log Σ exp(xᵢ) over `axis`, without overflow; its gradient is `softmax`."""

def ndtr(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The normal distribution function Φ(x) = ½(1 + erf(x/√2))."""

def ndtri(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The normal quantile: the y with Φ(y) = x; ±∞ at 0 and 1."""

def polygamma(n: int, x: ArrayLike, /) -> Tensor:
    """ψ⁽ⁿ⁾(x), the n-th derivative of `digamma`."""

def psi(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """ψ(x) = Γ′(x)/Γ(x), the derivative of `gammaln`."""

def rel_entr(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x·log(x/y), the summand of the relative entropy; 0 where x = 0 ≤ y, ∞ outside."""

def sinc(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """sin(πx)/(πx), and 1 at 0."""

def softmax(x: ArrayLike, /, axis: Axes = None) -> Tensor:
    """exp(xᵢ)/Σ exp(xⱼ) over all elements, or over an axis or several, as in SciPy."""

def xlog1py(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x·log(1 + y), and 0 where x = 0."""

def xlogy(x: ArrayLike, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """x·log(y), and 0 where x = 0."""

def y0(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function Y₀(x) of the second kind; −∞ at 0, NaN below."""

def y1(x: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function Y₁(x) of the second kind; −∞ at 0, NaN below."""

def zeta(x: ArrayLike, q: ArrayLike | None = None, /) -> Tensor:
    """Hurwitz' ζ(x, q) = Σ 1/(k + q)ˣ over k ≥ 0, or Riemann's ζ(x) = ζ(x, 1)."""

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
