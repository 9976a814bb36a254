"""Random numbers: variates of the words of a stream's blocks, sixteen blocks in a unit."""

import numpy as np

from ....core.record import record
from ...emit.code import LLValue
from ...emit.control import behind, each, when, word
from ...emit.convert import memory_type, to_memory
from ...emit.philox import LANES, stream_words
from ...emit.variates import ROWS, Variates, variates_of
from ...ir.routine import RoutineArray, array
from .gather import move
from .registry import native
from .routine import NativeRoutine, RoutineBody

_BLOCK = 5.0  # nanoseconds


@record
class Draw(NativeRoutine):
    """`size` variates for each of some streams, (key, position, nonce) each."""

    variates: Variates
    streams: int
    size: int

    @property
    def draws(self) -> bool:
        return True

    def describe(self) -> list[str]:
        return self.variates.describe(self.streams, self.size)

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (array(np.dtype(np.uint64), (self.streams, 3)),)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.variates.dtype, (self.streams, self.size)),)

    @property
    def groups(self) -> int:
        """The number of units of a stream."""
        return -(-self.size // (LANES * self.variates.per_block))

    @property
    def count(self) -> int:
        return self.streams * self.groups

    @property
    def cost(self) -> float:
        return _BLOCK * LANES * self.count

    def body(self, b: RoutineBody) -> None:
        code, (states, out), dtype = b.code, b.arrays, self.variates.dtype
        item, some = dtype.itemsize, LANES * self.variates.per_block
        kind = memory_type(dtype, some)
        last, rest = code.local(kind), self.size % some

        def unit(u: LLValue) -> None:
            stream = u.divide(self.groups, False)
            group = u.modulo(self.groups, False)
            state = behind(states, stream * 24)
            key, position, nonce = (word(state, i) for i in range(3))
            words = stream_words(key, position + group * LANES, nonce)
            made = to_memory(self.variates.of(words), dtype)
            target = behind(out, (stream * self.size + group * some) * item)
            if not rest:
                code.store(made, target, item)
                return
            whole = group < self.groups - 1
            when(whole, lambda: code.store(made, target, item))

            def end() -> None:
                code.store(made, last, 64)
                move(code, target, last, rest * item)

            when(whole ^ True, end)

        each(code, b.begin, b.end, unit)


@native(*ROWS)
def _draw(graph, views, e) -> NativeRoutine | str:
    found = variates_of(graph, e)
    return found if isinstance(found, str) else Draw(*found)
