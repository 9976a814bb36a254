"""The configs: both spellings, every field matters, and what makes no sense is refused."""

from dataclasses import FrozenInstanceError, fields, replace
from inspect import signature

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.optim.configs import Config

NAMES = """
    SGD Adam AdamW RMSprop Adagrad NAdam RAdam Lion LAMB Adafactor Muon Adam8bit AdamW8bit LBFGS
    Prodigy ScheduleFreeAdamW
""".split()


def optimizer_class(name):
    return getattr(wf.optim, name)


def parameters():
    """A matrix that 8-bit optimizers quantise, for all to share."""
    rng = np.random.default_rng(0)
    return [("w", wf.Parameter(rng.standard_normal((80, 60))))]


def trajectory(name, config, steps=4):
    params = parameters()
    optimizer = optimizer_class(name)(params, config)
    p = params[0][1]
    if name == "LBFGS":
        return _minimised(optimizer, p, steps)
    rng = np.random.default_rng(1)
    for _ in range(steps):
        g = rng.standard_normal(p.shape)
        g[:, ::3] *= 1e-9  # where eps matters
        g[0] = 0.0
        optimizer.step([wf.tensor(g)])
    return np.asarray(p.tolist())


def _minimised(optimizer, p, steps):
    def closure():
        optimizer.zero_grad()
        loss = ((p - 0.5) ** 2 + 0.1 * (p - 0.5) ** 4).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return np.asarray(p.tolist())


# For each field, the config to start from (if not the default) and another value of the field.
OTHER = {
    "lr": ({}, 0.02),
    "beta1": ({}, 0.5),
    "beta2": ({}, 0.9),
    "eps": ({}, 1e-3),
    "weight_decay": ({}, 0.3),
    "maximize": ({}, True),
    "amsgrad": ({"beta2": 0.3}, True),
    "correct_bias": ({}, False),
    "momentum": ({}, 0.8),
    "dampening": ({"momentum": 0.9}, 0.5),
    "nesterov": ({"momentum": 0.9}, True),
    "alpha": ({}, 0.5),
    "centered": ({}, True),
    "lr_decay": ({}, 0.5),
    "initial_accumulator_value": ({}, 0.1),
    "momentum_decay": ({}, 0.5),
    "decoupled_weight_decay": ({"weight_decay": 0.1}, True),
    "clip_threshold": ({}, 0.5),
    "decay_rate": ({}, -0.3),
    "scale_parameter": ({}, False),
    "relative_step": ({"lr": 0.9}, False),
    "eps2": ({}, 10.0),
    "warmup_init": ({}, True),
    "ns_coefficients": ({}, (3.0, -4.0, 2.0)),
    "ns_steps": ({}, 3),
    "adjust_lr_fn": ({}, "match_rms_adamw"),
    "block_size": ({}, 64),
    "max_iter": ({}, 3),
    "max_eval": ({}, 3),
    "tolerance_grad": ({}, 1.0),
    "tolerance_change": ({}, 1.0),
    "history_size": ({"lr": 0.3}, 1),
    "line_search_fn": ({"lr": 0.3}, "strong_wolfe"),
    "beta3": ({"d_coef": 1e3}, 0.5),
    "decouple": ({"weight_decay": 0.1}, False),
    "use_bias_correction": ({}, True),
    "safeguard_warmup": ({"lr": 0.5, "d_coef": 1e3}, True),
    "d0": ({}, 1e-3),
    "d_coef": ({"d_coef": 1e3}, 2e3),
    "growth_rate": ({"d_coef": 1e3}, 1.5),
    "slice_p": ({"d_coef": 1e3}, 7),
    "warmup_steps": ({}, 3),
    "r": ({}, 1.0),
    "weight_lr_power": ({"warmup_steps": 3}, 1.0),
}
SPECIAL = {
    ("Muon", "nesterov"): ({}, False),
    ("Muon", "eps"): ({}, 1e3),
    ("RMSprop", "eps"): ({}, 0.5),
    ("Adafactor", "eps"): ({}, 0.5),
}


def all_fields():
    return [(n, f.name) for n in NAMES for f in fields(optimizer_class(n).Config)]


@pytest.mark.parametrize(("name", "field"), all_fields())
def test_every_field_changes_the_trajectory(name, field):
    start, value = SPECIAL.get((name, field), OTHER[field])
    config = optimizer_class(name).Config(**start)
    changed = replace(config, **{field: value})
    assert changed != config
    steps = 12 if name in ("RAdam", "Prodigy") else 4
    before, after = (trajectory(name, c, steps) for c in (config, changed))
    assert not np.array_equal(before, after)


@pytest.mark.parametrize("name", NAMES)
def test_configs_are_frozen_and_know_their_fields(name):
    config = optimizer_class(name).Config()
    with pytest.raises(FrozenInstanceError):
        config.lr = 1.0
    with pytest.raises(TypeError):
        type(config)(learning_rate=1.0)
    with pytest.raises(TypeError):
        optimizer_class(name)(parameters(), foreach=True)
    given = signature(optimizer_class(name)).parameters
    assert [*given][:2] == ["params", "config"]
    assert {f.name for f in fields(config)} == set(given) - {"params", "config"}


def test_the_seeds_defaults():
    o = wf.optim
    assert o.AdamConfig(1e-3, 0.9, 0.999, 1e-8, 0.0) == o.AdamConfig()
    assert o.AdamWConfig().correct_bias is True and o.Adam8bitConfig().block_size == 256
    assert o.LionConfig() == o.LionConfig(lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0.0)
    assert o.AdafactorConfig() == o.AdafactorConfig(
        lr=None,
        eps=1e-30,
        clip_threshold=1.0,
        decay_rate=-0.8,
        weight_decay=0.0,
        scale_parameter=True,
        relative_step=True,
    )


def test_both_spellings():
    o, (pair,) = wf.optim, parameters()
    config = o.AdamConfig(lr=0.5, beta1=0.8, beta2=0.99)
    assert o.Adam([pair], lr=0.5, betas=(0.8, 0.99)).config == config
    assert o.Adam([pair], config).config == o.Adam(config).config == config
    assert o.Adam([pair], 0.5, betas=(0.8, 0.99)).config == config
    assert o.Adam([pair], config, eps=1e-3).config == replace(config, eps=1e-3)
    assert o.Adam([{"params": [pair], "betas": (0.8, 0.99)}]).param_groups[0]["beta1"] == 0.8
    factored = o.Adafactor([pair], eps=(1e-20, 1e-2), d=2.0, beta2_decay=-0.5).config
    assert (factored.eps, factored.eps2, factored.lr) == (1e-20, 1e-2, 1e-2)
    assert (factored.clip_threshold, factored.decay_rate) == (2.0, -0.5)
    assert o.Adam([pair], lr=wf.tensor(0.5)).config.lr == 0.5


BAD = {
    "negative lr": lambda: wf.optim.AdamConfig(lr=-1.0),
    "infinite lr": lambda: wf.optim.SGDConfig(lr=float("inf")),
    "lr that is no number": lambda: wf.optim.LionConfig(lr=float("nan")),
    "beta1 of 1": lambda: wf.optim.AdamConfig(beta1=1.0),
    "negative beta2": lambda: wf.optim.LionConfig(beta2=-0.1),
    "negative eps": lambda: wf.optim.AdamWConfig(eps=-1e-8),
    "negative decay": lambda: wf.optim.SGDConfig(weight_decay=-1.0),
    "negative momentum": lambda: wf.optim.RMSpropConfig(momentum=-0.5),
    "nesterov without momentum": lambda: wf.optim.SGDConfig(nesterov=True),
    "nesterov with dampening": lambda: wf.optim.SGDConfig(
        momentum=0.9, nesterov=True, dampening=0.1
    ),
    "growing decay rate": lambda: wf.optim.AdafactorConfig(decay_rate=0.8),
    "no clip": lambda: wf.optim.AdafactorConfig(clip_threshold=0.0),
    "no rate": lambda: wf.optim.AdafactorConfig(relative_step=False),
    "warm-up of a given rate": lambda: wf.optim.AdafactorConfig(warmup_init=True, lr=0.1),
    "unknown line search": lambda: wf.optim.LBFGSConfig(line_search_fn="armijo"),
    "no iterations": lambda: wf.optim.LBFGSConfig(max_iter=0),
    "half an iteration": lambda: wf.optim.LBFGSConfig(max_iter=1.5),
    "unknown adjustment": lambda: wf.optim.MuonConfig(adjust_lr_fn="none"),
    "two coefficients": lambda: wf.optim.MuonConfig(ns_coefficients=(1.0, 2.0)),
    "many iterations": lambda: wf.optim.MuonConfig(ns_steps=100),
    "no eps": lambda: wf.optim.ProdigyConfig(eps=0.0),
    "nothing to begin with": lambda: wf.optim.ProdigyConfig(d0=0.0),
    "an estimate that shrinks": lambda: wf.optim.ProdigyConfig(growth_rate=0.5),
    "a growth that is no number": lambda: wf.optim.ProdigyConfig(growth_rate=float("nan")),
    "no slices": lambda: wf.optim.ProdigyConfig(slice_p=0),
    "beta3 of 1": lambda: wf.optim.Prodigy(parameters(), beta3=1.0),
    "no average": lambda: wf.optim.ScheduleFreeAdamWConfig(beta1=0.0),
    "half a step of warm-up": lambda: wf.optim.ScheduleFreeAdamWConfig(warmup_steps=1.5),
    "negative power": lambda: wf.optim.AdamWScheduleFree(parameters(), weight_lr_power=-1.0),
    "small blocks": lambda: wf.optim.Adam8bitConfig(block_size=1),
    "one beta": lambda: wf.optim.Adam(parameters(), betas=(0.9,)),
    "lr twice": lambda: wf.optim.Adam(parameters(), 0.1, lr=0.1),
    "scale": lambda: wf.optim.Adam([{"params": parameters(), "lr_scale": -1.0}]),
    "a group's lr": lambda: wf.optim.Adam([{"params": parameters(), "lr": -1.0}]),
}


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense(name):
    with pytest.raises(
        errors.ArgumentError, match=r"(expected|needs|twice|sets).*\(at test_configs.py:\d+\)"
    ):
        BAD[name]()


def test_wrong_kinds():
    with pytest.raises(errors.DTypeError, match="AdamWConfig, expected AdamConfig"):
        wf.optim.Adam(parameters(), wf.optim.AdamWConfig())
    with pytest.raises(errors.DTypeError, match="lr is 'fast', expected a number"):
        wf.optim.Adam(parameters(), lr="fast")
    with pytest.raises(errors.DTypeError, match="expected a number"):
        wf.optim.AdamConfig(lr=True)
    with pytest.raises(errors.ArgumentError, match="two configs"):
        wf.optim.Adam(wf.optim.AdamConfig(), wf.optim.AdamConfig())
    assert issubclass(wf.optim.AdamConfig, Config)


OPTIMIZERS = [n for n in dir(wf.optim) if isinstance(getattr(wf.optim, n), type)]
OPTIMIZERS = [n for n in OPTIMIZERS if issubclass(getattr(wf.optim, n), wf.optim.Optimizer)]


@pytest.mark.parametrize("name", [n for n in OPTIMIZERS if n != "Optimizer"])
def test_a_misspelt_option_names_the_right_one(name):
    made = getattr(wf.optim, name)
    for field in fields(made.Config):
        wrong = field.name + "x"
        with pytest.raises(
            TypeError, match=f"{made.__name__}: no keyword '{wrong}'; use {field.name}="
        ):
            made([wf.Parameter(wf.ones((2, 2)))], **{wrong: 1.0})
    with pytest.raises(TypeError, match=r"no keyword 'zzzz'; there are .*lr="):
        made([wf.Parameter(wf.ones((2, 2)))], zzzz=1.0)
