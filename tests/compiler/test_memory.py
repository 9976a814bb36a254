"""The memory plan beside brute force: no two live buffers meet, and little is wasted."""

import os

import numpy as np
import pytest

import weft as wf
from weft.compiler import memory
from weft.compiler.ir.kernel import FoldStep, Kernel, Operand, Result, Step
from weft.compiler.ir.schedule import Buffer, KernelStep, Schedule, row_major
from weft.compiler.memory import ALIGNMENT, ArenaSlot, in_place, lifetimes, plan, round_up
from weft.core.dtypes import float32, float64
from weft.graph.graph import Literal

from .fusion.test_fuse import perceptron, random_graph, transformer
from .passes.graphs import X, Y, traced
from .schedules import compiled

COUNT = 2000 if os.environ.get("WEFT_SOAK") else 150


def copy_kernel(n: int, operands: int, results: int) -> Kernel:
    """The sum of some lines, written to some lines."""
    steps = [Step("add", (0, 0), float32)]
    for k in range(1, operands):
        steps.append(Step("add", (operands + k - 1, k), float32))
    last = operands + len(steps) - 1
    return Kernel(
        (n,), (Operand(float32, (1,)),) * operands, tuple(steps), (Result(last, (1,)),) * results
    )


def random_schedule(rng) -> Schedule:
    """Steps that read values of about their own size, of the last few or of long ago."""
    buffers = [Buffer((int(n),), float32, "input", (1,)) for n in rng.integers(1, 500, 2)]
    steps, made = [], [0, 1]
    for _ in range(rng.integers(3, 40)):
        operands = [made[int(k)] for k in rng.integers(0, len(made), rng.integers(1, 4))]
        n = min(buffers[i].size for i in operands)
        results = []
        for _ in range(rng.integers(1, 3)):
            buffers.append(Buffer((n,), float32, "scratch", (1,)))
            results.append(len(buffers) - 1)
        kernel = copy_kernel(n, len(operands), len(results))
        steps.append(KernelStep(kernel, tuple(operands), tuple(results)))
        made = [*made, *results][-int(rng.integers(3, 12)) :]
        if rng.random() < 0.3:
            buffers.append(Buffer((int(rng.integers(1, 2000)),), float32, "scratch", (1,)))
            grown = Kernel((buffers[-1].size,), (Operand(float32, (0,)),), (), (Result(0, (1,)),))
            steps.append(KernelStep(grown, (results[0],), (len(buffers) - 1,)))
            made.append(len(buffers) - 1)
    return Schedule(tuple(buffers), (0, 1), (), tuple(steps))


def check(schedule: Schedule) -> tuple[int, int]:
    """Every pair of buffers, byte by byte; the plan's size and the sum of all sizes."""
    made, spans = plan(schedule), lifetimes(schedule)
    assert set(made.offsets) == set(spans)
    for b, at in made.offsets.items():
        assert at % ALIGNMENT == 0 and at + schedule.buffers[b].nbytes <= made.size
    for a in spans:
        for b in spans:
            if a < b and _overlap(schedule, made.offsets, a, b):
                _check_pair(schedule, spans, *sorted((a, b), key=lambda i: spans[i]))
    naive = sum(round_up(schedule.buffers[b].nbytes) for b in spans)
    assert made.least <= made.size <= naive
    return made.size, made.least


def _overlap(schedule, offsets, a, b) -> bool:
    ends = {i: offsets[i] + schedule.buffers[i].nbytes for i in (a, b)}
    return offsets[a] < ends[b] and offsets[b] < ends[a]


def _check_pair(schedule, spans, earlier, later) -> None:
    """Buffers that share bytes: one dies before the other is made, or in the step that makes it."""
    if spans[earlier][1] < spans[later][0]:
        return
    assert spans[earlier][1] == spans[later][0], (earlier, later)
    step = schedule.steps[spans[later][0]]
    result = step.results.index(later)
    readers = [n for n, i in enumerate(step.operands) if schedule.storage(i) == earlier]
    assert readers and all(in_place(step.kernel, n, result) for n in readers)


@pytest.mark.parametrize("batch", range(5))
def test_random_schedules(batch):
    waste = []
    for seed in range(batch, COUNT, 5):
        size, least = check(random_schedule(np.random.default_rng(seed)))
        waste.append(size / max(least, 1))
    assert np.mean(waste) < 1.03 and max(waste) < 1.35


def test_plans_of_programs():
    for seed in range(30):
        check(compiled(random_graph(seed)[0]))


@pytest.mark.parametrize("model", [perceptron, transformer])
def test_plans_of_training_steps_waste_nothing(model):
    graph, _, donated = model(np.random.default_rng(0))
    size, least = check(compiled(graph, donated))
    assert size <= 1.02 * least


def test_a_chain_of_steps_needs_two_buffers_at_most():
    def f(x):
        for _ in range(6):
            x = wf.sort(wf.exp(x * 0.1))
        return x

    schedule = compiled(traced(f, X))
    assert plan(schedule).size <= 2 * round_up(X.nbytes)


def test_a_plan_of_nothing():
    assert plan(compiled(traced(lambda x: x + 1, X))).size == 0


# -- in place --------------------------------------------------------------------------------


def kernel(operands, steps, results, domain=(4, 8), folded=()) -> Kernel:
    return Kernel(
        domain, tuple(Operand(float32, s) for s in operands), tuple(steps), results, folded
    )


ROWS, COLUMNS = row_major((4, 8)), (1, 4)
DOUBLED = Step("multiply", (0, Literal(2.0)), float32)


def test_the_same_element_may_be_overwritten():
    assert in_place(kernel([ROWS], [DOUBLED], (Result(1, ROWS),)), 0, 0)


def test_another_element_may_not():
    assert not in_place(kernel([COLUMNS], [DOUBLED], (Result(1, ROWS),)), 0, 0)
    assert not in_place(kernel([(0, 1)], [DOUBLED], (Result(1, ROWS),)), 0, 0)
    assert not in_place(kernel([(-8, 1)], [DOUBLED], (Result(1, ROWS),)), 0, 0)


def test_nor_one_of_another_width():
    wide = Step("cast", (0,), float64, (float64,))
    assert not in_place(kernel([ROWS], [wide], (Result(1, ROWS),)), 0, 0)


SOFTMAX = [
    FoldStep("max", 0, float32),
    Step("subtract", (0, 1), float32),
    Step("exp", (2,), float32),
    FoldStep("sum", 3, float32),
    Step("divide", (3, 4), float32),
]


def test_what_a_later_sweep_reads_again_may_not():
    last = kernel([ROWS], SOFTMAX, (Result(5, ROWS),), folded=(1,))
    assert in_place(last, 0, 0)  # written in the last sweep
    early = kernel([ROWS], SOFTMAX, (Result(3, ROWS), Result(5, ROWS)), folded=(1,))
    assert not in_place(early, 0, 0)  # written in the second, read in the third


def test_numbers_beside_a_fold_may_replace_numbers():
    steps = [FoldStep("sum", 0, float32), Step("add", (1, 2), float32)]
    made = kernel([ROWS, (1, 0)], steps, (Result(3, (1, 0)),), folded=(1,))
    assert in_place(made, 1, 0) and not in_place(made, 0, 0)


def test_an_operand_that_is_read_twice_in_two_ways_is_not_replaced():
    """x and x transposed: one read is at the index of the result, the other is not."""

    def f(x, y):
        z = wf.sort(x @ y.T)
        return wf.sort(z + z.T)

    schedule = compiled(traced(f, X, Y))
    check(schedule)
    made = plan(schedule)
    adds = next(s for s in schedule.steps if isinstance(s, KernelStep))
    taken = {made.offsets[schedule.storage(i)] for i in adds.operands}
    assert not taken & {made.offsets[i] for i in adds.results if i in made.offsets}


def smallest_gap(taken: list[tuple[int, int]], nbytes: int) -> int:
    """The start of the smallest gap of some bytes between ranges, one range after the other."""
    best, width, end = -1, 0, 0
    for start, stop in sorted(taken):
        if start - end >= nbytes and (best < 0 or start - end < width):
            best, width = end, start - end
        end = max(end, stop)
    return end if best < 0 else best


@pytest.mark.parametrize("seed", range(40))
def test_slots_take_the_smallest_gaps(seed):
    rng = np.random.default_rng(seed)
    slots = []
    for _ in range(int(rng.integers(1, 60))):
        first, nbytes = int(rng.integers(40)), 64 * int(rng.choice([0, 1, 1, 2, 3, 8, 100]))
        slots.append(ArenaSlot([], nbytes, first, first + int(rng.choice([0, 1, 2, 5, 30]))))
    for key in (memory._by_size, memory._by_time, memory._by_life, memory._by_area):
        placed: dict[int, tuple[int, int]] = {}
        offsets = memory._place_slots(slots, key)
        for n in sorted(range(len(slots)), key=lambda n: key(slots[n])):
            s = slots[n]
            meets = [m for m in placed if slots[m].first <= s.last and slots[m].last >= s.first]
            at = smallest_gap([placed[m] for m in meets], s.nbytes)
            placed[n] = at, at + s.nbytes
            assert offsets[n] == at or not s.nbytes
