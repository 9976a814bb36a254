"""A training step of a small convolutional network, and convolutions alone, beside PyTorch eager.

Run: python bench/cnn.py [step | convolutions]
The same network, numbers and AdamW in both, float32, all threads of both, timed in turns in one
process; medians and best rounds. Ratios are Weft / PyTorch.
"""

import statistics
import sys
import time

import numpy as np
import torch
from scoreboard.networks import cnn as network
from scoreboard.problems import CHANNELS as WIDTHS
from scoreboard.problems import CLASSES, SIZE
from scoreboard.problems import IMAGES as BATCH

import weft as wf

ROUNDS, TURN, PAUSE = 7, 5, 0.25
SHAPES = {
    "w1": (WIDTHS[1], WIDTHS[0], 3, 3),
    "b1": (WIDTHS[1],),
    "w2": (WIDTHS[2], WIDTHS[1], 3, 3),
    "b2": (WIDTHS[2],),
    "w3": (CLASSES, WIDTHS[2] * (SIZE // 4) ** 2),
    "b3": (CLASSES,),
}
# images, channels, size, channels of the result, kernel, stride, groups
CONVOLUTIONS = {
    "first layer 3 to 32": (32, 3, 32, 32, 3, 1, 1),
    "second layer 32 to 64": (32, 32, 16, 64, 3, 1, 1),
    "by steps of two": (32, 32, 16, 64, 3, 2, 1),
    "56×56, 64 to 64": (4, 64, 56, 64, 3, 1, 1),
    "8×8, 256 to 256": (32, 256, 8, 256, 3, 1, 1),
    "224×224, 7×7 by two": (2, 3, 224, 64, 7, 2, 1),
    "1×1, 64 to 64": (32, 64, 32, 64, 1, 1, 1),
    "four groups": (32, 64, 16, 64, 3, 1, 4),
    "depthwise": (32, 64, 32, 64, 3, 1, 64),
}


def arrays(rng) -> dict[str, np.ndarray]:
    found = {}
    for name, shape in SHAPES.items():
        bound = 1 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 0.05
        found[name] = rng.uniform(-bound, bound, shape).astype(np.float32)
    return found


def ours(values, x, labels):
    params = {k: wf.Parameter(v.copy()) for k, v in values.items()}
    optimizer = wf.optim.AdamW(list(params.values()), lr=1e-3)
    x, rows, columns = wf.tensor(x), wf.arange(BATCH), wf.tensor(labels)

    def step():
        optimizer.zero_grad()
        logits = network(wf.nn.functional, params, x)
        loss = -wf.log_softmax(logits, -1)[rows, columns].mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def theirs(values, x, labels):
    params = {k: torch.tensor(v, requires_grad=True) for k, v in values.items()}
    optimizer = torch.optim.AdamW(list(params.values()), lr=1e-3)
    x, labels = torch.tensor(x), torch.tensor(labels)

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(torch.nn.functional, params, x), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def timed(*steps) -> list[tuple[float, float]]:
    """(median, best) milliseconds of each, measured in turns.

    A library's threads look out for work for a while after it is done, at the other one's cost:
    each turn starts with a pause and a step that does not count.
    """
    taken = [[] for _ in steps]
    for _ in range(ROUNDS):
        for times, step in zip(taken, steps, strict=True):
            time.sleep(PAUSE)
            step()
            for _ in range(TURN):
                start = time.perf_counter()
                step()
                times.append(1e3 * (time.perf_counter() - start))
    return [(statistics.median(t[TURN:]), min(t[TURN:])) for t in taken]


def report(title: str, mine, yours) -> None:
    print(
        f"{title:34} {mine[0]:8.2f} ms (best {mine[1]:7.2f})   torch {yours[0]:8.2f} "
        f"({yours[1]:7.2f})   ratio {mine[0] / yours[0]:5.2f} ({mine[1] / yours[1]:.2f})"
    )


def training_step() -> None:
    rng = np.random.default_rng(0)
    values = arrays(rng)
    x = rng.standard_normal((BATCH, WIDTHS[0], SIZE, SIZE)).astype(np.float32)
    labels = rng.integers(0, CLASSES, BATCH)
    one, other = ours(values, x, labels), theirs(values, x, labels)
    losses = [(one(), other()) for _ in range(5)]
    assert all(abs(a - b) < 1e-3 * abs(b) for a, b in losses), losses
    report("step 3-32-64, 32×32, batch 32", *timed(one, other))


def convolutions() -> None:
    rng = np.random.default_rng(1)
    for title, (n, c, size, o, k, stride, groups) in CONVOLUTIONS.items():
        x = rng.standard_normal((n, c, size, size)).astype(np.float32)
        w = rng.standard_normal((o, c // groups, k, k)).astype(np.float32)
        how = {"stride": stride, "padding": k // 2, "groups": groups}
        report(title, *timed(*[_both_ways(lib, x, w, how) for lib in (wf, torch)]))


def _both_ways(lib, x, w, how):
    x, w = lib.tensor(x, requires_grad=True), lib.tensor(w, requires_grad=True)
    seed = lib.ones_like(lib.nn.functional.conv2d(x, w, **how).detach())
    return lambda: lib.nn.functional.conv2d(x, w, **how).backward(seed)


def main(names: list[str]) -> None:
    print(f"{torch.get_num_threads()} threads of torch")
    if not names or "step" in names:
        training_step()
    if not names or "convolutions" in names:
        convolutions()


if __name__ == "__main__":
    main(sys.argv[1:])
