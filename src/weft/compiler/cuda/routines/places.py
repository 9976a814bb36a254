"""Stages that have a thread for each of some places."""

from abc import abstractmethod

from ....core.record import record
from ...emit.code import LLValue
from ...emit.control import when
from ..arrays import WIDEST
from ..machine import Machine
from .routine import RoutineStage
from .threads import BLOCK, Thread, blocks_for, bytes_of, start_thread


@record
class PlaceStage(RoutineStage):
    """A thread for each place; `emit_place` says what it does there."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of places."""

    @property
    @abstractmethod
    def extents(self) -> tuple[int, ...]:
        """The sizes of the arrays in which it computes places, beside `count`."""

    @abstractmethod
    def emit_place(self, t: Thread, at: LLValue) -> None:
        """Emit what a thread does at its place."""

    @property
    def block(self) -> int:
        return BLOCK

    @property
    def grid(self) -> int:
        return blocks_for(self.count)

    def emit(self, machine: Machine) -> None:
        t = start_thread(machine, self.aligned, self.count + BLOCK, *self.extents)
        at = t.place()
        t.below(at, self.count, self.count % BLOCK == 0, lambda: self.emit_place(t, at))
        machine.finish()


@record
class ZerosStage(PlaceStage):
    """Fill an array of so many bytes with zeros, sixteen in a thread, the last ones one by one."""

    nbytes: int

    @property
    def count(self) -> int:
        return self.nbytes // WIDEST + self.nbytes % WIDEST

    @property
    def extents(self) -> tuple[int, ...]:
        return (self.nbytes,)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        whole = self.nbytes // WIDEST
        when(at < whole, lambda: t.put(0, at, t.code.constant(bytes_of(WIDEST), 0)))
        if self.nbytes % WIDEST:
            byte = at + whole * (WIDEST - 1)
            when(at >= whole, lambda: t.store(0, byte, t.code.constant(bytes_of(1), 0)))
