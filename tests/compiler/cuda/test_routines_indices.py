"""Gathers and scatters of a GPU, against NumPy: every bit, whatever the indices are."""

import numpy as np
import pytest

from weft.compiler.cuda.routines import ordering, scatter
from weft.compiler.cuda.routines.gather import GridTake, GridTakeAlong
from weft.compiler.cuda.routines.scatter import GridScatterSum, GridSegmentSum
from weft.compiler.cuda.routines.threads import Thread
from weft.compiler.cuda.routines.writes import GridIndexPut, GridLastWrites
from weft.core import dtypes

from .emulator import AccessOutside
from .staged import EmulatedRoutine, seeds

MOVED = (
    *(dtypes.float32, dtypes.bfloat16, dtypes.float64, dtypes.bool_, dtypes.int16),
    *(dtypes.int8, dtypes.complex64, dtypes.complex128),
)
ADDED = (
    *(dtypes.float32, dtypes.float32, dtypes.float64, dtypes.int8, dtypes.uint16, dtypes.int64),
    *(dtypes.complex64, dtypes.complex128),
)
INDICES = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int32, dtypes.int64)
LENGTHS = (1, 2, 3, 5, 16, 17, 100, 257, 1000)
PATTERNS = ("any", "few", "one", "ascending", "descending", "outside")


def pick(rng: np.random.Generator, items):
    return items[rng.integers(len(items))]


def indices(rng: np.random.Generator, dtype: np.dtype, n: int, shape) -> np.ndarray:
    """Indices of an axis of length n: negative ones, repeated ones, ones outside."""
    limits, pattern = np.iinfo(dtype), pick(rng, PATTERNS)
    reach = 2 * n if pattern == "outside" else n
    low, high = max(-reach, int(limits.min)), min(reach - 1, int(limits.max))
    made = rng.integers(low, high, shape, endpoint=True)
    if pattern == "few":
        made = pick(rng, made.reshape(-1)[:3]) + np.zeros(shape, np.int64)
        made = np.where(rng.random(shape) < 0.2, rng.integers(0, high, shape, endpoint=True), made)
    if pattern == "one":
        made = np.full(shape, made.reshape(-1)[0])
    if pattern in ("ascending", "descending"):
        made = np.sort(made.reshape(-1)).reshape(shape)
        made = made if pattern == "ascending" else made.reshape(-1)[::-1].reshape(shape)
    return made.astype(dtype)


def followed(i: np.ndarray, n: int) -> np.ndarray:
    """From the end if negative; what is outside still is the last one."""
    i = i.astype(np.int64)
    i = np.where(i < 0, i + n, i)
    return np.where((i < 0) | (i >= n), n - 1, i)


def numbers(rng: np.random.Generator, dtype: np.dtype, shape) -> np.ndarray:
    made = rng.standard_normal(shape) * 9
    return (made + 1j * made[::-1] if dtype in dtypes.COMPLEX else made).astype(dtype)


def alignment(rng: np.random.Generator, *kinds: np.dtype) -> int:
    item = max(dtypes.to_real(d).itemsize if d in dtypes.COMPLEX else d.itemsize for d in kinds)
    return pick(rng, [a for a in (4, 8, 16) if a >= item])


def sizes(rng: np.random.Generator) -> tuple[int, int, int, int]:
    """(lead, n, indices, row) of some tens of thousands of elements."""
    lead, row = pick(rng, (1, 1, 2, 3)), pick(rng, (1, 1, 2, 3, 4, 8, 33, 768))
    most = max(30_000 // (lead * row), 1)
    n, count = (min(pick(rng, LENGTHS), most) for _ in range(2))
    return lead, n, count, row


@pytest.mark.parametrize("seed", seeds(30))
def test_take(seed):
    rng = np.random.default_rng(seed)
    dtype, index, (lead, n, count, row) = pick(rng, MOVED), pick(rng, INDICES), sizes(rng)
    x, i = numbers(rng, dtype, (lead, n, row)), indices(rng, index, n, count)
    routine = GridTake(dtype, index, lead, n, count, row)
    (got,) = EmulatedRoutine(routine, alignment(rng, dtype, index)).both(x, i)
    assert got.tobytes() == x[:, followed(i, n)].tobytes()


@pytest.mark.parametrize("seed", seeds(24))
def test_take_along(seed):
    rng = np.random.default_rng(seed)
    dtype, index, (lead, n, count, row) = pick(rng, MOVED), pick(rng, INDICES), sizes(rng)
    x, i = numbers(rng, dtype, (lead, n, row)), indices(rng, index, n, (lead, count, row))
    routine = GridTakeAlong(dtype, index, lead, n, count, row)
    (got,) = EmulatedRoutine(routine, alignment(rng, dtype, index)).both(x, i)
    want = np.take_along_axis(x, followed(i, n), 1)
    assert got.tobytes() == want.tobytes()


def sum_rows(x: np.ndarray, i: np.ndarray, n: int) -> np.ndarray:
    lead, _, row = x.shape
    out = np.zeros((lead, n, row), x.dtype)
    for a in range(lead):
        np.add.at(out[a], followed(i, n), x[a])
    return out


@pytest.mark.parametrize("seed", seeds(24))
def test_segment_sums(seed, monkeypatch):
    """In the order of the indices: the bits are those of adding one after the other."""
    monkeypatch.setattr(ordering, "FEW", (0, ordering.FEW)[seed % 2])
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(ordering, "_BLOCKS", pick(rng, (1, 2, 128)))
    dtype, index, (lead, n, count, row) = pick(rng, ADDED), pick(rng, INDICES), sizes(rng)
    if rng.random() < 0.3:
        lead, count, row = 1, pick(rng, (1023, 1024, 1025, 5000)), pick(rng, (1, 4))
    x, i = numbers(rng, dtype, (lead, count, row)), indices(rng, index, n, count)
    routine = GridSegmentSum(dtype, index, lead, n, count, row)
    run = EmulatedRoutine(routine, alignment(rng, dtype, index), shared=False)
    (got,) = run.both(x, i)
    np.testing.assert_array_equal(got, sum_rows(x, i, n))


@pytest.mark.parametrize("seed", seeds(24))
def test_scattered_sums(seed, monkeypatch):
    monkeypatch.setattr(ordering, "FEW", (0, ordering.FEW)[seed % 2])
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(scatter, "_LINES", pick(rng, (1, 4096)))
    monkeypatch.setattr(scatter, "_SHORT", pick(rng, (0, 16)))
    dtype, index, (lead, n, count, row) = pick(rng, ADDED), pick(rng, INDICES), sizes(rng)
    shape = (lead, count, row)
    x, i = numbers(rng, dtype, shape), indices(rng, index, n, shape)
    run = EmulatedRoutine(GridScatterSum(dtype, index, *sizes_of(shape, n)))
    (got,) = run.both(x, i)
    want, places = np.zeros((lead, n, row), dtype), np.indices(shape)
    np.add.at(want, (places[0], followed(i, n), places[2]), x)
    np.testing.assert_array_equal(got, want)


def sizes_of(shape: tuple[int, int, int], n: int) -> tuple[int, int, int, int]:
    return shape[0], n, shape[1], shape[2]


@pytest.mark.parametrize("seed", seeds(24))
def test_index_put(seed):
    rng = np.random.default_rng(seed)
    dtype, index, (lead, n, count, row) = pick(rng, MOVED), pick(rng, INDICES), sizes(rng)
    one = bool(rng.random() < 0.3)
    x, i = numbers(rng, dtype, (lead, n, row)), indices(rng, index, n, count)
    v = numbers(rng, dtype, (1,) if one else (lead, count, row))
    routine = GridIndexPut(dtype, index, lead, n, count, row, one)
    (got,) = EmulatedRoutine(routine, alignment(rng, dtype, index)).both(x, i, v)
    want = x.copy()
    for k, at in enumerate(followed(i, n)):
        want[:, at] = v if one else v[:, k]
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("seed", seeds(16))
def test_last_writes(seed):
    rng = np.random.default_rng(seed)
    index, n, count = pick(rng, INDICES), pick(rng, LENGTHS), pick(rng, (*LENGTHS, 3000))
    i = indices(rng, index, n, count)
    (got,) = EmulatedRoutine(GridLastWrites(index, n, count)).both(i)
    places = followed(i, n).tolist()
    assert got.tolist() == [at not in places[k + 1 :] for k, at in enumerate(places)]


# -- planted faults --------------------------------------------------------------------------


def test_an_index_that_is_followed_outside_shows(monkeypatch):
    def unclamped(self, array, dtype, k, n):
        return self.load(array, k, ordering.WORD)

    x, i = np.zeros((1, 7, 4), np.float32), np.array([3, 7], np.int32)
    routine = GridTake(x.dtype, i.dtype, 1, 7, 2, 4)
    EmulatedRoutine(routine).both(x, i)
    monkeypatch.setattr(Thread, "index_at", unclamped)
    with pytest.raises(AccessOutside, match="array 0"):
        EmulatedRoutine(routine, shared=False).both(x, i)


def test_a_wrong_alignment_shows():
    x, i = np.zeros((1, 7, 4), np.float32), np.array([3, 6])
    run = EmulatedRoutine(GridTake(x.dtype, i.dtype, 1, 7, 2, 4))
    run.both(x, i)
    run.aligned = 8
    with pytest.raises(AccessOutside, match="array 0"):
        run.both(x, i)


def skewed(count: int) -> tuple[GridSegmentSum, np.ndarray, np.ndarray]:
    """A sum of numbers of many sizes, whose order shows."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)
    routine = GridSegmentSum(dtypes.float32, dtypes.int64, 1, 20, count, 1)
    return routine, x.reshape(1, count, 1), rng.integers(0, 20, count)


def is_right(run: EmulatedRoutine, x, i) -> bool:
    want = sum_rows(x, i, run.routine.n)
    try:
        return all(np.array_equal(run.run(x, i, down=d)[0], want) for d in (False, True))
    except AccessOutside:
        return False


def test_an_order_that_is_not_stable_shows(monkeypatch):
    monkeypatch.setattr(ordering, "FEW", 0)
    routine, x, i = skewed(900)
    assert is_right(EmulatedRoutine(routine), x, i)
    place = Thread.place
    monkeypatch.setattr(Thread, "place", lambda self: place(self) ^ 1)
    assert not is_right(EmulatedRoutine(routine, shared=False), x, i)


def test_a_wrong_rank_shows(monkeypatch):
    """Elements that are taken for their neighbours."""
    routine, x, i = skewed(900)
    assert type(routine.stages[1]) is ordering.RankStage
    assert is_right(EmulatedRoutine(routine), x, i)
    lane = ordering.lane
    monkeypatch.setattr(ordering, "lane", lambda value, n: lane(value, 3 - n))
    assert not is_right(EmulatedRoutine(routine, shared=False), x, i)


# Where there are several blocks, the words of a digit lie in one warp, and only differences of them
# count: what the warps before it have is not needed.
NOT_NEEDED = {(ordering.OrderStage, 1)}


@pytest.mark.parametrize("count", [900, 18_000])
def test_each_barrier_missing_shows(count, monkeypatch):
    monkeypatch.setattr(ordering, "FEW", 0)
    routine, x, i = skewed(count)
    whole, found = EmulatedRoutine(routine), set()
    for n, stage in enumerate(routine.stages):
        kind = type(stage)
        for k in range(0 if kind in found else whole.stages[n].barriers):
            right = is_right(EmulatedRoutine(routine, faults={n: {k}}), x, i)
            assert right == (stage.grid > 1 and (kind, k) in NOT_NEEDED), (stage, k)
        found.add(kind)
    assert sum(stage.barriers for stage in whole.stages) > 5
