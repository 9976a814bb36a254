"""The minimum cut between buffers that are kept and units that run again, by components.

A unit that costs more than to keep all its buffers does not run again, so nothing before it
matters to what is after it: without such units the network falls into components. Equal ones have
equal cuts, and each is solved once: of a network of equal blocks, one block.
"""

import numpy as np

from ...core.record import record

Digest = tuple[bytes, bytes]  # of the nodes of a component, and of its edges

NEVER = 1 << 30  # the capacity of what is never cut


@record
class MinCut:
    """Which units run again, which buffers are kept; and, by component, the units that run again.

    Components in which none does are left out.
    """

    again: np.ndarray
    kept: np.ndarray
    components: tuple[tuple[int, ...], ...]


class Network:
    """Units and buffers: a buffer that is wanted is kept, or its unit runs again.

    A unit that runs again wants what it reads.

    owner    by buffer, the unit that writes it
    needed   by buffer, whether it is wanted anyway
    readers  the units that read buffers, and beside them
    read     the buffers that they read
    solved   how many components were solved
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
        # By digest, whether its nodes are reached, and the places of units among them that are.
        self._known: dict[Digest, tuple[np.ndarray, np.ndarray]] = {}
        self.solved = 0

    def cut(self, keeping: np.ndarray, running: np.ndarray) -> MinCut:
        """The cheapest cut.

        keeping  by buffer, what it costs to keep it
        running  by unit, what it costs to run it again; some may not, at `NEVER`
        """
        all_kept = np.bincount(self._owner, keeping, self._units)
        runs = (running < all_kept) & (running < NEVER)
        reached = np.zeros(self._units + len(self._owner), bool)
        parts = _Components(self, keeping, running, runs)
        self._solve(parts)
        found = []
        for n, key in enumerate(parts.keys):
            sides, again = self._known[key]
            if len(again):
                nodes = parts.nodes(n)
                reached[nodes] = sides
                found.append(tuple(nodes[again].tolist()))
        again, wanted = reached[: self._units], reached[self._units :] | self._needed
        return MinCut(again, wanted & ~again[self._owner], tuple(found))

    def _solve(self, parts: "_Components") -> None:
        """Solve the components that are new, together: a call costs more than a small one."""
        new = {key: n for n, key in enumerate(parts.keys) if key not in self._known}
        if not new:
            return
        self.solved += len(new)
        sides = parts.flow(np.array([*new.values()]))
        for key, n in new.items():
            nodes = parts.nodes(n)
            again = np.flatnonzero(sides[nodes] & (nodes < self._units))
            self._known[key] = sides[nodes], again


class _Components:
    """The components of a network at some costs.

    keys  a digest of all that decides the cut of each
    """

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
        """The nodes by component, where each of them begins, and those that are reached."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        ones = np.ones(len(self._from), np.int8)
        graph = csr_array((ones, (self._from, self._to)), (count, count))
        components, self._label = connected_components(graph, directed=False)
        self._order = np.argsort(self._label, kind="stable")
        self._starts = np.searchsorted(self._label[self._order], np.arange(components + 1))
        self._entered = np.flatnonzero(np.bincount(self._label, self._source, components))

    def _digest(self, count: int) -> None:
        rank = np.empty(count, int)
        rank[self._order] = np.arange(count) - self._starts[self._label[self._order]]
        kinds = self._kinds()[self._order]
        label = self._label[self._from]
        edges = np.argsort(label, kind="stable")
        pairs = np.stack([rank[self._from], rank[self._to]], 1)[edges]
        bounds = np.searchsorted(label[edges], np.arange(len(self._starts)))
        self.keys = [
            (
                kinds[self._starts[p] : self._starts[p + 1]].tobytes(),
                pairs[bounds[p] : bounds[p + 1]].tobytes(),
            )
            for p in self._entered
        ]

    def _kinds(self) -> np.ndarray:
        """By node, a number of its cost and its ends; below zero for units."""
        kinds = self._costs.astype(np.int64) * 4 + self._source * 2 + self._sink
        kinds[: self._units] = ~kinds[: self._units]
        return kinds

    def nodes(self, n: int) -> np.ndarray:
        """The nodes of the n-th component."""
        component = self._entered[n]
        return self._order[self._starts[component] : self._starts[component + 1]]

    def flow(self, chosen: np.ndarray) -> np.ndarray:
        """By node, whether it is on the source's side of the cut of some components."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        nodes = np.flatnonzero(np.isin(self._label, self._entered[chosen]))
        count, number = len(nodes), np.full(len(self._label), -1)
        number[nodes] = np.arange(count)
        inner = number[self._from] >= 0
        starts, ends = self._from[inner], self._to[inner]
        sources, sinks = nodes[self._source[nodes]], nodes[self._sink[nodes]]
        rows = np.concatenate([number[starts], np.full(len(sources), count), number[sinks]])
        columns = [number[ends], number[sources], np.full(len(sinks), count + 1)]
        made = np.where(starts >= self._units, self._costs[starts], NEVER)
        data = np.concatenate([made, np.full(len(sources), NEVER), self._costs[sinks]])
        graph = csr_array(
            (data.astype(np.int32), (rows, np.concatenate(columns))), (count + 2, count + 2)
        )
        rest = graph - maximum_flow(graph, count, count + 1).flow
        rest.data = np.maximum(rest.data, 0)
        rest.eliminate_zeros()
        reached = np.zeros(count + 2, bool)
        reached[breadth_first_order(rest, count, return_predecessors=False)] = True
        sides = np.zeros(len(self._label), bool)
        sides[nodes] = reached[:count]
        return sides
