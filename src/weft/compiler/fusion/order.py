"""The order of units: each after its dependencies, freeing memory before allocating more."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from ...core.record import record


@record
class Work:
    """A unit as the ordering sees it: its dependencies, what it reads, the bytes it allocates.

    urgent  guards, and what other processes wait for
    """

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
    made = {v: (at, n) for at, u in enumerate(order) for v, n in works[u].makes.items()}
    made = {v: span for v, span in made.items() if v not in kept}
    change = [0] * (len(order) + 1)
    for v, (at, n) in made.items():
        change[at] += n
        change[last[v] + 1] -= n
    held = list(accumulate(change[: len(order)]))
    nbytes = max(held, default=0)
    worst = held.index(nbytes) if held else 0
    alive = frozenset([v for v, (at, _) in made.items() if at <= worst < last[v]])
    return Peak(nbytes, alive, frozenset(order[worst + 1 :]))


def order_units(works: Mapping[int, Work], kept: frozenset[int] = frozenset()) -> list[int]:
    """The units' numbers in an order that keeps little memory alive.

    Among the units that are ready, urgent ones come first, then the unit that frees most beyond
    what it allocates, then program order. `kept` are values that stay alive anyway.
    """
    sizes = {v: n for w in works.values() for v, n in w.makes.items() if v not in kept}
    readers = _units_by({u: w.reads for u, w in works.items()})  # that have not run
    waiting = {u: set(w.needs) for u, w in works.items()}
    after = _units_by({u: w.needs for u, w in works.items()})
    done: list[int] = []

    def price(u: int) -> tuple:
        w = works[u]
        taken = sum([sizes.get(v, 0) for v in w.makes])
        freed = sum([sizes.get(v, 0) for v in w.reads if len(readers[v]) == 1])
        return not w.urgent, taken - freed, u

    ready = {u: price(u) for u, needs in waiting.items() if not needs}
    while ready:
        _, _, u = min(ready.values())
        del ready[u]
        done.append(u)
        for v in works[u].reads:
            readers[v].discard(u)
            if len(readers[v]) == 1:  # its last reader frees it
                ready |= {w: price(w) for w in readers[v] if w in ready}
        for later in after.get(u, ()):
            waiting[later].discard(u)
            if not waiting[later]:
                ready[later] = price(later)
    assert len(done) == len(works), "units wait for each other"
    return done


def _units_by(found: Mapping[int, frozenset[int]]) -> dict[int, set[int]]:
    """The units that have each of these."""
    units: dict[int, set[int]] = {}
    for u, members in found.items():
        for x in members:
            units.setdefault(x, set()).add(u)
    return units
