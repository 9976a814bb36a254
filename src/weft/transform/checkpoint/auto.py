"""The strategy Auto in eager mode: a budget of bytes that is kept.

The allocator of NumPy's arrays keeps the limit: an allocation that would pass it asks for room, and
saved values are dropped until it fits, those first that are cheap to compute again, large, and
unused for long. So everything counts: temporaries, gradients, what computing again needs.

If nothing is left to drop, the budget is too small. The step is then run to its end, with a limit
that is raised where it must be, which shows a budget that works; then it is refused, before
gradients are handed out, and random streams and what was written in place are put back.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from sys import getrefcount
from threading import get_ident
from typing import Any
from weakref import ref

import numpy as np

from ... import errors
from ...arrays.random import get_state, set_state
from ...core.backends import BACKENDS
from ...core.checkpointing import MIB, CheckpointConfig
from ...core.node import Node, NodeExtra
from ...core.objects import live_objects
from ...core.types import Raw
from ...core.value import GROUND
from ..modes import limited
from .strategies import LEAST, Saving
from .values import Kept, Step, Value

# Seconds of an operation and of a byte, for comparing costs: products against the rest.
_FLOP, _BYTE = 1e-11, 4e-10
# After this many uses of values the order in which they are dropped is made anew.
_RANKED = 128


class Above:
    """What the layers above install (`weft._assemble`).

    new_counter    makes a counter of the bytes that NumPy's allocator has given
    held           the arrays that optimizers hold
    bytes_to_come  of moments that optimizers make at their first step
    """

    new_counter: Callable[[], Any]
    held: Callable[[], Iterable[Raw]]
    bytes_to_come: Callable[[], int]


above: Above = Above()


class _Saved(tuple):
    """What a node saves, with values that it read and does not need itself.

    `bridges` are kept while there is room, so that others can be computed from them. They are
    freed with the node's values.
    """

    bridges: list[Kept]


class Auto(Saving):
    """Keeps as much as a budget allows; with another strategy, of what that keeps."""

    def __init__(self, config: CheckpointConfig):
        super().__init__(config)
        # Weakly: what it owns calls it, and a cycle would keep arrays until Python collects it.
        me = ref(self)
        self.values.on_source = lambda array: _call(me, Auto._charge, array)
        self._on_pressure = lambda size: bool(_call(me, Auto._make_room, size))
        self.budget = config.budget or 0
        self._kept: dict[int, ref[Kept]] = {}
        self._outside: dict[int, Any] = {}  # memory from before, by owner
        self._fixed = 0  # its bytes
        self._counters: list[Any] = []
        self._ranking: list[list[ref[Kept]]] = []  # weakly: nodes own what they save
        self._ranked = -_RANKED
        self._thread = get_ident()
        self._allowed = self.budget  # more than that, once the budget was found too small
        self._undo: list[tuple[Any, Any, Any]] = []
        self._streams: Any = None
        self._depth = self._sweeps = 0
        self._collected = False  # whether garbage was
        limited.alive.add(self)

    # -- blocks ----------------------------------------------------------------------------------

    @contextmanager
    def block(self) -> Iterator[None]:
        """A block whose allocations count and are limited."""
        if get_ident() != self._thread or self._depth:
            yield
            return
        if self._streams is None:
            self._streams = get_state()
            self._count_before()
        counter = self._start()
        self._depth += 1
        try:
            yield
        except MemoryError as e:
            if counter.failure is not None:  # of what could not be moved out
                raise counter.failure from e
            raise
        finally:
            self._depth -= 1
            counter.stop()

    def _start(self) -> Any:
        """Count: by the counter of the last block if it fits in here, else by a new one."""
        if self._counters:
            try:
                self._counters[-1].start()
                self._set_limit()
                return self._counters[-1]
            except errors.ArgumentError:
                self._counters[-1].limit(None)
        self._counters.append(above.new_counter())
        self._counters[-1].start()
        self._set_limit()
        return self._counters[-1]

    @property
    def live(self) -> int:
        """The bytes that count now."""
        return self._fixed + sum(c.live for c in self._counters)

    def _set_limit(self) -> None:
        others = self._fixed + sum(c.live for c in self._counters[:-1])
        self._counters[-1].limit(max(0, self._allowed - others), self._on_pressure)

    @contextmanager
    def around_sweep(self) -> Iterator[None]:
        """The block of a sweep, at whose end a budget that was too small is refused.

        Of blocks within one another, the outermost decides.
        """
        with self.block():
            self._sweeps += 1
            try:
                yield
            finally:
                self._sweeps -= 1
            if self._sweeps:
                return
            if self._allowed > self.budget:
                raise self.refusal()
            self._undo.clear()  # the step is done: nothing of it is put back any more
            self._streams = get_state()

    def reserve(self, nbytes: int) -> None:
        self._fixed += nbytes

    # -- what counts -----------------------------------------------------------------------------

    def _charge(self, array: Raw) -> None:
        """Count memory that was there before: parameters, batches."""
        xp = BACKENDS[array.__class__]
        if not issubclass(xp.array_type, np.ndarray):
            raise errors.DeviceError(
                f"a budget of bytes limits NumPy's arrays, and this one is on "
                f"{xp.device_of(array)!r}; use another strategy there, or .to('cpu')"
            )
        owner = xp.owning(array)
        if owner is None or id(owner) in self._outside:
            return
        if any([c.counts(owner) for c in self._counters]):
            return
        self._outside[id(owner)] = ref(owner, self._forgetting(id(owner), owner.nbytes))
        self._fixed += owner.nbytes
        if self._depth:
            self._make_room(0)

    def _forgetting(self, key: int, nbytes: int) -> Callable[[Any], Any]:
        """What is called when memory from before is freed."""
        me = ref(self)
        return lambda _: _call(me, Auto._forget, key, nbytes)

    def _forget(self, key: int, nbytes: int) -> None:
        self._outside.pop(key, None)
        self._fixed -= nbytes

    def _count_before(self) -> None:
        """Count what is there: what optimizers hold or will make, and all tensors."""
        self._fixed += above.bytes_to_come()
        found = [*above.held(), *[getattr(x, "_data", None) for x in live_objects(GROUND)]]
        for raw in found:  # those on other devices are not in this memory
            if type(raw) in BACKENDS and BACKENDS[type(raw)].array_type is np.ndarray:
                self._charge(raw)

    def own(self, node: Node) -> None:
        node.extra = node.extra or NodeExtra()
        node.extra.limit = self  # a sweep finds it there

    def _take_over(self, node: Node, y: Any, raws: Any, static: tuple) -> None:
        super()._take_over(node, y, raws, static)
        bridges = []
        for raw in raws if self.place is None else ():  # what is moved out is not computed again
            value = self.values.of(raw)
            if value.__class__ is Value and value.step is not None and value.nbytes >= LEAST:
                kept = value.kept()
                if kept is None and not self.values.firm(value):
                    continue  # it could not be dropped
                if kept is None:
                    kept = Kept(value, raw, self)
                    value.kept = ref(kept)
                    self._watch(kept)
                bridges.append(kept)
        if bridges:
            node.saved = _Saved(node.saved or ())
            node.saved.bridges = bridges

    def drops(self, value: Value) -> bool:
        kept = value.kept()
        assert kept is not None
        self._watch(kept)
        return super().drops(value)

    def _watch(self, kept: Kept) -> None:
        self._kept[id(kept)] = ref(kept, partial(self._kept.pop, id(kept)))

    def before_write(self, x: Any) -> None:
        """Copy what is overwritten in place, so that a refused step can put it back."""
        raw = x._data
        if raw.__class__ in BACKENDS and all(x is not known for known, _, _ in self._undo):
            xp = BACKENDS[raw.__class__]
            # Frozen memory is not written to: the tensor gets other memory.
            self._undo.append((x, raw, None if xp.is_frozen(raw) else xp.copy(raw)))

    # -- dropping --------------------------------------------------------------------------------

    def _make_room(self, size: int) -> bool:
        """Drop saved values until `size` more bytes fit; the allocator calls this.

        If nothing is left to drop, garbage is collected; then the limit is raised to what is
        needed: the step is refused at its end, with that limit.
        """
        while self.live + size > self._allowed:
            if self._drop_one():
                continue
            if not self._collected:  # what is left of earlier steps may wait for that
                self._collected = True
                gc.collect()
            else:
                self._allowed = self.live + size
        self._set_limit()
        return True

    def _drop_one(self) -> bool:
        """Drop the memory that is cheapest to lose; False if dropping none frees any."""
        fresh = self.values.clock - self._ranked >= _RANKED
        while True:
            if fresh:
                self._ranking, self._ranked = self._rank(), self.values.clock
            while self._ranking:
                found = [weak() for weak in self._ranking.pop()]
                group = [k for k in found if k is not None and k.array is not None]
                found.clear()
                if group and _frees(group) and self.drop(group):
                    return True
            if fresh:
                return False
            fresh = True

    def _rank(self) -> list[list[ref[Kept]]]:
        """What is kept, by piece of memory, the cheapest to lose last."""
        groups: dict[int, list[Kept]] = {}
        for weak in list(self._kept.values()):  # the garbage collector may take some away
            kept = weak()
            if kept is not None and kept.array is not None:
                base = kept.array.base
                groups.setdefault(id(kept.array if base is None else base), []).append(kept)
        costs: dict[Step, float] = {}
        clock = self.values.clock
        scored = []
        for n, group in enumerate(groups.values()):
            nbytes = max([k.value.nbytes for k in group])
            cost = nbytes * _BYTE  # of moving it
            if self.place is None:
                cost = sum([self._seconds_again(k.value.step, costs) for k in group])
            stale = clock - max([k.value.touched for k in group]) + 1
            scored.append((cost / (nbytes * stale), -n, [ref(k) for k in group]))
        scored.sort(reverse=True)
        return [group for _, _, group in scored]

    def _seconds_again(self, step: Any, costs: dict[Step, float]) -> float:
        """The seconds to compute a step's values again, with what is missing for it."""
        waiting = [step]
        while waiting:
            s = waiting[-1]
            if s in costs:
                waiting.pop()
                continue
            missing = [v.step for v in s.values if v.step is not None and v.array is None]
            todo = [m for m in missing if m not in costs]
            if todo:
                waiting += todo
                continue
            costs[s] = s.flops * _FLOP + s.nbytes * _BYTE + sum(costs[m] for m in missing)
            waiting.pop()
        return costs[step]

    # -- refusing --------------------------------------------------------------------------------

    def refusal(self) -> errors.BudgetExceeded:
        """The error for a budget that is too small; what the step changed is put back."""
        for x, raw, before in reversed(self._undo):
            x._data = raw
            if before is not None:
                raw[...] = before
        self._undo.clear()
        set_state(self._streams)
        # The next run may differ a little: temporaries of threads, what its caller holds meanwhile.
        needed = self._allowed + (self._allowed - self._fixed) // 100
        least = ceil(needed / MIB * 100) / 100
        failure = errors.BudgetExceeded(
            f"a budget of {self.budget / MIB:g} MiB is too small: {self._fixed / MIB:.4g} MiB are "
            f"taken by what was there before (parameters, moments, data), and the step needs "
            f"{(self._allowed - self._fixed) / MIB:.4g} MiB beside that at its worst moment, with "
            f"everything dropped that can be computed again; memory_budget_mb={least:g} works"
        )
        failure.smallest = round(least * MIB)
        return failure


def _call(me: Callable[[], Any], method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of an object that is still there."""
    auto = me()
    return None if auto is None else method(auto, *args)


def _frees(group: list[Kept]) -> bool:
    """Whether dropping what is kept of one piece of memory frees it: nobody else holds it."""
    bases = [id(kept.array.base) for kept in group if kept.array.base is not None]
    views = {key: bases.count(key) for key in bases}
    for kept in group:
        array = kept.array
        if _holders(array) != _ALONE + views.pop(id(array), 0):
            return False
    base = group[0].array.base
    return not views or (base is not None and _holders(base) == _ALONE + views[id(base)] - 1)


def _holders(x: Any) -> int:
    return getrefcount(x)


def _alone() -> int:
    """What `_holders` says of an array that only a Kept holds, asked as `_frees` asks."""
    kept = Kept(None, object(), None)  # type: ignore[arg-type]
    array = kept.array
    return _holders(array)


_ALONE = _alone()
