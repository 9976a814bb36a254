"""No row's results or gradients depend on what lay in the memory of new arrays."""

from contextlib import suppress

import numpy as np
import pytest

import weft as wf
from weft.core.call import caller
from weft.core.dtypes import is_inexact

from .poison import poisoned
from .rows import cases, load

TABLE = load()
NAMES = sorted(n for n, op in TABLE.items() if op.sample is not None)


def computed(op, case, byte):
    """The bits of the results, and of the gradients of a sum of them."""
    with poisoned(byte), np.errstate(all="ignore"):
        assert (np.empty(3, np.uint8) == byte).all()
        return bits(results(op, case, False)) + bits(gradients(op, case))


def results(op, case, record):
    args = [_tensor(a, record) if isinstance(a, np.ndarray) else a for a in case.args]
    wf.random.seed(0)
    found = caller(op, public=True)(*((args,) if op.arity is None else args), *case.static)
    return [*(found if isinstance(found, tuple) else (found,)), *(args if record else ())]


def gradients(op, case):
    with suppress(wf.errors.NotDifferentiable):
        found = results(op, case, True)
        moving = [t for t in found if isinstance(t, wf.Tensor) and t.requires_grad]
        terms = [(t.real * t.real).sum() for t in moving]
        if terms:
            sum(terms[1:], terms[0]).backward()
        return [t.grad for t in moving if t.is_leaf]
    return []


def bits(tensors):
    return [t if t is None else np.asarray(t.detach().numpy()).tobytes() for t in tensors]


def _tensor(x, record):
    t = wf.tensor(x)
    return t.requires_grad_() if record and is_inexact(t.dtype) else t


@pytest.mark.parametrize("name", NAMES)
def test_results_do_not_depend_on_old_memory(name):
    op = TABLE[name]
    for case in cases(op):
        assert computed(op, case, 0xFF) == computed(op, case, 0), case.label


def test_sums_of_nothing():
    """np.einsum multiplies them by what lies in the memory of an empty array."""
    first = np.ones((1, 1, 2, 1))[..., :0]
    second = np.lib.stride_tricks.as_strided(np.full(1, np.nan), (1, 0, 2), (0, 0, 0))
    found = wf.einsum("ghts,gsd->ghtd", wf.asarray(first), wf.asarray(second))
    assert found.shape == (1, 1, 2, 2) and not found.numpy().any()
