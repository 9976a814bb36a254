"""The strategy Auto in eager mode: a budget of bytes that is kept.

The memory of the arrays keeps the limit (`host.py`: NumPy's allocator; `devices.py`: PyTorch's
devices): what would pass it asks for room, and saved values are dropped until it fits, those first
that are cheap to compute again, large, and unused for long. So everything counts: temporaries,
gradients, what computing again needs.

If nothing is left to drop, the budget is too small. The step is then run to its end, with a limit
that is raised where it must be, which shows a budget that works; then it is refused, before
gradients are handed out, and random streams and what was written in place are put back.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import ceil
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ... import errors
from ...arrays.random import get_state, set_state
from ...core.backends import BACKENDS
from ...core.checkpointing import MIB, CheckpointConfig
from ...core.node import Node, NodeExtra
from ...core.types import Raw
from ..modes import limited
from .host import HostLimit
from .limits import Limit
from .strategies import LEAST, Saving
from .values import Kept, KeyedRef, Step, Value, forgetting

if TYPE_CHECKING:
    from .devices import Devices

# Seconds of an operation and of a byte, for comparing costs: products against the rest.
_FLOP, _BYTE = 1e-11, 4e-10
# After this many uses of values, or as many as are kept, the order in which they are dropped is
# made anew.
_RANKED = 128
# What takes so many operations for each byte is kept although only one other operation reads it.
_DEAR = 8


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
        self.values.on_source = lambda array: _call(me, Auto._count_source, array)
        self.budget = config.budget or 0
        self._drop_in = lambda limit: bool(_call(me, Auto._drop_one, limit))
        self._host = HostLimit(self.budget, self._drop_in)
        self._devices: Devices | None = None  # while PyTorch is not loaded
        self._kept: dict[int, ref[Kept]] = {}
        self._forget = forgetting(self._kept)
        self._rankings: dict[Limit, _Ranking] = {}
        self._thread = get_ident()
        self._undo: list[tuple[Any, Any, Any]] = []
        self._streams: Any = None
        self._depth = self._sweeps = 0
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
        counter = self._host.start()
        self._depth += 1
        try:
            with self._observe():
                yield
        except MemoryError as e:
            if counter.failure is not None:  # of what could not be moved out
                raise counter.failure from e
            raise
        finally:
            self._depth -= 1
            self._host.stop(counter)

    def _observe(self) -> AbstractContextManager[Any]:
        """A block in which PyTorch's operations make room for what they need."""
        if "torch" not in sys.modules:
            return nullcontext()
        from .devices import observe

        return observe(self._on_devices())

    def _on_devices(self) -> "Devices":
        if self._devices is None:
            from .devices import Devices

            self._devices = Devices(self.budget, self._drop_in, self._host.reserved)
        return self._devices

    @property
    def _limits(self) -> list[Limit]:
        """The memories that are used."""
        devices = () if self._devices is None else self._devices.limits.values()
        return [limit for limit in (self._host, *devices) if limit.in_use]

    @property
    def live(self) -> int:
        """The bytes of host memory that count now."""
        self._host.use()
        self._host.is_exact()
        return self._host.live

    @contextmanager
    def around_sweep(self) -> Iterator[None]:
        """The block of a sweep, at whose end a budget that was too small is refused.

        Of blocks within one another, the outermost decides.
        """
        recording = self._depth > 0  # what the block does goes on after this sweep
        with self.block():
            self._sweeps += 1
            try:
                yield
            finally:
                self._sweeps -= 1
            if self._sweeps:
                return
            for limit in self._limits:
                limit.check()
                if limit.allowed > limit.budget:
                    raise self.refusal(limit)
            if not recording:
                self._undo.clear()  # the step is done: nothing of it is put back any more
                self._streams = get_state()

    def reserve(self, nbytes: int) -> None:
        self._host.reserved += nbytes

    # -- what counts -----------------------------------------------------------------------------

    def _limit_of(self, array: Raw) -> Limit:
        """The limit of the memory that an array is in."""
        if issubclass(BACKENDS[array.__class__].array_type, np.ndarray):
            return self._host
        return self._on_devices().of(array)

    def _count_source(self, array: Raw) -> None:
        """Count memory that was there before: parameters, batches."""
        self._limit_of(array).count(array)

    def keep(self, array: Any) -> None:
        if isinstance(array, np.ndarray):
            self._host.keep(array)

    def own(self, node: Node) -> None:
        node.extra = node.extra or NodeExtra()
        node.extra.limit = self  # a sweep finds it there

    def _take_over(self, node: Node, y: Any, raws: Any, static: tuple) -> None:
        super()._take_over(node, y, raws, static)
        bridges = []
        for raw in raws if self.place is None else ():  # what is moved out is not computed again
            value = self.values.of(raw)
            if value.__class__ is Value and value.step is not None and value.nbytes >= LEAST:
                value.uses += 1
                kept = value.kept()
                cheap = value.uses < 2 and value.step.flops < _DEAR * value.nbytes
                if kept is None and (cheap or not self.values.firm(value)):
                    continue  # others are computed from its result; or it could not be dropped
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
        self._kept[id(kept)] = KeyedRef(kept, self._forget, id(kept))

    def before_write(self, x: Any) -> None:
        """Copy what is overwritten in place, so that a refused step can put it back."""
        raw = x._data
        if raw.__class__ in BACKENDS and all(x is not known for known, _, _ in self._undo):
            xp = BACKENDS[raw.__class__]
            # Frozen memory is not written to: the tensor gets other memory.
            self._undo.append((x, raw, None if xp.is_frozen(raw) else xp.copy(raw)))

    # -- dropping --------------------------------------------------------------------------------

    def drop(self, group: list[Kept]) -> bool:
        dropped = super().drop(group)
        if dropped and self.place is not None:
            self.place.settle()
        return dropped

    def _drop_one(self, limit: Limit) -> bool:
        """Drop what is cheapest to lose in a memory; False if dropping nothing frees any."""
        ranking = self._rankings.setdefault(limit, _Ranking())
        fresh = self.values.clock - ranking.made >= max(_RANKED, len(self._kept))
        while True:
            if fresh:
                ranking.groups, ranking.made = self._rank(limit), self.values.clock
            while ranking.groups:
                found = [weak() for weak in ranking.groups.pop()]
                group = [k for k in found if k is not None and k.array is not None]
                found.clear()
                if group and limit.frees(group) and self.drop(group):
                    return True
            if fresh:
                return False
            fresh = True

    def _rank(self, limit: Limit) -> list[list[ref[Kept]]]:
        """What is kept in a memory, by piece of that, the cheapest to lose last."""
        groups: dict[int, list[Kept]] = {}
        for weak in list(self._kept.values()):  # the garbage collector may take some away
            kept = weak()
            if kept is not None and kept.array is not None:
                key = limit.piece(kept.array)
                if key is not None:
                    groups.setdefault(key, []).append(kept)
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

    def refusal(self, limit: Limit) -> errors.BudgetExceeded:
        """The error for a budget that is too small; what the step changed is put back."""
        for x, raw, before in reversed(self._undo):
            x._data = raw
            if before is not None:
                raw[...] = before
        self._undo.clear()
        set_state(self._streams)
        # The next run may differ a little: temporaries of threads, what its caller holds meanwhile.
        there = limit.before
        needed = limit.allowed + (limit.allowed - there) // 100
        least = ceil(needed / MIB * 100) / 100
        failure = errors.BudgetExceeded(
            f"a budget of {self.budget / MIB:g} MiB is too small: {there / MIB:.4g} MiB are "
            f"taken by what was there before (parameters, moments, data), and the step needs "
            f"{(limit.allowed - there) / MIB:.4g} MiB beside that at its worst moment, with "
            f"everything dropped that can be computed again; memory_budget_mb={least:g} works"
        )
        failure.smallest = round(least * MIB)
        return failure


class _Ranking:
    """What can be dropped in a memory, weakly: nodes own it; and when it was ranked."""

    def __init__(self) -> None:
        self.groups: list[list[ref[Kept]]] = []
        self.made = -_RANKED


def _call(me: Callable[[], Any], method: Callable[..., Any], *args: Any) -> Any:
    """Call a method of an object that is still there."""
    auto = me()
    return None if auto is None else method(auto, *args)
