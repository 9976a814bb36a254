"""The order of units while they are merged, beside a search through their dependencies."""

import numpy as np
import pytest

from weft.compiler.fusion.precedence import Precedence


class Searched:
    """The same by plain sets: each question is a search."""

    def __init__(self):
        self.needs: dict[int, set[int]] = {}

    def before(self, u: int) -> set[int]:
        seen, todo = set(), [*self.needs[u]]
        while todo:
            v = todo.pop()
            if v not in seen:
                seen.add(v)
                todo += self.needs[v]
        return seen

    def joinable(self, u: int, w: int) -> bool:
        for a, b in ((u, w), (w, u)):
            if any(a in self.before(d) for d in self.needs[b] - {a}):
                return False
        return True

    def join(self, u: int, w: int) -> None:
        needs = (self.needs[u] | self.needs.pop(w)) - {u, w}
        for v in self.needs:
            if w in self.needs[v]:
                self.needs[v] = self.needs[v] - {w} | {u}
        self.needs[u] = needs


def grow(seed: int, order: Precedence, searched: Searched, compare) -> None:
    """Add units, more dependencies of older ones, and merge pairs, as fusion does."""
    rng = np.random.default_rng(seed)
    for u in range(40):
        order.add(u)
        searched.needs[u] = set()
        known = [v for v in searched.needs if v != u]
        picked = {int(v) for v in rng.choice(known, min(len(known), 3))} if known else set()
        order.wait(u, picked)
        searched.needs[u] |= picked
        for _ in range(int(rng.integers(3))):
            a, b = (int(v) for v in rng.choice([*searched.needs], 2))
            if a == b:
                continue
            assert order.joinable(a, b) == searched.joinable(a, b)
            if rng.random() < 0.6 and searched.joinable(a, b):
                order.join(a, b)
                searched.join(a, b)
            elif b not in searched.before(a):  # an equation joins b, and reads a
                order.wait(b, {a})
                searched.needs[b].add(a)
        compare(order, searched)


def same(order: Precedence, searched: Searched) -> None:
    assert order.needs == searched.needs
    for u in searched.needs:
        before = searched.before(u)
        assert {v for v in searched.needs if order.precedes(v, u)} == before


@pytest.mark.parametrize("seed", range(30))
def test_orders_are_those_of_a_search(seed):
    grow(seed, Precedence(), Searched(), same)


def test_a_copy_changes_by_itself():
    order, searched = Precedence(), Searched()
    grow(0, order, searched, same)
    made = order.copy()
    made.add(100)
    made.wait(100, set(searched.needs))
    for a, b in [(a, b) for a in searched.needs for b in searched.needs if a < b][:200]:
        if a in made.needs and b in made.needs and made.joinable(a, b):
            made.join(a, b)
    same(order, searched)


def test_followers_that_are_lost_show(monkeypatch):
    monkeypatch.setattr(Precedence, "_behind", lambda self, u: iter(self._followers[u]))
    with pytest.raises(AssertionError):
        for seed in range(30):
            grow(seed, Precedence(), Searched(), same)
