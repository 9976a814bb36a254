"""The minimum cut between buffers that are kept and units that run again, part by part.

A unit that costs more than to keep all its buffers does not run again, so nothing before it
matters to what is after it: there the network falls into parts. Equal parts have equal cuts, and
each is solved once: of a network of equal blocks, one block.
"""

from collections.abc import Iterator

import numpy as np

from ...core.record import record

Digest = tuple[bytes, bytes]  # of the nodes of a part, and of its edges

NEVER = 1 << 30  # the capacity of what is never cut


@record
class Part:
    """A part of a network, and the side of each of its nodes.

    nodes  units first, then buffers, by their numbers
    again  of these units, those that run again
    """

    nodes: bytes
    again: tuple[int, ...]


@record
class MinCut:
    """Which units run again, which buffers are kept, and the parts in which something does."""

    again: np.ndarray
    kept: np.ndarray
    parts: tuple[Part, ...]


class Network:
    """Units and buffers: a buffer that is wanted is kept, or its unit runs again.

    A unit that runs again wants what it reads.

    owner    by buffer, the unit that writes it
    needed   by buffer, whether it is wanted anyway
    readers  the units that read buffers, and beside them
    read     the buffers that they read
    solved   how many parts were solved
    """

    def __init__(
        self,
        units: int,
        owner: np.ndarray,
        needed: np.ndarray,
        readers: np.ndarray,
        read: np.ndarray,
    ):
        self._units, self._owner, self._needed = units, owner, needed
        self._readers, self._read = readers, read
        self._known: dict[Digest, np.ndarray] = {}  # by digest, the nodes that are reached
        self.solved = 0

    def cut(self, keeping: np.ndarray, running: np.ndarray) -> MinCut:
        """The cheapest cut.

        keeping  by buffer, what it costs to keep it
        running  by unit, what it costs to run it again; some may not, at `NEVER`
        """
        all_kept = np.bincount(self._owner, keeping, self._units)
        runs = (running < all_kept) & (running < NEVER)
        reached = np.zeros(self._units + len(self._owner), bool)
        parts = _Parts(self, keeping, running, runs)
        self._solve(parts)
        found = []
        for nodes, key in parts:
            sides = self._known[key]
            reached[nodes] = sides
            again = nodes[sides & (nodes < self._units)]
            if len(again):
                found.append(Part(nodes.tobytes(), tuple(again.tolist())))
        again, wanted = reached[: self._units], reached[self._units :] | self._needed
        return MinCut(again, wanted & ~again[self._owner], tuple(found))

    def _solve(self, parts: "_Parts") -> None:
        """Solve the parts that are new, together: a call costs more than a small part."""
        new = {key: n for n, (_, key) in enumerate(parts) if key not in self._known}
        if not new:
            return
        self.solved += len(new)
        sides = parts.flow(np.array([*new.values()]))
        for key, n in new.items():
            self._known[key] = sides[parts.nodes(n)]


class _Parts:
    """The parts of a network at some costs, each with a digest of all that decides its cut."""

    def __init__(
        self, network: Network, keeping: np.ndarray, running: np.ndarray, runs: np.ndarray
    ):
        units, owner, needed = network._units, network._owner, network._needed
        count, ends = units + len(owner), ~runs[owner]
        makes = np.flatnonzero(~ends)  # buffers whose unit may run again
        matter = runs[network._readers] & ~(ends & needed)[network._read]
        self._from = np.concatenate([makes + units, network._readers[matter]])
        self._to = np.concatenate([owner[makes], network._read[matter] + units])
        self._costs = np.concatenate([running, keeping]).astype(np.int32)
        self._source = np.concatenate([np.zeros(units, bool), needed & ~ends])
        self._sink = np.concatenate([runs, ends])  # nodes with an edge to the sink
        self._units = units
        self._divide(count)
        self._digest(count)

    def _divide(self, count: int) -> None:
        """The nodes by part, and where each part that is reached begins and ends among them."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        ones = np.ones(len(self._from), np.int8)
        graph = csr_array((ones, (self._from, self._to)), (count, count))
        parts, self._label = connected_components(graph, directed=False)
        self._order = np.argsort(self._label, kind="stable")
        self._starts = np.searchsorted(self._label[self._order], np.arange(parts + 1))
        self._entered = np.flatnonzero(np.bincount(self._label, self._source, parts))

    def _digest(self, count: int) -> None:
        rank = np.empty(count, int)
        rank[self._order] = np.arange(count) - self._starts[self._label[self._order]]
        kind = self._costs.astype(np.int64) * 4 + self._source * 2 + self._sink
        kinds = np.where(np.arange(count) < self._units, -kind - 1, kind)[self._order]
        label = self._label[self._from]
        edges = np.argsort(label, kind="stable")
        pairs = np.stack([rank[self._from], rank[self._to]], 1)[edges]
        bounds = np.searchsorted(label[edges], np.arange(len(self._starts)))
        self._keys = [
            (
                kinds[self._starts[p] : self._starts[p + 1]].tobytes(),
                pairs[bounds[p] : bounds[p + 1]].tobytes(),
            )
            for p in self._entered
        ]

    def __iter__(self) -> Iterator[tuple[np.ndarray, Digest]]:
        for n, key in enumerate(self._keys):
            yield self.nodes(n), key

    def nodes(self, n: int) -> np.ndarray:
        """The nodes of the n-th part."""
        part = self._entered[n]
        return self._order[self._starts[part] : self._starts[part + 1]]

    def flow(self, chosen: np.ndarray) -> np.ndarray:
        """By node, whether it is on the source's side of the cut of some parts."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        here = np.isin(self._label, self._entered[chosen])
        count = len(here)
        inner = here[self._from]
        starts, ends = self._from[inner], self._to[inner]
        sources, sinks = np.flatnonzero(here & self._source), np.flatnonzero(here & self._sink)
        rows = np.concatenate([starts, np.full(len(sources), count), sinks])
        columns = np.concatenate([ends, sources, np.full(len(sinks), count + 1)])
        made = np.where(starts >= self._units, self._costs[starts], NEVER)
        data = np.concatenate([made, np.full(len(sources), NEVER), self._costs[sinks]])
        graph = csr_array((data.astype(np.int32), (rows, columns)), (count + 2, count + 2))
        rest = graph - maximum_flow(graph, count, count + 1).flow
        rest.data = np.maximum(rest.data, 0)
        rest.eliminate_zeros()
        reached = np.zeros(count + 2, bool)
        reached[breadth_first_order(rest, count, return_predecessors=False)] = True
        return reached[:count]
