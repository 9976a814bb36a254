"""The registry of backends: which namespace computes on which raw array type."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias
from weakref import ref

from .op import ByRow, Op
from .types import Namespace

SCALARS = (bool, int, float, complex)
PYTHON_SCALARS = frozenset(SCALARS)


class Backends(dict[Any, Namespace]):
    """The namespace for each raw array type; a new type is looked up by the registered finders."""

    def __init__(self):
        self.finders: list[Callable[[type], Any]] = []

    def __missing__(self, cls: type) -> Namespace:
        for finder in self.finders:
            namespace = finder(cls)
            if namespace is not None:
                self[cls] = namespace
                return namespace
        raise KeyError(cls)


BACKENDS = Backends()


# A computation on raw arrays, then static parameters.
Kernel: TypeAlias = Callable[..., Any]
Guard: TypeAlias = Callable[[Op, Kernel], Kernel]
# The wrappers that an array type's kernels are bound through; None: those of every type.
GUARDS: dict[type | None, list[Guard]] = {}


class Kernels(dict[Any, Kernel]):
    """An operation's computation for each raw array type, bound at first use."""

    def __init__(self, op: Op):
        self.op = op

    def __missing__(self, cls: type) -> Kernel:
        xp = BACKENDS[cls]
        compute = self.op.compute
        plain = getattr(xp, self.op.name) if compute is None else partial(compute, xp)
        while True:
            kernel, guards = plain, _guards_of(cls)
            for bound in guards:
                kernel = bound(self.op, kernel)
            self[cls] = kernel
            if guards == _guards_of(cls):  # or another thread changed them and cleared this before
                return kernel


def _guards_of(cls: type) -> tuple[Guard, ...]:
    return (*GUARDS.get(cls, ()), *GUARDS.get(None, ()))


_MADE: dict[int, ref[Kernels]] = {}  # every live one, so that their caches can be cleared


def _kernels_of(op: Op) -> Kernels:
    kernels = Kernels(op)
    _MADE[id(kernels)] = ref(kernels, partial(_MADE.pop, id(kernels)))
    return kernels


KERNELS: dict[Op, Kernels] = ByRow(_kernels_of)


def guard(cls: type | None, bound: Guard) -> None:
    """Bind an array type's kernels through the wrapper `bound` from now on; None: all types'.

    Wrappers of all types are around those of one; besides, a later one is around an earlier one.
    """
    GUARDS.setdefault(cls, []).append(bound)
    bind_again(cls)


def unguard(cls: type | None, bound: Guard) -> None:
    """Bind kernels without a wrapper that `guard` was called with."""
    GUARDS[cls].remove(bound)
    bind_again(cls)


def is_guarded(cls: type) -> bool:
    """Whether kernels of an array type are bound through wrappers, which expect to see them all."""
    return bool(GUARDS.get(cls) or GUARDS.get(None))


def bind_again(cls: type | None) -> None:
    """Look up an array type's kernels anew when they are used; None: all types'."""
    for weak in list(_MADE.values()):
        kernels = weak()
        if kernels is not None:
            for kind in BACKENDS.copy() if cls is None else (cls,):
                kernels.pop(kind, None)
