"""Functions with their gradients, compiled, in eager mode and by PyTorch."""

import numpy as np
import torch

import weft as wf
from weft.compiler.ir.schedule import LibraryStep, Schedule

RNG = np.random.default_rng(0)


def draw(*shape, dtype=np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def schedule_of(f) -> Schedule:
    """The schedule of the latest program of a compiled function."""
    return f._last().executable.schedule


def library_calls(f) -> list[tuple[str, str]]:
    """The library calls of the latest program, with their reasons."""
    steps = schedule_of(f).steps
    return [(s.op.name, s.reason) for s in steps if isinstance(s, LibraryStep)]


def pulled(f):
    """The function from a cotangent and arguments to f's value and gradients."""

    def both(g, *arrays):
        y, pull = wf.vjp(f, *arrays)
        return y, *pull(g)

    return both


def ours(f, *arrays) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """A function's results, compiled without a library call and in eager mode."""
    compiled, tensors = wf.compile(f), [*map(wf.tensor, arrays)]
    found = [y.numpy() for y in compiled(*tensors)]
    assert library_calls(compiled) == []
    return found, [y.numpy() for y in f(*tensors)]


def theirs(f, g: np.ndarray, *arrays) -> list[np.ndarray]:
    """PyTorch's value and gradients, in float64."""
    leaves = [torch.tensor(a.astype(np.float64), requires_grad=True) for a in arrays]
    y = f(*leaves)
    y.backward(torch.tensor(g.astype(np.float64)))
    return [y.detach().numpy(), *[x.grad.numpy() for x in leaves]]


def near(got: np.ndarray, want: np.ndarray, terms: int) -> None:
    """Equal to rounding, for sums of so many terms of about 1."""
    eps = np.finfo(got.dtype).eps
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=16 * eps, atol=8 * eps * max(terms, 16) ** 0.75)
