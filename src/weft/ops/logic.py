"""Rows: truth values, comparisons and bits, none of which has a derivative."""

from ..core.op import Caller
from .batching import pointwise
from .rows import elementwise_shape, undifferentiated
from .samples import elementwise as samples


def _predicate(name: str, arity: int, sample, promote: tuple[int, ...] = ()):
    """A row whose results are booleans."""
    shape = elementwise_shape(name, False, "bool")
    return undifferentiated(
        name,
        shape=shape,
        arity=arity,
        promote=promote,
        recast=True,
        batch=pointwise,
        sample=sample,
    )


def _bitwise(name: str, sample, spell: tuple[str, ...] = (), integral: bool = False):
    """A row on the bits of integers or booleans."""
    shape = elementwise_shape(name, False, integral=integral)
    return undifferentiated(
        name,
        shape=shape,
        arity=2,
        promote=(0, 1),
        integral=integral,
        spell=spell,
        batch=pointwise,
        sample=sample,
    )


equal: Caller = _predicate("equal", 2, samples.equated, (0, 1))
not_equal: Caller = _predicate("not_equal", 2, samples.equated, (0, 1))
less: Caller = _predicate("less", 2, samples.compared, (0, 1))
less_equal: Caller = _predicate("less_equal", 2, samples.compared, (0, 1))
greater: Caller = _predicate("greater", 2, samples.compared, (0, 1))
greater_equal: Caller = _predicate("greater_equal", 2, samples.compared, (0, 1))

logical_and: Caller = _predicate("logical_and", 2, samples.truths(2))
logical_or: Caller = _predicate("logical_or", 2, samples.truths(2))
logical_xor: Caller = _predicate("logical_xor", 2, samples.truths(2))
logical_not: Caller = _predicate("logical_not", 1, samples.truths(1))

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
    batch=pointwise,
    sample=samples.drawn(samples.truths(1), samples.integers((-8, 8))),
)
