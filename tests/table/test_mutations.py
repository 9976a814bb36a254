"""Proof that the checks can fail: wrong derivatives are planted, and every one is found."""

import numpy as np
import pytest

from weft.core.op import Op, Partials

from .check import problems_of
from .mutants import one_for_nought, slightly_off
from .probe import Probe
from .rows import EXEMPT, cases, load

TABLE = load()


def caught(op: Op) -> bool:
    """Whether some check finds wrong numbers; an exception alone is no proof."""
    with np.errstate(all="ignore"):
        return any(p.kind != "raised" for p in problems_of(op, "numpy"))


def _arguments(op: Op) -> list[int]:
    """The arguments that some case differentiates by."""
    smooth = [c for c in cases(op) if c.smooth]
    return sorted({i for c in smooth for i in Probe(op, c).moving if np.size(c.args[i])})


def _everywhere() -> list:
    found = []
    for name, op in sorted(TABLE.items()):
        if op.rule is None or name in EXEMPT:
            continue
        for i in _arguments(op):
            zero = isinstance(op.rule, Partials) and op.rule.d[i] == 0
            mutate = one_for_nought if zero else slightly_off
            found.append(pytest.param(op, i, mutate, id=f"{name}-{i}"))
    return found


@pytest.mark.parametrize(("op", "i", "mutate"), _everywhere())
def test_an_error_of_a_thousandth_is_found_in_every_row_and_argument(op, i, mutate):
    assert caught(mutate(op, i))
