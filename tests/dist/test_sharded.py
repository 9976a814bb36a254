"""Sharded optimizers beside the same ones without sharding, which have all of the state."""

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from tests.optim.every import OPTIMIZERS

from .sharded_runs import (
    NAMES,
    SIZES,
    STEPS,
    assert_same,
    gradients,
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


FORMS = {
    "fields": lambda params, grads: None,
    "dict": lambda params, grads: grads,
    "list": lambda params, grads: list(grads.values()),
    "pairs": lambda params, grads: [(params[k], g) for k, g in grads.items()],
    "triples": lambda params, grads: [(k, params[k], g) for k, g in grads.items()],
    "map": lambda params, grads: sum((params[k] * g).sum() for k, g in grads.items()).backward(),
    "closure": lambda params, grads: lambda: 5.0,
}


@pytest.mark.parametrize("form", FORMS)
def test_all_forms_of_gradients(form):
    def program(sharded):
        params = parameters(values("adam"))
        optimizer = wf.optim.Adam(groups_of(params), lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        for step in range(3):
            grads = gradients(params, step)
            for key, p in params.items():
                p.grad = grads[key] if form in ("fields", "closure") else None
            given = FORMS[form](params, grads)
            assert optimizer.step(given) == (5.0 if form == "closure" else None)
            assert len(optimizer.changed) == len(params)
            optimizer.zero_grad()
            assert all(p.grad is None for p in params.values())
        return {k: p.detach().numpy() for k, p in params.items()}

    for found in run(3, lambda rank: program(True)):
        assert_same(found, program(False))


def test_parameters_that_steps_bring_are_shared_out_too():
    def program(sharded):
        params = parameters(values("adam"))
        optimizer = wf.optim.Adam(lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        for step in range(4):
            keys = list(params)[: 2 + 2 * step]
            grads = gradients(params, step)
            optimizer.step([(k, params[k], grads[k]) for k in keys])
        return {k: p.detach().numpy() for k, p in params.items()}, plain(optimizer.state_dict())

    for found in run(3, lambda rank: program(True)):
        assert_same(list(found), list(program(False)))


CHANGES = ("add", "named", "leave", "move", "reset", "momentum", "values", "memory")


def change(kind, optimizer, params, groups):
    """Something that a training script does between two steps."""
    if kind == "add":
        optimizer.add_param_group({"params": [params["late"]], "lr": 0.5})
    elif kind == "named":
        optimizer.add_param_group({"params": [("x", params["late"])]})
    elif kind == "leave":
        del optimizer.param_groups[0]["params"][1]
    elif kind == "move":
        optimizer.param_groups[1]["params"].append(optimizer.param_groups[0]["params"].pop(0))
    elif kind == "reset":
        optimizer.reset()
    elif kind == "momentum":
        optimizer.param_groups[0]["amsgrad"] = True
        optimizer.param_groups[1]["beta1"] = 0.5
    elif kind == "values":
        with wf.no_grad():
            for p in params.values():
                p.copy_(p * 0.5)
    else:
        for p in params.values():
            p._data = p._data * 0.5  # new memory


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", CHANGES)
def test_changes_between_steps(kind, named, device):
    """Groups change, so that pieces move between ranks with their states; settings and values."""

    def program(sharded):
        params = parameters(values("adam"), device)
        late = wf.Parameter(wf.tensor(np.arange(500.0), device=device))
        own = (
            groups_of(params)
            if named
            else [{**g, "params": [p for _, p in g["params"]]} for g in groups_of(params)]
        )
        optimizer = wf.optim.Adam(own, lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        params["late"] = late
        for step in range(6):
            if step == 3:
                change(kind, optimizer, params, own)
            for key, g in gradients(params, step, device).items():
                params[key].grad = g
            optimizer.step()
        return {k: p.detach().numpy() for k, p in params.items()}, plain(optimizer.state_dict())

    expected = program(False)
    for size in (1, 2, 3):
        for found in run(size, lambda rank: program(True)):
            assert_same(list(found), list(expected))


@pytest.mark.parametrize("name", NAMES)
def test_an_optimizer_that_made_steps_before(name):
    """Its state is distributed, not lost."""

    def program(sharded):
        params = parameters(values(name))
        optimizer = OPTIMIZERS[name][0](groups_of(params))
        train(optimizer, params, range(3))
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        trained = train(optimizer, params, range(3, 6))
        return trained, plain(optimizer.state_dict())

    expected = program(False)
    for found in run(2, lambda rank: program(True)):
        assert_same(list(found), list(expected))


def test_an_average_of_the_parameters_in_their_place():
    def program(sharded):
        params = parameters(values("schedule-free"))
        optimizer = wf.optim.ScheduleFreeAdamW(groups_of(params), lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        seen = []

        def look():
            seen.append({k: p.detach().numpy().copy() for k, p in params.items()})

        train(optimizer, params, range(4), without={("p0", s) for s in range(4)})
        with optimizer.swapped():
            look()
        look()
        optimizer.eval()
        assert optimizer.is_averaged
        look()
        saved = plain(optimizer.state_dict())
        optimizer.train()
        train(optimizer, params, range(4, 6))
        look()
        return seen, saved

    expected = program(False)
    for size in (1, 3):
        for found in run(size, lambda rank: program(True)):
            assert_same(list(found), list(expected))


@pytest.mark.parametrize("name", ["muon", "lamb", "adafactor", "adam 8-bit"])
def test_whole_parameters_are_balanced(name):
    """No rank has more than its share and one parameter's state."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((70, int(n))) for n in rng.integers(60, 200, 20)]

    def program(rank):
        params = parameters(arrays)
        optimizer = wf.dist.ShardedOptimizer(OPTIMIZERS[name][0](params))
        optimizer.step(gradients(params, 0))
        return {key: held_bytes(own) for key, own in optimizer.state.items()}

    for size in (2, 3, 4):
        found = run(size, program)
        each = {key: n for own in found for key, n in own.items()}
        assert sorted(each) == sorted(key for own in found for key in own)
        for own in found:
            assert sum(own.values()) <= sum(each.values()) / size + max(each.values())


def held_bytes(own):
    """The bytes of the arrays of a state."""
    return sum(x.nbytes for x in own.values() if hasattr(x, "nbytes"))


def random_model(rng):
    """Shapes of many sizes, between one element and some ten thousand."""
    count = int(rng.integers(1, 30))
    return [
        tuple(int(n) for n in np.exp(rng.uniform(0, 4.5, int(rng.integers(0, 3)))).astype(int))
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(12))
def test_state_and_traffic_of_a_rank(seed):
    """State: 1/size of all, within a cut's rounding; traffic: each piece goes out once."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    shapes = random_model(rng)
    rule = ["Adam", "RMSprop", "Lion", "AdamW"][seed % 4]

    def program(rank):
        params = [wf.Parameter(wf.zeros(s, dtype="float32")) for s in shapes]
        optimizer = wf.dist.ShardedOptimizer(getattr(wf.optim, rule)(params, lr=0.1))
        before = optimizer.state_bytes(), optimizer.state_bytes(to_come=True)
        optimizer.step([wf.ones(s, dtype="float32") for s in shapes])
        sent = wf.dist.world.world().sent["all_gather"]
        optimizer.step([wf.ones(s, dtype="float32") for s in shapes])
        after = optimizer.state_bytes(), optimizer.state_bytes(to_come=True)
        assert before[0] == before[1] == after[0] and after[1] == 0
        held = sum(map(held_bytes, optimizer.state.values()))
        return held, wf.dist.world.world().sent["all_gather"] - sent

    elements = sum(int(np.prod(s)) for s in shapes)
    slots = {"Adam": 2, "AdamW": 2, "RMSprop": 1, "Lion": 1}[rule]
    found = run(size, program)
    assert sum(held for held, _ in found) == elements * slots * 4
    largest = -(-elements // size) + 64
    for held, sent in found:
        assert held <= largest * slots * 4
        assert sent <= largest * 4


TORCH = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "centered": True},
    "Adagrad": {"lr": 0.1},
}


@pytest.mark.parametrize("name", TORCH)
def test_trajectories_of_torch(name):
    """PyTorch's optimizer of one process, on the same gradients."""
    arrays = values("adam")
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    other = getattr(torch.optim, name)(theirs, **TORCH[name])
    for step in range(STEPS):
        grads = gradients(parameters(arrays), step)
        for p, g in zip(theirs, grads.values(), strict=True):
            p.grad = torch.tensor(g.numpy())
        other.step()

    def program(rank):
        params = parameters(arrays)
        optimizer = wf.dist.ShardedOptimizer(getattr(wf.optim, name)(params, **TORCH[name]))
        for step in range(STEPS):
            optimizer.step(gradients(params, step))
        return [p.detach().numpy() for p in params.values()]

    near = 1e-7 if name == "NAdam" else 1e-10  # PyTorch has its product of momenta in float32
    for found in run(3, program):
        for x, p in zip(found, theirs, strict=True):
            np.testing.assert_allclose(x, p.detach().numpy(), rtol=near, atol=near / 100)


def test_gradients_that_differ_between_ranks_are_told_so():
    """As where the model was not wrapped by DataParallel."""

    def rank(r):
        params = [wf.Parameter(wf.zeros(400)), wf.Parameter(wf.zeros((3, 5)))]
        optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD(params, lr=1.0))
        with pytest.raises(errors.RanksDiffer, match="values"):
            sum((p * float(r + 1)).sum() for p in params).backward()
            optimizer.step()
        return True

    assert run(2, rank) == [True, True]
