"""A module of PyTorch and ours of the same name and weights: values, gradients and statistics."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import weft as wf

from .beside_torch import close

# Options of PyTorch's that say how it computes, not what.
_MECHANICAL = ("inplace", "device", "enable_nested_tensor", "mask_check")


@dataclass(frozen=True)
class Call:
    """How a module is made, and what it is called with."""

    made: tuple[tuple, dict]
    called: tuple[tuple, dict]

    def __str__(self) -> str:
        args, kwargs = self.made
        return ",".join([*map(str, args), *(f"{k}={v}" for k, v in kwargs.items())])[:60]


def ours(value):
    """A value of PyTorch's in our terms, arguments in containers too."""
    if isinstance(value, torch.Tensor):
        made = wf.tensor(value.detach().numpy())
        return made.requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return _block(value)
    if isinstance(value, tuple | list):
        return type(value)(ours(v) for v in value)
    if isinstance(value, dict):
        return {k: ours(v) for k, v in value.items()}
    if callable(value):
        return getattr(wf.nn.functional, value.__name__)
    return value


def _block(layer: torch.nn.TransformerEncoderLayer):
    attention = layer.self_attn
    return wf.nn.TransformerEncoderLayer(
        attention.embed_dim,
        attention.num_heads,
        layer.linear1.out_features,
        activation=ours(layer.activation),
        batch_first=attention.batch_first,
        norm_first=layer.norm_first,
        bias=layer.linear1.bias is not None,
    )


def pair(name: str, args: tuple, kwargs: dict, training: bool, dtype: torch.dtype):
    """PyTorch's module and ours, with the same state, both without dropout."""
    theirs = getattr(torch.nn, name)(*args, **kwargs).to(dtype).train(training)
    options = {k: v for k, v in kwargs.items() if k not in _MECHANICAL}
    mine = getattr(wf.nn, name)(*ours(args), **ours(options)).to(ours(dtype)).train(training)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    mine.load_state_dict(theirs.state_dict())
    for module in (*mine.modules(), *theirs.modules()):
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
        elif isinstance(module, wf.nn.Dropout | torch.nn.Dropout):
            module.p = 0.0
    return mine, theirs


def tensors(tree) -> list:
    """The tensors in nested containers, of either library."""
    if isinstance(tree, tuple | list):
        return [x for part in tree for x in tensors(part)]
    if isinstance(tree, dict):
        return tensors(list(tree.values()))
    return [tree] if isinstance(tree, torch.Tensor | wf.Tensor) else []


def tolerance(dtype: torch.dtype) -> float:
    """Sums of some hundred products, through some ten layers of rounding."""
    return 500 * torch.finfo(dtype).eps


def compare(mine, theirs, args: tuple, kwargs: dict, rtol: float) -> None:
    """Demand equal results, gradients of all inputs and parameters, and buffers afterwards."""
    args, kwargs = _leaves(args), _leaves(kwargs)
    given, options = ours(args), ours(kwargs)
    theirs.zero_grad()
    ys, zs = tensors(mine(*given, **options)), tensors(theirs(*args, **kwargs))
    assert len(ys) == len(zs) > 0
    rng = np.random.default_rng(5)
    total, sums = 0.0, 0.0
    for y, z in zip(ys, zs, strict=True):
        assert y.dtype == wf.asarray(z.detach()).dtype
        close(y.detach().numpy(), z.detach().numpy(), rtol)
        if z.requires_grad:
            seed = rng.standard_normal(z.shape).astype(y.dtype)
            total, sums = total + (y * wf.tensor(seed)).sum(), sums + (z * torch.tensor(seed)).sum()
    if isinstance(sums, torch.Tensor):
        sums.backward()
        grads = total.backward()
        pairs = zip(tensors([given, options]), tensors([args, kwargs]), strict=True)
        named = zip(mine.named_parameters(), theirs.named_parameters(), strict=True)
        for a, b in [*pairs, *((p, q) for (_, p), (_, q) in named)]:
            if b.requires_grad:
                _same_gradient(grads.get(a), b, rtol)
    for (n, a), (m, b) in zip(mine.named_buffers(), theirs.named_buffers(), strict=True):
        assert n == m
        close(a.numpy(), b.numpy(), rtol)


def _same_gradient(found, b: torch.Tensor, rtol: float) -> None:
    expected = np.zeros(b.shape) if b.grad is None else b.grad.numpy()
    close(np.zeros(b.shape) if found is None else found.numpy(), expected, rtol)


def _leaves(tree):
    """Copies of the tensors, which gradients are wanted of where they were before."""
    if isinstance(tree, torch.Tensor):
        return tree.detach().clone().requires_grad_(tree.requires_grad)
    if isinstance(tree, tuple | list):
        return type(tree)(_leaves(x) for x in tree)
    return {k: _leaves(x) for k, x in tree.items()} if isinstance(tree, dict) else tree


def listed(samples: Callable) -> list[Call]:
    """The calls in a list of PyTorch's own module samples."""
    return [
        Call(
            (s.constructor_input.args, dict(s.constructor_input.kwargs)),
            (s.forward_input.args, dict(s.forward_input.kwargs)),
        )
        for s in samples
    ]
