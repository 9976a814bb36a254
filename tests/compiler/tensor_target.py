"""A target whose executables take PyTorch's tensors themselves, as those of a GPU do."""

from collections.abc import Sequence

import numpy as np

from weft.compiler.calling import note_copy
from weft.compiler.raw.arrays import arrays_on

from .interpreter import Interpreted, Interpreter, Memory


class ByTensors(Interpreted):
    """A schedule that is interpreted on tensors; those of NumPy's are copied to the device."""

    def __init__(self, schedule, placed):
        super().__init__(schedule, placed)
        self.arrays = arrays_on("torch")

    def run(self, arrays, room=None, ending=None):
        values = self._bind(list(arrays), [None] * len(self.fresh) if room is None else room)
        assert all(isinstance(x, self.arrays.kind) for x in values)
        self.arrays.note_write([values[i] for i in self.signature.written])
        views = [self.arrays.view(x) for x in values]
        memory = Memory(
            self.schedule, self.plan, dict(zip(self.signature.buffers, views, strict=True))
        )
        done = 0
        try:
            for step in self.schedule.steps:
                memory.do(step)
                done += 1
        except BaseException:
            if ending is not None:
                ending.stop(done)
            raise
        made = [self._made(memory, i, values) for i in self.schedule.outputs]
        return made if ending is None else ending.finish(made)

    def _made(self, memory: Memory, i: int, values: list):
        if self.is_bound(i):
            return values[self.signature.argument[i]]
        return self.arrays.of_view(np.array(memory.array(i)))

    def _bind(self, values: list, room: Sequence) -> list:
        self.check_count(len(values))
        written = self.signature.written
        for i, x in enumerate(values):
            if isinstance(x, np.ndarray):
                values[i] = self.arrays.whole(x)
                note_copy(self.copies, i, "it is in host memory")
            elif not self._usable(x, i):
                self.adapt(values, i)
        for i in range(len(values)):
            if any(i != j and self.arrays.shares_memory(values[i], values[j]) for j in written):
                self.separate(values, i)
        for x, like in zip(room, self.fresh, strict=True):
            able = x is not None and self._usable(x, len(values))
            values.append(x if able else self.arrays.empty(*like))
        return values

    def _usable(self, x, i: int) -> bool:
        b = self.schedule.buffers[self.signature.buffers[i]]
        if not isinstance(x, self.arrays.kind) or x.shape != b.shape:
            return False
        writes = i in self.signature.written or i >= self.signature.inputs
        return self.arrays.dtype_of(x) == b.dtype and not self.arrays.obstacle(x, writes)


class TensorTarget(Interpreter):
    """The interpreter on tensors."""

    key = ("interpreter of tensors",)

    def build(self, schedule, plan, capture=True) -> ByTensors:
        return ByTensors(schedule, plan)


BY_TENSORS = TensorTarget()
