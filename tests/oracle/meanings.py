"""Functions that PyTorch and Weft both have, called as PyTorch's documentation calls them."""

import warnings
from collections.abc import Iterator

import numpy as np
import torch

import weft as wf

from .database import OPS, samples, takes

MODULES = {
    "": (torch, wf),
    "linalg.": (torch.linalg, wf.linalg),
    "special.": (torch.special, wf.special),
    "fft.": (torch.fft, wf.fft),
    "nn.functional.": (torch.nn.functional, wf.nn.functional),
}


def ours(value):
    """A torch argument as Weft takes it."""
    if isinstance(value, torch.Tensor):
        return wf.asarray(value.detach().resolve_conj().resolve_neg().numpy().copy())
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, list | tuple):
        return type(value)(map(ours, value)) if type(value) in (list, tuple) else value
    return value


def parts(result) -> list:
    """The arrays of a result."""
    if isinstance(result, torch.Tensor):
        return [result.detach().resolve_conj().resolve_neg().numpy()]
    if isinstance(result, wf.Tensor):
        return [result.detach().numpy()]
    if isinstance(result, list | tuple):
        return [p for r in result for p in parts(r)]
    return [np.asarray(result)]


def alike(a: list, b: list) -> bool:
    """Whether two results have the same shapes and values; dtypes follow each library's rules."""
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape:
            return False
        if x.size and not np.allclose(x, y, rtol=1e-6, atol=1e-8, equal_nan=True):
            return False
    return True


def shared() -> Iterator[tuple[str, str]]:
    """(name, form) of ops with samples whose name Weft has too, as a function or a method."""
    for name in sorted({n.partition("/")[0] for n in OPS}):
        module = max((m for m in MODULES if name.startswith(m)), key=len)
        bare = name.removeprefix(module)
        theirs, mine = MODULES[module]
        if callable(getattr(theirs, bare, None)) and callable(getattr(mine, bare, None)):
            yield name, "function"
        if not module and hasattr(torch.Tensor, bare) and callable(getattr(wf.Tensor, bare, None)):
            yield name, "method"


def callables(name: str, form: str):
    module = max((m for m in MODULES if name.startswith(m)), key=len)
    bare = name.removeprefix(module)
    theirs, mine = MODULES[module]
    if form == "method":
        return getattr(torch.Tensor, bare), getattr(wf.Tensor, bare)
    return getattr(theirs, bare), getattr(mine, bare)


def differences(name: str, form: str, limit: int) -> list[str]:
    """The calls of a function that give something else without an error, in words."""
    theirs, mine = callables(name, form)
    found = []
    for variant in [n for n in OPS if n.partition("/")[0] == name]:
        if not takes(variant, "float64"):
            continue
        for s in samples(variant, "float64")[:limit]:
            args, kwargs = (s.input, *s.args), s.kwargs
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    right = parts(theirs(*args, **kwargs))
                    given = [ours(a) for a in args], {k: ours(v) for k, v in kwargs.items()}
                except Exception:
                    continue
                try:
                    result = parts(mine(*given[0], **given[1]))
                except Exception:
                    continue
            if not alike(result, right):
                found.append(f"{name}{_written(args, kwargs)}")
    return found


def _written(args, kwargs) -> str:
    def one(v):
        return f"tensor{tuple(v.shape)}" if isinstance(v, torch.Tensor) else repr(v)[:40]

    words = [one(a) for a in args] + [f"{k}={one(v)}" for k, v in kwargs.items()]
    return f"({', '.join(words)})"
