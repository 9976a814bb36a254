"""Sharded optimizers in compiled steps, and beside scalers, clipping, averages and schedules."""

import warnings

import numpy as np
import pytest

import weft as wf
from tests.optim.every import OPTIMIZERS
from weft import errors
from weft.dist.world import world

from .sharded_runs import NAMES, assert_same, gradients, groups_of, parameters, plain, values
from .threads import run


def outcome(params, optimizer):
    arrays = {key: p.detach().to("cpu").numpy().copy() for key, p in params.items()}
    return [arrays, plain(optimizer.state_dict())]


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("name", NAMES)
def test_compiled_steps_are_those_without_sharding(name, device):
    """Eager, then compiled, then eager steps; rates change between calls."""

    def program(sharded):
        params = parameters(values(name), device)
        optimizer = OPTIMIZERS[name][0](groups_of(params))
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer

        def update(grads):
            optimizer.step(grads)

        compiled = wf.compile(update)
        for step in range(6):
            if step == 3:
                optimizer.param_groups[1]["lr_scale"] = 0.25
            if step == 4 and optimizer.lr:
                optimizer.set_lr(optimizer.lr * 0.5)
            (update if step in (0, 5) else compiled)(gradients(params, step, device))
        return outcome(params, optimizer)

    expected = program(False)
    for size in (1, 3):
        for found in run(size, lambda rank: program(True)):
            assert_same(found, expected)


def test_a_compiled_step_begins_and_follows_changes_of_groups():
    """The first step is compiled; later ones share out again, by programs of their own."""

    def program(sharded):
        params = parameters(values("adam"))
        late = wf.Parameter(wf.tensor(np.arange(300.0)))
        optimizer = wf.optim.Adam(groups_of(params), lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer

        @wf.compile
        def update(inputs):
            loss = sum((p * x).sum() for p, x in zip(params.values(), inputs, strict=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        for step in range(5):
            if step == 2:
                optimizer.add_param_group({"params": [("late", late)]})
                params["late"] = late
            if step == 4:
                optimizer.reset()
            update(list(gradients(params, step).values()))
        return outcome(params, optimizer)

    expected = program(False)
    for size in (1, 2, 3):
        for found in run(size, lambda rank: program(True)):
            assert_same(found, expected)


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_states_begin_with_the_values_that_parameters_have(device):
    """In compiled steps too, also where parameters were given other memory since."""

    def program(sharded):
        params = parameters(values("adam"), device)
        optimizer = wf.optim.ScheduleFreeAdamW(groups_of(params), lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        update = wf.compile(lambda grads: optimizer.step(grads))
        for step in range(4):
            if step == 2:
                optimizer.reset()
                for p in params.values():
                    p._data = p._data * 0.5
            update(gradients(params, step, device))
        return outcome(params, optimizer)

    expected = program(False)
    for found in run(2, lambda rank: program(True)):
        assert_same(found, expected)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_overflowing_steps_are_left_out_by_all(device, compiled):
    def program(sharded):
        params = parameters(values("adamw", "float32"), device)
        optimizer = wf.optim.AdamW(groups_of(params), lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        scaler, taken = wf.amp.GradScaler(init_scale=8.0), []

        def update(slopes, factor):
            loss = sum((p * x).sum() for p, x in zip(params.values(), slopes, strict=True))
            scaler.scale(loss).backward()
            params["p1"].grad = params["p1"].grad * factor
            scaler.unscale(optimizer)
            wf.optim.clip_grad_norm(list(params.values()), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        run_update = wf.compile(update) if compiled else update
        for step in range(5):
            slopes = list(gradients(params, step, device).values())
            factor = wf.tensor(np.inf if step in (0, 2) else 1.0, dtype="float32", device=device)
            run_update(slopes, factor)
            taken.append(scaler.skipped)
        return [*outcome(params, optimizer), taken, scaler.get_scale()]

    expected = program(False)
    assert expected[2] == [True, False, True, False, False]
    for found in run(3, lambda rank: program(True)):
        assert_same(found, expected)


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_a_flag_of_a_device_counts_on_all_ranks(device):
    """`step_if`: where one rank's flag is false, no rank makes the step."""

    def program(sharded, flags):
        params = parameters(values("adamw"), device)
        optimizer = wf.optim.AdamW(groups_of(params), lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        assert optimizer.skips_on(device)
        for step, flag in enumerate(flags):
            optimizer.step_if(wf.tensor(flag, device=device)._data, gradients(params, step, device))
        return outcome(params, optimizer)

    expected = program(False, [True, False, True])

    def some(rank):
        return program(True, [True, rank != 1, True])

    for found in run(3, some):
        assert_same(found, expected)


@pytest.mark.parametrize("compiled", [False, True])
def test_averages_beside_it(compiled):
    def program(sharded):
        params = parameters(values("adamw"))
        optimizer = wf.optim.AdamW(groups_of(params), lr=0.1)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        optimizer = wf.optim.EMAOptimizer(optimizer, decay=0.5)

        def update(grads):
            optimizer.step(grads)

        later = wf.compile(update) if compiled else update
        for step in range(4):
            (later if step else update)(gradients(params, step))
        return outcome(params, optimizer)

    expected = program(False)
    for found in run(2, lambda rank: program(True)):
        assert_same(found, expected)


def test_groups_by_scale_and_schedules():
    def program(sharded):
        params = parameters(values("adamw"))
        groups = [wf.optim.ParameterGroup(list(params.items())[:2], lr_scale=0.5)]
        groups.append(wf.optim.ParameterGroup(list(params.items())[2:], weight_decay=0.5))
        optimizer = wf.optim.MultiGroupOptimizer(wf.optim.AdamW(lr=0.1), groups)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        schedule = wf.optim.CosineScheduler(0.1, 0.01, warmup_steps=2, total_steps=5)
        for step in range(5):
            optimizer.set_lr(schedule.get_lr(step))
            optimizer.step(gradients(params, step))
        return outcome(params, optimizer)

    for found in run(2, lambda rank: program(True)):
        assert_same(found, program(False))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("averaging", [False, True])
def test_a_trainer_takes_it(averaging, compiled):
    """Parameters, averages and checkpoints' states are those of a trainer without sharding."""

    def program(sharded):
        model = wf.nn.Sequential(wf.nn.Linear(5, 40), wf.nn.Tanh(), wf.nn.Linear(40, 2))
        rng = np.random.default_rng(0)
        with wf.no_grad():
            for p in model.parameters():
                p.copy_(wf.tensor(rng.standard_normal(p.shape), dtype="float32"))
        rule = wf.optim.ScheduleFreeAdamW if averaging else wf.optim.AdamW
        optimizer = rule(lr=0.01)
        optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
        trainer = wf.train.Trainer(
            model,
            optimizer,
            wf.nn.functional.mse_loss,
            progress=False,
            compile=compiled,
            signals=False,
        )
        x = wf.tensor(rng.standard_normal((26, 5)), dtype="float32")
        data = wf.train.TensorDataset(x, x[:, :2] * 3.0)
        trainer.fit(wf.train.DataLoader(data, batch_size=8, shuffle=True, seed=1), epochs=2)
        metrics = trainer.evaluate(wf.train.DataLoader(data, batch_size=8))
        arrays = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
        return [arrays, plain(optimizer.state_dict()), plain(dict(metrics))]

    expected = program(False)
    for found in run(2, lambda rank: program(True)):
        assert_same(found, expected)


def test_no_second_copy_of_the_parameters(monkeypatch):
    """A step takes this rank's state and two buckets, and no more, beside the parameters."""
    from weft.dist import gathering

    monkeypatch.setattr(gathering, "BUCKET", 1 << 16)
    shapes = [(300, 400), (500, 300), (1000,), (20_000,)]
    elements = sum(int(np.prod(s)) for s in shapes)
    size = 4

    def program(rank):
        params = [wf.Parameter(wf.zeros(s, dtype="float32")) for s in shapes]
        grads = [wf.ones(s, dtype="float32") for s in shapes]
        optimizer = wf.dist.ShardedOptimizer(wf.optim.AdamW(params, lr=0.1))
        world().barrier()
        for _ in range(2):
            optimizer.step(grads)
        world().barrier()
        return None

    # Threads share one count: what all ranks take together.
    with wf.profile.Counter() as counter:
        run(size, program)
    parameters_and_gradients = size * 2 * elements * 4
    state = 2 * elements * 4 + size * 2 * 64 * 4
    # Of each rank's: two that arrived, one that goes out; the test's engine copies that one.
    buckets = size * (2 * (1 << 16) + 3 * (1 << 16) // size)
    assert counter.peak <= parameters_and_gradients + state + buckets
    assert counter.peak >= parameters_and_gradients + state


MISTAKES = {
    "names": lambda rank: {"params": [("q" if rank == 2 else "p", wf.Parameter.zeros((3, 4)))]},
    "shapes": lambda rank: {"params": [("p", wf.Parameter.zeros((3, 4 + (rank == 2))))]},
    "settings": lambda rank: {"params": [("p", wf.Parameter.zeros((3, 4)))], "lr": 1 + rank // 2},
    "values": lambda rank: {"params": [("p", wf.Parameter([1.0, float(rank == 2)]))]},
    "count": lambda rank: {"params": [wf.Parameter([1.0]) for _ in range(1 + rank // 2)]},
}
MESSAGES = {
    "names": r"a parameter of rank 0 is 'p' .*, of rank 2 'q'",
    "shapes": r"'p' \(float32 \(3, 4\) in group 0\), of rank 2 'p' \(float32 \(3, 5\)",
    "settings": r"settings of 'p' are Adam .*'lr': 1.* on rank 0, .*'lr': 2.* on rank 2",
    "values": r"rank 0 has other values or another state of 'p' than rank 2.*DataParallel",
    "count": r"rank 0 has 1 parameters, rank 2 has 2",
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_optimizers_that_differ_are_named_on_all_ranks(mistake):
    def program(rank):
        optimizer = wf.dist.ShardedOptimizer(wf.optim.Adam([MISTAKES[mistake](rank)], lr=0.1))
        with pytest.raises(errors.RanksDiffer, match=MESSAGES[mistake]):
            optimizer.step([wf.zeros(e.param.shape) for e in optimizer.entries()])
        return True

    assert run(3, program) == [True] * 3


def test_steps_that_differ_are_named_on_all_ranks():
    def program(kind):
        def on(rank):
            params = {"a": wf.Parameter([1.0]), "b": wf.Parameter([1.0])}
            optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD(params, lr=0.1))
            optimizer.step([wf.ones(1), wf.ones(1)])
            if kind == "gradient":
                params["a"].grad = wf.ones(1)
                params["b"].grad = None if rank == 1 else wf.ones(1)
                optimizer.step()
            elif kind == "all gradients":
                for p in params.values():
                    p.grad = None if rank == 1 else wf.ones(1)
                with pytest.raises(errors.RanksDiffer, match="rank 1: SGD.step 1: 0 of 2"):
                    optimizer.step()  # on both ranks, at this step
            elif kind == "rate":
                optimizer.set_lr(0.1 + rank)
                optimizer.step([wf.ones(1), wf.ones(1)])
            elif rank == 1:
                optimizer.reset()
            else:
                optimizer.step([wf.ones(1), wf.ones(1)])

        return on

    found = {"gradient": r"rank 1: SGD.step 1: 1 of 2 gradients, none of b", "rate": r"SGD.step 1"}
    found["reset"] = r"rank 0: SGD.step 1: .*rank 1: SGD.reset"
    for kind, message in found.items():
        with pytest.raises(errors.RanksDiffer, match=message):
            run(2, program(kind))
    run(2, program("all gradients"))


def test_optimizers_that_cannot_be_sharded():
    p = [wf.Parameter([1.0])]
    for optimizer in (wf.optim.Prodigy(p), wf.optim.LBFGS(p)):
        with pytest.raises(errors.ArgumentError, match="sums over all parameters"):
            wf.dist.ShardedOptimizer(optimizer)
    plain_one = wf.optim.SGD(p, lr=0.1)
    sharded = wf.dist.ShardedOptimizer(plain_one)
    for again in (plain_one, sharded):
        with pytest.raises(errors.ArgumentError, match="given to a Sharded|expected an optimizer"):
            wf.dist.ShardedOptimizer(again)
    with pytest.raises(errors.ArgumentError, match=r"EMAOptimizer\(ShardedOptimizer\(optimizer\)"):
        wf.dist.ShardedOptimizer(wf.optim.EMAOptimizer(wf.optim.SGD(p)))
    uses = [
        lambda: plain_one.step([wf.ones(1)]),
        lambda: plain_one.state_dict(),
        lambda: plain_one.reset(),
        lambda: plain_one.load_state_dict({}),
        lambda: plain_one.compute_update(wf.ones(1)),
    ]
    for use in uses:
        with pytest.raises(errors.ArgumentError, match="distributed over processes"):
            use()
    with pytest.raises(errors.DistributedError, match=r"wf\.dist\.init\(\)"):
        sharded.step([wf.ones(1)])


def test_a_group_that_was_left():
    p = wf.Parameter([1.0])
    wf.dist.init()
    optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([p], lr=0.1))
    optimizer.step([wf.ones(1)])
    wf.dist.finalize()
    wf.dist.init()
    try:
        with pytest.raises(errors.DistributedError, match="a group that was left"):
            optimizer.step([wf.ones(1)])
    finally:
        wf.dist.finalize()


def test_bytes_to_come_are_those_of_this_rank():
    from weft.optim.optimizer import state_bytes

    def program(rank):
        p = wf.Parameter(wf.zeros((64, 40), dtype="float32"))
        optimizer = wf.dist.ShardedOptimizer(wf.optim.Adam([p]))
        assert state_bytes(optimizer.optimizer) == optimizer.state_bytes()
        return optimizer.state_bytes("cpu", to_come=True)

    with warnings.catch_warnings():
        found = run(4, program)
    one = run(1, program)[0]
    assert all(abs(n - one / 4) <= 1024 for n in found)
