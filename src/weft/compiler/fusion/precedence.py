"""Dependencies between units, while units are merged."""


class Precedence:
    """A partial order of numbered units, kept transitively closed.

    `needs` are the direct dependencies of each unit; the closure is a bit set per unit.
    """

    def __init__(self):
        self.needs: dict[int, set[int]] = {}
        self._before: dict[int, int] = {}
        self._followed = 0  # units that another one depends on

    def copy(self) -> "Precedence":
        """The same order, which may change by itself."""
        made = Precedence()
        made.needs = {u: set(needs) for u, needs in self.needs.items()}
        made._before, made._followed = dict(self._before), self._followed
        return made

    def add(self, u: int) -> None:
        """Add a unit without dependencies."""
        self.needs[u], self._before[u] = set(), 0

    def wait(self, u: int, others: set[int]) -> None:
        """Make unit u depend on others."""
        self.needs[u] |= others
        earlier = 0
        for w in others:
            earlier |= self._before[w] | 1 << w
        if not earlier & ~self._before[u]:
            return
        self._before[u] |= earlier
        self._followed |= earlier
        mask = 1 << u
        if self._followed & mask:
            for v, before in self._before.items():
                if before & mask:
                    self._before[v] = before | earlier

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
        self.needs[u] = (self.needs[u] | self.needs.pop(w)) - {u, w}
        earlier = (self._before[u] | self._before.pop(w)) & ~(1 << u | 1 << w)
        self._before[u] = earlier
        mask = 1 << u | 1 << w
        if self._followed & mask:
            self._followed |= 1 << u
            for v, before in self._before.items():
                if before & mask:
                    self._before[v] = before & ~mask | 1 << u | earlier
                    if w in self.needs[v]:
                        self.needs[v] = self.needs[v] - {w} | {u}
