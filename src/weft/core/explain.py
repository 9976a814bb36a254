"""Explaining failures: the shape rule's error for a call that a backend's kernel refused."""

import re
from collections.abc import Sequence
from typing import Any

from numpy.linalg import LinAlgError

from .. import errors
from .backends import BACKENDS, PYTHON_SCALARS
from .op import Op
from .origin import here
from .types import Array, Static
from .value import TENSORS, aval_of


def infer(op: Op, args: Sequence[Array], static: Static) -> Any:
    """The result's aval by the row's shape rule, which also validates the call."""
    avals = [aval_of(a) for a in args]
    return op.call(op.shape, avals, static)


def explain_error(op: Op, args: Sequence[Array], static: Static, cause: Exception) -> Exception:
    """The error to raise for a failed computation: the shape rule's, if it finds a fault."""
    if isinstance(cause, errors.WeftError):
        return cause
    for a in args:
        if type(a) not in TENSORS and type(a) not in PYTHON_SCALARS and type(a) not in BACKENDS:
            got = type(a).__name__
            return errors.DTypeError(f"{op.name}: got {got}, expected a tensor or a number")
    try:
        infer(op, args, static)
    except errors.WeftError as found:
        return found
    if isinstance(cause, LinAlgError):
        return errors.LinAlgError(str(cause))
    if isinstance(cause, ValueError | OverflowError) or _IMPOSSIBLE.search(str(cause)):
        return errors.ArgumentError(f"{op.name}: {cause}")
    if isinstance(cause, TypeError | RuntimeError) and _REFUSED.search(str(cause)):
        got = ", ".join(
            type(a).__name__ if type(a) in PYTHON_SCALARS else str(aval_of(a).dtype) for a in args
        )
        return errors.DTypeError(f"{op.name}: not defined for {got}; cast with .to() ({cause})")
    cause.add_note(f"in {op.name}, called at {here()}")
    return cause


def explain_at_level(op: Op, args: Sequence[Array], static: Static, cause: Exception) -> Exception:
    """`explain_error` for boxes, with the shapes at their level: below there may be more axes."""
    if isinstance(cause, errors.ShapeError | errors.AxisError):
        try:
            infer(op, args, static)
        except errors.WeftError as found:
            return found
    return explain_error(op, args, static, cause)


# The messages of NumPy, SciPy and PyTorch for dtypes that a kernel does not take.
_REFUSED = re.compile(
    "not supported|not implemented|only implemented|scalar type|dtype|must be|be interpreted"
)
# PyTorch's messages for impossible values, where NumPy raises a ValueError.
_IMPOSSIBLE = re.compile("^ZeroDivisionError|negative integer powers|without overflow")


def unknown_shape(op: Op) -> str:
    """The start of the errors for an operation whose result has no known shape."""
    name = "x[mask]" if op.name == "flatnonzero" else op.name  # only masks in keys come to it
    return f"{name}: the shape of the result depends on the values"
