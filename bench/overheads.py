"""What recording costs over `no_grad`, and what `import weft` costs.

Run: python bench/overheads.py
"""

import statistics
import subprocess
import sys
import time

import numpy as np

import weft as wf

ROUNDS = 41


def chain(x, y):
    """Eight operations on whole arrays."""
    for _ in range(2):
        x = wf.tanh(x * y + y) - y
    return x


def products(a, b):
    """Four matrix products."""
    for _ in range(4):
        a = a @ b
    return a


def recording(f, *args) -> tuple[float, float]:
    """Medians of seconds recorded and under no_grad, measured in turns."""
    taken = {True: [], False: []}
    for _ in range(ROUNDS):
        for recorded in (True, False):
            start = time.perf_counter()
            if recorded:
                out = f(*args)
            else:
                with wf.no_grad():
                    out = f(*args)
            taken[recorded].append(time.perf_counter() - start)
            del out
    return statistics.median(taken[True]), statistics.median(taken[False])


def import_seconds() -> tuple[float, float]:
    """Best of five fresh interpreters: weft, and NumPy alone."""
    best = []
    for name in ("weft", "numpy"):
        program = (
            f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
        )
        runs = [
            float(subprocess.run([sys.executable, "-c", program], capture_output=True).stdout)
            for _ in range(5)
        ]
        best.append(min(runs))
    return best[0], best[1]


def main():
    rng = np.random.default_rng(0)
    x, y = (wf.tensor(rng.random(10**6, np.float32), requires_grad=True) for _ in range(2))
    a, b = (wf.tensor(rng.random((512, 512), np.float32), requires_grad=True) for _ in range(2))
    for name, f, args in (("n = 10^6, 8 ops", chain, (x, y)), ("512x512 @", products, (a, b))):
        on, off = recording(f, *args)
        print(f"{name:18} recorded {1e3 * on:8.2f} ms   no_grad {1e3 * off:8.2f} ms   "
              f"{100 * (on / off - 1):+.1f} %")  # fmt: skip
    weft, numpy = import_seconds()
    print(f"import weft        {weft:.3f} s, of which NumPy {numpy:.3f} s")


if __name__ == "__main__":
    main()
