"""Inputs for the tests that are generated from the table; what draws them is loaded by then."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


class _Later:
    """A module of samplers, which is loaded when one of them is called."""

    def __init__(self, name: str):
        self._path = f"{__name__}.{name}"

    def __getattr__(self, sampler: str) -> Callable[..., Any]:
        if sampler.startswith("_"):
            raise AttributeError(sampler)
        return lambda rng: getattr(import_module(self._path), sampler)(rng)


combine, convolve, draws, index, linalg = map(
    _Later, ("combine", "convolve", "draws", "index", "linalg")
)
neural, order, reduce, special, spectra, structural = map(
    _Later, ("neural", "order", "reduce", "special", "spectra", "structural")
)
