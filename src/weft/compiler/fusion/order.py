"""The order of units: each after its dependencies, freeing memory before allocating more."""

from collections.abc import Mapping, Sequence

from ...core.record import record


@record
class Work:
    """A unit as the ordering sees it: its dependencies, what it reads, the bytes it allocates."""

    needs: frozenset[int]
    reads: frozenset[int]
    makes: Mapping[int, int]
    urgent: bool = False


@record
class Peak:
    """The moment of peak memory.

    nbytes  how much is alive
    alive   values that are computed before and read after it
    later   the units that run after it
    """

    nbytes: int
    alive: frozenset[int]
    later: frozenset[int]


def peak_of(works: Mapping[int, Work], order: Sequence[int], kept: frozenset[int]) -> Peak:
    """The peak of units in this order; `kept` are values that stay alive anyway."""
    last = {v: at for at, u in enumerate(order) for v in (*works[u].makes, *works[u].reads)}
    sizes: dict[int, int] = {}
    alive, nbytes = frozenset(), -1
    worst = 0
    for at, u in enumerate(order):
        sizes |= {v: n for v, n in works[u].makes.items() if v not in kept}
        held = sum(sizes.values())
        sizes = {v: n for v, n in sizes.items() if last[v] > at}
        if held > nbytes:
            nbytes, alive, worst = held, frozenset(sizes), at
    return Peak(max(nbytes, 0), alive, frozenset(order[worst + 1 :]))


def order_units(works: Mapping[int, Work], kept: frozenset[int] = frozenset()) -> list[int]:
    """The units' numbers in an order that keeps little memory alive.

    Among the units that are ready, guards come first, then the unit that frees most beyond what it
    allocates, then program order. `kept` are values that stay alive anyway.
    """
    sizes = {v: n for w in works.values() for v, n in w.makes.items() if v not in kept}
    left: dict[int, int] = {}
    for w in works.values():
        for v in w.reads:
            left[v] = left.get(v, 0) + 1
    waiting = {u: set(w.needs) for u, w in works.items()}
    after: dict[int, list[int]] = {}
    for u, w in works.items():
        for d in w.needs:
            after.setdefault(d, []).append(u)
    ready, done = [u for u, needs in waiting.items() if not needs], []

    def price(u: int) -> tuple:
        w = works[u]
        taken = sum(sizes.get(v, 0) for v in w.makes)
        freed = sum(sizes.get(v, 0) for v in w.reads if left[v] == 1)
        return not w.urgent, taken - freed, u

    while ready:
        u = min(ready, key=price)
        ready.remove(u)
        done.append(u)
        for v in works[u].reads:
            left[v] -= 1
        for later in after.get(u, ()):
            waiting[later].discard(u)
            if not waiting[later]:
                ready.append(later)
    assert len(done) == len(works), "units wait for each other"
    return done
