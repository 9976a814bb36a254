"""From rows of the table to instructions: the emitter for a row and its operands' dtypes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.op import TABLE, Op
from ...core.record import record
from ...errors import WeftError
from . import half_units, units
from .code import Code, LLValue
from .convert import SUPPORTED, cast, is_float, is_signed, register_type, round_to_half
from .integers import BOOLEAN
from .integers import EMITTERS as INTEGER
from .intervals import note_bounds
from .reals import EMITTERS as REAL


class NotSupported(WeftError, NotImplementedError):
    """Raised for a row or dtype that kernels do not compute: the backend's own kernel runs."""


@record
class TypedValue:
    """A value in registers and its dtype."""

    value: LLValue
    dtype: np.dtype


Operand = TypedValue | Any  # a value in registers, or a Python scalar
Static = tuple[Any, ...]  # a row's parameters


def _truth(x: TypedValue) -> LLValue:
    return cast(x.value, x.dtype, dtypes.bool_)


def _where(numbers: Sequence[TypedValue], static: Static, dtype: np.dtype) -> LLValue:
    condition, a, b = numbers
    a, b = (cast(n.value, n.dtype, dtype) for n in (a, b))
    return _truth(condition).choose(a, b)


def _mask(numbers: Sequence[TypedValue], static: Static, dtype: np.dtype) -> LLValue:
    """x·mask, times the scale if there is one."""
    x, mask = numbers
    if not is_float(dtype):
        return _truth(mask).choose(x.value, LLValue(x.value.code, x.value.type, "zeroinitializer"))
    y = x.value * _truth(mask).choose(x.value.same(1.0), x.value.same(0.0))
    return round_to_half(y * static[0], dtype) if static else y


def _pass(numbers: Sequence[TypedValue], static: Static, dtype: np.dtype) -> LLValue:
    return cast(numbers[0].value, numbers[0].dtype, dtype)


def _logical(combine: Callable[..., LLValue]) -> Callable[..., LLValue]:
    return lambda numbers, static, dtype: combine(*map(_truth, numbers))


# Rows whose operands have different dtypes: (numbers, static, dtype) → value.
MIXED: dict[str, Callable[..., LLValue]] = {
    "where": _where,
    "gate": _mask,
    "masked_scale": _mask,
    "logical_and": _logical(lambda a, b: a & b),
    "logical_or": _logical(lambda a, b: a | b),
    "logical_xor": _logical(lambda a, b: a ^ b),
    "logical_not": _logical(lambda a: ~a),
    **dict.fromkeys(("cast", "alias", "copy", "detach", "conj", "real"), _pass),
}
# Predicates of integers, which are all finite.
_FINITE = {"isnan": False, "isinf": False, "isfinite": True}

# Elementwise rows that no kernel computes, each with the reason.
WITHOUT: dict[str, str] = {
    "complex_": "its results are complex",
    "imag": "of real numbers it is zeros, which is no computation",
    "transfer": "it moves arrays between devices",
    "polygamma": "SciPy has no C function of it",
    "zeta": "SciPy has no C function of it with two arguments",
    "spherical_j": "SciPy's C function wants an integer order of another type",
    "bessel_j": "SciPy's C function wants its order first, and integer orders are recurrences",
    "bessel_i": "as bessel_j",
    "bessel_ie": "as bessel_j",
    "one_hot": "its result has another shape than its operand",
    "ravel_index": "it has any number of operands",
    "extreme_share": "it compares an array with its own reduction: a composite of equal and where",
}


def check_dtypes(found: Sequence[np.dtype]) -> None:
    """Raise `NotSupported` for a dtype that kernels cannot represent."""
    for d in found:
        if d not in SUPPORTED:
            raise NotSupported(
                f"kernels do not compute {d} yet; expected one of {dtypes.names(SUPPORTED)}"
            )


def has_emitter(row: str) -> bool:
    """Whether kernels compute a row, for some dtypes at least."""
    return row in REAL or row in INTEGER or row in MIXED


def emit(
    code: Code, row: str, operands: Sequence[Operand], static: Static, dtype: np.dtype
) -> LLValue:
    """Emit a row of numbers and Python scalars, in the lanes of the numbers."""
    op = TABLE[row]
    lanes = next((n.value.type.lanes for n in operands if isinstance(n, TypedValue)), 1)
    if not has_emitter(row):
        raise NotSupported(f"{row}: kernels do not compute it: {WITHOUT.get(row, 'no emitter')}")
    if row in MIXED:
        own = [n.dtype if isinstance(n, TypedValue) else dtype for n in operands]
        if row == "where":
            own[0] = own[0] if isinstance(operands[0], TypedValue) else dtypes.bool_
        numbers = [_number(code, n, d, lanes) for n, d in zip(operands, own, strict=True)]
        return MIXED[row](numbers, static, dtype)
    working = working_dtype(op, operands, dtype)
    values = [_number(code, n, working, lanes).value for n in operands]
    y = _compute(row, values, static, working)
    made = dtypes.bool_ if y.type.element == "i1" else working
    y = round_to_half(y, dtype) if made == dtype else cast(y, made, dtype)
    if not static:
        note_bounds(row, [n.value if isinstance(n, TypedValue) else n for n in operands], y)
    return y


def why_unsupported(row: str, static: Static, working: np.dtype) -> str:
    """Why kernels do not compute a row in a dtype; empty if they do."""
    if row in _FINITE and not is_float(working):
        return ""
    if row not in _table(working) or (row == "nextafter" and working in dtypes.HALF):
        return f"kernels do not compute it for {working}"
    if row == "power_scalar" and not is_float(working) and not _is_count(static[0]):
        return f"the power is {static[0]!r}"
    return ""


def _is_count(n: Any) -> bool:
    return type(n) is int and n >= 0


def _table(working: np.dtype) -> dict[str, Callable[..., LLValue]]:
    return REAL if is_float(working) else BOOLEAN if working == dtypes.bool_ else INTEGER


def _compute(row: str, values: list[LLValue], static: Static, working: np.dtype) -> LLValue:
    reason = why_unsupported(row, static, working)
    if reason:
        raise NotSupported(f"{row}: {reason}")
    if working in dtypes.HALF and row in half_units.EMITTERS and units.available(values[0]):
        return half_units.EMITTERS[row](values[0], working)
    if is_float(working):
        return REAL[row](*values, *static)
    if row in _FINITE:
        return values[0].code.constant(values[0].type.of("i1"), _FINITE[row])
    return _table(working)[row](*values, is_signed(working), *static)


def _number(code: Code, operand: Operand, dtype: np.dtype, lanes: int) -> TypedValue:
    """An operand cast to a dtype; a Python scalar is broadcast."""
    if isinstance(operand, TypedValue):
        return TypedValue(cast(operand.value, operand.dtype, dtype), dtype)
    if dtype in dtypes.HALF:
        operand = float(np.asarray(operand).astype(dtype))
    return TypedValue(code.constant(register_type(dtype, lanes), operand), dtype)


def working_dtype(op: Op, operands: Sequence[Operand], dtype: np.dtype) -> np.dtype:
    """The dtype to which a row's operands are promoted."""
    numbers = [n.dtype for n in operands if isinstance(n, TypedValue)]
    if not op.recast and op.promote != ():
        return dtype
    working = dtypes.promote_all(numbers) if numbers else dtype
    for n in operands:
        if not isinstance(n, TypedValue):
            working = dtypes.with_scalar(working, n)
    if op.floating and not dtypes.is_inexact(working):
        return dtypes.default_float()
    return working
