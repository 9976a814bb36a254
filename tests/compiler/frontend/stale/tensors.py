"""What can be read of a tensor beside its values, and tensors that differ in it."""

import functools
from collections.abc import Callable
from typing import Any

import weft as wf


def leaf(gradient: float | None, device: str) -> Any:
    p = wf.Parameter(wf.tensor(1.0, device=device))
    p.grad = None if gradient is None else wf.tensor(gradient, device=device)
    return p


def retaining(slope: float, device: str) -> Any:
    """A computed tensor that keeps its gradient."""
    t = wf.tensor(2.0, requires_grad=True, device=device) * 1.0
    t.retain_grad()
    (t * slope).backward()
    return t


@functools.cache
def kept(device: str) -> tuple[Any, Any]:
    """Two tensors that stay alive: their identities differ."""
    return wf.zeros(2, device=device), wf.zeros(2, device=device)


# The tensor before and after, and what is read of it.
FACETS: dict[str, tuple[Callable[[str], Any], Callable[[str], Any], Callable[[Any], Any]]] = {
    "grad": (lambda d: leaf(1.0, d), lambda d: leaf(3.0, d), lambda t: t.grad),
    "grad is None": (
        lambda d: leaf(1.0, d),
        lambda d: leaf(None, d),
        lambda t: 2.0 if t.grad is None else 3.0,
    ),
    "a computed tensor's grad": (
        lambda d: retaining(3.0, d),
        lambda d: retaining(7.0, d),
        lambda t: t.grad,
    ),
    "requires_grad": (
        lambda d: wf.tensor(1.0, device=d),
        lambda d: wf.tensor(1.0, requires_grad=True, device=d),
        lambda t: 2.0 if t.requires_grad else 3.0,
    ),
    "is_leaf": (
        lambda d: wf.tensor(1.0, requires_grad=True, device=d),
        lambda d: wf.tensor(1.0, requires_grad=True, device=d) * 2.0,
        lambda t: 2.0 if t.is_leaf else 3.0,
    ),
    "dtype": (
        lambda d: wf.zeros(2, dtype=wf.float32, device=d),
        lambda d: wf.zeros(2, dtype=wf.float64, device=d),
        lambda t: t.dtype.itemsize,
    ),
    "shape": (
        lambda d: wf.zeros((2, 3), device=d),
        lambda d: wf.zeros((3, 2), device=d),
        lambda t: t.shape[0],
    ),
    "size": (lambda d: wf.zeros(2, device=d), lambda d: wf.zeros(3, device=d), lambda t: t.size),
    "nbytes": (
        lambda d: wf.zeros(2, device=d),
        lambda d: wf.zeros(3, device=d),
        lambda t: t.nbytes,
    ),
    "class": (
        lambda d: wf.tensor(1.0, device=d),
        lambda d: wf.Parameter(wf.tensor(1.0, device=d)),
        lambda t: 2.0 if isinstance(t, wf.Parameter) else 3.0,
    ),
    "id": (
        lambda d: kept(d)[0],
        lambda d: kept(d)[1],
        lambda t: t.id % 1009,
    ),
}
