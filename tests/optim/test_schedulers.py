"""Schedules: beside torch's where it has them, beside their formulas, and past their ends."""

import math
import warnings
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch

import weft as wf
from weft import errors
from weft.optim import schedulers as s

L = torch.optim.lr_scheduler
STEPS = 60


def torch_rates(make, lr, steps=STEPS):
    """The learning rates that a scheduler of torch gives its optimizer."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = make(optimizer)
        rates = []
        for step in range(steps):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            if step + 1 < steps:
                scheduler.step()
    return rates


def rates(schedule, steps=STEPS):
    return [schedule.get_lr(step) for step in range(steps)]


BESIDE_TORCH = {
    "exponential": (
        s.ExponentialScheduler(0.1, 0.9),
        lambda o: L.ExponentialLR(o, 0.9),
    ),
    "step": (s.StepScheduler(0.1, 7, 0.5), lambda o: L.StepLR(o, 7, 0.5)),
    "linear": (
        s.LinearScheduler(0.02, 0.1, 20),
        lambda o: L.LinearLR(o, 0.2, 1.0, 20),
    ),
    "polynomial": (
        s.PolynomialScheduler(0.1, total_steps=40, power=2.0),
        lambda o: L.PolynomialLR(o, 40, 2.0),
    ),
}


@pytest.mark.parametrize("name", BESIDE_TORCH)
def test_beside_torch(name):
    ours, theirs = BESIDE_TORCH[name]
    assert rates(ours) == pytest.approx(torch_rates(theirs, 0.1), rel=1e-12, abs=1e-15)


def test_cosine_beside_torch():
    ours = s.CosineScheduler(0.1, 0.01, total_steps=STEPS)
    theirs = torch_rates(lambda o: L.CosineAnnealingLR(o, STEPS, 0.01), 0.1)
    assert rates(ours) == pytest.approx(theirs, rel=1e-9)
    warmed = s.CosineScheduler(0.1, 0.01, warmup_steps=10, total_steps=10 + STEPS)
    assert rates(warmed, 10) == pytest.approx([0.01 * k for k in range(10)])
    assert [warmed.get_lr(10 + k) for k in range(STEPS)] == rates(ours)


@pytest.mark.parametrize("three_phase", [False, True])
@pytest.mark.parametrize("anneal", ["cosine", "linear"])
def test_one_cycle_beside_torch(anneal, three_phase):
    ours = s.OneCycleScheduler(
        0.1, STEPS, 0.25, 10.0, 100.0, anneal=anneal, three_phase=three_phase
    )
    theirs = torch_rates(
        lambda o: L.OneCycleLR(
            o,
            0.1,
            STEPS,
            pct_start=0.25,
            div_factor=10.0,
            final_div_factor=100.0,
            anneal_strategy=anneal[:3] if anneal == "cosine" else anneal,
            three_phase=three_phase,
            cycle_momentum=False,
        ),
        0.1,
    )
    assert rates(ours) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
@pytest.mark.parametrize("cooldown", [0, 3])
def test_plateau_beside_torch(mode, threshold_mode, cooldown):
    options = {
        "factor": 0.5,
        "patience": 2,
        "threshold": 0.01,
        "cooldown": cooldown,
        "min_lr": 0.01,
        "mode": mode,
        "threshold_mode": threshold_mode,
    }
    metrics = [1.0, 0.5, 0.499, 0.5, 0.6, 0.7, float("nan"), 0.1, *[0.2] * 30, 2.0, *[2.001] * 9]
    ours = s.PlateauScheduler(0.1, **options)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    theirs = L.ReduceLROnPlateau(optimizer, **options)
    for metric in metrics:
        theirs.step(metric)
        assert ours.step(metric) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        assert ours.get_lr() == ours.get_lr(123) == ours.lr
    assert ours.lr < 0.1


def test_plateau_goes_on_from_its_state():
    one, other = (s.PlateauScheduler(0.1, patience=3) for _ in range(2))
    for k in range(6):
        one.step(1.0 + k)
    other.load_state_dict(one.state_dict())
    found = [(one.step(9.0), other.step(9.0)) for _ in range(8)]
    assert all(a == b for a, b in found) and found[-1][0] < 0.1
    with pytest.raises(errors.StateMismatch, match="missing: best"):
        other.load_state_dict({"lr": 1.0, "bad_steps": 0, "cooling": 0})


def test_cosine_lr():
    for step in range(11):
        expected = 1e-3 * 0.5 * (1.0 + math.cos(math.pi * step / 10))
        assert wf.optim.cosine_lr(1e-3, step, 10) == pytest.approx(expected, abs=1e-18)
    assert wf.optim.cosine_lr(1e-3, 99, 10) == wf.optim.cosine_lr(1e-3, 10, 10)


@pytest.mark.parametrize("decay", ["linear", "cosine", "sqrt"])
def test_warm_up_stable_decay(decay):
    schedule = s.WSDScheduler(0.1, 5, 10, 20, 0.01, decay)
    assert rates(schedule, 5) == pytest.approx([0.02 * k for k in range(5)])
    assert {schedule.get_lr(k) for k in range(5, 16)} == {0.1}
    share = {"linear": 0.25, "cosine": (1 - math.cos(math.pi / 4)) / 2, "sqrt": 0.5}[decay]
    assert schedule.get_lr(20) == pytest.approx(0.1 - 0.09 * share)
    assert schedule.get_lr(35) == schedule.get_lr(1000) == pytest.approx(0.01)


EVERY = [
    s.CosineScheduler(0.1, 0.01, 5, 40),
    s.LinearScheduler(0.0, 0.1, 10),
    s.PolynomialScheduler(0.1, 0.01, 40, 2.0, 5),
    s.OneCycleScheduler(0.1, 40),
    s.OneCycleScheduler(0.1, 40, three_phase=True),
    s.WSDScheduler(0.1, 5, 10, 20, 0.01),
]


@pytest.mark.parametrize("schedule", EVERY, ids=lambda x: type(x).__name__)
def test_pure_and_constant_past_the_end(schedule):
    assert rates(schedule) == rates(schedule)
    last = schedule.get_lr(40)
    assert schedule.get_lr(41) == schedule.get_lr(10**9) == last
    with pytest.raises(errors.ArgumentError, match="step -1"):
        schedule.get_lr(-1)
    with pytest.raises(FrozenInstanceError):
        schedule.initial_lr = 1.0


OTHER = {
    **{"initial_lr": 0.2, "min_lr": 0.02, "warmup_steps": 9, "total_steps": 50, "end_lr": 0.02},
    **{"target_lr": 0.3, "decay_rate": 0.5, "decay_steps": 30, "step_size": 3, "gamma": 0.9},
    **{"power": 3.0, "max_lr": 0.3, "pct_start": 0.4, "div_factor": 5.0, "anneal": "linear"},
    **{"final_div_factor": 10.0, "three_phase": True, "peak_lr": 0.3, "stable_steps": 3},
    **{"decay": "cosine"},
}


def every_field():
    schedules = [
        *EVERY[:4],
        EVERY[5],
        s.ExponentialScheduler(0.1, 0.9, 10),
        s.StepScheduler(0.1, 7),
    ]
    return [(x, f.name) for x in schedules for f in fields(x)]


@pytest.mark.parametrize(("schedule", "field"), every_field())
def test_every_field_matters(schedule, field):
    assert rates(replace(schedule, **{field: OTHER[field]})) != rates(schedule)


BAD = {
    "negative rate": lambda: s.CosineScheduler(-1.0, 0.0, 0, 10),
    "rate that is no number": lambda: s.LinearScheduler(float("nan"), 1.0, 10),
    "no steps": lambda: s.CosineScheduler(1.0, 0.0, 0, 0),
    "half a step": lambda: s.StepScheduler(1.0, 2.5),
    "warm-up past the end": lambda: s.CosineScheduler(1.0, 0.0, 20, 10),
    "share": lambda: s.OneCycleScheduler(1.0, 10, 1.5),
    "three phases": lambda: s.OneCycleScheduler(1.0, 10, 0.6, three_phase=True),
    "anneal": lambda: s.OneCycleScheduler(1.0, 10, anneal="cos"),
    "division by zero": lambda: s.OneCycleScheduler(1.0, 10, div_factor=0.0),
    "decay": lambda: s.WSDScheduler(1.0, 1, 1, 1, decay="steep"),
    "factor": lambda: s.PlateauScheduler(1.0, factor=1.0),
    "mode": lambda: s.PlateauScheduler(1.0, mode="best"),
    "plateau's rate": lambda: s.PlateauScheduler(float("inf")),
}


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense(name):
    with pytest.raises(errors.ArgumentError, match=r"\(at test_schedulers.py:\d+\)"):
        BAD[name]()
