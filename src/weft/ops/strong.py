"""Rows: products and quotients in which a zero wins over infinities and NaN."""

import math

from ..core.backends import PYTHON_SCALARS
from ..core.op import Caller
from ..core.types import Array
from .rows import mark_unbounded, private, times
from .samples import elementwise as samples


def over(t: Array, b: Array) -> Array:
    """t/b; Python's own scalars refuse to be divided by zero."""
    return t * math.inf if b.__class__ in PYTHON_SCALARS and b == 0 else t / b


# g·d with an exact zero wherever either is zero. A product that is zero in g has the derivative
# zero by d, however infinite d may be.
strong_product: Caller = private(
    "strong_product",
    [mark_unbounded(lambda y, g, d: d), mark_unbounded(lambda y, g, d: g)],
    reads=("d", "g"),
    cost="light",
    sample=samples.products,
)

# a/b with an exact zero wherever a is zero.
strong_quotient: Caller = private(
    "strong_quotient",
    [
        mark_unbounded(times(lambda t, y, a, b: over(t, b))),
        mark_unbounded(lambda y, a, b: -strong_quotient(y, b)),
    ],
    reads=("b", "y b"),
    floating=True,
    sample=samples.quotients,
)
