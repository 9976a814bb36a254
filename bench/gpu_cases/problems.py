"""The table's problems: their arrays, their programs and what they have to reach."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from . import flux, networks
from .sides import Data, Place

EAGER, COMPILED, REDUCED = "torch", "torch.compile", "reduce-overhead"
CUDNN, JAX = "cuDNN", "jax.jit"
OURS, OURS_COMPILED = "weft", "weft.compile"
USUAL = (EAGER, OURS, COMPILED, OURS_COMPILED, JAX)
BOTH_MODES = (EAGER, OURS, COMPILED, REDUCED, OURS_COMPILED, JAX)
LOOPS = (EAGER, OURS, CUDNN, OURS_COMPILED, JAX)
WAYS = (*BOTH_MODES, CUDNN)
HALF, SINGLE = torch.bfloat16, torch.float32


@dataclass(frozen=True)
class Problem:
    """One line of the table.

    title      what it is
    data       its arrays
    forward    the program; None: the gradients are given
    tolerance  the largest error beside float64, relative to the norm of each array; twice
               PyTorch's own error is allowed if that is more
    ways       the contenders, in the order in which they are built
    update     the optimizer of a step: "adamw", "sgd" or ""
    clip       the largest norm of all gradients, if they are clipped
    autocast   whether products are in bfloat16
    goal       the ratio to reach; None: the line is there for information
    against    the contender the ratio is to; "": the quickest of PyTorch's
    floor      milliseconds that memory traffic or products take by themselves on an H200
    seconds    how long the line may take, and how long one contender may take to be built
    steps      whether peak memory and first calls in processes of their own belong to it
    terms      what the result is the sum of, if its terms cancel
    """

    title: str
    data: Callable[[Place], Data]
    forward: Any
    tolerance: float
    ways: tuple[str, ...] = USUAL
    update: str = ""
    clip: float | None = None
    autocast: bool = False
    goal: float | None = None
    against: str = ""
    floor: float | None = None
    seconds: tuple[int, int] = (45, 20)
    steps: bool = False
    terms: Callable[[Data], torch.Tensor] | None = None


class Normal:
    """Random arrays of one problem."""

    def __init__(self, place: Place, dtype: torch.dtype = SINGLE):
        self.device, self.dtype = place.torch, dtype
        self.generator = torch.Generator(place.torch).manual_seed(0)

    def __call__(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        x = torch.randn(shape, generator=self.generator, device=self.device)
        return (scale * x).to(self.dtype)

    def matrix(self, rows: int, columns: int) -> torch.Tensor:
        return self(rows, columns, scale=columns**-0.5)

    def around_one(self, *shape: int) -> torch.Tensor:
        return 1 + self(*shape, scale=0.1)

    def integers(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, generator=self.generator, device=self.device)


def _chain(place: Place) -> Data:
    return Data({"x": Normal(place)(1 << (12 if place.tiny else 26))})


def _chain_terms(data: Data) -> torch.Tensor:
    return networks.chain_terms(torch, data.params["x"].double())


def _adamw(place: Place) -> Data:
    size, normal = 1000 if place.tiny else 10**9 // 60, Normal(place)
    names = [f"p{k}" for k in range(60)]
    return Data({n: normal(size) for n in names}, grads={n: normal(size) for n in names})


def _perceptron(place: Place) -> Data:
    normal, sizes = Normal(place), (64, 128, 128, 10)
    params = {}
    for k, (a, b) in enumerate(pairwise(sizes)):
        params |= {f"w{k}": normal.matrix(b, a), f"b{k}": normal(b, scale=0.1)}
    return Data(params, {"x": normal(32, sizes[0]), "labels": normal.integers(sizes[-1], 32)})


def _layer_norm(place: Place) -> Data:
    rows, width = (64, 128) if place.tiny else (16384, 4096)
    normal = Normal(place, HALF)
    params = {"x": normal(rows, width), "w": normal.around_one(width), "b": normal(width)}
    return Data(params, cotangent=normal(rows, width))


def _linear(place: Place) -> Data:
    rows, width = (32, 64) if place.tiny else (8192, 4096)
    normal = Normal(place)
    params = {"x": normal(rows, width), "w": normal.matrix(width, width), "b": normal(width)}
    return Data(params, cotangent=normal(rows, width).to(HALF))


def _stack(place: Place) -> Data:
    rows, width, depth = (16, 32, 3) if place.tiny else (8192, 2048, 8)
    normal = Normal(place)
    params = {"x": normal(rows, width)}
    for k in range(depth):
        params |= {f"{k}.scale": normal.around_one(width), f"{k}.shift": normal(width)}
        params |= {f"{k}.w": normal.matrix(width, width), f"{k}.b": normal(width)}
    return Data(params)


def _recurrent(place: Place) -> Data:
    return recurrent_data(*((20, 4, 8) if place.tiny else (1000, 32, 64)), place)


def recurrent_data(steps: int, batch: int, width: int, place: Place) -> Data:
    """Inputs of a cell for each step, and its weights."""
    normal = Normal(place)
    params = {"w": 0.7 * normal.matrix(width, width), "u": normal.matrix(width, width)}
    params["b"] = normal(width, scale=0.1)
    return Data(params, {"h": normal(batch, width), "xs": normal(steps, batch, width)})


def _products(rows: int, columns: int) -> Callable[[Place], Data]:
    def data(place: Place) -> Data:
        width, out = (32, 48) if place.tiny else (4096, columns)
        normal = Normal(place, HALF)
        weights = {f"w{k}": normal.matrix(out, width) for k in range(8)}
        return Data({}, {"x": normal(rows, width)}, weights)

    return data


def _gpt(place: Place) -> Data:
    """Twelve blocks of width 768 with the weights that GPT-2 begins with."""
    return gpt_data(*((2, 48, 16, 2, 101) if place.tiny else (12, 768, 1024, 8, 50257)), place)


def gpt_data(layers: int, width: int, length: int, batch: int, words: int, place: Place) -> Data:
    """Blocks with the weights that GPT-2 begins with, and tokens."""
    normal = Normal(place)
    params = {"tokens": normal(words, width, scale=0.02)}
    params["positions"] = normal(length, width, scale=0.02)

    def norm(name: str) -> dict[str, torch.Tensor]:
        shift = normal(width, scale=0.02)
        return {f"{name}.scale": normal.around_one(width), f"{name}.shift": shift}

    for k in range(layers):
        params |= norm(f"{k}.norm1") | norm(f"{k}.norm2")
        shapes = {"qkv": (3, 1), "proj": (1, 1), "up": (4, 1), "down": (1, 4)}
        for name, (out, given) in shapes.items():
            params[f"{k}.{name}.w"] = normal(out * width, given * width, scale=0.02)
            params[f"{k}.{name}.b"] = normal(out * width, scale=0.02)
    params |= norm("norm")
    ids = normal.integers(words, batch, length + 1)
    inputs = {"ids": ids[:, :-1].contiguous(), "targets": ids[:, 1:].reshape(-1)}
    return Data(params, inputs)


def _resnet(place: Place) -> Data:
    """The shapes of ResNet-50."""
    if place.tiny:
        return resnet_data((1, 2), 8, 32, 8, 10, place)
    return resnet_data((3, 4, 6, 3), 64, 224, 64, 1000, place)


def resnet_data(
    depths: tuple[int, ...], first: int, size: int, batch: int, classes: int, place: Place
) -> Data:
    """Bottlenecks of `first` channels at least; averages begin at 0 and variances at 1."""
    normal, device = Normal(place), place.torch
    params: dict[str, torch.Tensor] = {}
    buffers: dict[str, torch.Tensor] = {}

    def conv(name: str, out: int, given: int, kernel: int) -> None:
        scale = (2 / (given * kernel * kernel)) ** 0.5
        params[f"{name}.w"] = normal(out, given, kernel, kernel, scale=scale)
        # A block begins near the identity, or half precision would leave little of its gradients.
        params[f"{name}.scale"] = (0.2 if name.endswith("c") else 1) * normal.around_one(out)
        params[f"{name}.shift"] = normal(out, scale=0.1)
        buffers[f"{name}.mean"] = torch.zeros(out, device=device)
        buffers[f"{name}.variance"] = torch.ones(out, device=device)

    conv("stem", first, 3, 7)
    given = first
    for stage, depth in enumerate(depths):
        width = first << stage
        for k in range(depth):
            conv(f"{stage}.{k}.a", width, given, 1)
            conv(f"{stage}.{k}.b", width, width, 3)
            conv(f"{stage}.{k}.c", 4 * width, width, 1)
            if k == 0:
                conv(f"{stage}.{k}.short", 4 * width, given, 1)
            given = 4 * width
    params |= {"head.w": normal.matrix(classes, given), "head.b": normal(classes, scale=0.01)}
    inputs = {"x": normal(batch, 3, size, size), "labels": normal.integers(classes, batch)}
    return Data(params, inputs, buffers=buffers)


def _flux(place: Place) -> Data:
    """Two double and four single blocks, a quarter of 1024² pixels' worth of tokens and text."""
    double, single, width, head, sides, words, rank = (2, 4, 3072, 128, 64, 512, 16)
    if place.tiny:
        double, single, width, head, sides, words, rank = (1, 1, 64, 32, 4, 6, 2)
    normal, wide = Normal(place, HALF), Normal(place)
    frozen: dict[str, torch.Tensor] = {}
    params: dict[str, torch.Tensor] = {}

    def linear(name: str, out: int, given: int, adapted: bool = True) -> None:
        frozen[f"{name}.w"] = normal.matrix(out * width, given * width)
        frozen[f"{name}.b"] = normal(out * width, scale=0.02)
        if adapted:
            params[f"{name}.A"] = wide.matrix(rank, given * width)
            params[f"{name}.B"] = wide(out * width, rank, scale=0.02)

    def norms(name: str) -> None:
        frozen[f"{name}.query"] = normal.around_one(head)
        frozen[f"{name}.key"] = normal.around_one(head)

    for name in [f"double{k}.{s}" for k in range(double) for s in ("img", "txt")]:
        linear(f"{name}.mod", 6, 1, adapted=False)
        norms(name)
        for part, (out, given) in {"qkv": (3, 1), "proj": (1, 1), "up": (4, 1)}.items():
            linear(f"{name}.{part}", out, given)
        linear(f"{name}.down", 1, 4)
    for name in [f"single{k}" for k in range(single)]:
        linear(f"{name}.mod", 3, 1, adapted=False)
        norms(name)
        linear(f"{name}.linear1", 7, 1)
        linear(f"{name}.linear2", 1, 5)
    frozen["cosine"], frozen["sine"] = _turns(place, head, sides, words)
    inputs = {"img": normal(1, sides**2, width), "txt": normal(1, words, width)}
    inputs |= {"vec": normal(1, width), "target": wide(1, sides**2, width)}
    return Data(params, inputs, frozen)


def _turns(place: Place, head: int, sides: int, words: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of each token's angles: text at (0, 0, 0), an image at (0, row, column)."""
    axes = (head // 8, 7 * head // 16, 7 * head // 16)
    rows, columns = torch.meshgrid(torch.arange(sides), torch.arange(sides), indexing="ij")
    image = torch.stack([torch.zeros(sides**2, dtype=torch.long), rows.ravel(), columns.ravel()])
    positions = torch.cat([torch.zeros(3, words, dtype=torch.long), image], 1)
    angles = []
    for at, size in zip(positions, axes, strict=True):
        steps = torch.arange(0, size, 2, dtype=torch.float64) / size
        angles.append(at[:, None] * 10000.0**-steps)
    turns = torch.cat(angles, 1).to(place.torch)
    return turns.cos().float(), turns.sin().float()


def _decoding() -> dict[str, Problem]:
    found = {}
    for columns in (4096, 11008):
        for rows in (1, 4, 16):
            title = f"8 products {rows}×4096·{columns}, bfloat16, weights of their own"
            data = _products(rows, columns)
            found[f"decode-{rows}-{columns}"] = Problem(
                title, data, networks.products, 2e-2, BOTH_MODES, seconds=(25, 15)
            )
    return found


PROBLEMS = {
    "chain": Problem(
        "gradient of 4×(tanh·exp(−x²)+sin), 2²⁶ float32",
        *(_chain, networks.chain, 1e-5),
        goal=0.35,
        floor=0.13,
        terms=_chain_terms,
    ),
    "adamw": Problem(
        "AdamW, 10⁹ float32 in 60 arrays (PyTorch's fused)",
        *(_adamw, None, 1e-4),
        update="adamw",
        goal=0.9,
        floor=6.7,
    ),
    "mlp": Problem(
        "MLP 64-128-128-10, batch 32, AdamW step",
        *(_perceptron, networks.perceptron, 1e-4, BOTH_MODES),
        update="adamw",
        goal=0.12,
        floor=0.05,
    ),
    "layer_norm": Problem(
        "layer norm 16384×4096 bfloat16, forward and gradients",
        *(_layer_norm, networks.layer_norm, 2e-2),
        goal=0.65,
        floor=0.16,
        against=EAGER,
    ),
    "lora": Problem(
        "Flux-width LoRA step: 2 double + 4 single blocks, width 3072, 4096 + 512 tokens, rank 16",
        *(_flux, flux.loss, 2e-2),
        ways=(EAGER, OURS, OURS_COMPILED, JAX, COMPILED),  # which ends the process
        update="adamw",
        clip=1.0,
        goal=0.65,
        floor=23.4,
        against=EAGER,
        seconds=(80, 30),
        steps=True,
    ),
    "linear": Problem(
        "linear 4096→4096, batch 8192, bfloat16 autocast, forward and backward",
        *(_linear, networks.linear, 2e-2),
        autocast=True,
        goal=1.0,
        floor=1.1,
    ),
    "stack": Problem(
        "8 × (layer norm, linear, GELU), 8192×2048, bfloat16 autocast, gradients",
        *(_stack, networks.stack, 2e-2),
        autocast=True,
        goal=1.0,
    ),
    "gpt": Problem(
        "GPT-2 small: 12 layers, d 768, T 1024, batch 8, bfloat16 autocast, AdamW step",
        *(_gpt, networks.gpt(12), 2e-2),
        update="adamw",
        autocast=True,
        goal=0.95,
        against=COMPILED,
        seconds=(110, 60),
        steps=True,
    ),
    "resnet": Problem(
        "ResNet-50, batch 64, 224×224, bfloat16 autocast, SGD step with momentum",
        *(_resnet, networks.resnet, 2e-2),
        update="sgd",
        autocast=True,
        goal=1.0,
        seconds=(110, 70),
        steps=True,
    ),
    "scan": Problem(
        "1000 steps of a 64-wide cell, batch 32, gradients, float32",
        *(_recurrent, networks.recurrent, 1e-4, LOOPS),
        goal=0.5,
        against=JAX,
    ),
    **_decoding(),
}
