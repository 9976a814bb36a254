"""Inputs for the tests that are generated from the table; what draws them is loaded by then."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any


def _later(module: str, name: str) -> Callable[[Any], Any]:
    """A sampler by its name in a module, which is loaded when it draws."""
    return lambda rng: getattr(import_module(f"{__name__}.{module}"), name)(rng)


Later = Callable[[str], Callable[[Any], Any]]

collective: Later = partial(_later, "collective")
combine: Later = partial(_later, "combine")
convolve: Later = partial(_later, "convolve")
draws: Later = partial(_later, "draws")
index: Later = partial(_later, "index")
linalg: Later = partial(_later, "linalg")
neural: Later = partial(_later, "neural")
order: Later = partial(_later, "order")
reduce: Later = partial(_later, "reduce")
special: Later = partial(_later, "special")
spectra: Later = partial(_later, "spectra")
structural: Later = partial(_later, "structural")
