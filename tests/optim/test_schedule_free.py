"""Schedule-free AdamW beside its authors' implementation, and the change between y and x."""

import numpy as np
import pytest
import schedulefree
import torch

import weft as wf
from weft import errors

from .free_runs import SHAPES, STEPS, Ours, Plan, Theirs, compare, parted

SEEDS = range(8)
TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def plan_of(seed: int) -> Plan:
    rng = np.random.default_rng((seed, 6))
    options = {"lr": float(rng.choice([0.1, 0.01])), "betas": (float(rng.choice([0.9, 0.5])), 0.99)}
    groups = []
    for which in parted(rng):
        own = {
            "weight_decay": float(rng.choice([0.0, 0.1])),
            "eps": float(rng.choice([1e-8, 1e-3])),
            "warmup_steps": int(rng.choice([0, 10])),
            "r": float(rng.choice([0.0, 1.0])),
            "weight_lr_power": float(rng.choice([2.0, 0.0])),
        }
        own |= {"lr": 0.03} if rng.random() < 0.3 else {}
        own |= {"betas": (0.8, 0.9)} if rng.random() < 0.3 else {}
        groups.append((own, which))
    rates = {k: float(rng.choice([1.0, 0.3, 0.0])) for k in range(STEPS)} if seed % 2 else {}
    dtype = "float32" if seed % 3 == 2 else "float64"
    return Plan(seed, dtype, options, groups, rates=rates, quiet=int(rng.integers(0, 3)))


class OneByOne(Theirs):
    """The authors' optimizer for each parameter: it counts steps by group, ours by parameter."""

    def __init__(self, plan: Plan):
        super().__init__(plan, schedulefree.AdamWScheduleFree)
        self.optimizers = []
        for own, which in plan.groups:
            for i in which:
                o = schedulefree.AdamWScheduleFree([self.params[i]], **plan.options | own)
                o.train()
                self.optimizers.append((i, o))

    def step(self, k, gradients):
        for i, o in self.optimizers:
            if gradients[i] is not None:
                self.params[i].grad = torch.tensor(gradients[i])
                o.step()


def made(seed: int, path: str) -> tuple[Plan, Ours]:
    plan = plan_of(seed)
    cls = wf.optim.AdamWScheduleFree
    return plan, Ours(plan, cls, path if path == "torch" else "cpu", path == "compiled")


PATHS = pytest.mark.parametrize("path", ["cpu", "torch", "compiled"])


@PATHS
@pytest.mark.parametrize("seed", SEEDS)
def test_trajectory(seed, path):
    plan, ours = made(seed, path)
    theirs = Theirs(plan, schedulefree.AdamWScheduleFree, foreach=bool(seed % 2))
    theirs.optimizer.train()
    for k in range(STEPS):
        gradients = theirs.gradients(k)
        ours.step(k, gradients)
        theirs.step(k, gradients)
        compare(ours, theirs, TOLERANCE[plan.dtype])
        if k % 13 == 5:
            for optimizer in (ours.optimizer, theirs.optimizer):
                optimizer.eval()
            compare(ours, theirs, TOLERANCE[plan.dtype])
            for optimizer in (ours.optimizer, theirs.optimizer):
                optimizer.train()


@PATHS
@pytest.mark.parametrize("seed", [0, 3])
def test_a_parameter_without_a_gradient_does_not_count_the_step(seed, path):
    plan, ours = made(seed, path)
    plan.rates = {}
    rng = np.random.default_rng(seed)
    several = range(2) if path == "compiled" else range(len(SHAPES))
    plan.missing = {(k, i) for k in range(40) for i in several if rng.random() < 0.3}
    theirs = OneByOne(plan)
    for k in range(40):
        gradients = theirs.gradients(k)
        ours.step(k, gradients)
        theirs.step(k, gradients)
        compare(ours, theirs, 1e-12)


@PATHS
@pytest.mark.parametrize("averaged", [False, True])
def test_resume_is_exact(path, averaged, tmp_path):
    plan, first = made(3, path)
    second = made(3, path)[1]
    gradients = [[plan.gradient(v, k, i) for i, v in enumerate(plan.values())] for k in range(12)]
    for k in range(6):
        first.step(k, gradients[k])
    if averaged:  # as the authors save
        first.optimizer.eval()
    wf.save_optimizer(tmp_path / "state", first.optimizer)
    wf.load_optimizer(tmp_path / "state", second.optimizer)
    with wf.no_grad():
        for p, q in zip(second.params, first.params, strict=True):
            p.copy_(q.detach())
    for run in (first, second):
        run.optimizer.train()
    for k in range(6, 12):
        for run in (first, second):
            run.step(k, gradients[k])
    compare(first, second, 0.0)


@PATHS
def test_a_block_leaves_the_parameters_bitwise_as_they_were(path):
    plan, run = made(2, path)
    gradients = [plan.gradient(v, 9, i) for i, v in enumerate(plan.values())]
    with run.optimizer.swapped():
        pass
    for k in range(4):
        run.step(k, gradients)
    before = run.arrays()
    with pytest.raises(KeyError), run.optimizer.swapped():
        inside = run.arrays()
        raise KeyError
    assert any(not np.array_equal(a, b) for a, b in zip(inside, before, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(run.arrays(), before, strict=True))
    run.optimizer.eval()
    assert all(np.array_equal(a, b) for a, b in zip(run.arrays(), inside, strict=True))
    with run.optimizer.swapped():
        assert all(np.array_equal(a, b) for a, b in zip(run.arrays(), inside, strict=True))
    assert run.optimizer.is_averaged


@PATHS
def test_the_average_takes_no_steps(path):
    plan, run = made(0, path)
    gradients = [plan.gradient(v, 9, i) for i, v in enumerate(plan.values())]
    run.step(0, gradients)
    run.optimizer.eval()
    before = run.arrays()
    with pytest.raises(errors.ArgumentError, match=r"call optimizer.train\(\) first"):
        run.step(1, gradients)
    with pytest.raises(errors.ArgumentError, match=r"call optimizer.train\(\) first"):
        run.optimizer.compute_update(wf.ones_like(run.params[0].detach()), run.params[0])
    assert all(np.array_equal(a, b) for a, b in zip(run.arrays(), before, strict=True))
    run.optimizer.train()
    run.step(1, gradients)


def test_a_state_without_its_mode_is_refused():
    optimizer = wf.optim.ScheduleFreeAdamW([wf.Parameter([1.0])])
    saved = optimizer.state_dict()
    del saved["averaged"]
    with pytest.raises(errors.ArgumentError, match="'averaged', True or False"):
        optimizer.load_state_dict(saved)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # infinite gradients
@pytest.mark.parametrize("name", ["ScheduleFreeAdamW", "Prodigy"])
@pytest.mark.parametrize("compiled", [False, True])
def test_steps_that_a_scaler_leaves_out_change_nothing(name, compiled):
    p = wf.Parameter([1.0, 2.0])
    optimizer = getattr(wf.optim, name)([p])
    scaler = wf.amp.GradScaler(init_scale=4.0)

    def step(spike):
        optimizer.zero_grad()
        scaler.scale((p * p).sum() + (p * spike).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    run = wf.compile(step) if compiled else step
    run(wf.tensor(np.inf, dtype="float32"))
    assert p.tolist() == [1.0, 2.0] and optimizer.state_dict()["state"] == {}
    for _ in range(3):
        run(wf.tensor(0.0))
        before, saved = p.tolist(), str(optimizer.state_dict())
        run(wf.tensor(np.inf, dtype="float32"))
        assert p.tolist() == before and str(optimizer.state_dict()) == saved
    assert p.tolist() != [1.0, 2.0]
