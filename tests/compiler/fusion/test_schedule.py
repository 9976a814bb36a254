"""The verifier accepts the schedules that are made and refuses every kind of damage to them."""

from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft.compiler.ir.kernel import MalformedKernel, Operand
from weft.compiler.ir.schedule import Buffer, GemmStep, GuardStep, KernelStep, LibraryStep
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.core.dtypes import float64
from weft.errors import IndexingError

from ..passes.graphs import ROW, X, Y, traced
from ..schedules import compiled


@pytest.fixture
def schedule():
    def f(x, y, w):
        z = wf.softmax(x @ y.T, -1)
        return wf.polygamma(1, z), w * 2

    return compiled(traced(f, X, Y, ROW), {1: 2})


def step(schedule, kind):
    return next((k, s) for k, s in enumerate(schedule.steps) if isinstance(s, kind))


def with_step(schedule, k, new):
    return replace(schedule, steps=(*schedule.steps[:k], new, *schedule.steps[k + 1 :]))


def with_buffer(schedule, i, **changes):
    made = list(schedule.buffers)
    made[i] = replace(made[i], **changes)
    return replace(schedule, buffers=tuple(made))


def a_view(schedule):
    return next(i for i, b in enumerate(schedule.buffers) if b.base is not None)


def reversed_steps(s):
    return replace(s, steps=s.steps[::-1])


def lost_step(s):
    return replace(s, steps=s.steps[1:])


def view_outside(s):
    return with_buffer(s, a_view(s), offset=1)


def view_before_the_start(s):
    return with_buffer(s, a_view(s), offset=-1)


def view_of_a_view(s):
    i = a_view(s)
    made = replace(s, buffers=(*s.buffers, replace(s.buffers[i], base=i)))
    return made


def view_of_another_dtype(s):
    return with_buffer(s, a_view(s), dtype=float64)


def memory_with_gaps(s):
    return with_buffer(s, s.inputs[0], strides=(8, 1))


def input_twice(s):
    return replace(s, inputs=(s.inputs[0], *s.inputs))


def another_role(s):
    return with_buffer(s, s.inputs[0], role="scratch")


def constant_of_another_shape(s):
    made = replace(s, buffers=(*s.buffers, Buffer((3,), float64, "constant", (1,))))
    return replace(made, constants={len(s.buffers): np.zeros(4)})


def written_input(s):
    k, e = step(s, KernelStep)
    return with_step(s, k, replace(e, results=(s.inputs[0],)))


def kernel_of_another_dtype(s):
    k, e = step(s, KernelStep)
    operands = (Operand(float64, e.kernel.operands[0].strides), *e.kernel.operands[1:])
    return with_step(s, k, replace(e, kernel=replace(e.kernel, operands=operands)))


def kernel_that_leaves_its_buffer(s):
    k, e = step(s, KernelStep)
    domain = (*e.kernel.domain[:-1], e.kernel.domain[-1] + 1)
    return with_step(s, k, replace(e, kernel=replace(e.kernel, domain=domain)))


def kernel_without_a_buffer(s):
    k, e = step(s, KernelStep)
    return with_step(s, k, replace(e, operands=e.operands[1:]))


def gemm_that_leaves_its_buffer(s):
    k, e = step(s, GemmStep)
    return with_step(s, k, replace(e, m=e.m + 1))


def gemm_of_overlapping_rows(s):
    k, e = step(s, GemmStep)
    return with_step(s, k, replace(e, lda=1))


def gemm_with_a_batch_too_many(s):
    k, e = step(s, GemmStep)
    return with_step(s, k, replace(e, batch=(2,)))


def call_of_another_shape(s):
    k, e = step(s, LibraryStep)
    made = with_step(s, k, replace(e, inputs=(s.inputs[2],)))
    return made


def read_after_it_was_replaced(s):
    return replace(s, steps=(*s.steps, next(x for x in s.steps if takes(s, x))))


def takes(s, x):
    return any(s.buffers[s.storage(i)].takes is not None for i in x.writes)


def memory_of_another_size(s):
    i = next(i for i, b in enumerate(s.buffers) if b.takes is not None)
    return with_buffer(s, i, takes=s.inputs[0])


def flag_of_another_dtype(s):
    return replace(
        s,
        steps=(
            *s.steps,
            GuardStep(s.outputs[0], IndexingError, "", step(s, LibraryStep)[1].origin),
        ),
    )


DAMAGE = [
    *(reversed_steps, lost_step, view_outside, view_before_the_start, view_of_a_view),
    *(view_of_another_dtype, memory_with_gaps, input_twice, another_role),
    *(constant_of_another_shape, written_input, kernel_of_another_dtype),
    *(kernel_that_leaves_its_buffer, kernel_without_a_buffer, gemm_that_leaves_its_buffer),
    *(gemm_of_overlapping_rows, gemm_with_a_batch_too_many, call_of_another_shape),
    *(read_after_it_was_replaced, memory_of_another_size, flag_of_another_dtype),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda f: f.__name__)
def test_damage_is_found(schedule, damage):
    verify(schedule)
    with pytest.raises((MalformedSchedule, MalformedKernel)):
        verify(damage(schedule))


def test_a_schedule_reads_as_a_program(schedule):
    text = str(schedule)
    assert text.startswith("inputs  b0 b1 b2\nbuffer  b0:float32[3,4] input")
    assert "gemm    b" in text and "ᵀ 3×3×4" in text
    assert "library b" in text and "= polygamma(1, b" in text
    assert "folding (1,): t0 = fold max(" in text
    assert " output in b2" in text


def test_what_a_step_reads_writes_and_costs(schedule):
    _, product = step(schedule, GemmStep)
    assert product.flops == 2 * 3 * 3 * 4
    assert product.reads == (product.a, product.b) and product.writes == (product.c,)
    assert replace(product, beta=1.0).reads == (product.a, product.b, product.c)
    _, kernel = step(schedule, KernelStep)
    assert {"max", "sum", "exp"} <= {r for s in schedule.steps for r in getattr(s, "rows", ())}
    assert kernel.origins
