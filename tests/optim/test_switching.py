"""Settings that are switched and groups that are edited between steps, beside torch.optim, and
states that are saved at any of these moments."""

import os
import random

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors

RUNS = 40 if os.environ.get("WEFT_SOAK") else 4
STEPS = 8
SHAPES = [(5, 4), (3,), (), (70, 60)]
# What may be switched on the way, and to what; torch must bear it too where it is beside.
SWITCHES = {
    "SGD": {
        "momentum": [0.0, 0.5, 0.9],
        "dampening": [0.0, 0.3],
        "nesterov": [False, True],
        "weight_decay": [0.0, 0.1],
        "maximize": [False, True],
    },
    "Adam": {"amsgrad": [False, True], "betas": [(0.9, 0.999), (0.5, 0.9)], "eps": [1e-8, 1e-3]},
    "AdamW": {"amsgrad": [False, True], "betas": [(0.9, 0.999), (0.8, 0.9)], "weight_decay": [0.1]},
    "RMSprop": {"momentum": [0.0, 0.9], "centered": [False, True], "alpha": [0.99, 0.5]},
    "Adagrad": {"lr_decay": [0.0, 0.1], "weight_decay": [0.0, 0.1]},
    "NAdam": {"momentum_decay": [4e-3, 0.1], "betas": [(0.9, 0.999), (0.5, 0.9)]},
    "RAdam": {"betas": [(0.9, 0.999), (0.5, 0.9)], "weight_decay": [0.0, 0.1]},
    "Lion": {"betas": [(0.9, 0.99), (0.5, 0.9)]},
    "LAMB": {"betas": [(0.9, 0.999), (0.5, 0.9)], "weight_decay": [0.0, 0.1]},
    "Adafactor": {"weight_decay": [0.0, 0.1], "beta1": [None, 0.9]},
    "Adam8bit": {"betas": [(0.9, 0.999), (0.5, 0.9)]},
    "Prodigy": {"beta1": [0.0, 0.9], "d_coef": [1.0, 2.0], "decouple": [True, False]},
    "ScheduleFreeAdamW": {"beta1": [0.9, 0.8], "warmup_steps": [0, 5], "r": [0.0, 1.0]},
}
# torch makes these arrays at the first step only, and fails where they are switched on later.
AT_FIRST = {"Adam": {"amsgrad": True}, "AdamW": {"amsgrad": True}}
AT_FIRST["RMSprop"] = {"momentum": 0.9, "centered": True}
BESIDE = "SGD Adam AdamW RMSprop Adagrad NAdam RAdam".split()


def plan_of(name: str, seed: int, torches: bool) -> list[tuple[dict, list[bool], float]]:
    """(settings switched, who has a gradient, learning rate) of each step."""
    draw, steps = random.Random(f"{name} {seed}"), []
    for k in range(STEPS):
        switched = {n: draw.choice(v) for n, v in SWITCHES[name].items() if draw.random() < 0.5}
        have = [draw.random() < 0.6 for _ in SHAPES]
        if torches and k == 0:
            switched |= AT_FIRST.get(name, {})
            have = [True] * len(SHAPES)
        if name == "SGD" and (k == 0 or "nesterov" in switched):  # only these go together
            nesterov = switched.get("nesterov", False)
            switched |= {"nesterov": nesterov, "momentum": 0.9 if nesterov else 0.0}
            switched["dampening"] = 0.0
        elif name == "SGD":
            switched |= {"nesterov": False}
        steps.append((switched, have, draw.choice([0.1, 0.01])))
    return steps


def gradient(seed: int, step: int, i: int) -> np.ndarray:
    return np.asarray(np.random.default_rng((seed, step, i)).standard_normal(SHAPES[i]))


def start() -> list[np.ndarray]:
    return [
        np.asarray(np.random.default_rng((1, i)).standard_normal(s)) for i, s in enumerate(SHAPES)
    ]


def advance(optimizer, params, plan, first: int, stop: int, seed: int, make) -> None:
    for k in range(first, stop):
        switched, have, lr = plan[k]
        optimizer.param_groups[0].update(switched, lr=lr)
        for i, (p, has) in enumerate(zip(params, have, strict=True)):
            p.grad = make(gradient(seed, k, i)) if has else None
        optimizer.step()


@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.parametrize("name", SWITCHES)
def test_a_state_saved_after_any_switch_goes_on(name, seed):
    plan = plan_of(name, seed, torches=False)
    values = [np.asarray(v, "float32") for v in start()]
    straight = [wf.Parameter(v) for v in values]
    one = getattr(wf.optim, name)(straight, lr=0.1)
    for cut in range(1, STEPS):
        advance(one, straight, plan, cut - 1, cut, seed, lambda g: wf.tensor(g, dtype="float32"))
        saved = one.state_dict()
        broken = [wf.Parameter(p.detach()) for p in straight]
        other = getattr(wf.optim, name)(broken, lr=123.0)
        other.load_state_dict(saved)
        going_on = [wf.Parameter(p.detach()) for p in straight]
        twin = _twin(one, going_on)
        for optimizer, params in ((other, broken), (twin, going_on)):
            advance(
                optimizer, params, plan, cut, STEPS, seed, lambda g: wf.tensor(g, dtype="float32")
            )
        for p, q in zip(broken, going_on, strict=True):
            assert p.tolist() == q.tolist(), cut


def _twin(optimizer, params):
    """The same optimizer over copies of its parameters: what is not saved is here too."""
    made = type(optimizer)(params, optimizer.config)
    made.param_groups[0].update(
        {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
    )
    made.state = {
        key: {n: v if isinstance(v, int | float) else v.copy() for n, v in own.items()}
        for key, own in optimizer.state.items()
    }
    if getattr(optimizer, "_estimate", None) is not None:
        made._estimate = type(optimizer._estimate)(*map(np.copy, optimizer._estimate))
    return made


@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_switching_is_as_in_torch(name, seed, compiled):
    plan = plan_of(name, seed, torches=True)
    ours = [wf.Parameter(v) for v in start()]
    theirs = [torch.tensor(v, requires_grad=True) for v in start()]
    options = {**AT_FIRST.get(name, {}), "lr": 0.1}
    one, other = (
        getattr(wf.optim, name)(ours, **options),
        getattr(torch.optim, name)(theirs, **options),
    )
    step = wf.compile(lambda: one.step(), max_variants=64) if compiled else one.step
    for k in range(STEPS):
        advance(other, theirs, plan, k, k + 1, seed, torch.tensor)
        switched, have, lr = plan[k]
        one.param_groups[0].update(switched, lr=lr)
        for i, (p, has) in enumerate(zip(ours, have, strict=True)):
            p.grad = wf.tensor(gradient(seed, k, i)) if has else None
        step() if any(have) else None
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            q = q.detach().numpy()
            assert np.max(np.abs(p.detach().numpy() - q)) <= 1e-6 * np.max(np.abs(q)), (
                k,
                i,
                plan[: k + 1],
            )


def apply(edit: tuple, groups: list[dict], params: list) -> None:
    """One edit by hand, on the groups of either library."""
    kind, *where = edit
    if kind == "append":
        groups[where[0]]["params"].append(params[where[1]])
    elif kind == "remove":
        held = groups[where[0]]["params"]
        held[:] = [p for p in held if p is not params[where[1]]]
    elif kind == "replace":
        groups[where[0]]["params"] = [params[i] for i in where[1]]
    elif kind == "move":
        apply(("remove", where[0], where[2]), groups, params)
        apply(("append", where[1], where[2]), groups, params)
    elif kind == "swap":
        groups.reverse()
    else:
        groups[where[0]].update(where[1])


def edits_of(seed: int, count: int) -> list[list[tuple]]:
    """Edits before each step that leave every parameter in at most one group."""
    draw = random.Random(seed)
    held = [[0], [1]]
    found: list[list[tuple]] = []
    for _ in range(STEPS):
        free = [i for i in range(count) if i not in held[0] + held[1]]
        at = draw.randrange(2)
        kind = draw.choice(["append", "remove", "replace", "move", "swap", "settings", "none"])
        edit: tuple = ()
        if kind == "append" and free:
            edit = ("append", at, free[0])
            held[at].append(free[0])
        elif kind == "remove" and len(held[at]) > 1:
            edit = ("remove", at, held[at].pop(draw.randrange(len(held[at]))))
        elif kind == "replace":
            held[at] = draw.sample(held[at] + free, draw.randint(1, len(held[at] + free)))
            edit = ("replace", at, list(held[at]))
        elif kind == "move" and len(held[at]) > 1:
            which = held[at].pop()
            held[1 - at].append(which)
            edit = ("move", at, 1 - at, which)
        elif kind == "swap":
            held.reverse()
            edit = ("swap",)
        elif kind == "settings":
            edit = ("settings", at, {"lr": draw.choice([0.1, 0.03])})
        found.append([edit] if edit else [])
    return found


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("seed", range(5 * RUNS))
def test_edits_of_groups_take_effect_as_in_torch(seed, compiled):
    """Parameters that left a group begin anew if they come back, in torch with their old state:
    so nobody comes back here, and `replace` may only add or reorder what is there."""
    values = [np.random.default_rng(i).standard_normal((3, 2)) for i in range(5)]
    ours, theirs = (
        [wf.Parameter(v) for v in values],
        [torch.tensor(v, requires_grad=True) for v in values],
    )
    one = wf.optim.SGD(
        [{"params": [ours[0]]}, {"params": [ours[1]], "lr": 0.3}], lr=0.1, momentum=0.9
    )
    other = torch.optim.SGD(
        [{"params": [theirs[0]]}, {"params": [theirs[1]], "lr": 0.3}], lr=0.1, momentum=0.9
    )
    step = wf.compile(lambda: one.step(), max_variants=64) if compiled else one.step
    was: set[int] = {0, 1}
    for k, edits in enumerate(edits_of(seed, 5)):
        for edit in edits:
            apply(edit, one.param_groups, ours)
            apply(edit, other.param_groups, theirs)
        now = {
            i
            for i, p in enumerate(theirs)
            for g in other.param_groups
            if any(p is q for q in g["params"])
        }
        for gone in was - now:
            other.state.pop(theirs[gone], None)
        was = now
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            g = np.random.default_rng((seed, k, i)).standard_normal((3, 2))
            p.grad, q.grad = wf.tensor(g), torch.tensor(g)
        step()
        other.step()
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            assert np.abs(p.detach().numpy() - q.detach().numpy()).max() < 1e-12, (k, i)
        held = sum(len(g["params"]) for g in one.param_groups)
        assert [e.key for e in one.entries()] == [str(i) for i in range(held)]
        fresh = wf.optim.SGD([dict(g, params=list(g["params"])) for g in one.param_groups], lr=5.0)
        fresh.load_state_dict(one.state_dict())
        assert _plain(fresh.state_dict()) == _plain(one.state_dict())


def _plain(x):
    if isinstance(x, dict):
        return {k: _plain(v) for k, v in x.items()}
    return (
        [_plain(v) for v in x] if isinstance(x, list) else x.tolist() if hasattr(x, "tolist") else x
    )


def test_edits_that_make_no_sense_are_refused():
    p, q = wf.Parameter([1.0]), wf.Parameter([2.0])

    def refused(edit, match, kind=errors.WeftError):
        optimizer = wf.optim.SGD([{"params": [p]}, {"params": [q]}], lr=0.1)
        edit(optimizer.param_groups)
        with pytest.raises(kind, match=match):
            optimizer.step([wf.tensor([1.0]), wf.tensor([1.0])])
        assert p.tolist() == [1.0] and q.tolist() == [2.0]

    refused(lambda g: g[0]["params"].append(p), "given twice")
    refused(lambda g: g[0]["params"].append(q), "given twice")
    refused(lambda g: g[0]["params"].append(7), "got a int among them")
    refused(lambda g: g[0].update(params=p), "got a Parameter")
    refused(lambda g: g.append([p]), "expected a dict with 'params'")
    refused(lambda g: g.append({"lr": 1.0}), "expected a dict with 'params'")
    refused(lambda g: g.append({"params": [wf.Parameter([1.0])], "rate": 1.0}), "rate", TypeError)


def test_a_new_group_by_hand_gets_the_settings_of_the_optimizer():
    p, q = wf.Parameter([1.0]), wf.Parameter([2.0])
    optimizer = wf.optim.AdamW([p], lr=0.5, weight_decay=0.25)
    optimizer.param_groups.append({"params": [q], "lr": 0.25, "betas": (0.5, 0.5)})
    optimizer.step([wf.tensor([1.0]), wf.tensor([1.0])])
    assert optimizer.param_groups[1]["weight_decay"] == 0.25
    assert optimizer.param_groups[1]["beta1"] == 0.5
    optimizer.set_lr(1.0)
    assert [g["lr"] for g in optimizer.param_groups] == [1.0, 0.5]


def test_ratios_and_settings_are_saved_with_the_state():
    p, q = wf.Parameter([1.0]), wf.Parameter([2.0])
    optimizer = wf.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.3}], lr=0.1)
    fresh = wf.optim.SGD([{"params": [p]}, {"params": [q]}], lr=7.0)
    fresh.load_state_dict(optimizer.state_dict())
    fresh.set_lr(0.2)
    optimizer.set_lr(0.2)
    assert [g["lr"] for g in fresh.param_groups] == [g["lr"] for g in optimizer.param_groups]
    bound = wf.optim.Adam(wf.optim.AdamConfig())
    bound.step([(p.id, p, wf.tensor([1.0]))])
    bound.param_groups[0]["weight_decay"] = 0.5
    waiting = wf.optim.Adam(wf.optim.AdamConfig())
    waiting.load_state_dict(bound.state_dict())
    waiting.step([(p.id, p, wf.tensor([1.0]))])
    assert waiting.param_groups[0]["weight_decay"] == 0.5


def test_averages_stay_with_their_parameters():
    a, b, c = (wf.Parameter([float(i)]) for i in range(3))
    optimizer = wf.optim.EMAOptimizer(wf.optim.SGD([a, b, c], lr=0.5), decay=0.5)
    for _ in range(2):
        optimizer.step([wf.tensor([1.0])] * 3)
    optimizer.param_groups[0]["params"].remove(a)
    fresh = wf.optim.EMAOptimizer(wf.optim.SGD([b, c], lr=0.5), decay=0.5)
    fresh.load_state_dict(optimizer.state_dict())
    for p in (b, c):
        assert fresh.ema.average_of(p).tolist() == optimizer.ema.average_of(p).tolist()


def test_edits_beside_the_groups_take_effect_or_are_refused():
    p = wf.Parameter([1.0])
    optimizer = wf.optim.SGD([p], lr=1.0)
    optimizer.lr = 0.25
    optimizer.step([wf.tensor([1.0])])
    assert p.tolist() == [0.75] and optimizer.lr == optimizer.config.lr == 0.25
    with pytest.raises(AttributeError):
        optimizer.config = wf.optim.SGDConfig(lr=3.0)
    ema = wf.optim.EMA([p], 0.5)
    ema.decay = 2.0
    with pytest.raises(errors.ArgumentError, match="decay=2"):
        ema.update()
    large = wf.Parameter(np.zeros((80, 80), np.float32))
    optimizer = wf.optim.Adam8bit([large], lr=0.1)
    optimizer.step([wf.ones((80, 80))])
    before = large.tolist()
    optimizer.param_groups[0]["block_size"] = 512
    with pytest.raises(errors.ArgumentError, match=r"block_size.*reset"):
        optimizer.step([wf.ones((80, 80))])
    assert large.tolist() == before
    optimizer.reset()
    optimizer.step([wf.ones((80, 80))])


def test_histories_of_lbfgs_belong_to_their_parameters():
    p, q = wf.Parameter([4.0, -3.0]), wf.Parameter([2.0])
    optimizer = wf.optim.LBFGS([p], max_iter=3)

    def closure():
        optimizer.zero_grad()
        loss = ((p - 1.0) ** 2).sum() + ((q + 1.0) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.param_groups[0]["params"].append(q)
    for _ in range(5):
        optimizer.step(closure)
    assert np.allclose([*p.tolist(), *q.tolist()], [1.0, 1.0, -1.0], atol=1e-3)
    optimizer.param_groups.append({"params": [wf.Parameter([1.0])]})
    with pytest.raises(errors.ArgumentError, match="one group"):
        optimizer.step(closure)
