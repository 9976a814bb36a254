"""Sharded optimizers beside the same ones without sharding, which have all of the state."""

import numpy as np
import pytest

import weft as wf
from tests.optim.every import OPTIMIZERS

from .sharded_runs import (
    NAMES,
    SIZES,
    STEPS,
    assert_same,
    groups_of,
    parameters,
    plain,
    train,
    values,
)
from .threads import run

WITHOUT = {("p0", 3), ("p1", 0), ("p1", 1), ("p2", 15)}


def unsharded(name, dtype, device):
    params = parameters(values(name, dtype), device)
    optimizer = OPTIMIZERS[name][0](groups_of(params))
    trained = train(optimizer, params, range(STEPS), device, WITHOUT)
    return trained, plain(optimizer.state_dict())


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", NAMES)
def test_steps_and_states_are_those_without_sharding(name, dtype, device):
    expected, state = unsharded(name, dtype, device)

    def program(rank):
        params = parameters(values(name, dtype), device)
        optimizer = wf.dist.ShardedOptimizer(OPTIMIZERS[name][0](groups_of(params)))
        trained = train(optimizer, params, range(STEPS), device, WITHOUT)
        return trained, plain(optimizer.state_dict())

    for size in SIZES:
        for trained, gathered in run(size, program):
            assert_same(trained, expected)
            assert_same(gathered, state)


def odd_arrays(kind):
    """Parameters of dtypes and layouts that few models have."""
    rng = np.random.default_rng(3)
    shapes = [(130, 7), (64,), (), (3, 200), (0,), (65,)]
    if kind == "complex":
        return [rng.standard_normal(s) + 1j * rng.standard_normal(s) for s in shapes]
    if kind == "large":
        return [rng.standard_normal(s) for s in [(400, 301), (70_001,), (5,)]]
    return [rng.standard_normal(s) for s in shapes]


def odd_parameters(kind, device):
    dtype = {"complex": "complex64", "half": "float16", "bfloat": "bfloat16"}.get(kind, "float32")
    made = [wf.Parameter(wf.tensor(x, device=device, dtype=dtype)) for x in odd_arrays(kind)]
    if kind == "turned":  # memory in another order than the indices
        for p in made:
            if p.ndim == 2:
                p._data = p._data.T.copy().T if device == "cpu" else p._data.T.contiguous().T
    return dict(enumerate(made))


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("kind", ["complex", "half", "bfloat", "turned", "large"])
@pytest.mark.parametrize("rule", ["SGD", "Adam", "Lion", "RMSprop"])
def test_all_kinds_of_parameters(rule, kind, device):
    """Half types, complex numbers, arrays of which pieces are copies, and many elements."""
    options = {"SGD": {"momentum": 0.9}, "RMSprop": {"momentum": 0.5, "centered": True}}

    def program(sharded):
        params = odd_parameters(kind, device)
        optimizer = getattr(wf.optim, rule)(list(params.values()), lr=0.01, **options.get(rule, {}))
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        for step in range(5):
            rng = np.random.default_rng(step)
            grads = [
                wf.tensor(rng.standard_normal(p.shape[::-1]), device=device).T
                for p in params.values()
            ]
            optimizer.step([g.to(p.dtype) for g, p in zip(grads, params.values(), strict=True)])
        kept = plain(optimizer.state_dict()["state"])
        return {k: p.detach().to("cpu").numpy() for k, p in params.items()}, kept

    expected = program(False)
    for size in (1, 3):
        for found in run(size, lambda rank: program(True)):
            assert_same(list(found), list(expected))
