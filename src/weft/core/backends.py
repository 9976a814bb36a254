"""The registry of backends: which namespace computes on which raw array type."""

from collections.abc import Callable
from functools import partial
from typing import Any

from .op import Op

SCALARS = (bool, int, float, complex)
PYTHON_SCALARS = frozenset(SCALARS)


class Backends(dict):
    """The namespace for each raw array type; asks the registered finders about new types."""

    def __init__(self):
        self.finders: list[Callable[[type], Any]] = []

    def __missing__(self, cls: type):
        for finder in self.finders:
            namespace = finder(cls)
            if namespace is not None:
                self[cls] = namespace
                return namespace
        raise KeyError(cls)


BACKENDS = Backends()


# For an array type, (op, kernel) -> kernel: what its kernels are bound through.
GUARDS: dict[type, Callable[[Op, Callable], Callable]] = {}


class Kernels(dict):
    """An operation's computation for each raw array type, bound at first use."""

    def __init__(self, op: Op):
        self.op = op

    def __missing__(self, cls: type):
        xp = BACKENDS[cls]
        compute = self.op.compute
        kernel = getattr(xp, self.op.name) if compute is None else partial(compute, xp)
        guarded = GUARDS.get(cls)
        self[cls] = kernel = kernel if guarded is None else guarded(self.op, kernel)
        return kernel


class _KernelTable(dict):
    def __missing__(self, op: Op) -> Kernels:
        self[op] = kernels = Kernels(op)
        return kernels


KERNELS: dict[Op, Kernels] = _KernelTable()


def guard(cls: type, bound: Callable[[Op, Callable], Callable] | None) -> None:
    """Bind an array type's kernels through `bound` from now on; None: as they are."""
    if bound is None:
        GUARDS.pop(cls, None)
    else:
        GUARDS[cls] = bound
    for kernels in list(KERNELS.values()):
        kernels.pop(cls, None)
