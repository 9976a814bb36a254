"""Native code that compares dicts with what they held, against Python's comparison."""

import numpy as np
import pytest

from weft.compiler.frontend.records import Records
from weft.compiler.native.builtin import make_picker

KEPT, COUNTED = ("a", "b"), ("step", "product")


class States:
    """Some dicts like an optimizer's states, written down, and what they were then."""

    def __init__(self, count: int):
        self.dicts = [{"a": [], "step": 1000, "b": [], "product": 0.5} for _ in range(count)]
        for name in COUNTED:
            for held in self.dicts:
                held[name] = self.dicts[0][name]
        self.were = [dict(held) for held in self.dicts]
        records = Records()
        for held in self.dicts:
            values = [records.any if name in COUNTED else value for name, value in held.items()]
            records.table(held, [*held], values)
        for name in COUNTED:
            records.alike(name, self.dicts)
        self.unchanged, self.count = records.watching(), records.counting(self.dicts)

    def expected(self) -> bool:
        for held, was in zip(self.dicts, self.were, strict=True):
            if [*held] != [*was] or any(held[name] is not was[name] for name in KEPT):
                return False
        return all(
            name in held and held[name] is self.dicts[0][name]
            for name in COUNTED
            for held in self.dicts
        )


def count(states: States, rng) -> None:
    name = COUNTED[rng.integers(2)]
    states.count(name, float(rng.integers(1000, 10**6)))
    assert len({id(held[name]) for held in states.dicts}) == 1


def one_counts(states: States, rng) -> None:
    rng.choice(states.dicts)[COUNTED[rng.integers(2)]] = float(rng.integers(1000, 10**6))


def rebind(states: States, rng) -> None:
    rng.choice(states.dicts)[KEPT[rng.integers(2)]] = []


def reorder(states: States, rng) -> None:
    held = rng.choice(states.dicts)
    name = next(iter(held))
    held[name] = held.pop(name)


def add(states: States, rng) -> None:
    rng.choice(states.dicts)["more"] = 1


def restore(states: States, rng) -> None:
    for held, was in zip(states.dicts, states.were, strict=True):
        held.clear()
        held.update(was)


def nothing(states: States, rng) -> None:
    pass


CHANGES = (count, count, count, nothing, one_counts, rebind, reorder, add, restore, restore)


@pytest.mark.parametrize("seed", range(20))
def test_dicts_that_are_counted_in_and_changed(seed):
    rng = np.random.default_rng(seed)
    states = States(int(rng.integers(1, 6)))
    for _ in range(300):
        change = CHANGES[rng.integers(len(CHANGES))]
        change(states, rng)
        assert states.unchanged() == states.expected(), change.__name__


def test_a_dict_that_cannot_be_counted_in():
    states = States(3)
    assert states.unchanged()
    with pytest.raises(TypeError, match="unhashable"):
        states.count([], 1)
    assert states.unchanged()  # compared anew


def test_picking():
    values = [object() for _ in range(20)]
    positions = [3, 3, 19, 0]
    pick = make_picker(positions)
    made = pick(values)
    assert all(x is values[i] for x, i in zip(made, positions, strict=True))
    assert make_picker([])(values) == []
    made.append(1)  # a list like others
    del values, made
