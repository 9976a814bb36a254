"""The compiler as transformations use it: a function that whoever joins the layers puts here."""

from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")

_installed: list[Callable[..., Any]] = []


def install(compile: Callable[..., Any]) -> None:
    """Use this compiler from now on: it takes a function, and gives a compiled one."""
    _installed[:] = [compile]


def is_installed() -> bool:
    """Whether there is a compiler."""
    return bool(_installed)


def compile_later(f: Callable[..., R]) -> Callable[..., R]:
    """A function in native code, made when it is first called."""
    return _installed[0](f)


def following(f: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
    """A derivative of f in native code, if f was compiled: whoever did that promised it can be."""
    alike = getattr(type(f), "alike", None)  # a bound method has its object before its arguments
    return derivative if alike is None else alike(f, derivative)
