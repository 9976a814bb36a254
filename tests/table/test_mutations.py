"""Proof that the checks can fail: wrong derivatives are planted, and every one is found."""

from functools import lru_cache

import numpy as np
import pytest

from weft.core.op import Jvp, Op, Partials

from .check import check_row, problems_of
from .mutants import one_for_nought, slightly_off, tangent_itself
from .planted import BY_ARGUMENT, BY_HAND, FOUND_BY
from .probe import Probe
from .reference import references
from .rows import EXEMPT, cases, load

TABLE = load()


def caught(op: Op) -> str | None:
    """The kind of the first finding of wrong numbers.

    An exception is no proof, nor is a finite difference that cannot tell.
    """
    with np.errstate(all="ignore"):
        kinds = (p.kind for p in problems_of(op, "numpy"))
        return next((k for k in kinds if k != "raised" and "vague" not in k), None)


@lru_cache(maxsize=None)
def sound(name: str) -> bool:
    """Whether the row as it stands passes, so that what is found is the planted error."""
    return not check_row(TABLE[name], "numpy")


def _planted() -> list:
    found = []
    for what, (mutate, places) in BY_ARGUMENT.items():
        for place in places.split():
            name, i = place.split(":")
            found.append(pytest.param(what, name, int(i), mutate, id=f"{name}-{i}-{what}"))
    for what, (name, mutate) in BY_HAND.items():
        found.append(pytest.param(what, name, 0, mutate, id=f"{name}-0-{what}"))
    return found


PLANTED = _planted()


@pytest.mark.parametrize(("what", "name", "i", "mutate"), PLANTED)
def test_a_planted_error_is_found(what, name, i, mutate):
    assert sound(name)
    kind = caught(mutate(TABLE[name], i))
    assert kind is not None
    assert kind == FOUND_BY.get(what, kind)


def test_there_are_enough_of_them():
    assert len(PLANTED) >= 50


def _arguments(op: Op) -> list[int]:
    """The arguments that some case differentiates by."""
    smooth = [c for c in cases(op) if c.smooth]
    return sorted({i for c in smooth for i in Probe(op, c).moving if np.size(c.args[i])})


# Arguments of push-forwards that do not look at their tangent: there is nothing to multiply.
UNMOVED = {("pinv", 1): "the cut-off: the result is constant in it"}


def _everywhere() -> list:
    rows = [n for n, op in sorted(TABLE.items()) if op.rule is not None and n not in EXEMPT]
    found = [(n, i) for n in rows for i in _arguments(TABLE[n])]
    assert set(UNMOVED) <= set(found)
    return [pytest.param(n, i, id=f"{n}-{i}") for n, i in found if (n, i) not in UNMOVED]


def _constant(op: Op) -> bool:
    """Whether the derivative is zero everywhere, so that a multiple of it is right too."""
    with np.errstate(all="ignore"):
        return not any(r.jacobian.value.any() for r in references(op) if r.probe.case.smooth)


def _slightly_wrong(op: Op, i: int) -> Op:
    if isinstance(op.rule, Partials) and op.rule.d[i] == 0:
        return one_for_nought(op, i)
    return (
        tangent_itself(op, i) if isinstance(op.rule, Jvp) and _constant(op) else slightly_off(op, i)
    )


@pytest.mark.parametrize(("name", "i"), _everywhere())
def test_an_error_of_a_thousandth_is_found_in_every_row_and_argument(name, i):
    assert caught(_slightly_wrong(TABLE[name], i)) is not None
