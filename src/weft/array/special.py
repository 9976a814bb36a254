"""Public special functions: `wf.special`, under SciPy's names."""

from .. import errors
from ..core.aval import integer_in
from ..core.op import TABLE
from ..ops import special as _special
from .arguments import boxed
from .elementwise import public as _public
from .reductions import log_softmax, logsumexp, softmax

_ROWS = """
    beta betainc betaln digamma entr erf erfc erfcx erfinv expit gamma gammainc gammaincc gammaln
    i0 i0e i1 i1e j0 j1 k0 k0e k1 k1e kl_div log_ndtr logit ndtr ndtri rel_entr sinc
    xlog1py xlogy y0 y1 zeta
""".split()

FUNCTIONS = {name: _public(TABLE[name]) for name in _ROWS}
globals().update(FUNCTIONS)
psi = FUNCTIONS["digamma"]
lgamma = FUNCTIONS["gammaln"]


def polygamma(n, x, /):
    """The n-th derivative of `digamma`; n is a nonnegative integer."""
    n = integer_in("polygamma", "n", n)
    if n < 0:
        raise errors.ArgumentError(f"polygamma: order {n}, expected 0 or more")
    return _special.polygamma(n, boxed(x))


__all__ = [*_ROWS, "lgamma", "log_softmax", "logsumexp", "polygamma", "psi", "softmax"]
