"""Rows: truth values, comparisons and bits, none of which has a derivative."""

from ..core.op import Caller
from .batching import pointwise
from .rows import elementwise_shape, row_without_derivative
from .samples import elementwise as samples


def _predicate(name: str, arity: int, sample, **row):
    """A row whose results are booleans."""
    shape = elementwise_shape(name, False, "bool")
    return row_without_derivative(
        name,
        shape=shape,
        arity=arity,
        recast=True,
        public="weft",
        batch=pointwise,
        sample=sample,
        **row,
    )


def _comparison(name: str, sample, doc: str):
    return _predicate(name, 2, sample, promote=(0, 1), cost="light", compares=True, doc=doc)


def _bitwise(name: str, sample, spell: tuple[str, ...] = (), integral: bool = False, **row):
    """A row on the bits of integers or booleans."""
    shape = elementwise_shape(name, False, integral=integral)
    return row_without_derivative(
        name,
        shape=shape,
        arity=2,
        promote=(0, 1),
        integral=integral,
        public="weft",
        spell=spell,
        batch=pointwise,
        sample=sample,
        **row,
    )


equal: Caller = _comparison(
    "equal", samples.equated, doc="Whether x = y.\nequal([1.0, 2.0], 2.0) = [False, True]"
)
not_equal: Caller = _comparison(
    "not_equal", samples.equated, doc="Whether x ≠ y.\nnot_equal([1.0, 2.0], 2.0) = [True, False]"
)
less: Caller = _comparison(
    "less",
    samples.compared,
    doc="Whether x < y.\nless([1.0, 2.0, 3.0], 2.0) = [True, False, False]",
)
less_equal: Caller = _comparison(
    "less_equal",
    samples.compared,
    doc="Whether x ≤ y.\nless_equal([1.0, 2.0, 3.0], 2.0) = [True, True, False]",
)
greater: Caller = _comparison(
    "greater",
    samples.compared,
    doc="Whether x > y.\ngreater([1.0, 2.0, 3.0], 2.0) = [False, False, True]",
)
greater_equal: Caller = _comparison(
    "greater_equal",
    samples.compared,
    doc="Whether x ≥ y.\ngreater_equal([1.0, 2.0, 3.0], 2.0) = [False, True, True]",
)

logical_and: Caller = _predicate(
    "logical_and",
    2,
    samples.truths(2),
    cost="light",
    doc="Whether x and y both differ from 0.\nlogical_and([True, False], True) = [True, False]",
)
logical_or: Caller = _predicate(
    "logical_or",
    2,
    samples.truths(2),
    cost="light",
    doc="Whether x or y differs from 0.\nlogical_or([True, False], False) = [True, False]",
)
logical_xor: Caller = _predicate(
    "logical_xor",
    2,
    samples.truths(2),
    doc="Whether exactly one of x and y differs from 0.\n"
    "logical_xor([True, False], True) = [False, True]",
)
logical_not: Caller = _predicate(
    "logical_not",
    1,
    samples.truths(1),
    cost="light",
    doc="Whether x is 0.\nlogical_not([True, False]) = [False, True]",
)

isnan: Caller = _predicate(
    "isnan", 1, samples.tested, doc='Whether x is NaN.\nisnan([1.0, float("nan")]) = [False, True]'
)
isinf: Caller = _predicate(
    "isinf",
    1,
    samples.tested,
    doc='Whether x is ∞ or −∞.\nisinf([1.0, float("-inf")]) = [False, True]',
)
isfinite: Caller = _predicate(
    "isfinite",
    1,
    samples.tested,
    doc='Whether x is neither infinite nor NaN.\nisfinite([1.0, float("inf")]) = [True, False]',
)
signbit: Caller = _predicate(
    "signbit",
    1,
    samples.tested,
    doc="Whether the sign bit of x is set: negative numbers and −0.\n"
    "signbit([1.0, -0.0]) = [False, True]",
)

bitwise_and: Caller = _bitwise(
    "bitwise_and",
    samples.bits,
    doc="The bits that are set in both x and y.\nbitwise_and([12, 10], 6) = [4, 2]",
)
bitwise_or: Caller = _bitwise(
    "bitwise_or",
    samples.bits,
    doc="The bits that are set in x or y.\nbitwise_or([12, 10], 6) = [14, 14]",
)
bitwise_xor: Caller = _bitwise(
    "bitwise_xor",
    samples.bits,
    doc="The bits that are set in exactly one of x and y.\nbitwise_xor([12, 10], 6) = [10, 12]",
)
bitwise_left_shift: Caller = _bitwise(
    "bitwise_left_shift",
    samples.integers((-8, 8), (0, 8)),
    ("left_shift",),
    integral=True,
    doc="The bits of x moved up by y places: x·2ʸ, as far as the dtype holds it.\n"
    "bitwise_left_shift([1, 3], 2) = [4, 12]",
)
bitwise_right_shift: Caller = _bitwise(
    "bitwise_right_shift",
    samples.integers((-64, 64), (0, 8)),
    ("right_shift",),
    integral=True,
    doc="The bits of x moved down by y places: ⌊x/2ʸ⌋.\nbitwise_right_shift([8, -3], 1) = [4, -2]",
)
bitwise_invert: Caller = row_without_derivative(
    "bitwise_invert",
    shape=elementwise_shape("bitwise_invert", False),
    spell=("bitwise_not", "invert"),
    public="weft",
    batch=pointwise,
    sample=samples.chain(samples.truths(1), samples.integers((-8, 8))),
    doc="Every bit of x inverted: −x − 1 of signed integers, `not x` of booleans.\n"
    "bitwise_invert([0, 5]) = [-1, -6]",
)
