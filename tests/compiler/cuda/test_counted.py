"""Constants that count are not read; others are."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import weft as wf
from weft.compiler.cuda.counted import Counted, count_operands
from weft.compiler.ir.schedule import KernelStep


@pytest.fixture
def schedule(gpu):
    """A cross-entropy's, whose classes are compared with all that there are."""
    x, y = wf.asarray(torch.randn(5, 21)), wf.asarray(torch.arange(5))
    compiled = wf.compile(wf.nn.functional.cross_entropy)
    got, want = compiled(x, y), wf.nn.functional.cross_entropy(x, y)
    np.testing.assert_allclose(got.to("cpu").numpy(), want.to("cpu").numpy(), rtol=1e-6)
    return compiled._last().executable.schedule


def counted(schedule) -> list[int]:
    """What the counted operands of all kernels begin with."""
    steps = [s for s in schedule.steps if isinstance(s, KernelStep)]
    operands = [o for s in steps for o in count_operands(schedule, s).operands]
    return [o.first for o in operands if isinstance(o, Counted)]


def classes(schedule) -> int:
    """The constant of all classes."""
    return next(i for i, x in schedule.constants.items() if np.shape(x) == (21,))


def test_classes_are_counted(schedule):
    assert set(counted(schedule)) == {0}


def test_a_part_counts_from_its_first(schedule):
    i = classes(schedule)
    whole = np.arange(3, 3 + 21, dtype=schedule.constants[i].dtype)
    assert set(counted(replace(schedule, constants={**schedule.constants, i: whole}))) == {3}
    buffers = [
        replace(b, offset=b.offset + 2) if k == i else b for k, b in enumerate(schedule.buffers)
    ]
    moved = replace(schedule, buffers=tuple(buffers), constants={**schedule.constants, i: whole})
    assert set(counted(moved)) == {5}


@pytest.mark.parametrize(
    "change",
    [
        lambda x: 2 * x,
        lambda x: x[::-1],
        lambda x: np.where(x == 7, 8, x),
        lambda x: x.astype(np.float32),
        lambda x: np.where((x > 3) & (x < 9), 12 - x, x),
        lambda x: np.zeros_like(x),
    ],
)
def test_others_are_not(schedule, change):
    i = classes(schedule)
    constants = {**schedule.constants, i: change(np.asarray(schedule.constants[i]))}
    assert not counted(replace(schedule, constants=constants))
