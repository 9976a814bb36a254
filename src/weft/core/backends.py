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


class Kernels(dict):
    """An operation's computation for each raw array type, bound at first use."""

    def __init__(self, op: Op):
        self.op = op

    def __missing__(self, cls: type):
        xp = BACKENDS[cls]
        compute = self.op.compute
        kernel = getattr(xp, self.op.name) if compute is None else partial(compute, xp)
        self[cls] = kernel
        return kernel


class _KernelTable(dict):
    def __missing__(self, op: Op) -> Kernels:
        self[op] = kernels = Kernels(op)
        return kernels


KERNELS: dict[Op, Kernels] = _KernelTable()
