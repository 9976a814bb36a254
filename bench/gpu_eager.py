"""Eager mode on a GPU beside PyTorch's: elementwise chains, optimizers, norms, products, autocast.

Run: python -m bench.gpu_eager [--device cuda] [--small] [--rounds 20] [--parameters 1000000000]

Both libraries compute on the same numbers in one process. Before anything is timed, both results
are compared with float64. Times are medians of wall-clock times between two synchronisations, in
turns; the ratio is Weft's time over PyTorch's. `--device torch --small` runs the same on the CPU.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from statistics import median
from time import perf_counter
from typing import Any

import torch

import weft as wf

F, T = wf.nn.functional, torch.nn.functional


@dataclass(frozen=True)
class Case:
    """Two functions that compute the same, and what is compared after a call of each.

    ours, theirs  one call
    results       the results of the last calls: ours, theirs, and in float64
    tolerance     the largest error relative to the norm of the exact result
    """

    name: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    results: Callable[[], tuple[list[Any], list[Any], list[Any]]]
    tolerance: float


@dataclass(frozen=True)
class Place:
    """Where to compute: Weft's name of the device, PyTorch's, and whether sizes are small."""

    weft: str
    torch: str
    small: bool
    parameters: int

    def normal(self, *shape: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The same numbers on every device."""
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape, generator=generator).to(self.torch).to(dtype)

    def wait(self) -> None:
        if self.torch != "cpu":
            torch.cuda.synchronize()


def ours_of(x: torch.Tensor) -> Any:
    """A parameter of Weft's with the numbers of a torch tensor."""
    return wf.Parameter(wf.asarray(x.detach()))


def theirs_of(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone().requires_grad_(True)


def arrays(tensors: list[Any]) -> list[torch.Tensor]:
    """Weft's tensors as PyTorch's."""
    return [t.detach()._data if isinstance(t, wf.Tensor) else t.detach() for t in tensors]


def gradient_case(
    name: str, leaves: list[torch.Tensor], ours: Any, theirs: Any, exact: Any, tolerance: float
) -> Case:
    """The gradients of a loss by its leaves: forward and backward."""
    mine, yours = [ours_of(x) for x in leaves], [theirs_of(x) for x in leaves]

    def run(loss, inputs):
        for x in inputs:
            x.grad = None
        loss(*inputs).backward()

    def results():
        wide = [theirs_of(x.double()) for x in leaves]
        run(exact, wide)
        return ([x.grad for x in mine], [x.grad for x in yours], [x.grad for x in wide])

    return Case(name, lambda: run(ours, mine), lambda: run(theirs, yours), results, tolerance)


def chain(place: Place) -> Case:
    """The gradient of four times tanh(x)·exp(−x²) + sin(x)."""
    n = 1 << (14 if place.small else 26)

    def loss(xp):
        def apply(x):
            for _ in range(4):
                x = xp.tanh(x) * xp.exp(-(x * x)) + xp.sin(x)
            return x.sum()

        return apply

    leaves = [place.normal(n, seed=0)]
    name = f"gradient of a chain, {n:,} float32"
    return gradient_case(name, leaves, loss(wf), loss(torch), loss(torch), 1e-5)


def norm_case(
    place: Place, name: str, shape: tuple[int, ...], weights: list[int], norm: Any, dtype: Any
) -> Case:
    """A norm and its gradients: norm(fn, make, x, *weights), where `make` makes a tensor."""
    x, g = (place.normal(*shape, seed=s, dtype=dtype) for s in (1, 2))
    others = [place.normal(n, seed=3 + k, dtype=dtype) for k, n in enumerate(weights)]
    cotangent = wf.asarray(g)

    def ours(*leaves):
        return _Backward(norm(F, lambda t: wf.asarray(t), *leaves), cotangent)

    def theirs(*leaves):
        y = norm(T, lambda t: t.to(leaves[0].dtype), *leaves)
        return _Backward(y, g.to(y.dtype))

    size = "×".join(map(str, shape))
    shown = f"{name} {size} {str(dtype).removeprefix('torch.')}, forward and gradients"
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    return gradient_case(shown, [x, *others], ours, theirs, theirs, tolerance)


def _rows_of(place: Place) -> tuple[int, int]:
    return (64, 128) if place.small else (16384, 4096)


def layer_norm(place: Place) -> Case:
    rows, width = _rows_of(place)

    def norm(fn, make, x, w, b):
        return fn.layer_norm(x, (width,), w, b)

    half = torch.bfloat16
    return norm_case(place, "layer norm", (rows, width), [width, width], norm, half)


def rms_norm(place: Place) -> Case:
    rows, width = _rows_of(place)

    def norm(fn, make, x, w):
        return fn.rms_norm(x, (width,), w, 1e-6)

    return norm_case(place, "rms norm", (rows, width), [width], norm, torch.bfloat16)


def _images(place: Place) -> tuple[int, int, int, int]:
    return (4, 8, 5, 5) if place.small else (64, 256, 56, 56)


def group_norm(place: Place) -> Case:
    shape = _images(place)

    def norm(fn, make, x, w, b):
        return fn.group_norm(x, shape[1] // 4, w, b)

    return norm_case(place, "group norm", shape, [shape[1]] * 2, norm, torch.float32)


def batch_norm(place: Place) -> Case:
    """In training, with running statistics."""
    shape = _images(place)
    held: dict[Any, list[Any]] = {}

    def norm(fn, make, x, w, b):
        if (fn, x.dtype) not in held:
            like = torch.zeros(shape[1], device=place.torch), torch.ones(shape[1])
            held[fn, x.dtype] = [make(v.to(place.torch)) for v in like]
        return fn.batch_norm(x, *held[fn, x.dtype], w, b, True)

    return norm_case(place, "batch norm", shape, [shape[1]] * 2, norm, torch.float32)


@dataclass(frozen=True)
class _Backward:
    """A result with the cotangent that its backward pass begins with."""

    result: Any
    cotangent: Any

    def backward(self) -> None:
        self.result.backward(self.cotangent)


def linear(place: Place) -> Case:
    rows, width = (32, 64) if place.small else (8192, 4096)
    x, w = place.normal(rows, width, seed=5), place.normal(width, width, seed=6) / width**0.5
    b, g = place.normal(width, seed=7), place.normal(rows, width, seed=8, dtype=torch.bfloat16)
    weights = wf.asarray(g)

    def ours(x, w, b):
        with wf.amp.autocast("bfloat16"):
            y = F.linear(x, w, b)
        return _Backward(y, weights)

    def theirs(x, w, b):
        with torch.autocast(place.torch, torch.bfloat16, enabled=x.dtype == torch.float32):
            y = T.linear(x, w, b)
        return _Backward(y, g.to(y.dtype))

    name = f"linear {width}→{width}, batch {rows}, bfloat16 autocast, forward and backward"
    return gradient_case(name, [x, w, b], ours, theirs, theirs, 2e-2)


def stack(place: Place) -> Case:
    """Layers of layer norm, linear and GELU."""
    rows, width, depth = (16, 32, 3) if place.small else (8192, 2048, 8)
    x = place.normal(rows, width, seed=9)
    leaves = [x]
    for k in range(depth):
        leaves += [torch.ones(width, device=x.device), torch.zeros(width, device=x.device)]
        leaves.append(place.normal(width, width, seed=10 + 2 * k) / width**0.5)
        leaves.append(place.normal(width, seed=11 + 2 * k))

    def layers(fn, x, weights):
        for k in range(0, len(weights), 4):
            w, b, matrix, bias = weights[k : k + 4]
            x = fn.gelu(fn.linear(fn.layer_norm(x, (width,), w, b), matrix, bias))
        return (x * x).mean()

    def ours(x, *weights):
        with wf.amp.autocast("bfloat16"):
            return layers(F, x, weights)

    def theirs(x, *weights):
        with torch.autocast(place.torch, torch.bfloat16, enabled=x.dtype == torch.float32):
            return layers(T, x, weights)

    name = f"{depth} × (layer norm, linear, GELU), {rows}×{width}, bfloat16 autocast"
    return gradient_case(name, leaves, ours, theirs, theirs, 5e-2)


def adamw(place: Place) -> Case:
    """Steps of AdamW; the reference takes them with the first numbers only."""
    arrays_of, few = 60, 1000
    n = place.parameters // arrays_of
    first, g = place.normal(few, seed=20), place.normal(few, seed=21)
    values = [_tiled(first, n) for _ in range(arrays_of)]
    grads = [_tiled(g, n) for _ in range(arrays_of)]
    mine, yours = [ours_of(v) for v in values], [theirs_of(v) for v in values]
    del values
    optimizer = wf.optim.AdamW(mine, lr=1e-3)
    peer = torch.optim.AdamW(yours, lr=1e-3, fused=True)
    held = [wf.asarray(x) for x in grads]
    for q, x in zip(yours, grads, strict=True):
        q.grad = x
    steps = [0]

    def ours():
        steps[0] += 1
        optimizer.step(held)

    def results():
        wide = theirs_of(first.double())
        wide.grad = g.double()
        reference = torch.optim.AdamW([wide], lr=1e-3)
        for _ in range(steps[0]):
            reference.step()
        size = min(few, n)
        return [arrays([mine[-1]])[0][:size]], [yours[-1][:size]], [wide[:size]]

    name = f"AdamW, {n * arrays_of:,} float32 in {arrays_of} arrays (PyTorch's fused)"
    return Case(name, ours, peer.step, results, 1e-6)


def _tiled(values: torch.Tensor, n: int) -> torch.Tensor:
    return values.repeat(-(-n // len(values)))[:n].contiguous()


def mlp(place: Place) -> Case:
    """A whole training step of a small network: forward, backward, AdamW."""
    sizes = (64, 128, 128, 10)
    x = place.normal(32, sizes[0], seed=30)
    labels = torch.arange(32, device=x.device) % sizes[-1]
    leaves = []
    for k, (a, b) in enumerate(pairwise(sizes)):
        leaves += [place.normal(b, a, seed=31 + k) / a**0.5, torch.zeros(b, device=x.device)]

    def network(fn, xp, x, weights):
        for k in range(0, len(weights), 2):
            x = fn.linear(x, *weights[k : k + 2])
            x = xp.relu(x) if k + 2 < len(weights) else x
        return x

    def stepping(fn, xp, x, labels, weights, optimizer):
        def step():
            optimizer.zero_grad()
            fn.cross_entropy(network(fn, xp, x, weights), labels).backward()
            optimizer.step()

        return step

    mine, yours = [ours_of(v) for v in leaves], [theirs_of(v) for v in leaves]
    given = wf.asarray(x), wf.asarray(labels)
    ours = stepping(F, wf, *given, mine, wf.optim.AdamW(mine, lr=1e-3))
    theirs = stepping(T, torch, x, labels, yours, torch.optim.AdamW(yours, lr=1e-3))
    steps = [0]

    def counted():
        steps[0] += 1
        ours()

    def results():
        wide = [theirs_of(v.double()) for v in leaves]
        step = stepping(T, torch, x.double(), labels, wide, torch.optim.AdamW(wide, lr=1e-3))
        for _ in range(steps[0]):
            step()
        return arrays(mine), arrays(yours), arrays(wide)

    return Case("MLP 64-128-128-10, batch 32, AdamW step", counted, theirs, results, 1e-4)


NORMS = (layer_norm, rms_norm, group_norm, batch_norm)
CASES = (chain, adamw, mlp, *NORMS, linear, stack)


def error(found: list[Any], exact: list[Any]) -> float:
    """The largest error of an array relative to the norm of the exact one."""
    worst = 0.0
    for a, b in zip(arrays(found), arrays(exact), strict=True):
        worst = max(worst, ((a.double() - b).norm() / b.norm().clamp(min=1e-30)).item())
    return worst


def check(case: Case) -> tuple[float, float]:
    """The errors of both after one call; raises if ours is too large."""
    case.ours()
    case.theirs()
    ours, theirs, exact = case.results()
    found = error(ours, exact), error(theirs, exact)
    if not found[0] <= case.tolerance:
        raise SystemExit(f"{case.name}: error {found[0]:.1e} (PyTorch's {found[1]:.1e})")
    return found


def milliseconds(case: Case, place: Place, rounds: int) -> tuple[float, float]:
    """The median times of both, measured in turns."""
    samples: tuple[list[float], list[float]] = ([], [])
    for k in range(rounds + 3):
        for times, call in zip(samples, (case.ours, case.theirs), strict=True):
            place.wait()
            start = perf_counter()
            call()
            place.wait()
            if k >= 3:  # the first ones warm up
                times.append(perf_counter() - start)
    return median(samples[0]) * 1e3, median(samples[1]) * 1e3


def measure(place: Place, rounds: int, names: list[str]) -> list[float]:
    """Print a line for each case; returns the ratios."""
    ratios = []
    print("| case | PyTorch ms | Weft ms | ratio | errors (Weft, PyTorch) |\n|---|---|---|---|---|")
    for build in CASES:
        if names and build.__name__ not in names:
            continue
        case = build(place)
        errors = check(case)
        ours, theirs = milliseconds(case, place, rounds)
        ratios.append(ours / theirs)
        shown = f"{theirs:.3f} | {ours:.3f} | {ratios[-1]:.2f} | {errors[0]:.1e}, {errors[1]:.1e}"
        print(f"| {case.name} | {shown} |", flush=True)
    return ratios


def main(arguments: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, or torch: PyTorch's CPU")
    parser.add_argument("--small", action="store_true", help="sizes for a test")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--parameters", type=int, help="of AdamW; default 10^9")
    parser.add_argument("cases", nargs="*", help="e.g. chain adamw mlp layer_norm linear stack")
    given = parser.parse_args(arguments)
    if given.device != "torch" and not wf.cuda.is_available():
        raise SystemExit("there is no GPU; --device torch --small runs on the CPU")
    count = given.parameters or (60_000 if given.small else 10**9)
    where = "cpu" if given.device == "torch" else given.device
    place = Place(given.device, where, given.small, count)
    ratios = measure(place, given.rounds, given.cases)
    mean = exp(sum(map(log, ratios)) / len(ratios))
    print(f"\ngeometric mean {mean:.2f}, largest {max(ratios):.2f} (PyTorch {torch.__version__})")
    return ratios


if __name__ == "__main__":
    main(sys.argv[1:])
