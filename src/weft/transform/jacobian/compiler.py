"""The compiler as transformations use it: a function that the package's assembly installs here."""

from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")

_installed: list[Callable[..., Any]] = []


def install(compile: Callable[..., Any]) -> None:
    """Use this compiler from now on: a function to a compiled function."""
    _installed[:] = [compile]


def is_installed() -> bool:
    """Whether there is a compiler."""
    return bool(_installed)


def compile_later(f: Callable[..., R]) -> Callable[..., R]:
    """f as a compiled function; it is compiled at its first call."""
    return _installed[0](f)


def compile_if_compiled(
    f: Callable[..., Any], derivative: Callable[..., Any]
) -> Callable[..., Any]:
    """A derivative of f: compiled if f is, with the same options; else unchanged."""
    alike = getattr(type(f), "alike", None)  # on the type: a bound method has its function's
    return derivative if alike is None else alike(f, derivative)
