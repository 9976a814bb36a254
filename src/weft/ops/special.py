"""Rows: special functions, under scipy.special's names."""

import math
from functools import partial

from ..core.op import Caller
from . import rows
from .complex_ import sign
from .elementwise import exp, log, log1p, scalars_too
from .rows import times, unbounded
from .samples import special as samples
from .samples.case import reals
from .strong import strong_product, strong_quotient

elementwise = partial(rows.elementwise, public="special")
single = partial(rows.single, public="special")

# -- the error function and the normal distribution -------------------------------------------

erf: Caller = elementwise(
    "erf",
    [lambda y, x: (2 / math.sqrt(math.pi)) * exp(-(x * x))],
    reads="x",
    floating=True,
    sample=reals((-2, 2)),
)
erfc: Caller = elementwise(
    "erfc",
    [lambda y, x: (-2 / math.sqrt(math.pi)) * exp(-(x * x))],
    reads="x",
    floating=True,
    sample=reals((-2, 2)),
)
erfcx: Caller = single(
    "erfcx",
    [unbounded(lambda y, x: 2 * strong_product(x, y) - 2 / math.sqrt(math.pi))],
    floating=True,
    sample=reals((-2, 3)),
)
erfinv: Caller = single(
    "erfinv",
    [unbounded(lambda y, x: (math.sqrt(math.pi) / 2) * exp(strong_product(y, y)))],
    reads="y",
    floating=True,
    sample=samples.within_one,
)
ndtr: Caller = single(
    "ndtr",
    [lambda y, x: (1 / math.sqrt(2 * math.pi)) * exp(-0.5 * x * x)],
    reads="x",
    floating=True,
    sample=reals((-2, 2)),
)
log_ndtr: Caller = single(
    "log_ndtr",
    # φ(x)/Φ(x), which neither overflows nor cancels in this form.
    [unbounded(lambda y, x: math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)))],
    reads="x",
    floating=True,
    sample=samples.log_normal,
)
ndtri: Caller = single(
    "ndtri",
    [unbounded(lambda y, x: math.sqrt(2 * math.pi) * exp(0.5 * strong_product(y, y)))],
    reads="y",
    floating=True,
    sample=samples.probabilities,
)
logit: Caller = single(
    "logit",
    [unbounded(times(lambda t, y, x: t / (x * (1 - x))))],
    reads="x",
    floating=True,
    sample=samples.probabilities,
)

# -- entropies --------------------------------------------------------------------------------

xlogy: Caller = single(
    "xlogy",
    [unbounded(lambda z, x, y: log(y)), unbounded(lambda z, x, y: strong_quotient(x, y))],
    reads=("y", "x y"),
    floating=True,
    sample=samples.entropies,
)
xlog1py: Caller = single(
    "xlog1py",
    [
        unbounded(lambda z, x, y: log1p(y)),
        unbounded(lambda z, x, y: strong_quotient(x, 1 + y)),
    ],
    reads=("y", "x y"),
    floating=True,
    sample=samples.entropies_near_one,
)
entr: Caller = single(
    "entr", [unbounded(lambda y, x: -1 - log(x))], reads="x", floating=True, sample=samples.positive
)
rel_entr: Caller = single(
    "rel_entr",
    [
        unbounded(lambda z, x, y: 1 + log(x / y)),
        unbounded(lambda z, x, y: -strong_quotient(x, y)),
    ],
    reads="x y",
    floating=True,
    sample=samples.entropies,
)
kl_div: Caller = single(
    "kl_div",
    [
        unbounded(lambda z, x, y: log(x / y)),
        unbounded(lambda z, x, y: 1 - strong_quotient(x, y)),
    ],
    reads="x y",
    floating=True,
    sample=samples.entropies,
)

# -- the gamma function; None: no derivative is known in closed form --------------------------

gammaln: Caller = scalars_too(
    single(
        "gammaln",
        [unbounded(lambda y, x: digamma(x))],
        reads="x",
        floating=True,
        spell=("lgamma",),
        sample=samples.factorials,
    )
)
digamma: Caller = single(
    "digamma",
    [unbounded(lambda y, x: polygamma(1, x))],
    reads="x",
    floating=True,
    spell=("psi",),
    sample=samples.factorials,
)
polygamma: Caller = single(
    "polygamma",
    [None, unbounded(lambda y, n, x: polygamma(n + 1, x))],
    reads="n x",
    floating=True,
    public="",
    sample=samples.polygammas,
)
zeta: Caller = single(
    "zeta",
    [None, unbounded(lambda y, x, q: -x * zeta(x + 1, q))],
    reads="x q",
    floating=True,
    sample=samples.zetas,
)
gamma: Caller = single(
    "gamma",
    [unbounded(lambda y, x: strong_product(y, digamma(x)))],
    floating=True,
    sample=samples.factorials,
)
betaln: Caller = scalars_too(
    single(
        "betaln",
        [
            unbounded(lambda y, a, b: digamma(a) - digamma(a + b)),
            unbounded(lambda y, a, b: digamma(b) - digamma(a + b)),
        ],
        reads="a b",
        floating=True,
        sample=samples.betas,
    )
)
beta: Caller = single(
    "beta",
    [
        unbounded(lambda y, a, b: strong_product(y, digamma(a) - digamma(a + b))),
        unbounded(lambda y, a, b: strong_product(y, digamma(b) - digamma(a + b))),
    ],
    floating=True,
    sample=samples.betas,
)


def _gamma_density(a, x):
    return exp(xlogy(a - 1, x) - x - gammaln(a))


gammainc: Caller = single(
    "gammainc",
    [None, unbounded(lambda y, a, x: _gamma_density(a, x))],
    reads="a x",
    floating=True,
    sample=samples.incomplete_gammas,
)
gammaincc: Caller = single(
    "gammaincc",
    [None, unbounded(lambda y, a, x: -_gamma_density(a, x))],
    reads="a x",
    floating=True,
    sample=samples.incomplete_gammas,
)
betainc: Caller = single(
    "betainc",
    [
        None,
        None,
        unbounded(lambda y, a, b, x: exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b))),
    ],
    reads="a b x",
    floating=True,
    sample=samples.incomplete_betas,
)

# -- Bessel functions -------------------------------------------------------------------------
# Derivatives are combinations of neighbouring orders, not quotients by x: right at 0 as well,
# to any order.

bessel_j: Caller = single(
    "bessel_j",
    [lambda y, x, n: 0.5 * (bessel_j(x, n - 1) - bessel_j(x, n + 1))],
    reads="x",
    promote=(),
    public="",
    sample=samples.of_order,
)
bessel_i: Caller = single(
    "bessel_i",
    [unbounded(lambda y, x, n: 0.5 * (bessel_i(x, n - 1) + bessel_i(x, n + 1)))],
    reads="x",
    promote=(),
    public="",
    sample=samples.of_order,
)
bessel_ie: Caller = single(
    "bessel_ie",
    [lambda y, x, n: 0.5 * (bessel_ie(x, n - 1) + bessel_ie(x, n + 1)) - sign(x) * y],
    promote=(),
    public="",
    sample=samples.of_order,
)
j0: Caller = single("j0", [lambda y, x: -j1(x)], reads="x", floating=True, sample=samples.with_zero)
j1: Caller = single(
    "j1",
    [lambda y, x: 0.5 * (j0(x) - bessel_j(x, 2))],
    reads="x",
    floating=True,
    sample=samples.with_zero,
)
i0: Caller = single(
    "i0", [unbounded(lambda y, x: i1(x))], reads="x", floating=True, sample=samples.with_zero
)
i1: Caller = single(
    "i1",
    [unbounded(lambda y, x: 0.5 * (i0(x) + bessel_i(x, 2)))],
    reads="x",
    floating=True,
    sample=samples.with_zero,
)
i0e: Caller = single(
    "i0e", [lambda y, x: i1e(x) - sign(x) * y], floating=True, sample=samples.off_zero
)
i1e: Caller = single(
    "i1e",
    [lambda y, x: 0.5 * (i0e(x) + bessel_ie(x, 2)) - sign(x) * y],
    floating=True,
    sample=samples.off_zero,
)
y0: Caller = single(
    "y0", [unbounded(lambda y, x: -y1(x))], reads="x", floating=True, sample=samples.positive
)
y1: Caller = single(
    "y1", [unbounded(lambda y, x: y0(x) - y / x)], floating=True, sample=samples.positive
)
k0: Caller = single(
    "k0", [unbounded(lambda y, x: -k1(x))], reads="x", floating=True, sample=samples.positive
)
k1: Caller = single(
    "k1", [unbounded(lambda y, x: -k0(x) - y / x)], floating=True, sample=samples.positive
)
k0e: Caller = single(
    "k0e", [unbounded(lambda y, x: y - k1e(x))], floating=True, sample=samples.positive
)
k1e: Caller = single(
    "k1e", [unbounded(lambda y, x: y - k0e(x) - y / x)], floating=True, sample=samples.positive
)
spherical_j: Caller = single(
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
    public="",
    sample=samples.of_order,
)
sinc: Caller = elementwise(
    "sinc",
    [lambda y, x: -math.pi * spherical_j(x * math.pi, 1)],
    reads="x",
    floating=True,
    sample=samples.with_zero,
)
