"""Times of kernels over rows on a GPU, beside PyTorch's: norms, softmax, cross-entropy.

Run: PYTHONPATH=src python tests/compiler/cuda/time_rows.py [part of a name …]
The last column is the share of the time that reading each array and writing each result once takes.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F

import weft as wf
import weft.nn.functional as nn
from weft.compiler.cuda import flat, folds, pieces

# Constants of the emitters that are tried: {"pieces.BLOCK": 256}, {"pieces.BESIDE": 96}, ….
SETTINGS: dict[str, int] = {}
# Bytes that the memory of an H200 moves in a second, and calls that are timed.
BANDWIDTH, ROUNDS = 4.8e12, 30


@dataclass
class Timed:
    """Two functions of the same arrays, and the bytes that they must move."""

    name: str
    weft: Callable[..., Any]
    torch: Callable[..., Any]
    arrays: list[torch.Tensor]
    moved: int


def norm(x, w, b, g):
    y, pull = wf.vjp(lambda x, w, b: nn.layer_norm(x, x.shape[-1:], w, b), x, w, b)
    return y, *pull(g)


def rms(x, w, g):
    y, pull = wf.vjp(lambda x, w: nn.rms_norm(x, x.shape[-1:], w), x, w)
    return y, *pull(g)


def softmax(x, g):
    y, pull = wf.vjp(lambda x: nn.softmax(x, -1), x)
    return y, *pull(g)


def cross_entropy(x, classes):
    y, pull = wf.vjp(lambda x: nn.cross_entropy(x, classes), x)
    return y, *pull(wf.ones_like(y))


def gradients(function, *leaves, g=None):
    """PyTorch's results and gradients."""
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    y = function(*leaves)
    return y, *torch.autograd.grad(y, leaves, g)


def torch_norm(x, w, b, g):
    return gradients(lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), x, w, b, g=g)


def torch_rms(x, w, g):
    return gradients(lambda x, w: F.rms_norm(x, x.shape[-1:], w), x, w, g=g)


def torch_softmax(x, g):
    return gradients(lambda x: F.softmax(x, -1), x, g=g)


def torch_cross_entropy(x, classes):
    return gradients(lambda x: F.cross_entropy(x, classes), x)


def draw(dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape, device="cuda", dtype=dtype) for shape in shapes]


def cases() -> Iterator[Timed]:
    half, single = torch.bfloat16, torch.float32
    for rows, width, dtype in ((16384, 4096, half), (8192, 768, single), (8192, 768, half)):
        arrays = draw(dtype, (rows, width), (width,), (width,), (rows, width))
        name = f"layer norm {rows}×{width} {str(dtype).removeprefix('torch.')}"
        yield Timed(name, norm, torch_norm, arrays, 4 * arrays[0].nbytes)
    arrays = draw(half, (8192, 4096), (4096,), (8192, 4096))
    yield Timed("rms norm 8192×4096 bfloat16", rms, torch_rms, arrays, 4 * arrays[0].nbytes)
    x, g = draw(half, (8192, 50257), (8192, 50257))
    yield Timed("softmax 8192×50257 bfloat16", softmax, torch_softmax, [x, g], 4 * x.nbytes)
    arrays = [x, torch.randint(0, 50257, (8192,), device="cuda")]
    name = "cross-entropy 8192×50257 bfloat16"
    yield Timed(name, cross_entropy, torch_cross_entropy, arrays, 2 * x.nbytes)


def milliseconds(call: Callable[[], Any]) -> float:
    """The median of some calls, by the GPU's clock."""
    for _ in range(5):
        call()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(ROUNDS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        call()
        mark.record()
    torch.cuda.synchronize()
    return median(a.elapsed_time(b) for a, b in pairwise(marks))


def difference(made: Any, wanted: Any) -> float:
    """The largest error of any result, as a share of that result's largest number."""
    worst = 0.0
    for y, want in zip(made, wanted, strict=True):
        y, want = torch.from_dlpack(y).float(), want.detach().float()
        worst = max(worst, ((y - want).abs().max() / want.abs().max()).item())
    return worst


def main(asked: list[str]) -> None:
    modules = {"flat": flat, "folds": folds, "pieces": pieces}
    for name, value in SETTINGS.items():
        module, _, constant = name.partition(".")
        assert hasattr(modules[module], constant), name
        setattr(modules[module], constant, value)
    print(f"settings: {SETTINGS or 'as they are'}")
    print(f"{'':36}{'weft':>9}{'torch':>9}{'error':>10}{'of memory':>11}")
    for case in cases():
        if asked and not any(part in case.name for part in asked):
            continue
        compiled, inputs = wf.compile(case.weft), [wf.asarray(a) for a in case.arrays]
        error = difference(compiled(*inputs), case.torch(*case.arrays))
        ours = milliseconds(lambda f=compiled, a=inputs: f(*a))
        theirs = milliseconds(lambda case=case: case.torch(*case.arrays))
        share = case.moved / BANDWIDTH / (ours * 1e-3)
        print(f"{case.name:36}{ours:9.3f}{theirs:9.3f}{error:10.1e}{share:11.0%}", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WEFT_CACHE_DIR"] = folder  # else code of other settings could be found
        main(sys.argv[1:])
