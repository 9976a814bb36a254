"""The einops backend for tensors, registered when einops is imported."""

import sys
from importlib.machinery import PathFinder

from ..core import dtypes
from ..core.value import TENSORS
from . import linalg, make, manipulation, reductions

_MODULE = "einops._backends"
_NAMES = ("sum", "mean", "max", "min", "prod", "any", "all")
_REDUCTIONS = {n: getattr(reductions, n) for n in _NAMES}


class _Operations:
    """The operations that einops needs; its base class has the rest."""

    framework_name = "weft"

    def is_appropriate_type(self, tensor) -> bool:
        return type(tensor) in TENSORS

    def from_numpy(self, x):
        return make.asarray(x)

    def to_numpy(self, x):
        return x.numpy()

    def arange(self, start, stop):
        return make.arange(start, stop)

    def shape(self, x) -> tuple[int, ...]:
        return x.shape

    def reshape(self, x, shape):
        return manipulation.reshape(x, tuple(shape))

    def transpose(self, x, axes):
        return manipulation.permute_dims(x, tuple(axes))

    def reduce(self, x, operation: str, axes):
        return _REDUCTIONS[operation](x, axis=tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: list):
        return manipulation.stack(tensors)

    def add_axis(self, x, new_position: int):
        return manipulation.expand_dims(x, axis=new_position)

    def tile(self, x, repeats):
        return manipulation.tile(x, tuple(repeats))

    def concat(self, tensors, axis: int):
        return manipulation.concat(tensors, axis=axis)

    def is_float_type(self, x) -> bool:
        return dtypes.is_inexact(x.dtype)

    def einsum(self, pattern, *x):
        return linalg.einsum(pattern, *x)


def _register(backends) -> None:
    """Register our backend with einops, which finds subclasses and holds them weakly."""
    backends.WeftBackend = type("WeftBackend", (_Operations, backends.AbstractBackend), {})


class _Waiting:
    """An import hook that registers the backend right after einops' module has run."""

    def find_spec(self, name, path, target=None):
        if name != _MODULE:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_register(module):
                run(module)
                _register(module)

            spec.loader.exec_module = run_and_register  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Tell einops of tensors, now or when it is loaded, which this does not do."""
    if _MODULE in sys.modules:
        _register(sys.modules[_MODULE])
    else:
        sys.meta_path.insert(0, _Waiting())
