"""Writes through views: whatever NumPy would change is changed, or the write is refused."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft import errors

from .programs import function
from .run import Run, snapshot

SOAK = bool(os.environ.get("WEFT_SOAK"))
COUNT = 20_000 if SOAK else 400


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("recorded", [False, True])
def test_programs_of_views_and_writes(part, recorded):
    def start(x):
        return wf.tensor(x, requires_grad=recorded) * 1.0

    runs = [Run(seed, start) for seed in range(part, COUNT, 4)]
    writes, refused = (sum(getattr(r, k) for r in runs) for k in ("writes", "refused"))
    assert writes > 2 * len(runs) and refused < 0.7 * writes


class Case:
    """What of a program was not refused, as a function, with NumPy's values and derivatives."""

    def __init__(self, seed: int):
        run = Run(seed)
        self.f = function(run.done, run.names)
        self.theirs = function(run.reference, run.names, snapshot=snapshot)
        rng = np.random.default_rng(seed)
        self.x, self.v = run.x, rng.normal(size=run.x.shape)
        self.y = self.theirs(self.x)
        step = 1e-30  # the derivative along v is the imaginary part, to the last digit
        real = function([s.replace(" > 0]", ".real > 0]") for s in run.reference], run.names)
        real.__globals__["snapshot"] = snapshot
        self.dy = np.imag(real(self.x + 1j * step * self.v)) / step
        self.w = rng.normal(size=self.y.shape)


def jvp(case):
    y, dy = wf.jvp(case.f, (wf.tensor(case.x),), (wf.tensor(case.v),))
    return y, dy, case.y, case.dy


def reverse(case):
    x = wf.tensor(case.x, requires_grad=True)
    y = case.f(x)
    slope = (y * case.w).sum().backward().get(x)
    slope = 0.0 if slope is None else (slope * case.v).sum()
    return y.detach(), slope, case.y, case.dy @ case.w


def gradient(case):
    slope = wf.grad(lambda x: (case.f(x) * case.w).sum())(wf.tensor(case.x))
    return 0.0, (slope * case.v).sum(), 0.0, case.dy @ case.w


def batched(case):
    xs = np.stack([case.x, case.x + case.v])
    return wf.vmap(case.f)(wf.tensor(xs)), 0.0, np.stack([case.theirs(x) for x in xs]), 0.0


def compiled(case):
    return wf.compile(case.f)(wf.tensor(case.x)), 0.0, case.y, 0.0


@pytest.mark.parametrize("mode", [jvp, reverse, gradient, batched, compiled])
def test_transformed_programs(mode):
    """The same statements are right in every mode, or refused."""
    done = 0
    count = (COUNT if SOAK else 100) // (10 if mode is compiled else 1)
    for seed in range(count):
        case = Case(seed)
        try:
            y, dy, right, slope = mode(case)
        except (errors.WeftError, errors.StagingError):
            continue
        done += 1
        np.testing.assert_allclose(np.array(wf.asarray(y).tolist()), right, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(wf.asarray(dy).tolist(), slope, rtol=1e-8, atol=1e-8)
    assert done > 0.5 * count, done


def test_scipy_functions_beside_numpy():
    """Equal or refused: `oaconvolve` writes through views."""
    places = ["signal", "ndimage", "special", "stats", "linalg"] if SOAK else ["signal"]
    program = Path(__file__).with_name("scipy_functions.py")
    run = subprocess.run(
        [sys.executable, program, *places],
        env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    same, *wrong = run.stdout.split("\n")
    assert not [w for w in wrong if w] and int(same) > (1300 if SOAK else 150), run.stdout
