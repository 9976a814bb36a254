"""Numbers of detached values under every transformation that traces: constants, like in `jvp`."""

import os
import random

import numpy as np
import pytest

import weft as wf
from weft.errors import InterchangeError

ROUNDS = 200 if os.environ.get("WEFT_SOAK") else 12
STEPS = ("{0} * 2 + 1", "wf.sin({0})", "{0}[::-1]", "{0} + {1}", "{0} * {1}", "abs({0}).cumsum()")


def drawn(rng: random.Random):
    """A function of x that reads a number, and whether a derivative goes into that number."""
    lines, values = ["def f(x):"], [("x", True), ("x.detach()", False), ("wf.ones(3)", False)]
    for k in range(rng.randint(0, 4)):
        (a, moves_a), (b, moves_b) = rng.choice(values), rng.choice(values)
        step = rng.choice(STEPS)
        lines.append(f"    v{k} = {step.format(a, b)}")
        moves = moves_a or ("{1}" in step and moves_b)
        values.append((f"v{k}", moves))
        if rng.random() < 0.3:
            values.append((f"v{k}.detach()", False))
        if rng.random() < 0.2:
            values.append((f"(v{k} > 0).to('float64')", False))
    number, moves = rng.choice(values)
    text = "\n".join([*lines, f"    return x * x * float({number}.sum())"])
    space = {"wf": wf}
    exec(text, space)
    return space["f"], moves, text


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_numbers_of_detached_values(seed):
    f, moves, text = drawn(random.Random(seed))
    rng = np.random.default_rng(seed)
    for make in (wf.jacobian, wf.jacfwd, wf.jacrev):
        derivative = make(f)
        for _ in range(2):
            x = wf.tensor(rng.standard_normal(3))
            if moves:
                with pytest.raises(InterchangeError, match="detach"):
                    derivative(x)
                continue
            columns = [wf.jvp(f, (x,), (wf.tensor(e),))[1].numpy() for e in np.eye(3)]
            np.testing.assert_allclose(
                derivative(x).numpy(), np.stack(columns, 1), rtol=1e-12, err_msg=text
            )
