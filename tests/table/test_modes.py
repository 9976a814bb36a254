"""Every row of the table in forward mode and in nested modes, and proof that faults are found."""

from dataclasses import replace

import numpy as np
import pytest

from weft.core.call import caller
from weft.core.op import Op

from . import mutants as m
from .check import report
from .modes import problems_of
from .probe import BACKEND_NAMES
from .rows import EXEMPT, load

TABLE = load()
NAMES = sorted(set(TABLE) - set(EXEMPT))


@pytest.mark.parametrize("backend", BACKEND_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_the_modes_agree(name, backend):
    with np.errstate(all="ignore"):  # some cases are at poles
        problems = list(problems_of(TABLE[name], backend))
    assert problems == [], report(problems)


def _narrow(tangent):
    return caller(TABLE["cast"])(tangent, np.dtype("float32"))


def _absent_is_first(op: Op, _i: int) -> Op:
    """A push-forward that takes an only tangent for the first argument's."""
    push = op.rule.push

    def edited(tangents, *rest):
        present = [t for t in tangents if t is not None]
        return push(tangents if len(present) > 1 else (*present, None), *rest)

    return replace(op, rule=replace(op.rule, push=edited))


# what is planted, the check that must find it, and in which rows (row:argument)
PLANTED = {
    "factor in the push-forward": (
        m.push_only(lambda v: v * (1 + 1e-9)),
        "adjoint",
        "softmax:0 solve:0 solve:1 norm:0 amax:0 triangular_solve:1 pinv:0",
    ),
    "factor in the pull-back": (
        m.pull_only(lambda v: v * (1 + 1e-9)),
        "adjoint",
        "softmax:0 solve:1 norm:0 abs:0 std:0 logcumsumexp:0 eigh:0",
    ),
    "factor in the transpose": (
        m.scaled(1 + 1e-9),
        "adjoint",
        "sum:0 matmul:1 cumsum:0 concat:1 einsum:0 take:0",
    ),
    "transpose in the wrong places": (m.misrouted, "adjoint", "roll:0 tril:0 slice_:0 stack:1"),
    "conjugation of the transpose": (m.conjugated, "adjoint", "fftn:0 matmul:0 einsum:0"),
    "push-forward in single precision": (m.push_only(_narrow), "adjoint", "softmax:0 norm:0"),
    "absent tangents confused": (_absent_is_first, "adjoint", "solve:0 softmax_product:0"),
    "factor in the only push-forward": (m.slightly_off, "tangent", "pad:0 lu:0 eigvals:0"),
    "wrong partial": (m.slightly_off, "tangent", "sin:0 divide:1 pow:1 hypot:0 xlogy:1"),
    "partials exchanged": (m.swapped, "tangent", "subtract:0 atan2:0"),
    "partial for nothing": (m.one_for_nought, "tangent", "floor:0 ceil:0"),
    "rule that is a constant": (
        m.detached,
        "second order",
        "multiply:0 tanh:0 exp:0 divide:1 matmul:0 einsum:0 inv:0 softmax:0 prod:0 cumprod:0",
    ),
    "cotangent that is a constant": (
        m.cotangent_detached,
        "second order",
        "matmul:0 sum:0 softmax:0 inv:0 norm:0 fftn:0",
    ),
    "infinite partial times zero": (
        m.weak,
        "zero tangent",
        "log:0 sqrt:0 divide:0 pow:0 gammaln:0",
    ),
}


def _places() -> list:
    return [
        pytest.param(mutate, kind, *_place(place), id=f"{what}-{place}")
        for what, (mutate, kind, places) in PLANTED.items()
        for place in places.split()
    ]


def _place(place: str) -> tuple[str, int]:
    name, i = place.split(":")
    return name, int(i)


@pytest.mark.parametrize(("mutate", "kind", "name", "i"), _places())
def test_a_planted_fault_is_found(mutate, kind, name, i):
    """An exception is no proof, nor is a finite difference that cannot tell."""
    with np.errstate(all="ignore"):
        problems = problems_of(mutate(TABLE[name], i), "numpy")
        kinds = (p.kind for p in problems)
        assert next((k for k in kinds if k != "raised" and "vague" not in k), None) == kind
