"""Rows: special functions, under scipy.special's names."""

import math
from functools import partial

from ..core.op import Caller
from . import rows
from .complex_ import sign
from .elementwise import exp, log, log1p, scalars_too
from .rows import mark_unbounded, times
from .samples import special as samples
from .samples.case import reals
from .strong import strong_product, strong_quotient

elementwise: partial[Caller] = partial(rows.elementwise, public="special")
single: partial[Caller] = partial(rows.single, public="special")
_private = partial(rows.single, public="")

# -- the error function and the normal distribution -------------------------------------------

erf: Caller = elementwise(
    "erf",
    [lambda y, x: (2 / math.sqrt(math.pi)) * exp(-(x * x))],
    reads="x",
    floating=True,
    sample=reals((-2, 2)),
    doc="The error function 2/√π ∫₀ˣ exp(−t²) dt.\nerf([0.0, 1.0]) ≈ [0.0, 0.8427]",
)
erfc: Caller = elementwise(
    "erfc",
    [lambda y, x: (-2 / math.sqrt(math.pi)) * exp(-(x * x))],
    reads="x",
    floating=True,
    sample=reals((-2, 2)),
    doc="1 − erf(x), accurate where that is small.\nerfc([0.0, 1.0]) ≈ [1.0, 0.1573]",
)
erfcx: Caller = single(
    "erfcx",
    [mark_unbounded(lambda y, x: 2 * strong_product(x, y) - 2 / math.sqrt(math.pi))],
    floating=True,
    sample=reals((-2, 3)),
    doc="exp(x²)·erfc(x), without overflow.\nerfcx([0.0, 1.0]) ≈ [1.0, 0.4276]",
)
erfinv: Caller = single(
    "erfinv",
    [mark_unbounded(lambda y, x: (math.sqrt(math.pi) / 2) * exp(strong_product(y, y)))],
    reads="y",
    floating=True,
    sample=samples("within_one"),
    doc="The y with erf(y) = x; ±∞ at ±1, NaN beyond.\nerfinv([0.0, 0.5]) ≈ [0.0, 0.4769]",
)
ndtr: Caller = single(
    "ndtr",
    [lambda y, x: (1 / math.sqrt(2 * math.pi)) * exp(-0.5 * x * x)],
    reads="x",
    floating=True,
    sample=reals((-2, 2)),
    doc="The normal distribution function Φ(x) = ½(1 + erf(x/√2)).\n"
    "ndtr([0.0, 1.0]) ≈ [0.5, 0.8413]",
)
log_ndtr: Caller = single(
    "log_ndtr",
    # φ(x)/Φ(x), which neither overflows nor cancels in this form.
    [mark_unbounded(lambda y, x: math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)))],
    reads="x",
    floating=True,
    sample=samples("log_normal"),
    doc="log Φ(x), accurate where Φ is small.\nlog_ndtr([0.0, -10.0]) ≈ [-0.6931, -53.2313]",
)
ndtri: Caller = single(
    "ndtri",
    [mark_unbounded(lambda y, x: math.sqrt(2 * math.pi) * exp(0.5 * strong_product(y, y)))],
    reads="y",
    floating=True,
    sample=samples("probabilities"),
    doc="The normal quantile: the y with Φ(y) = x; ±∞ at 0 and 1.\n"
    "ndtri([0.5, 0.975]) ≈ [0.0, 1.96]",
)
logit: Caller = single(
    "logit",
    [mark_unbounded(times(lambda t, y, x: t / (x * (1 - x))))],
    reads="x",
    floating=True,
    sample=samples("probabilities"),
    doc="log(x/(1 − x)), the inverse of `expit`; NaN outside [0, 1].\n"
    "logit([0.5, 0.75]) ≈ [0.0, 1.0986]",
)

# -- entropies --------------------------------------------------------------------------------

xlogy: Caller = single(
    "xlogy",
    [mark_unbounded(lambda z, x, y: log(y)), mark_unbounded(lambda z, x, y: strong_quotient(x, y))],
    reads=("y", "x y"),
    floating=True,
    sample=samples("entropies"),
    doc="x·log(y), and 0 where x = 0.\nxlogy([0.0, 2.0], [0.0, 10.0]) ≈ [0.0, 4.6052]",
)
xlog1py: Caller = single(
    "xlog1py",
    [
        mark_unbounded(lambda z, x, y: log1p(y)),
        mark_unbounded(lambda z, x, y: strong_quotient(x, 1 + y)),
    ],
    reads=("y", "x y"),
    floating=True,
    sample=samples("entropies_near_one"),
    doc="x·log(1 + y), and 0 where x = 0.\nxlog1py([0.0, 2.0], [-1.0, 9.0]) ≈ [0.0, 4.6052]",
)
entr: Caller = single(
    "entr",
    [mark_unbounded(lambda y, x: -1 - log(x))],
    reads="x",
    floating=True,
    sample=samples("positive"),
    doc="The entropy term −x·log(x); 0 at 0, −∞ below.\nentr([0.0, 0.5]) ≈ [0.0, 0.3466]",
)
rel_entr: Caller = single(
    "rel_entr",
    [
        mark_unbounded(lambda z, x, y: 1 + log(x / y)),
        mark_unbounded(lambda z, x, y: -strong_quotient(x, y)),
    ],
    reads="x y",
    floating=True,
    sample=samples("entropies"),
    doc="x·log(x/y), the summand of the relative entropy; 0 where x = 0 ≤ y, ∞ outside.\n"
    "rel_entr([1.0, 0.0], 0.5) ≈ [0.6931, 0.0]",
)
kl_div: Caller = single(
    "kl_div",
    [
        mark_unbounded(lambda z, x, y: log(x / y)),
        mark_unbounded(lambda z, x, y: 1 - strong_quotient(x, y)),
    ],
    reads="x y",
    floating=True,
    sample=samples("entropies"),
    doc="x·log(x/y) − x + y; y where x = 0 ≤ y, ∞ outside.\n"
    "kl_div([1.0, 0.0], 0.5) ≈ [0.1931, 0.5]",
)

# -- the gamma function; None: no derivative is known in closed form --------------------------

gammaln: Caller = scalars_too(
    single(
        "gammaln",
        [mark_unbounded(lambda y, x: digamma(x))],
        reads="x",
        floating=True,
        spell=("lgamma",),
        sample=samples("factorials"),
        doc="log |Γ(x)|.\ngammaln([1.0, 5.0]) ≈ [0.0, 3.1781]",
    )
)
digamma: Caller = single(
    "digamma",
    [mark_unbounded(lambda y, x: polygamma(1, x))],
    reads="x",
    floating=True,
    spell=("psi",),
    sample=samples("factorials"),
    doc="ψ(x) = Γ′(x)/Γ(x), the derivative of `gammaln`.\ndigamma([1.0, 2.0]) ≈ [-0.5772, 0.4228]",
)
polygamma: Caller = _private(
    "polygamma",
    [None, mark_unbounded(lambda y, n, x: polygamma(n + 1, x))],
    reads="n x",
    floating=True,
    sample=samples("polygammas"),
)
zeta: Caller = single(
    "zeta",
    [None, mark_unbounded(lambda y, x, q: -x * zeta(x + 1, q))],
    reads="x q",
    floating=True,
    sample=samples("zetas"),
    doc="Hurwitz' ζ(x, y) = Σ 1/(k + y)ˣ over k ≥ 0; differentiable in y.\n"
    "zeta(2.0, [1.0, 2.0]) ≈ [1.6449, 0.6449]",
)
gamma: Caller = single(
    "gamma",
    [mark_unbounded(lambda y, x: strong_product(y, digamma(x)))],
    floating=True,
    sample=samples("factorials"),
    doc="Γ(x) = ∫₀^∞ tˣ⁻¹ e⁻ᵗ dt, which is (x − 1)! for whole numbers.\n"
    "gamma([1.0, 5.0]) ≈ [1.0, 24.0]",
)
betaln: Caller = scalars_too(
    single(
        "betaln",
        [
            mark_unbounded(lambda y, a, b: digamma(a) - digamma(a + b)),
            mark_unbounded(lambda y, a, b: digamma(b) - digamma(a + b)),
        ],
        reads="a b",
        floating=True,
        sample=samples("betas"),
        doc="log |B(x, y)|, accurate for large arguments.\n"
        "betaln([1.0, 2.0], 3.0) ≈ [-1.0986, -2.4849]",
    )
)
beta: Caller = single(
    "beta",
    [
        mark_unbounded(lambda y, a, b: strong_product(y, digamma(a) - digamma(a + b))),
        mark_unbounded(lambda y, a, b: strong_product(y, digamma(b) - digamma(a + b))),
    ],
    floating=True,
    sample=samples("betas"),
    doc="B(x, y) = Γ(x)Γ(y)/Γ(x + y).\nbeta([1.0, 2.0], 3.0) ≈ [0.3333, 0.0833]",
)


def _gamma_density(a, x):
    return exp(xlogy(a - 1, x) - x - gammaln(a))


gammainc: Caller = single(
    "gammainc",
    [None, mark_unbounded(lambda y, a, x: _gamma_density(a, x))],
    reads="a x",
    floating=True,
    sample=samples("incomplete_gammas"),
    doc="∫₀ʸ tˣ⁻¹ e⁻ᵗ dt / Γ(x), from 0 to 1; differentiable in y.\n"
    "gammainc(1.0, [0.0, 1.0]) ≈ [0.0, 0.6321]",
)
gammaincc: Caller = single(
    "gammaincc",
    [None, mark_unbounded(lambda y, a, x: -_gamma_density(a, x))],
    reads="a x",
    floating=True,
    sample=samples("incomplete_gammas"),
    doc="1 − gammainc(x, y), accurate where that is small; differentiable in y.\n"
    "gammaincc(1.0, [0.0, 1.0]) ≈ [1.0, 0.3679]",
)
betainc: Caller = single(
    "betainc",
    [
        None,
        None,
        mark_unbounded(lambda y, a, b, x: exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b))),
    ],
    reads="a b x",
    floating=True,
    sample=samples("incomplete_betas"),
    doc="∫₀ᶻ tˣ⁻¹ (1 − t)ʸ⁻¹ dt / B(x, y), from 0 to 1; differentiable in z.\n"
    "betainc(1.0, 2.0, [0.0, 0.5]) ≈ [0.0, 0.75]",
)

# -- Bessel functions -------------------------------------------------------------------------
# Derivatives are combinations of neighbouring orders, not quotients by x: right at 0 as well,
# to any order.

bessel_j: Caller = _private(
    "bessel_j",
    [lambda y, x, n: 0.5 * (bessel_j(x, n - 1) - bessel_j(x, n + 1))],
    reads="x",
    promote=(),
    sample=samples("of_order"),
)
bessel_i: Caller = _private(
    "bessel_i",
    [mark_unbounded(lambda y, x, n: 0.5 * (bessel_i(x, n - 1) + bessel_i(x, n + 1)))],
    reads="x",
    promote=(),
    sample=samples("of_order"),
)
bessel_ie: Caller = _private(
    "bessel_ie",
    [lambda y, x, n: 0.5 * (bessel_ie(x, n - 1) + bessel_ie(x, n + 1)) - sign(x) * y],
    promote=(),
    sample=samples("of_order"),
)
j0: Caller = single(
    "j0",
    [lambda y, x: -j1(x)],
    reads="x",
    floating=True,
    sample=samples("with_zero"),
    doc="The Bessel function J₀(x) of the first kind.\nj0([0.0, 1.0]) ≈ [1.0, 0.7652]",
)
j1: Caller = single(
    "j1",
    [lambda y, x: 0.5 * (j0(x) - bessel_j(x, 2))],
    reads="x",
    floating=True,
    sample=samples("with_zero"),
    doc="The Bessel function J₁(x) of the first kind.\nj1([0.0, 1.0]) ≈ [0.0, 0.4401]",
)
i0: Caller = single(
    "i0",
    [mark_unbounded(lambda y, x: i1(x))],
    reads="x",
    floating=True,
    sample=samples("with_zero"),
    doc="The modified Bessel function I₀(x) of the first kind.\ni0([0.0, 1.0]) ≈ [1.0, 1.2661]",
)
i1: Caller = single(
    "i1",
    [mark_unbounded(lambda y, x: 0.5 * (i0(x) + bessel_i(x, 2)))],
    reads="x",
    floating=True,
    sample=samples("with_zero"),
    doc="The modified Bessel function I₁(x) of the first kind.\ni1([0.0, 1.0]) ≈ [0.0, 0.5652]",
)
i0e: Caller = single(
    "i0e",
    [lambda y, x: i1e(x) - sign(x) * y],
    floating=True,
    sample=samples("off_zero"),
    doc="exp(−|x|)·I₀(x), without overflow.\ni0e([0.0, 1.0]) ≈ [1.0, 0.4658]",
)
i1e: Caller = single(
    "i1e",
    [lambda y, x: 0.5 * (i0e(x) + bessel_ie(x, 2)) - sign(x) * y],
    floating=True,
    sample=samples("off_zero"),
    doc="exp(−|x|)·I₁(x), without overflow.\ni1e([0.0, 1.0]) ≈ [0.0, 0.2079]",
)
y0: Caller = single(
    "y0",
    [mark_unbounded(lambda y, x: -y1(x))],
    reads="x",
    floating=True,
    sample=samples("positive"),
    doc="The Bessel function Y₀(x) of the second kind; −∞ at 0, NaN below.\n"
    "y0([1.0, 2.0]) ≈ [0.0883, 0.5104]",
)
y1: Caller = single(
    "y1",
    [mark_unbounded(lambda y, x: y0(x) - y / x)],
    floating=True,
    sample=samples("positive"),
    doc="The Bessel function Y₁(x) of the second kind; −∞ at 0, NaN below.\n"
    "y1([1.0, 2.0]) ≈ [-0.7812, -0.107]",
)
k0: Caller = single(
    "k0",
    [mark_unbounded(lambda y, x: -k1(x))],
    reads="x",
    floating=True,
    sample=samples("positive"),
    doc="The modified Bessel function K₀(x) of the second kind; ∞ at 0, NaN below.\n"
    "k0([1.0, 2.0]) ≈ [0.421, 0.1139]",
)
k1: Caller = single(
    "k1",
    [mark_unbounded(lambda y, x: -k0(x) - y / x)],
    floating=True,
    sample=samples("positive"),
    doc="The modified Bessel function K₁(x) of the second kind; ∞ at 0, NaN below.\n"
    "k1([1.0, 2.0]) ≈ [0.6019, 0.1399]",
)
k0e: Caller = single(
    "k0e",
    [mark_unbounded(lambda y, x: y - k1e(x))],
    floating=True,
    sample=samples("positive"),
    doc="eˣ·K₀(x), without underflow.\nk0e([1.0, 2.0]) ≈ [1.1445, 0.8416]",
)
k1e: Caller = single(
    "k1e",
    [mark_unbounded(lambda y, x: y - k0e(x) - y / x)],
    floating=True,
    sample=samples("positive"),
    doc="eˣ·K₁(x), without underflow.\nk1e([1.0, 2.0]) ≈ [1.6362, 1.0335]",
)
spherical_j: Caller = _private(
    "spherical_j",
    [
        lambda y, x, n: (
            (n * spherical_j(x, n - 1) - (n + 1) * spherical_j(x, n + 1)) / (2 * n + 1)
            if n
            else -spherical_j(x, 1)
        )
    ],
    reads="x",
    promote=(),
    sample=samples("of_order"),
)
sinc: Caller = elementwise(
    "sinc",
    [lambda y, x: -math.pi * spherical_j(x * math.pi, 1)],
    reads="x",
    floating=True,
    sample=samples("with_zero"),
    doc="sin(πx)/(πx), and 1 at 0.\nsinc([0.0, 0.5]) ≈ [1.0, 0.6366]",
)
