"""Routines of a GPU in the emulator, stage by stage."""

import os
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from weft.compiler.cuda.routines import threads
from weft.compiler.cuda.routines.routine import GridRoutine, RoutineStage

from .emulator import Emulated

_TIMES = 20 if os.environ.get("WEFT_SOAK") else 1
_EMULATED: dict[tuple, Emulated] = {}


def emulate_stage(
    stage: RoutineStage, aligned: int, faults: frozenset[int] = frozenset(), shared: bool = True
) -> Emulated:
    """A stage that runs on the processor; if `shared`, equal ones are compiled once."""
    stage = replace(stage, aligned=aligned)
    key = stage, faults, threads.FAR
    if shared and key in _EMULATED:
        return _EMULATED[key]
    made = Emulated(stage, aligned, faults)
    return _EMULATED.setdefault(key, made) if shared else made


class EmulatedRoutine:
    """A routine; `faults`: by stages, barriers at which nobody waits."""

    def __init__(
        self,
        routine: GridRoutine,
        aligned: int = 16,
        faults: Mapping[int, Collection[int]] | None = None,
        shared: bool = True,
    ):
        self.routine, self.aligned, faults = routine, aligned, faults or {}
        self.stages = [
            emulate_stage(stage, aligned, frozenset(faults.get(n, ())), shared)
            for n, stage in enumerate(routine.stages)
        ]

    def run(self, *operands: np.ndarray, down: bool = False) -> list[np.ndarray]:
        """The results of operands; memory that nobody has written is filled with ones."""
        routine = self.routine
        for x, given in zip(routine.operands, operands, strict=True):
            assert (x.dtype, x.size) == (given.dtype, given.size) and given.flags.c_contiguous
        made = [place(a.dtype, a.shape, self.aligned) for a in (*routine.results, *routine.scratch)]
        arrays = [*(moved(x, self.aligned) for x in operands), *made]
        for stage, emulated in zip(routine.stages, self.stages, strict=True):
            emulated.run(*(arrays[k] for k in stage.arrays), down=down)
        return made[: len(routine.results)]

    def both(self, *operands: np.ndarray) -> list[np.ndarray]:
        """The results, the same for both orders of threads."""
        up, down = (self.run(*operands, down=down) for down in (False, True))
        for a, b in zip(up, down, strict=True):
            assert a.tobytes() == b.tobytes(), "the order of threads shows"
        return up


def seeds(count: int) -> range:
    """Seeds of so many random cases, and of more in long runs."""
    return range(_TIMES * count)


def place(dtype: np.dtype, shape: tuple[int, ...], aligned: int) -> np.ndarray:
    """Memory of ones, not more aligned than it has to be."""
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.full(size + 64, 255, np.uint8)
    start = -memory.ctypes.data % 32 + aligned % 32
    return memory[start : start + size].view(dtype).reshape(shape)


def moved(x: np.ndarray, aligned: int) -> np.ndarray:
    out = place(x.dtype, x.shape, aligned)
    out[...] = x
    return out
