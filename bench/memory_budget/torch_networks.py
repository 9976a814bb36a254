"""The six networks in PyTorch, as chains of units that checkpoints go around."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

State = Any  # what units pass on: a tensor, or a tuple or dictionary of tensors


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[State], State]):
        super().__init__()
        self.function = function

    def forward(self, x: State) -> State:
        return self.function(x)


class Chain(nn.Module):
    """A first module, a chain of units, and a last module; `unit` says what a unit is."""

    def __init__(self, unit: str, first: nn.Module, units: Sequence[nn.Module], last: nn.Module):
        super().__init__()
        self.unit, self.first, self.units, self.last = unit, first, nn.ModuleList(units), last

    def forward(self, x: Tensor, every: int = 0) -> Tensor:
        """The result, with a checkpoint around every so many units; around none if it is 0."""
        state = self.first(x)
        for k in range(0, len(self.units), every or len(self.units)):
            units = nn.Sequential(*self.units[k : k + (every or len(self.units))])
            state = checkpoint(units, state, use_reentrant=False) if every else units(state)
        return self.last(state)


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int, heads: int, p: float, causal: bool):
        super().__init__()
        self.heads, self.p, self.causal = heads, p, causal
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        qkv = self.qkv(self.ln1(x)).reshape(n, t, 3, self.heads, width // self.heads)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + F.dropout(self.proj(y.transpose(1, 2).reshape(n, t, width)), self.p)
        return x + F.dropout(self.down(F.gelu(self.up(self.ln2(x)))), self.p)


def gpt() -> Chain:
    width, words = 128, 65
    blocks = [Block(width, 4, 0.0, True) for _ in range(24)]
    last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, words))
    return Chain("blocks", nn.Embedding(words, width), blocks, last)


def mlp() -> Chain:
    layers = [nn.Sequential(nn.Linear(128, 128), nn.ReLU()) for _ in range(50)]
    return Chain("layers", nn.Identity(), layers, nn.Linear(128, 10))


def cnn() -> Chain:
    """A checkpoint makes each batch norm average its batch twice, in the running statistics."""
    units = []
    for k, (a, b) in enumerate(pairwise((3, *[16] * 14, *[32] * 4))):
        parts = [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
        units.append(nn.Sequential(*parts, *([nn.MaxPool2d(2)] if k == 13 else [])))
    last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return Chain("convolutions", nn.Identity(), units, last)


class Skip(nn.Module):
    """The skip connection number `k`, from and to the results that are still needed, by number."""

    def __init__(self, k: int, depth: int, first: nn.Module, second: nn.Module):
        super().__init__()
        self.k, self.depth, self.first, self.second = k, depth, first, second

    def forward(self, results: dict[int, Tensor]) -> dict[int, Tensor]:
        k, x = self.k, results[self.k]
        y = torch.tanh(self.first(torch.cat([x, results[(k + 1) // 2]], dim=-1)))
        needed = {i: r for i, r in results.items() if (k + 2) // 2 <= i <= self.depth // 2}
        return {**needed, k + 1: x + torch.tanh(self.second(y))}


def shared() -> Chain:
    width, depth = 128, 32
    first, second = nn.Linear(2 * width, width), nn.Linear(width, width)
    skips = [Skip(k, depth, first, second) for k in range(depth)]
    last = nn.Sequential(Call(lambda results: results[depth]), nn.Linear(width, 10))
    return Chain("skip connections", Call(lambda x: {0: x}), skips, last)


class TimeStep(nn.Module):
    """The step number `k` of a recurrent network, from and to (x, h, c)."""

    def __init__(self, k: int, cell: nn.LSTMCell):
        super().__init__()
        self.k, self.cell = k, cell

    def forward(self, state: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        x, h, c = state
        return x, *self.cell(x[:, self.k], (h, c))


def lstm() -> Chain:
    width, length = 64, 32
    cell = nn.LSTMCell(width, width)
    first = Call(lambda x: (x, x.new_zeros(len(x), width), x.new_zeros(len(x), width)))
    last = nn.Sequential(Call(lambda state: state[1]), nn.Linear(width, 10))
    return Chain("time steps", first, [TimeStep(k, cell) for k in range(length)], last)


def vit() -> Chain:
    width, patch = 96, 4
    patches = nn.Conv2d(3, width, patch, stride=patch)
    first = nn.Sequential(patches, nn.Flatten(2), Call(lambda x: x.transpose(1, 2)))
    blocks = [Block(width, 4, 0.1, False) for _ in range(8)]
    mean = Call(lambda x: x.mean(1))
    return Chain(
        "blocks", first, blocks, nn.Sequential(nn.LayerNorm(width), mean, nn.Linear(width, 10))
    )


NETWORKS = {f.__name__: f for f in (gpt, mlp, cnn, shared, lstm, vit)}
