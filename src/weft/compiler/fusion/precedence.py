"""Dependencies between units, while units are merged."""

from collections.abc import Iterator


class Precedence:
    """A partial order of numbered units, kept transitively closed.

    `needs` are the direct dependencies of each unit; the closure is a bit set per unit.
    """

    def __init__(self):
        self.needs: dict[int, set[int]] = {}
        self._followers: dict[int, set[int]] = {}  # `needs`, the other way round
        self._before: dict[int, int] = {}

    def copy(self) -> "Precedence":
        """The same order, which may change by itself."""
        made = Precedence()
        made.needs = {u: set(needs) for u, needs in self.needs.items()}
        made._followers = {u: set(found) for u, found in self._followers.items()}
        made._before = dict(self._before)
        return made

    def add(self, u: int) -> None:
        """Add a unit without dependencies."""
        self.needs[u], self._followers[u], self._before[u] = set(), set(), 0

    def wait(self, u: int, others: set[int]) -> None:
        """Make unit u depend on others."""
        for w in others - self.needs[u]:
            self._followers[w].add(u)
        self.needs[u] |= others
        earlier = 0
        for w in others:
            earlier |= self._before[w] | 1 << w
        if not earlier & ~self._before[u]:
            return
        self._before[u] |= earlier
        for v in self._behind(u):
            self._before[v] |= earlier

    def _behind(self, u: int) -> Iterator[int]:
        """The units that depend on u, through others, too."""
        seen, todo = set[int](), [*self._followers[u]]
        while todo:
            v = todo.pop()
            if v not in seen:
                seen.add(v)
                todo += self._followers[v]
                yield v

    def precedes(self, a: int, b: int) -> bool:
        """Whether unit a must come before unit b."""
        return bool(self._before[b] >> a & 1)

    def joinable(self, u: int, w: int) -> bool:
        """Whether no path leads from one unit to the other through a third."""
        return not any(
            self.precedes(a, d) for a, b in ((u, w), (w, u)) for d in self.needs[b] - {a}
        )

    def join(self, u: int, w: int) -> None:
        """Merge unit w into unit u."""
        needs, followers = self.needs.pop(w), self._followers.pop(w)
        for d in needs:
            self._followers[d] = self._followers[d] - {w} | {u}
        for v in followers:
            self.needs[v] = self.needs[v] - {w} | {u}
        self.needs[u] = (self.needs[u] | needs) - {u, w}
        self._followers[u] = (self._followers[u] | followers) - {u, w}
        mask = 1 << u | 1 << w
        earlier = (self._before[u] | self._before.pop(w)) & ~mask
        self._before[u] = earlier
        for v in self._behind(u):
            self._before[v] = self._before[v] & ~mask | 1 << u | earlier
