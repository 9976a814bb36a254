"""Products of matrices, and layers with bias and activation, beside NumPy, PyTorch and jax.jit.

Run: python bench/linear.py
All take turns in one process, with as many threads as there are cores; times are the best of many
rounds, in microseconds. The ratio is Weft to the best of the others.
"""

import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import torch

import weft as wf
import weft.nn.functional as F

SIZES = (
    *((32, 64, 128), (64, 512, 512), (256, 784, 1024), (1024, 128, 512), (1024, 1024, 1024)),
    *((256, 1024, 10), (8192, 128, 512), (2048, 64, 2048), (100, 100, 100)),
)
# Threads of the others look out for work for a while.
ROUNDS, PAUSE = 12, 0.03


def best(calls: dict) -> dict[str, float]:
    """Microseconds of each, in turns."""
    found = dict.fromkeys(calls, 9.0)
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            time.sleep(PAUSE)
            for _ in range(5):
                start = time.perf_counter()
                call()
                found[name] = min(found[name], time.perf_counter() - start)
    return {name: 1e6 * s for name, s in found.items()}


def line(label: str, found: dict[str, float]) -> None:
    others = [v for name, v in found.items() if name != "weft"]
    shown = "   ".join(f"{name} {v:9.1f}" for name, v in found.items())
    print(f"{label:36} {shown}   ratio {found['weft'] / min(others):.2f}", flush=True)


def products(m: int, k: int, n: int, dtype) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=s).astype(dtype) for s in ((m, k), (n, k)))
    ours, (a, b) = wf.compile(lambda x, w: x @ w.T), map(wf.tensor, (x, w))
    (ta, tb), (ja, jb) = map(torch.from_numpy, (x, w)), map(jnp.asarray, (x, w))
    theirs = jax.jit(lambda x, w: x @ w.T)
    calls = {
        "weft": lambda: ours(a, b),
        "numpy": lambda: x @ w.T,
        "torch": lambda: ta @ tb.T,
        "jax": lambda: theirs(ja, jb).block_until_ready(),
    }
    line(f"x·wᵀ {m}×{k}×{n} {np.dtype(dtype)}", best(calls))


def layers(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s).astype(np.float32) / 8 for s in ((m, k), (n, k), (n,))]
    ours = wf.compile(lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"))
    theirs = jax.jit(lambda x, w, b: jax.nn.gelu(x @ w.T + b))
    a, t, j = ([f(x) for x in arrays] for f in (wf.tensor, torch.from_numpy, jnp.asarray))
    gelu, linear = torch.nn.functional.gelu, torch.nn.functional.linear
    calls = {
        "weft": lambda: ours(*a),
        "torch": lambda: gelu(linear(*t), approximate="tanh"),
        "jax": lambda: theirs(*j).block_until_ready(),
    }
    line(f"gelu(x·wᵀ + b) {m}×{k}×{n}", best(calls))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(os.cpu_count() or 1)
    for size in SIZES:
        products(*size, np.float32)
    for size in SIZES[:5]:
        products(*size, np.float64)
    for size in SIZES:
        layers(*size)
