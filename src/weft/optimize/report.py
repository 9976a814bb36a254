"""What SciPy reports, brought back into the form of the start value."""

from collections.abc import Callable
from inspect import signature
from typing import Any

from .flat import FlatTree


def result_of(flat: FlatTree, found: Any) -> Any:
    """SciPy's result with `x` in the form of the start."""
    found.x = flat.result(found.x)
    return found


def callback_of(flat: FlatTree, callback: Callable[..., Any] | None) -> Callable[..., Any] | None:
    """A callback with the signature that SciPy looks for, which gets x in the form of the start."""
    if callback is None:
        return None
    if set(signature(callback).parameters) == {"intermediate_result"}:

        def with_result(intermediate_result):
            copied = type(intermediate_result)(intermediate_result)
            return callback(intermediate_result=result_of(flat, copied))

        return with_result

    def with_x(x, *rest):
        return callback(flat.result(x), *rest)

    return with_x
