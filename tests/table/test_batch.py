"""Every row's batching rule: vmap is the loop, alone, nested, and around and inside derivatives."""

from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft.core.call import caller
from weft.core.value import wrap
from weft.ops.batching import Along, align_batch, spread
from weft.ops.structural import stack

from .batching import VALUES, check_batch
from .check import report
from .rows import cases, load

TABLE = load()
WITH_RULE = sorted(n for n, op in TABLE.items() if op.batch is not None)

# Rows whose results have a shape that depends on the values.
WITHOUT_RULE = {"flatnonzero", "argwhere", "unique_values", "unique_all"}

# Kernels that go through a stack of matrices one by one, batch or not.
ONE_BY_ONE = {
    "expm": "SciPy chooses the order of the approximation for each matrix",
    "logm": "SciPy takes one matrix",
    **dict.fromkeys([n for n in TABLE if n.startswith("draw_")], "each has a stream of its own"),
}


@pytest.mark.parametrize("name", WITH_RULE)
def test_batch(name):
    problems = check_batch(TABLE[name], "numpy")
    looping = {p.kind == "loop" for p in problems} == {True}
    assert looping if name in ONE_BY_ONE else problems == [], report(problems)


@pytest.mark.parametrize("name", WITH_RULE)
def test_batch_on_torch(name):
    problems = check_batch(TABLE[name], "torch", VALUES)
    assert problems == [], report(problems)


def test_rows_without_a_rule():
    assert set(TABLE) - set(WITH_RULE) == WITHOUT_RULE


@pytest.mark.parametrize("name", sorted(WITHOUT_RULE))
def test_a_shape_that_depends_on_values_is_refused(name):
    call = caller(TABLE[name])
    x = wrap(np.stack([cases(TABLE[name])[0].args[0]] * 2))
    with pytest.raises(wf.errors.BatchingError, match="depends on the values"):
        wf.vmap(call)(x)


def _as_it_is(call, size, mapped, args, static):
    return call(*args, *static)


def _joined_as_it_is(call, size, mapped, args, static):
    return call([a if m else spread(a, size) for m, a in zip(mapped, args, strict=True)], *static)


def _first_for_all(call, size, mapped, args, static):
    one = [a[0] if m else a for m, a in zip(mapped, args, strict=True)]
    return spread(call(*one, *static), size)


def _one_by_one(call, size, mapped, args, static):
    elements = [[a[k] if m else a for m, a in zip(mapped, args, strict=True)] for k in range(size)]
    return stack([call(*one, *static) for one in elements], 0) if size else call(*args, *static)


def _index_of_the_first(call, size, mapped, args, static):
    (x, i), (axis,) = args, static
    i = i[0] if mapped[1] and size else i
    return call(x if mapped[0] else spread(x, size), i, axis + 1)


def _not_tracked(call, size, mapped, args, static):
    return call(*(wf.stop_gradient(wrap(a) if isinstance(a, np.ndarray) else a) for a in args))


def _of_arrays_only(call, size, mapped, args, static):
    return call(
        *(align_batch(np.asarray(a), 4) if m else a for m, a in zip(mapped, args, strict=True))
    )


# row, the wrong rule, and what must be found wrong with it
PLANTED = {
    "axis of an element": ("sum", _as_it_is, "vmap of 3"),
    "axis of an element, one argument": ("flip", Along(()), "vmap of 3"),
    "axis of another parameter": ("topk", Along((0,)), "vmap of 3"),
    "axis of an element, several arguments": ("concat", _joined_as_it_is, "vmap of 3"),
    "order over the batch": ("sort", Along(()), "vmap of 3"),
    "axes not aligned": ("add", _as_it_is, "vmap of 3"),
    "axes not aligned, three arguments": ("where", _as_it_is, "vmap of 3"),
    "one element for all": ("tanh", _first_for_all, "vmap of 3"),
    "one element's indices for all": ("take", _index_of_the_first, "vmap of 3"),
    "a loop": ("tanh", _one_by_one, "loop"),
    "a derivative lost": ("tanh", _not_tracked, "grad(vmap)"),
    "no batch of batches": ("add", _of_arrays_only, "raised"),
    "no empty batch": ("tanh", _first_for_all, "raised"),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_error_is_found(fault):
    name, rule, kind = PLANTED[fault]
    problems = check_batch(replace(TABLE[name], batch=rule))
    assert kind in {p.kind for p in problems}
