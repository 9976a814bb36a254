"""Optimizer steps over ten million parameters, beside torch.optim's fused and foreach kernels.

Run: python bench/optim.py
"""

import statistics
import time

import numpy as np
import torch

import weft as wf
from weft.backend.shared import threads

SIZE, ROUNDS = 10_000_000, 15
SMALL = [(128, 128), (128,), (512, 128), (512,)] * 50


def ours(name, values, grads, **options):
    params = [wf.Parameter(v) for v in values]
    held = [wf.tensor(g) for g in grads]
    optimizer = getattr(wf.optim, name)(params, lr=1e-3, **options)
    return lambda: optimizer.step(held)


def theirs(name, values, grads, **options):
    params = [torch.tensor(v, requires_grad=True) for v in values]
    for p, g in zip(params, grads, strict=True):
        p.grad = torch.tensor(g)
    return getattr(torch.optim, name)(params, lr=1e-3, **options).step


def medians(steps) -> list[float]:
    """Seconds a step, measured in turns."""
    taken = [[] for _ in steps]
    for _ in range(ROUNDS + 2):
        for times, step in zip(taken, steps, strict=True):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
    return [statistics.median(times[2:]) for times in taken]


def report(title: str, name: str, values, grads, fused: bool, **options):
    """One line: Weft on NumPy, torch's best kernel, and their ratio."""
    best = {"fused": True} if fused else {"foreach": True}
    mine, yours = medians(
        [ours(name, values, grads, **options), theirs(name, values, grads, **options, **best)]
    )
    kernel = "fused" if fused else "foreach"
    print(
        f"{title:34} {1e3 * mine:8.2f} ms   torch {kernel:7} {1e3 * yours:8.2f} ms"
        f"   ratio {mine / yours:5.2f}"
    )


def main():
    rng = np.random.default_rng(0)
    values, grads = ([rng.standard_normal(SIZE, np.float32)] for _ in range(2))
    print(f"{torch.get_num_threads()} threads of torch, {threads.cores()} of Weft")
    for name, fused, options in (
        ("AdamW", True, {}),
        ("Adam", True, {"weight_decay": 0.1}),
        ("SGD", True, {"momentum": 0.9}),
        ("RMSprop", False, {}),
        ("NAdam", False, {}),
    ):
        report(f"{name}, one array of 10^7 float32", name, values, grads, fused, **options)
    values, grads = ([rng.standard_normal(s, np.float32) for s in SMALL] for _ in range(2))
    total = sum(v.size for v in values)
    report(f"AdamW, {len(SMALL)} arrays, {total / 1e6:.1f} 10^6", "AdamW", values, grads, True)
    values, grads = ([rng.standard_normal(SIZE, np.float32)] for _ in range(2))
    eight, plain = medians([ours(n, values, grads) for n in ("AdamW8bit", "AdamW")])
    print(f"AdamW8bit {1e3 * eight:.2f} ms, AdamW {1e3 * plain:.2f} ms")


if __name__ == "__main__":
    main()
