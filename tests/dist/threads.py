"""A world whose ranks are threads of the test's process, so that most tests start no processes."""

import threading
from contextvars import copy_context
from functools import reduce
from itertools import count

import numpy as np

from weft.core.backends import BACKENDS
from weft.dist.member import Member
from weft.dist.world import standing_in

_worlds = count()
# How long a rank waits for the others before it gives up.
PATIENCE = 60.0


class _Meeting:
    """Where the ranks of one world put down what they have, and see what the others have."""

    def __init__(self, size: int):
        self.size = size
        self.slots: list = [None] * size
        self.barrier = threading.Barrier(size, timeout=PATIENCE)

    def exchange(self, rank: int, value) -> list:
        self.slots[rank] = value
        self.barrier.wait()
        seen = list(self.slots)
        self.barrier.wait()
        return seen


class ThreadEngine:
    """An engine between threads; counts the bytes that each rank hands over.

    before  called as (collective, bytes) before each collective: how tests slow a link down
    """

    def __init__(self, meeting: _Meeting, rank: int, before=None):
        self._meeting, self.rank, self.size = meeting, rank, meeting.size
        self._before = before
        self.sent: list[tuple[str, int]] = []

    def _all(self, collective: str, x) -> list:
        xp = BACKENDS[type(x)]
        self.sent.append((collective, x.nbytes))
        if self._before is not None:
            self._before(collective, x.nbytes)
        return self._meeting.exchange(self.rank, xp.copy(x))

    def all_reduce(self, x, kind, out=None):
        both = {"sum": _add, "max": _maximum, "min": _minimum}[kind]
        every, xp = self._all("all_reduce", x), BACKENDS[type(x)]
        with np.errstate(all="ignore"):  # as engines that are not NumPy do
            total = xp.copy(reduce(both, every))
        if out is None:
            return total
        xp.overwrite(out, total)
        return out

    def all_gather(self, x):
        return _stack(self._all("all_gather", x))

    def all_to_all(self, x):
        return _stack([v[self.rank, ...] for v in self._all("all_to_all", x)])

    def broadcast(self, x, root):
        xp = BACKENDS[type(x)]
        return xp.copy(self._all("broadcast", x)[root])

    def close(self, failed=False):
        pass


def _stack(arrays):
    return (
        np.stack(arrays) if isinstance(arrays[0], np.ndarray) else __import__("torch").stack(arrays)
    )


def _combine(numpy_name, torch_name):
    """A function of two arrays that keeps arrays without axes arrays."""
    ufunc = getattr(np, numpy_name)

    def combine(a, b):
        if isinstance(a, np.ndarray):
            return np.asarray(ufunc(a, b))
        return getattr(a, torch_name)(b)

    return combine


_add = _combine("add", "add")
_maximum = _combine("maximum", "maximum")
_minimum = _combine("minimum", "minimum")


def run(size: int, program, before=None) -> list:
    """What `program(rank)` returns on each of `size` ranks; raises the first rank's error.

    before  called as (collective, bytes) before each collective
    """
    meeting, number = _Meeting(size), next(_worlds)
    results: list = [None] * size
    failures: list = []

    def run_rank(rank: int) -> None:
        member = Member(ThreadEngine(meeting, rank, before), f"threads {number} of rank {rank}")
        try:
            with standing_in(member):
                results[rank] = program(rank)
            member.close()
        except BaseException as e:
            failures.append((isinstance(e, threading.BrokenBarrierError), rank, e))
            meeting.barrier.abort()  # so that the others do not wait

    threads = [threading.Thread(target=copy_context().run, args=(run_rank, r)) for r in range(size)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise min(failures, key=lambda f: f[:2])[2]
    return results
