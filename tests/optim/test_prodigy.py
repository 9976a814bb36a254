"""Prodigy beside its authors' implementation, and its estimate in every kind of step."""

import numpy as np
import prodigyopt
import pytest

import weft as wf
from weft import errors

from .free_runs import SHAPES, STEPS, Ours, Plan, Theirs, compare, parted

SEEDS = range(9)


def plan_of(seed: int) -> Plan:
    rng = np.random.default_rng((seed, 5))
    dtype = "float32" if seed % 3 == 2 else "float64"
    beta1 = float(rng.choice([0.0, 0.9, 0.8]))
    options = {
        "betas": (beta1, float(rng.choice([0.999, 0.9]))),
        "beta3": [None, 0.95][rng.integers(2)],
        "decouple": bool(rng.integers(2)),
        "use_bias_correction": bool(rng.integers(2)),
        "d0": float(rng.choice([1e-6, 1e-3, 1e-2])),
        "d_coef": float(rng.choice([1.0, 0.5, 2.0])),
        "growth_rate": float(rng.choice([np.inf, 1.5])),
        "lr": float(rng.choice([1.0, 0.5])),
    }
    groups = []
    for which in parted(rng):
        own = {
            "weight_decay": float(rng.choice([0.0, 0.1])),
            "eps": float(rng.choice([1e-8, 1e-3])),
        }
        own |= {"safeguard_warmup": bool(rng.integers(2)), "slice_p": int(rng.choice([1, 3]))}
        groups.append((own, which))
    if len(groups) > 1 and beta1:  # a group that rests: theirs decays it all the same
        groups[-1][0].update(lr=0.0, weight_decay=0.0)
    missing = {(k, i) for k in range(STEPS) for i in range(len(SHAPES)) if rng.random() < 0.1}
    rates = {k: float(rng.choice([1.0, 0.3])) for k in range(STEPS)} if seed % 2 else {}
    size = 0.0 if seed % 4 == 3 else 1.0
    return Plan(seed, dtype, options, groups, size, missing, rates, int(rng.integers(0, 4)))


def tolerance(plan: Plan) -> float:
    """Roundings of p enter p₀ − p, which is as small as d₀ in the first steps."""
    eps = float(np.finfo(plan.dtype).eps)
    return 64 * eps * (1 + 4 * plan.size / plan.options["d0"])


@pytest.mark.parametrize("path", ["cpu", "torch", "compiled"])
@pytest.mark.parametrize("seed", SEEDS)
def test_trajectory(seed, path):
    plan = plan_of(seed)
    if plan.dtype == "float32" and plan.size:
        plan.options["d0"] = 1e-2  # else the first estimates are of roundings
    if path == "compiled":  # each pattern of missing gradients is a program
        plan.missing = {(k, i) for k, i in plan.missing if i == 0}
    ours = Ours(plan, wf.optim.Prodigy, path if path == "torch" else "cpu", path == "compiled")
    theirs = Theirs(plan, prodigyopt.Prodigy)
    for k in range(STEPS):
        gradients = theirs.gradients(k)
        ours.step(k, gradients)
        theirs.step(k, gradients)
        if k % 9 == 0 or k == STEPS - 1:
            compare(ours, theirs, tolerance(plan))
    first = theirs.optimizer.param_groups[0]
    assert ours.optimizer.d == pytest.approx(first["d"], rel=tolerance(plan))
    estimate = ours.optimizer.state_dict()["estimate"]
    assert estimate["steps"] == first["k"] and first["k"] >= STEPS - 5


def test_the_estimates_grow():
    """Else the trajectories above would say nothing of them."""
    grown = 0
    for seed in SEEDS:
        plan = plan_of(seed)
        theirs = Theirs(plan, prodigyopt.Prodigy)
        for k in range(30):
            theirs.step(k, theirs.gradients(k))
        grown += theirs.optimizer.param_groups[0]["d"] > 2 * plan.options["d0"]
    assert grown >= len(SEEDS) // 2


@pytest.mark.parametrize("path", ["cpu", "torch", "compiled"])
def test_resume_is_exact(path, tmp_path):
    plan = plan_of(4)
    runs = [
        Ours(plan, wf.optim.Prodigy, path if path == "torch" else "cpu", path == "compiled")
        for _ in range(2)
    ]
    gradients = [[plan.gradient(v, k, i) for i, v in enumerate(plan.values())] for k in range(12)]
    for k in range(6):
        runs[0].step(k, gradients[k])
    wf.save_optimizer(tmp_path / "state", runs[0].optimizer)
    wf.load_optimizer(tmp_path / "state", runs[1].optimizer)
    with wf.no_grad():
        for p, q in zip(runs[1].params, runs[0].params, strict=True):
            p.copy_(q.detach())
    for k in range(6, 12):
        for run in runs:
            run.step(k, gradients[k])
    compare(runs[0], runs[1], 0.0)
    assert runs[0].optimizer.d == runs[1].optimizer.d


def test_nothing_happens_without_gradients():
    p = wf.Parameter([1.0, 2.0])
    optimizer = wf.optim.Prodigy([p], weight_decay=0.5)
    for _ in range(3):
        optimizer.step([wf.zeros(2)])
    assert p.tolist() == [1.0, 2.0]
    assert optimizer.state_dict()["estimate"] == {
        "d": 1e-6, "d_max": 1e-6, "numerator": 0.0, "steps": 0.0,
    }  # fmt: skip


def test_a_group_that_rests_is_untouched():
    p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
    optimizer = wf.optim.Prodigy([{"params": [p]}, {"params": [q]}], weight_decay=0.1)
    optimizer.step([wf.tensor([1.0]), wf.tensor([1.0])])
    optimizer.param_groups[1]["lr"] = 0.0
    before = q.tolist()
    step = wf.compile(lambda g, h: optimizer.step([g, h]))
    step(wf.tensor([1.0]), wf.tensor([1.0]))
    optimizer.step([wf.tensor([1.0]), wf.tensor([1.0])])
    assert q.tolist() == before != p.tolist()
    assert optimizer.compute_update(wf.tensor([1.0]), q).tolist() == [0.0]


def test_an_update_is_computed_as_in_a_step():
    made = [wf.optim.Prodigy([wf.Parameter([1.0, -1.0])], d0=0.1) for _ in range(2)]
    params = [o.param_groups[0]["params"][0] for o in made]
    for k in range(3):
        g = wf.tensor([1.0, -2.0 + k])
        made[0].step([g])
        params[1].apply_update(made[1].compute_update(g))
    np.testing.assert_allclose(params[0].tolist(), params[1].tolist(), rtol=1e-6)
    assert made[0].d == pytest.approx(made[1].d)


REFUSED = {
    "rates": ([{}, {"lr": 0.5}], "learning rates of the groups are .* expected equal"),
    "betas": ([{}, {"beta2": 0.9}], "beta2 of the groups is .* expected one value"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("compiled", [False, True])
def test_groups_that_cannot_share_an_estimate(name, compiled):
    settings, message = REFUSED[name]
    groups = [{"params": [wf.Parameter([1.0])], **own} for own in settings]
    optimizer = wf.optim.Prodigy(groups)
    step = lambda: optimizer.step([wf.tensor([1.0])] * 2)  # noqa: E731
    with pytest.raises(errors.ArgumentError, match=message):
        (wf.compile(step) if compiled else step)()


def test_rates_that_differ_later_are_refused_in_a_compiled_step():
    groups = [{"params": [wf.Parameter([1.0])]} for _ in range(2)]
    optimizer = wf.optim.Prodigy(groups)
    step = wf.compile(lambda g: optimizer.step([g, g]))
    step(wf.tensor([1.0]))
    optimizer.param_groups[1]["lr"] = 0.5
    with pytest.raises(errors.ArgumentError, match="expected equal ones"):
        step(wf.tensor([1.0]))


def test_two_devices_and_complex_numbers_are_refused():
    p, q = wf.Parameter([1.0]), wf.Parameter(wf.tensor([1.0], device="torch"))
    with pytest.raises(errors.DeviceError, match="cpu, torch, expected one device"):
        wf.optim.Prodigy([p, q]).step([wf.tensor([1.0]), wf.tensor([1.0], device="torch")])
    with pytest.raises(errors.DTypeError, match="expected real numbers"):
        wf.optim.Prodigy([wf.Parameter(np.ones(2) * 1j)])


def test_a_state_without_an_estimate_is_refused():
    optimizer = wf.optim.Prodigy([wf.Parameter([1.0])])
    saved = optimizer.state_dict()
    del saved["estimate"]
    with pytest.raises(errors.StateMismatch, match="estimate"):
        optimizer.load_state_dict(saved)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_parameters_keep_states_in_single(dtype):
    p = wf.Parameter(wf.ones((4, 3), dtype=dtype))
    optimizer = wf.optim.Prodigy([p], d0=0.1)
    step = wf.compile(lambda g: optimizer.step([g]))
    for run in (lambda g: optimizer.step([g]), step):
        run(wf.ones((4, 3), dtype=dtype))
    own = optimizer.state_dict()["state"]["0"]
    assert {str(own[n].dtype) for n in ("s", "p0", "exp_avg", "exp_avg_sq")} == {"float32"}
    assert own["p0"].tolist() == [[1.0] * 3] * 4 and p[0, 0].item() < 1.0


def test_clipped_gradients_and_averages():
    """Clipping goes before the step, an `EMAOptimizer` around it."""
    p = wf.Parameter([3.0, 4.0])
    optimizer = wf.optim.EMAOptimizer(wf.optim.Prodigy([p], d0=0.1), decay=0.5)
    q = wf.Parameter([3.0, 4.0])
    plain = wf.optim.Prodigy([q], d0=0.1)
    seen = []
    for _ in range(3):
        p.grad = q.grad = None
        (p * p).sum().backward()
        wf.optim.clip_grad_norm([p], 1.0)
        plain.step([p.grad.detach().clone()])
        optimizer.step()
        seen.append(q.tolist())
    assert p.tolist() == q.tolist()
    average = seen[0]
    for values in seen[1:]:
        average = [0.5 * (a + b) for a, b in zip(average, values, strict=True)]
    optimizer.swap_to_ema()
    np.testing.assert_allclose(p.tolist(), average, rtol=1e-6)
