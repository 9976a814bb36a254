"""Every collective on every dtype, shape and layout: what one rank computes, and with what.

Run as a program on each rank, it writes its results to `<folder>/<rank>.npz`.
"""

import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice, product
from pathlib import Path
from typing import NamedTuple

import numpy as np

import weft as wf
from weft.core import dtypes
from weft.core.backends import BACKENDS
from weft.dist.world import world

# On both sides of the sizes at which arrays travel beside headers, whole and in parts; of no
# elements, and of numbers that ranks do not divide.
SHAPES = ((), (1,), (0, 3), (3, 5), (601,), (2, 3001))
LAYOUTS = ("C", "F", "step", "reversed", "read-only")  # PyTorch has the first three
KINDS = ("numpy", "torch")
WAYS = ("call", "start", "run")
OUTS = (None, "itself", "another")
REDUCTIONS = ("sum", "max", "min")


class Case(NamedTuple):
    """A collective on arrays of a dtype and shape; the rest is drawn by its number.

    ordered  whether it is called under `wf.deterministic`
    """

    number: int
    collective: str
    argument: object
    dtype: np.dtype
    shape: tuple
    ordered: bool

    def choose(self, what: str, options: Sequence):
        """One of the options, by the case's number."""
        return random.Random(f"{self.number} {what}").choice(options)

    @property
    def kind(self) -> str:
        return self.choose("kind", KINDS)

    @property
    def layout(self) -> str:
        if self.out == "itself":
            return "C"
        return self.choose("layout", LAYOUTS if self.kind == "numpy" else LAYOUTS[:3])

    @property
    def way(self) -> str:
        return self.choose("way", WAYS[2:] if self.collective == "all_to_all" else WAYS)

    @property
    def out(self) -> str | None:
        return self.choose("out", OUTS) if self.collective == "all_reduce" else None

    def draw(self, size: int) -> np.ndarray:
        """The arrays of all ranks; floats have NaNs among those whose extremes are asked for."""
        rng = np.random.default_rng(self.number)
        shape = (size, *self.shape)
        if self.dtype.kind in "iu":
            info = np.iinfo(self.dtype)
            return rng.integers(info.min, info.max, shape, self.dtype, endpoint=True)
        if self.dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(bool)
        drawn = rng.normal(size=shape) * 10.0 ** rng.integers(-2, 3, shape)
        if self.dtype.kind == "c":
            return (drawn + 1j * rng.normal(size=shape)).astype(self.dtype)
        if self.argument in ("max", "min"):
            drawn = np.where(rng.random(shape) < 0.1, np.nan, drawn)
        return drawn.astype(self.dtype)


def cases(size: int) -> Iterator[Case]:
    """Of all cases a fifth, another one for each size; WEFT_SOAK=1: all."""
    every = all_cases(size)
    return every if os.environ.get("WEFT_SOAK") else islice(every, size % 5, None, 5)


def all_cases(size: int) -> Iterator[Case]:
    calls = [("all_reduce", kind) for kind in REDUCTIONS]
    calls += [("all_gather", None), ("reduce_scatter", None), ("all_to_all", None)]
    calls += [("broadcast", root) for root in sorted({0, size - 1})]
    number = 0
    for (collective, argument), dtype, shape in product(calls, dtypes.ALL, SHAPES):
        if dtype.kind == "c" and argument in ("max", "min"):
            continue  # they have no order
        rows = (size, *shape) if collective in ("reduce_scatter", "all_to_all") else shape
        for ordered in (False, True):
            yield Case(number, collective, argument, dtype, rows, ordered)
            number += 1


def lay_out(x: np.ndarray, layout: str) -> np.ndarray:
    """The same values, in other memory."""
    if layout == "F" and x.ndim:
        return np.asfortranarray(x)
    if layout == "step" and x.ndim:
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if layout == "reversed" and x.ndim:
        return x[::-1].copy()[::-1]
    x = np.array(x)
    x.flags.writeable = layout != "read-only"
    return x


def raw(x: np.ndarray, case: Case):
    """The array as the case has it."""
    x = lay_out(x, case.layout)
    if case.kind == "numpy":
        return x
    import torch

    if x.dtype == dtypes.bfloat16:
        return torch.from_numpy(x.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def compute(case: Case, every: np.ndarray):
    """This rank's result, by the case's way; raises if the array was written to."""
    group = world()
    mine = np.asarray(every[group.rank])
    x = raw(mine, case)
    xp = BACKENDS[type(x)]
    rest = () if case.argument is None else (case.argument,)
    if case.out is not None:
        rest = (*rest, x if case.out == "itself" else xp.empty(case.shape, case.dtype))
    time.sleep(random.Random(f"{case.number} {group.rank}").random() * 1e-3)  # who comes first?
    with wf.deterministic() if case.ordered else nullcontext():
        if case.way == "call":
            y = getattr(group, case.collective)(x, *rest)
        elif case.way == "start":
            y = group.start(case.collective, x, *rest).wait()
        else:
            agreed = group.agree(f"case {case.number}")
    if case.way == "run":  # under the settings that it was agreed on under
        y = group.run(lambda member: member.perform(case.collective, x, *rest)).wait()
        agreed.wait()
    if case.out is None:
        assert type(y) is type(x), case
        np.testing.assert_array_equal(bits(xp.to_numpy(x)), bits(mine), err_msg=str(case))
    else:
        assert y is rest[-1], case
    assert xp.dtype_of(y) == case.dtype, case
    return xp.to_numpy(y)


def bits(x: np.ndarray) -> np.ndarray:
    """Its bytes, with the array's shape in front."""
    return np.ascontiguousarray(x).reshape(*x.shape, 1).view(np.uint8)


def main(engine: str, folder: str) -> None:
    wf.dist.init(engine=engine)
    size = wf.dist.size()
    results = {str(c.number): bits(compute(c, c.draw(size))) for c in cases(size)}
    np.savez(Path(folder) / f"{wf.dist.rank()}.npz", **results)
    wf.dist.finalize()


if __name__ == "__main__":
    main(*sys.argv[1:])
