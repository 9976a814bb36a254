"""Rows: special functions, under scipy.special's names."""

import math
from functools import partial

from . import rows
from .complex_ import sign
from .elementwise import exp, log, log1p, scalars_too
from .rows import times, unbounded
from .samples import special as samples
from .samples.case import reals
from .strong import strong_product, strong_quotient

elementwise = partial(rows.elementwise, public="special")
single = partial(rows.single, public="special")
_private = partial(rows.single, public="")

# -- the error function and the normal distribution -------------------------------------------

erf = elementwise(
    "erf",
    [lambda _y, x: (2 / math.sqrt(math.pi)) * exp(-(x * x))],
    floating=True,
    sample=reals((-2, 2)),
)
erfc = elementwise(
    "erfc",
    [lambda _y, x: (-2 / math.sqrt(math.pi)) * exp(-(x * x))],
    floating=True,
    sample=reals((-2, 2)),
)
erfcx = single(
    "erfcx",
    [unbounded(lambda y, x: 2 * strong_product(x, y) - 2 / math.sqrt(math.pi))],
    floating=True,
    sample=reals((-2, 3)),
)
erfinv = single(
    "erfinv",
    [unbounded(lambda y, _x: (math.sqrt(math.pi) / 2) * exp(strong_product(y, y)))],
    floating=True,
    sample=samples.within_one,
)
ndtr = single(
    "ndtr",
    [lambda _y, x: (1 / math.sqrt(2 * math.pi)) * exp(-0.5 * x * x)],
    floating=True,
    sample=reals((-2, 2)),
)
log_ndtr = single(
    "log_ndtr",
    # φ(x)/Φ(x), which neither overflows nor cancels in this form.
    [unbounded(lambda _y, x: math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)))],
    floating=True,
    sample=samples.log_normal,
)
ndtri = single(
    "ndtri",
    [unbounded(lambda y, _x: math.sqrt(2 * math.pi) * exp(0.5 * strong_product(y, y)))],
    floating=True,
    sample=samples.probabilities,
)
logit = single(
    "logit",
    [unbounded(times(lambda t, _y, x: t / (x * (1 - x))))],
    floating=True,
    sample=samples.probabilities,
)

# -- entropies --------------------------------------------------------------------------------

xlogy = single(
    "xlogy",
    [unbounded(lambda _y, _x, y: log(y)), unbounded(lambda _y, x, y: strong_quotient(x, y))],
    floating=True,
    sample=samples.entropies,
)
xlog1py = single(
    "xlog1py",
    [
        unbounded(lambda _y, _x, y: log1p(y)),
        unbounded(lambda _y, x, y: strong_quotient(x, 1 + y)),
    ],
    floating=True,
    sample=samples.entropies_near_one,
)
entr = single(
    "entr", [unbounded(lambda _y, x: -1 - log(x))], floating=True, sample=samples.positive
)
rel_entr = single(
    "rel_entr",
    [
        unbounded(lambda _y, x, y: 1 + log(x / y)),
        unbounded(lambda _y, x, y: -strong_quotient(x, y)),
    ],
    floating=True,
    sample=samples.entropies,
)
kl_div = single(
    "kl_div",
    [
        unbounded(lambda _y, x, y: log(x / y)),
        unbounded(lambda _y, x, y: 1 - strong_quotient(x, y)),
    ],
    floating=True,
    sample=samples.entropies,
)

# -- the gamma function; None: no derivative is known in closed form --------------------------

gammaln = scalars_too(
    single(
        "gammaln",
        [unbounded(lambda _y, x: digamma(x))],
        floating=True,
        spell=("lgamma",),
        sample=samples.factorials,
    )
)
digamma = single(
    "digamma",
    [unbounded(lambda _y, x: polygamma(1, x))],
    floating=True,
    spell=("psi",),
    sample=samples.factorials,
)
polygamma = _private(
    "polygamma",
    [None, unbounded(lambda _y, n, x: polygamma(n + 1, x))],
    floating=True,
    sample=samples.polygammas,
)
zeta = single(
    "zeta",
    [None, unbounded(lambda _y, x, q: -x * zeta(x + 1, q))],
    floating=True,
    sample=samples.zetas,
)
gamma = single(
    "gamma",
    [unbounded(lambda y, x: strong_product(y, digamma(x)))],
    floating=True,
    sample=samples.factorials,
)
betaln = scalars_too(
    single(
        "betaln",
        [
            unbounded(lambda _y, a, b: digamma(a) - digamma(a + b)),
            unbounded(lambda _y, a, b: digamma(b) - digamma(a + b)),
        ],
        floating=True,
        sample=samples.betas,
    )
)
beta = single(
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


gammainc = single(
    "gammainc",
    [None, unbounded(lambda _y, a, x: _gamma_density(a, x))],
    floating=True,
    sample=samples.incomplete_gammas,
)
gammaincc = single(
    "gammaincc",
    [None, unbounded(lambda _y, a, x: -_gamma_density(a, x))],
    floating=True,
    sample=samples.incomplete_gammas,
)
betainc = single(
    "betainc",
    [
        None,
        None,
        unbounded(lambda _y, a, b, x: exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b))),
    ],
    floating=True,
    sample=samples.incomplete_betas,
)

# -- Bessel functions -------------------------------------------------------------------------
# Derivatives are combinations of neighbouring orders, not quotients by x: right at 0 as well,
# to any order.

bessel_j = _private(
    "bessel_j",
    [lambda _y, x, n: 0.5 * (bessel_j(x, n - 1) - bessel_j(x, n + 1))],
    promote=(),
    sample=samples.of_order,
)
bessel_i = _private(
    "bessel_i",
    [unbounded(lambda _y, x, n: 0.5 * (bessel_i(x, n - 1) + bessel_i(x, n + 1)))],
    promote=(),
    sample=samples.of_order,
)
bessel_ie = _private(
    "bessel_ie",
    [lambda y, x, n: 0.5 * (bessel_ie(x, n - 1) + bessel_ie(x, n + 1)) - sign(x) * y],
    promote=(),
    sample=samples.of_order,
)
j0 = single("j0", [lambda _y, x: -j1(x)], floating=True, sample=samples.with_zero)
j1 = single(
    "j1", [lambda _y, x: 0.5 * (j0(x) - bessel_j(x, 2))], floating=True, sample=samples.with_zero
)
i0 = single("i0", [unbounded(lambda _y, x: i1(x))], floating=True, sample=samples.with_zero)
i1 = single(
    "i1",
    [unbounded(lambda _y, x: 0.5 * (i0(x) + bessel_i(x, 2)))],
    floating=True,
    sample=samples.with_zero,
)
i0e = single("i0e", [lambda y, x: i1e(x) - sign(x) * y], floating=True, sample=samples.off_zero)
i1e = single(
    "i1e",
    [lambda y, x: 0.5 * (i0e(x) + bessel_ie(x, 2)) - sign(x) * y],
    floating=True,
    sample=samples.off_zero,
)
y0 = single("y0", [unbounded(lambda _y, x: -y1(x))], floating=True, sample=samples.positive)
y1 = single("y1", [unbounded(lambda y, x: y0(x) - y / x)], floating=True, sample=samples.positive)
k0 = single("k0", [unbounded(lambda _y, x: -k1(x))], floating=True, sample=samples.positive)
k1 = single("k1", [unbounded(lambda y, x: -k0(x) - y / x)], floating=True, sample=samples.positive)
k0e = single("k0e", [unbounded(lambda y, x: y - k1e(x))], floating=True, sample=samples.positive)
k1e = single(
    "k1e", [unbounded(lambda y, x: y - k0e(x) - y / x)], floating=True, sample=samples.positive
)
spherical_j = _private(
    "spherical_j",
    [
        lambda _y, x, n: (
            (n * spherical_j(x, n - 1) - (n + 1) * spherical_j(x, n + 1)) / (2 * n + 1)
            if n
            else -spherical_j(x, 1)
        )
    ],
    promote=(),
    sample=samples.of_order,
)
sinc = elementwise(
    "sinc",
    [lambda _y, x: -math.pi * spherical_j(x * math.pi, 1)],
    floating=True,
    sample=samples.with_zero,
)
