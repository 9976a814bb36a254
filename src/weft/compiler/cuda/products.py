"""Matrix products of a schedule by PyTorch's libraries, into the planned memory."""

from collections.abc import Iterator
from typing import Any

import torch

from ..ir.schedule import GemmStep


def multiply(
    step: GemmStep,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> None:
    """c ← f(α·op(a)·op(b) + β·c + bias); the tensors are views of the stored matrices, by batch.

    PyTorch adds a bias, and applies an activation f, in the product's own kernel if c is one
    matrix, row by row without gaps.
    """
    a = a.mT if step.transpose_a else a
    b = b.mT if step.transpose_b else b
    if step.activation:
        assert bias is not None, "only products with a bias have an activation"
        _activate(step, bias, a, b, c)
        return
    for x, y, z in _three_axes(a, b, c):
        added, beta = (z, step.beta) if bias is None else (bias, 1.0)
        plain = step.alpha == 1.0 and beta == 0.0
        if z.dim() == 2 and plain:
            torch.mm(x, y, out=z)
        elif z.dim() == 2:
            torch.addmm(added, x, y, beta=beta, alpha=step.alpha, out=z)
        elif plain:
            torch.bmm(x, y, out=z)
        else:
            torch.baddbmm(added, x, y, beta=beta, alpha=step.alpha, out=z)


def _activate(
    step: GemmStep, bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> None:
    """c ← gelu(α·a·b + bias) for one matrix, by tanh.

    PyTorch's call is by tanh on a GPU only; on the CPU it is the exact one.
    """
    if c.is_cuda:
        _addmm_activation(bias, a, b, alpha=step.alpha, use_gelu=True, out=c)
    else:
        torch.addmm(bias, a, b, alpha=step.alpha, out=c)
        c.copy_(torch.nn.functional.gelu(c, approximate="tanh"))


_addmm_activation: Any = torch.ops.aten._addmm_activation.out


def _three_axes(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Products with at most one axis of batch each: axes are merged, or done one by one."""
    if c.dim() <= 3:
        yield a, b, c
        return
    if all([_merges(x) for x in (a, b, c)]):
        yield from _three_axes(*[_merged(x) for x in (a, b, c)])
        return
    for i in range(c.shape[0]):
        yield from _three_axes(a[i], b[i], c[i])


def _merges(x: torch.Tensor) -> bool:
    """Whether the first two axes are one."""
    return x.shape[0] == 1 or x.stride(0) == x.shape[1] * x.stride(1)


def _merged(x: torch.Tensor) -> torch.Tensor:
    shape = (x.shape[0] * x.shape[1], *x.shape[2:])
    return x.as_strided(shape, x.stride()[1:])
