"""Sums and products; where modules have "contract", a product and a sum are rounded once."""

from .arithmetic import fma, size
from .code import LLValue
from .intervals import excludes_zero

_Factors = tuple[LLValue, LLValue] | tuple[()]


def _contracts(x: LLValue) -> bool:
    return x.type.is_float and "contract" in x.code.module.features


def negative(x: LLValue) -> LLValue:
    y = -x
    if _contracts(x):
        x.code.memo["negative", y.name] = x
    return y


def multiply(a: LLValue, b: LLValue) -> LLValue:
    """a·b; signs are taken out, so that x·x and −x·x are one product."""
    if not _contracts(a):
        return a.contractible("mul", b)
    memo = a.code.memo
    plain = [memo.get(("negative", x.name), x) for x in (a, b)]
    y = plain[0].contractible("mul", plain[1])
    if (plain[0] is a) != (plain[1] is b):
        y = -y
    memo["product", y.name] = a, b
    return y


def round_product(y: LLValue) -> None:
    """Let sums take a value as it is.

    Of p = x·y that has other readers, too, p − ⌊p⌋ must not be negative.
    """
    y.code.memo.pop(("product", y.name), None)


def add(a: LLValue, b: LLValue) -> LLValue:
    left, right = _factors(a, b)
    if left:
        return fma(*left, b)
    return fma(*right, a) if right else a + b


def subtract(a: LLValue, b: LLValue) -> LLValue:
    left, right = _factors(a, b)
    if left:
        return fma(*left, -b)
    return fma(-right[0], right[1], a) if right else a - b


def _factors(a: LLValue, b: LLValue) -> tuple[_Factors, _Factors]:
    """The factors of a term that need not be rounded, of the left or of the right one.

    Two products are both rounded, else x·y − y·x would not be zero, unless one is of the other: of
    x − x·t·t none of the symmetry is lost.
    """
    memo = a.code.memo
    left, right = memo.get(("product", a.name), ()), memo.get(("product", b.name), ())
    if left and right:
        return (left if _is_within(b, left) else ()), (right if _is_within(a, right) else ())
    return left, right


def _is_within(x: LLValue, factors: _Factors) -> bool:
    """Whether x is one of some factors, or one of theirs."""
    memo = x.code.memo
    deeper = [memo.get(("product", f.name), ()) for f in factors]
    return any([f.name == x.name for part in (factors, *deeper) for f in part])


def strong_product(g: LLValue, d: LLValue) -> LLValue:
    """g·d, and zero where either factor is zero."""
    none = g.same(0.0)
    if g.code.doubts is not None:  # a sum with 0 is no −0; products of 0 are NaN or 0
        product = fma(g, d, 0.0)
        g.code.doubts.append(product.is_nan())
        return product
    if _contracts(g):
        return _smaller_factor(g, d).compare("ne", 0.0).choose(g * d, none)
    product = d.compare("ne", 0.0).choose(g * d, none)
    return g.compare("ne", 0.0).choose(product, none)


def _smaller_factor(a: LLValue, b: LLValue) -> LLValue:
    """A number that is zero where either factor is; where both are NaN, it is NaN."""
    if excludes_zero(a):
        return b
    return a if excludes_zero(b) else size(a).intrinsic("minnum", size(b))
