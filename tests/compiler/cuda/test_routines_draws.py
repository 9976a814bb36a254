"""Random numbers of a GPU: every bit as on the CPU, in every layout of streams."""

import numpy as np
import pytest

from weft.compiler.cpu.routines.draws import Draw
from weft.compiler.cuda.routines.draws import GridDraw
from weft.compiler.cuda.stage import build_stage
from weft.compiler.emit import philox
from weft.compiler.emit.variates import Below, Integers, Normal, Uniform, Variates, Words
from weft.core import dtypes
from weft.core.counter import ReservedBlocks, block_words

from ..schedules import call_routine
from .staged import EmulatedRoutine, seeds

REAL = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
WHOLE = (*dtypes.SIGNED, *dtypes.UNSIGNED)


def variates(rng: np.random.Generator) -> Variates:
    """Any variates."""
    real = REAL[rng.integers(len(REAL))]
    low, high = map(float, np.sort(rng.normal(size=2) * 3))
    last = float(np.nextafter(np.float32(high), np.float32(low)))
    ranges = (2, 11, 2**31, 2**32 - 1, 2**32, 2**40 + 7, 2**63, 2**64 - 1)
    kinds = (
        Words(dtypes.int64, bool(rng.integers(2))),
        Below(dtypes.bool_, int(rng.choice((0, 1 << 31, 1 << 32, 12345678)))),
        Uniform(real, *((0.0, 1.0, 1.0) if rng.random() < 0.5 else (low, high, last))),
        Normal(real, *((0.0, 1.0) if rng.random() < 0.5 else (low, high))),
        Integers(
            WHOLE[rng.integers(len(WHOLE))], int(rng.integers(-9, 9)), ranges[rng.integers(8)]
        ),
    )
    return kinds[rng.integers(len(kinds))]


def states(rng: np.random.Generator, streams: int) -> np.ndarray:
    """Some of them at the carry from the low word of the position to the high one."""
    made = rng.integers(0, 2**63, (streams, 3), np.uint64) * 2
    made[rng.random(streams) < 0.3, 1] = 2**32 - 3
    return made


def check(made: Variates, streams: int, size: int, state: np.ndarray, aligned: int) -> None:
    want = np.zeros((streams, size), made.dtype)
    call_routine(Draw(made, streams, size), [state, want])
    (got,) = EmulatedRoutine(GridDraw(made, streams, size), aligned).both(state)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("seed", seeds(50))
def test_every_bit_is_the_cpus(seed):
    rng = np.random.default_rng(seed)
    made, streams = variates(rng), int(rng.choice((1, 1, 2, 3, 5)))
    size = int(rng.choice((1, 2, 3, 4, 7, 8, 63, 64, 1000, 1023, 1024, 3001)))
    check(made, streams, size, states(rng, streams), int(rng.choice((8, 16))))


def test_words_are_philoxs():
    key, nonce, position = 0x0123456789ABCDEF, 0xFEDCBA9876543210, (1 << 32) - 5
    state = np.array([[key, position, nonce]], np.uint64)
    (got,) = EmulatedRoutine(GridDraw(Words(dtypes.int64, False), 1, 40)).both(state)
    blocks = [block_words(ReservedBlocks(key, (nonce << 64) + position), 0, i) for i in range(10)]
    assert got.reshape(-1).tolist() == [w for block in blocks for w in block]


def test_a_wrong_constant_shows(monkeypatch):
    state = np.array([[1, 2, 3]], np.uint64)
    made = Words(dtypes.int64, False)
    right = EmulatedRoutine(GridDraw(made, 1, 44)).both(state)[0]
    monkeypatch.setattr(philox, "_INCREMENTS", (0x9E3779B8, 0xBB67AE85))
    wrong = EmulatedRoutine(GridDraw(made, 1, 44), shared=False).both(state)[0]
    assert not np.array_equal(right, wrong)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_nothing_is_contracted_or_approximate(dtype):
    """The bits depend on a rounding after each operation."""
    for made in (Normal(dtype, 0.5, 2.0), Uniform(dtype, -1.0, 2.0, 1.99)):
        (stage,) = GridDraw(made, 1, 4096).stages
        lines = build_stage(stage, 90).ptx.splitlines()
        words = [line.split()[0] for line in lines if line.startswith("\t") and line.strip()]
        assert not [w for w in words if w.startswith(("fma", "mad.f")) or "approx" in w]
        sums = [w for w in words if w.startswith(("add.", "mul.", "sub.")) and ".f" in w]
        assert sums and all(".rn" in w for w in sums)
