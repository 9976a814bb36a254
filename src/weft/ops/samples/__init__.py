"""Inputs for the tests that are generated from the table; what draws them is loaded by then."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any


def _later(module: str, name: str) -> Callable[[Any], Any]:
    """A sampler by its name in a module, which is loaded when it draws."""
    return lambda rng: getattr(import_module(f"{__name__}.{module}"), name)(rng)


combine = partial(_later, "combine")
convolve = partial(_later, "convolve")
draws = partial(_later, "draws")
index = partial(_later, "index")
linalg = partial(_later, "linalg")
neural = partial(_later, "neural")
order = partial(_later, "order")
reduce = partial(_later, "reduce")
special = partial(_later, "special")
spectra = partial(_later, "spectra")
structural = partial(_later, "structural")
