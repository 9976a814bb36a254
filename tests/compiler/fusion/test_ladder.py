"""The search for the rung of a budget, on rungs whose arenas have any sizes."""

from types import SimpleNamespace

import numpy as np
import pytest

from weft.compiler.fusion import budget
from weft.compiler.fusion.budget import HALF, LAST, Ladder
from weft.compiler.pipeline import current_target

WHOLE = 1000


class Rungs(Ladder):
    """A ladder without schedules: the sizes of plans fall roughly, as limits do, or fail."""

    def __init__(self, rng):
        super().__init__(
            SimpleNamespace(), SimpleNamespace(size=WHOLE, peak=WHOLE), current_target()
        )
        limits = WHOLE * 2.0 ** (-np.arange(LAST + 1) / HALF)
        floor = rng.integers(1, WHOLE // 2)
        rough = limits * rng.uniform(0.6, 1.2, LAST + 1)
        self.sizes = [WHOLE, *np.maximum(rough, floor * rng.uniform(1, 1.3, LAST + 1)).astype(int)]
        self.slack = rng.integers(0, 30, LAST + 2)
        self.fails = rng.integers(HALF // 2, LAST)

    _second = None

    def _rung(self, k):
        least = int(self.sizes[k] - self.slack[k])
        return None if k >= self.fails else SimpleNamespace(least=least)

    def _size(self, k):
        return int(self.sizes[k])

    def _make(self, k):
        return None, SimpleNamespace(size=self._size(k), peak=self._size(k))


def check(seed: int) -> None:
    ladder = Rungs(np.random.default_rng(seed))
    smallest = ladder.smallest()[1].size
    found = {nbytes: ladder.first(nbytes) for nbytes in range(WHOLE - 1, 0, -3)}
    sizes = [made[1].size for made in found.values() if made is not None]
    assert sizes == sorted(sizes, reverse=True)
    assert all(made[1].size <= nbytes for nbytes, made in found.items() if made is not None)
    assert all((made is None) == (nbytes < smallest) for nbytes, made in found.items())
    if smallest < WHOLE:
        made = ladder.first(smallest)
        assert made is not None and made[1].size == smallest


@pytest.mark.parametrize("batch", range(4))
def test_arenas_never_grow_as_budgets_fall(batch):
    for seed in range(batch, 200, 4):
        check(seed)


def test_a_rung_above_that_takes_fewer_bytes_would_break_that(monkeypatch):
    def careless(self, above, k, nbytes):
        while k - above > 1:
            middle = (above + k) // 2
            k, above = (middle, above) if self._fits(middle, nbytes) else (k, middle)
        return k

    monkeypatch.setattr(budget.Ladder, "_raise", careless)
    with pytest.raises(AssertionError):
        for seed in range(200):
            check(seed)
