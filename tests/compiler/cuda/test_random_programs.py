"""Random programs of the CUDA target on an emulated GPU: direct, captured and replayed.

`make test` runs 300 of them, `make soak` 20 000; WEFT_FIRST_SEED says where their seeds begin. A
failure is printed as the shortest program that still fails; `examined(seed, "torch")` runs it
again.
"""

import os
from collections import Counter
from dataclasses import replace

import pytest

from weft.compiler.cuda import sums
from weft.compiler.cuda.runtime import executable

from ..fuzz import oracle
from ..fuzz.oracle import MODES, Mismatch, check, examined
from ..fuzz.world import Given
from ..fuzz.writer import Text

SOAK = os.environ.get("WEFT_SOAK") == "1"
FIRST = int(os.environ.get("WEFT_FIRST_SEED", "3000"))
BATCHES, PROGRAMS = (400, 50) if SOAK else (10, 30)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_programs(gpu, batch, monkeypatch):
    """The modes of programs go with their seeds: all of them are in a batch."""
    monkeypatch.setattr(executable, "_FEW", 0)  # also short programs are captured
    monkeypatch.setattr(sums, "FLOPS", 0)  # and small products take a bias
    monkeypatch.setenv("WEFT_CACHE_DIR", "")  # schedules there are made with other limits
    seeds = range(FIRST + batch * PROGRAMS, FIRST + (batch + 1) * PROGRAMS)
    assert {s % len(MODES) for s in seeds} == set(range(len(MODES)))
    seen = Counter(examined(seed, "torch") for seed in seeds)
    assert seen["same"] + seen["same as on the CPU"] >= 0.8 * PROGRAMS, seen
    assert gpu.captured >= PROGRAMS // 2


OUTSIDE = Text(
    0,
    (Given("x0", "tensor", "float64", (5, 3)),),
    ("v1 = F.cross_entropy(x0, I0 + 7)",),
    ("v1",),
)


def test_errors_that_come_late_are_compared(gpu, monkeypatch):
    assert check(OUTSIDE, "plain", "torch") == "refused"
    monkeypatch.setattr(oracle, "settle", lambda device: None)
    with pytest.raises(Mismatch, match=r"eager: IndexingError"):
        check(replace(OUTSIDE, statements=(*OUTSIDE.statements, "v1 = v1 * 2")), "plain", "torch")
    oracle.forget_late()


def test_what_eager_on_neither_device_computes_is_found(gpu, monkeypatch):
    """Values that are compared with the CPU's, too, still have to be those of one of them."""
    text = replace(OUTSIDE, statements=("v1 = F.layer_norm(x0, (3,))",))
    assert check(text, "plain", "torch") == "same"
    outcome = oracle.outcome

    def worse(text, mode, jit, **given):
        run = outcome(text, mode, jit, **given)
        if jit is not oracle.plain:
            run.leaves[2][0] = run.leaves[2][0] * (1 + 1e-9)
        return run

    monkeypatch.setattr(oracle, "outcome", worse)
    with pytest.raises(Mismatch, match="eager on the CPU"):
        check(text, "plain", "torch")
