"""Minimum cuts by components beside one cut of the whole network."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from weft.compiler.fusion import min_cut
from weft.compiler.fusion.min_cut import NEVER, Network


class Layout:
    """A random network: units in a row, each of which writes some buffers and reads earlier ones.

    The network is some copies of a block, one after the other.
    """

    def __init__(self, rng, blocks: int, links: bool = True):
        size = int(rng.integers(1, 6))
        counts, wants = rng.integers(1, 3, size), rng.random((size, 3))
        width = int(counts.sum())
        reads = rng.integers(1, width + 4, (size, 2)) if links else np.zeros((size, 2), int)
        self.owner, self.needed, pairs = [], [], []
        for b in range(blocks):
            for u in range(size):
                start = len(self.owner)
                pairs += [(b * size + u, start - r) for r in {*reads[u]} if 0 < r <= start]
                self.owner += [b * size + u] * int(counts[u])
                self.needed += [bool(wants[u, k] < 0.6) for k in range(counts[u])]
        self.units, self.width, self.size = blocks * size, width, size
        self.readers, self.read = np.array(pairs, int).reshape(-1, 2).T

    def network(self) -> Network:
        owner, needed = np.array(self.owner), np.array(self.needed)
        return Network(self.units, owner, needed, self.readers, self.read)


def value(layout: Layout, keeping, running, cut) -> int:
    """What a cut costs, if all that is wanted is kept or runs again."""
    again, kept = cut.again, cut.kept
    wanted = {i for i, needed in enumerate(layout.needed) if needed}
    wanted |= {i for u, i in zip(layout.readers, layout.read, strict=True) if again[u]}
    assert all(kept[i] or again[layout.owner[i]] for i in wanted)
    assert not (again & (running >= NEVER)).any()
    return int(keeping[kept].sum() + running[again].sum())


def least(layout: Layout, keeping, running) -> int:
    """The value of the minimum cut of the whole network."""
    units, count = layout.units, layout.units + len(layout.owner)
    edges = [(units + i, u, keeping[i]) for i, u in enumerate(layout.owner)]
    edges += [(u, units + i, NEVER) for u, i in zip(layout.readers, layout.read, strict=True)]
    edges += [(u, count + 1, running[u]) for u in range(units)]
    edges += [(count, units + i, NEVER) for i, needed in enumerate(layout.needed) if needed]
    rows, columns, data = np.array(edges).T
    graph = csr_array((data.astype(np.int32), (rows, columns)), (count + 2, count + 2))
    return int(maximum_flow(graph, count, count + 1).flow_value)


def costs(rng, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """Costs that are mostly the same in all blocks."""
    blocks = layout.units // layout.size
    keeping = np.tile(rng.integers(1, 30, layout.width), blocks)
    running = np.tile(rng.integers(1, 60, layout.size), blocks)
    running[rng.random(len(running)) < 0.05] = NEVER
    changed = rng.random(len(keeping)) < 0.05
    keeping[changed] = rng.integers(1, 30, int(changed.sum()))
    return keeping.astype(np.int32), running.astype(np.int32)


def check(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout(rng, int(rng.integers(1, 9)))
    network = layout.network()
    for _ in range(4):
        keeping, running = costs(rng, layout)
        found = network.cut(keeping, running)
        assert value(layout, keeping, running, found) == least(layout, keeping, running)


@pytest.mark.parametrize("batch", range(4))
def test_cuts_are_as_cheap_as_those_of_the_whole_network(batch):
    for seed in range(batch, 200, 4):
        check(seed)


def faults() -> int:
    found = 0
    for seed in range(100):
        try:
            check(seed)
        except AssertionError:
            found += 1
    return found


def test_costs_belong_to_the_digest(monkeypatch):
    def kinds(c):
        return np.where(np.arange(len(c._costs)) < c._units, -1, c._source)

    monkeypatch.setattr(min_cut._Components, "_kinds", kinds)
    assert faults() > 10


def test_equal_components_are_solved_once():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        layout = Layout(rng, 30, links=False)
        network = layout.network()
        keeping = np.tile(rng.integers(10, 30, layout.width), 30).astype(np.int32)
        running = np.ones(layout.units, np.int32)
        network.cut(keeping, running)
        once = network.solved
        assert once <= layout.size
        network.cut(keeping, running)
        assert network.solved == once
