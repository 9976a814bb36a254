"""Rows: truth values, comparisons and bits, none of which has a derivative."""

from ..core.op import Caller
from .batching import pointwise
from .rows import elementwise_shape, undifferentiated
from .samples import elementwise as samples


def _predicate(name: str, arity: int, sample, **row):
    """A row whose results are booleans."""
    shape = elementwise_shape(name, False, "bool")
    return undifferentiated(
        name,
        shape=shape,
        arity=arity,
        recast=True,
        public="weft",
        batch=pointwise,
        sample=sample,
        **row,
    )


def _comparison(name: str, sample):
    return _predicate(name, 2, sample, promote=(0, 1), cost="light", compares=True)


def _bitwise(name: str, sample, spell: tuple[str, ...] = (), integral: bool = False):
    """A row on the bits of integers or booleans."""
    shape = elementwise_shape(name, False, integral=integral)
    return undifferentiated(
        name,
        shape=shape,
        arity=2,
        promote=(0, 1),
        integral=integral,
        public="weft",
        spell=spell,
        batch=pointwise,
        sample=sample,
    )


equal: Caller = _comparison("equal", samples.equated)
not_equal: Caller = _comparison("not_equal", samples.equated)
less: Caller = _comparison("less", samples.compared)
less_equal: Caller = _comparison("less_equal", samples.compared)
greater: Caller = _comparison("greater", samples.compared)
greater_equal: Caller = _comparison("greater_equal", samples.compared)

logical_and: Caller = _predicate("logical_and", 2, samples.truths(2), cost="light")
logical_or: Caller = _predicate("logical_or", 2, samples.truths(2), cost="light")
logical_xor: Caller = _predicate("logical_xor", 2, samples.truths(2))
logical_not: Caller = _predicate("logical_not", 1, samples.truths(1), cost="light")

isnan: Caller = _predicate("isnan", 1, samples.tested)
isinf: Caller = _predicate("isinf", 1, samples.tested)
isfinite: Caller = _predicate("isfinite", 1, samples.tested)
signbit: Caller = _predicate("signbit", 1, samples.tested)

bitwise_and: Caller = _bitwise("bitwise_and", samples.bits)
bitwise_or: Caller = _bitwise("bitwise_or", samples.bits)
bitwise_xor: Caller = _bitwise("bitwise_xor", samples.bits)
bitwise_left_shift: Caller = _bitwise(
    "bitwise_left_shift", samples.integers((-8, 8), (0, 8)), ("left_shift",), integral=True
)
bitwise_right_shift: Caller = _bitwise(
    "bitwise_right_shift", samples.integers((-64, 64), (0, 8)), ("right_shift",), integral=True
)
bitwise_invert: Caller = undifferentiated(
    "bitwise_invert",
    shape=elementwise_shape("bitwise_invert", False),
    spell=("bitwise_not", "invert"),
    public="weft",
    batch=pointwise,
    sample=samples.drawn(samples.truths(1), samples.integers((-8, 8))),
)
