"""Numbers that operators make of others: as one function, they are what they were."""

import operator
import random
from typing import Any

import pytest

from weft.compiler.frontend.host_scalars import Host

STAGING: Any = None
OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.neg, abs)
CONSTANTS = (2, -3, 0.5, -1e-300, 1e300, float("inf"), True)


def formula(rng: random.Random, leaves: list[Host], depth: int) -> Any:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(leaves) if rng.random() < 0.6 else rng.choice(CONSTANTS)
    function = rng.choice((*OPERATORS, operator.pow, operator.mod, operator.floordiv))
    if function in (operator.neg, abs):
        return function(formula(rng, leaves, depth - 1))
    return function(*[formula(rng, leaves, depth - 1) for _ in range(2)])


def value(read) -> Any:
    """The value and its type, or the error."""
    try:
        found = read()
    except (ArithmeticError, TypeError) as e:
        return type(e)
    return type(found), repr(found)


@pytest.mark.parametrize("seed", range(4))
def test_one_function_gives_the_values_of_many(seed):
    rng, made = random.Random(seed), 0
    now = [1.5, -2, 3.0]
    leaves = [Host(STAGING, f"n{k}", lambda k=k: now[k]) for k in range(3)]
    for _ in range(200):
        try:
            x = formula(rng, leaves, rng.randrange(1, 7))
        except (ArithmeticError, TypeError):  # of constants alone
            continue
        if type(x) is not Host:
            continue
        flat, made = x.flat(), made + 1
        for _ in range(4):
            now[:] = [rng.choice((rng.uniform(-3, 3), rng.randrange(-3, 4), 0)) for _ in now]
            assert value(flat) == value(x.read), x.label
    assert made > 50


def test_long_formulas_are_read_as_they_are():
    x: Any = Host(STAGING, "n", lambda: 1.0)
    for _ in range(400):
        x = x + 1
    assert x.flat()() == 401.0
