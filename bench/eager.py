"""Eager cost of forward plus backward per operation, beside PyTorch and HIPS autograd.

Run: python bench/eager.py [16 1000 100000]
Every case is the same program in each library, float32, two threads, all inputs requiring a
gradient, timed in turns in one process; the best round counts. Ratios are Weft / PyTorch.
"""

import gc
import math
import sys
import time
from dataclasses import dataclass

import autograd.numpy as anp
import numpy as np
import torch
from autograd import grad as autograd_grad

import weft as wf

SIZES = (16, 1_000, 100_000)
ROUNDS, ROUND_SECONDS = 7, 0.03


@dataclass(frozen=True)
class Library:
    """One library's spelling of what the cases need."""

    name: str
    np: object
    relu: object
    sigmoid: object
    softmax: object
    logsumexp: object
    concat: object
    permute: object


def _anp_softmax(x):
    e = anp.exp(x - anp.max(x, axis=-1, keepdims=True))
    return e / anp.sum(e, axis=-1, keepdims=True)


def _anp_logsumexp(x):
    m = anp.max(x)
    return m + anp.log(anp.sum(anp.exp(x - m)))


WEFT = Library(
    "weft",
    wf,
    wf.relu,
    wf.sigmoid,
    lambda x: wf.softmax(x, -1),
    lambda x: wf.logsumexp(x),
    lambda xs: wf.concat(xs),
    lambda x: x.T,
)
TORCH = Library(
    "torch",
    torch,
    torch.relu,
    torch.sigmoid,
    lambda x: torch.softmax(x, -1),
    lambda x: torch.logsumexp(x, 0),
    lambda xs: torch.cat(xs),
    lambda x: x.T,
)
AUTOGRAD = Library(
    "autograd",
    anp,
    lambda x: anp.maximum(x, 0.0),
    lambda x: 1 / (1 + anp.exp(-x)),
    _anp_softmax,
    _anp_logsumexp,
    lambda xs: anp.concatenate(xs),
    lambda x: anp.transpose(x),
)


def repeat(step, times=8):
    """A chain of one shape-preserving operation."""

    def case(lib, x, y, c):
        z = x
        for _ in range(times):
            z = step(lib, z, y, c)
        return z

    return case, times


def fan(step, times=8):
    """Independent uses of one operation, whose results are added."""

    def case(lib, x, y, c):
        z = step(lib, x, y, c)
        for _ in range(times - 1):
            z = z + step(lib, x, y, c)
        return z

    return case, 2 * times - 1


def _square(x):
    side = math.isqrt(x.shape[0])
    return x[: side * side].reshape((side, side))


def _mlp(lib, x, y, c):
    a, b = _square(x), _square(y)
    h = a
    for _ in range(3):
        h = lib.np.tanh(h @ b + y[: a.shape[0]])
    return h


CASES = {
    "x * y": repeat(lambda L, x, y, c: x * y),
    "x + y": repeat(lambda L, x, y, c: x + y),
    "x - y": repeat(lambda L, x, y, c: x - y),
    "x / y": repeat(lambda L, x, y, c: x / y),
    "-x": repeat(lambda L, x, y, c: -x),
    "x * 1.01": repeat(lambda L, x, y, c: x * 1.01),
    "x + 0.5": repeat(lambda L, x, y, c: x + 0.5),
    "2.0 / x": repeat(lambda L, x, y, c: 2.0 / x),
    "x ** 2": repeat(lambda L, x, y, c: x**2, 4),
    "exp": repeat(lambda L, x, y, c: L.np.exp(-x)),
    "log": fan(lambda L, x, y, c: L.np.log(x)),
    "sqrt": repeat(lambda L, x, y, c: L.np.sqrt(x)),
    "tanh": repeat(lambda L, x, y, c: L.np.tanh(x)),
    "sin": repeat(lambda L, x, y, c: L.np.sin(x)),
    "sigmoid": repeat(lambda L, x, y, c: L.sigmoid(x)),
    "relu": repeat(lambda L, x, y, c: L.relu(x)),
    "maximum": repeat(lambda L, x, y, c: L.np.maximum(x, y)),
    "where": repeat(lambda L, x, y, c: L.np.where(c, x, y)),
    "abs": repeat(lambda L, x, y, c: L.np.abs(x)),
    "sum": fan(lambda L, x, y, c: L.np.sum(x)),
    "mean": fan(lambda L, x, y, c: L.np.mean(x)),
    "sum of rows": fan(lambda L, x, y, c: L.np.sum(x.reshape((4, -1)), 0)),
    "amax": fan(lambda L, x, y, c: L.np.max(x)),
    "logsumexp": fan(lambda L, x, y, c: L.logsumexp(x)),
    "softmax": repeat(lambda L, x, y, c: L.softmax(x)),
    "cumsum": repeat(lambda L, x, y, c: L.np.cumsum(x, 0), 3),
    "reshape": repeat(lambda L, x, y, c: x.reshape((4, -1)).reshape((-1,)), 4),
    "transpose": repeat(lambda L, x, y, c: L.permute(x.reshape((4, -1))).reshape((-1,)), 3),
    "slice": fan(lambda L, x, y, c: x[1:]),
    "concat": fan(lambda L, x, y, c: L.concat([x, y])),
    "broadcast row": fan(lambda L, x, y, c: x.reshape((4, -1)) + y[: y.shape[0] // 4]),
    "broadcast scalar": repeat(lambda L, x, y, c: x * y[0]),
    "matmul": repeat(lambda L, x, y, c: (_square(x) @ _square(y)).reshape((-1,)), 3),
    "chain tanh(x*y+x)-y": repeat(lambda L, x, y, c: L.np.tanh(x * y + x) - y, 6),
    "chain mlp": (_mlp, 14),
}
OPS_PER_STEP = {
    "exp": 2, "reshape": 2, "transpose": 3, "sum of rows": 1.5, "broadcast row": 2,
    "broadcast scalar": 2, "matmul": 6, "chain tanh(x*y+x)-y": 4,
}  # fmt: skip


def inputs(n):
    rng = np.random.default_rng(0)
    x = rng.uniform(0.5, 1.5, n).astype(np.float32)
    y = rng.uniform(0.9, 1.1, n).astype(np.float32)
    return x, y, rng.random(n) < 0.5


def weft_program(case, n):
    x, y, c = inputs(n)
    x, y = wf.tensor(x, requires_grad=True), wf.tensor(y, requires_grad=True)
    c = wf.tensor(c)
    seed = wf.ones(case(WEFT, x, y, c).shape)

    def run():
        grads = case(WEFT, x, y, c).backward(seed)
        x.grad = y.grad = None
        return grads

    return run, lambda: [g.numpy() for g in (run().get(x),) if g is not None]


def torch_program(case, n):
    x, y, c = inputs(n)
    x, y = torch.tensor(x, requires_grad=True), torch.tensor(y, requires_grad=True)
    c = torch.tensor(c)
    seed = torch.ones(case(TORCH, x, y, c).shape)

    def run():
        case(TORCH, x, y, c).backward(seed)
        g = x.grad
        x.grad = y.grad = None
        return g

    return run, lambda: [run().numpy()]


def autograd_program(case, n):
    x, y, c = inputs(n)
    gradient = autograd_grad(lambda x, y: anp.sum(case(AUTOGRAD, x, y, c)), (0, 1))

    def run():
        return gradient(x, y)

    return run, lambda: [run()[0]]


def seconds(run):
    """One timed round."""
    count, start = 0, time.perf_counter()
    while True:
        run()
        count += 1
        passed = time.perf_counter() - start
        if passed > ROUND_SECONDS:
            return passed / count


def measure(name, n):
    """Microseconds per operation for each library, after checking that the gradients agree."""
    case, ops = CASES[name]
    ops *= OPS_PER_STEP.get(name, 1)
    made = [weft_program(case, n), torch_program(case, n), autograd_program(case, n)]
    ours, theirs = made[0][1](), made[1][1]()
    if ours:
        np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-3, atol=2e-4)
    best = [math.inf] * 3
    for _ in range(ROUNDS):
        for i, (run, _) in enumerate(made):
            best[i] = min(best[i], seconds(run))
    return [1e6 * b / ops for b in best]


def main(sizes):
    torch.set_num_threads(2)
    gc.collect()
    gc.freeze()
    for n in sizes:
        print(f"\nn = {n}: microseconds per operation, forward + backward")
        print(f"{'case':24}{'weft':>9}{'torch':>9}{'autograd':>10}{'weft/torch':>12}")
        ratios = []
        for name in CASES:
            w, t, a = measure(name, n)
            ratios.append(w / t)
            print(f"{name:24}{w:9.2f}{t:9.2f}{a:10.2f}{w / t:12.2f}")
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{'geometric mean':24}{'':28}{mean:12.2f}   (worst {max(ratios):.2f})")


if __name__ == "__main__":
    main([int(a) for a in sys.argv[1:]] or SIZES)
