"""Jacobians and Hessians: every plan gives the same matrix, and serves only its own program."""

import numpy as np
import pytest
import scipy.sparse as sp

import weft as wf
from weft.transform.jacobian import plan as planning
from weft.transform.jacobian import sweeps

RNG = np.random.default_rng(5)
W1, W2 = wf.asarray(RNG.normal(size=(3, 20))), wf.asarray(RNG.normal(size=(24, 3)))


def bottleneck(x):
    return wf.tanh(W2 @ wf.sin(W1 @ x))


def tridiagonal(x):
    left = wf.concat([wf.zeros(1, dtype=x.dtype), x[:-1]])
    right = wf.concat([x[1:], wf.zeros(1, dtype=x.dtype)])
    return x**3 + left * x - wf.sin(right)


def arrowhead(x):
    return wf.concat([(x**2).sum().reshape(1), x[0] * x[1:] + x[1:] ** 3])


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def point(n):
    return wf.asarray(RNG.uniform(0.5, 1.5, n))


def by_jvp(f, x):
    """The Jacobian column by column, by `wf.jvp` alone."""
    columns = []
    for k in range(x.size):
        e = np.zeros(x.size)
        e[k] = 1.0
        columns.append(wf.jvp(f, (x,), (wf.asarray(e.reshape(x.shape)),))[1].numpy().ravel())
    return np.stack(columns, -1)


DENSE = ["auto", "forward", "reverse", "mixed"]
PLANS = [
    *((bottleneck, mode) for mode in DENSE),
    *((tridiagonal, mode) for mode in [*DENSE, "columns", "rows"]),
    *((arrowhead, mode) for mode in [*DENSE, "columns", "rows", "both"]),
]


@pytest.mark.parametrize("f, mode", PLANS)
def test_every_plan_gives_the_jacobian(f, mode):
    x = point(20)
    found = wf.jacobian(f, mode=mode)(x).numpy()
    np.testing.assert_allclose(found, by_jvp(f, x), rtol=1e-12, atol=1e-12)


def test_the_planner_sees_what_is_there():
    assert wf.plan_jacobian(bottleneck, point(20)).cut == 3
    band = wf.plan_jacobian(tridiagonal, point(200))
    assert band.pattern.nnz == 3 * 200 - 2
    assert sweep_counts(band)["columns"] == (3, 0) and sweep_counts(band)["rows"] == (0, 3)
    arrow = wf.plan_jacobian(arrowhead, point(200))
    assert sum(sweep_counts(arrow)["both"]) <= 6
    assert sweep_counts(wf.hessian(rosenbrock).plan(point(200)))["star"] == (3, 0)


def sweep_counts(plan):
    return {c.kind: (c.forward, c.reverse) for c in plan.candidates}


def test_the_cheapest_candidate_is_chosen():
    plan = wf.plan_jacobian(tridiagonal, point(200))
    assert plan.chosen.estimate == min(c.estimate for c in plan.candidates)
    assert {"forward", "reverse", "columns", "rows"} <= {c.kind for c in plan.candidates}


def test_a_plan_says_what_it_found_and_why():
    text = str(wf.plan_jacobian(tridiagonal, point(200)))
    for part in ("200 inputs", "598 nonzeros", "narrowest cut", "measured", "chosen", "why:"):
        assert part in text


@pytest.mark.parametrize("n", [1, 2, 30])
def test_hessians(n):
    def f(x):
        return rosenbrock(x) + (x**4).sum() if n > 1 else (x**4).sum()

    x = point(n)
    want = by_jvp(wf.grad(f), x)
    for mode in ("auto", "forward", "reverse"):
        np.testing.assert_allclose(wf.hessian(f, mode=mode)(x).numpy(), want, rtol=1e-11, atol=1e-9)
    got = wf.hessian(f, format="csr")(x)
    np.testing.assert_allclose(got.toarray(), want, rtol=1e-11, atol=1e-9)


@pytest.mark.parametrize("format, kind", [("csr", sp.csr_array), ("coo", sp.coo_array)])
def test_sparse_formats(format, kind):
    x = point(50)
    found = wf.jacobian(tridiagonal, format=format)(x)
    assert isinstance(found, kind) and found.nnz == 3 * 50 - 2
    np.testing.assert_allclose(found.toarray(), by_jvp(tridiagonal, x), rtol=1e-12, atol=1e-13)
    full = wf.jacobian(bottleneck, format=format)(point(20))
    assert isinstance(full, kind) and full.shape == (24, 20)


@pytest.mark.parametrize("mode", ["auto", "forward", "mixed", "columns", "rows", "both"])
def test_jacobians_on_another_device(mode):
    x = point(30)
    found = wf.jacobian(arrowhead, mode=mode)(x.to("torch"))
    assert found.device == "torch"
    want = by_jvp(arrowhead, x)
    np.testing.assert_allclose(found.to("cpu").numpy(), want, rtol=1e-12, atol=1e-13)


def test_a_linear_operator_is_the_jacobian_and_its_transpose():
    x = point(20)
    J, want = wf.jacobian(bottleneck, format="operator")(x), by_jvp(bottleneck, x)
    v, u, V = RNG.normal(size=20), RNG.normal(size=24), RNG.normal(size=(20, 3))
    np.testing.assert_allclose(J @ v, want @ v, rtol=1e-12)
    np.testing.assert_allclose(J.T @ u, want.T @ u, rtol=1e-12)
    np.testing.assert_allclose(J @ V, want @ V, rtol=1e-12)


def test_trees_of_arguments_and_results():
    def f(p, q):
        return {"a": p["w"] * q, "b": (p["w"].sum() + p["c"] ** 2, q)}

    p = {"w": point(3), "c": wf.asarray(2.0, dtype=wf.float64)}
    q = point(3)
    J = wf.jacobian(f)(p, q)
    np.testing.assert_allclose(J["a"]["w"].numpy(), np.diag(q.numpy()))
    assert J["b"][0]["c"].item() == 4.0 and J["b"][0]["w"].tolist() == [1.0] * 3
    assert J["b"][1]["w"].tolist() == [[0.0] * 3] * 3
    Jq = wf.jacobian(f, argnums=(0, 1))(p, q)
    np.testing.assert_allclose(Jq["a"][1].numpy(), np.diag(p["w"].numpy()))


def test_a_memory_limit_cuts_the_seeds_into_chunks():
    x = point(60)
    whole = wf.jacobian(bottleneck_60, mode="forward")(x).numpy()
    small = wf.jacobian(bottleneck_60, mode="forward", memory_limit=10_000)
    np.testing.assert_allclose(small(x).numpy(), whole, rtol=1e-12)
    assert 1 <= small.plan(x).chunk < 60


def bottleneck_60(x):
    return wf.tanh(x * x.sum())


# Plans belong to programs.


def count_plans(monkeypatch):
    made = []
    real = planning.make_plan

    def counted(*args, **kwargs):
        made.append(1)
        return real(*args, **kwargs)

    monkeypatch.setattr("weft.transform.jacobian.jacobians.make_plan", counted)
    return made


def test_a_plan_is_made_once_for_a_function_and_shape(monkeypatch):
    made = count_plans(monkeypatch)

    def f(x):
        return tridiagonal(x)

    for _ in range(3):
        wf.jacobian(f)(point(30))
    assert len(made) == 1
    wf.jacobian(f)(point(31))
    assert len(made) == 2


def test_another_branch_is_another_program(monkeypatch):
    made = count_plans(monkeypatch)

    def f(x):
        if x[0] > 1.0:
            return x * x[0]
        return x * wf.flip(x)

    J = wf.jacobian(f, format="csr")
    low, high = np.linspace(0.5, 2.0, 30), np.linspace(1.5, 2.0, 30)
    for values in (low, high, low, high):
        x = wf.asarray(values)
        np.testing.assert_allclose(J(x).toarray(), by_jvp(f, x), rtol=1e-12)
    assert len(made) == 2


def test_changed_indices_are_another_program():
    order = [np.arange(30)]

    def f(x):
        return wf.take(x, wf.asarray(order[0])) ** 2

    J = wf.jacobian(f, format="csr")
    x = point(30)
    for _ in range(3):
        np.testing.assert_allclose(J(x).toarray(), by_jvp(f, x), rtol=1e-12)
        order[0] = RNG.permutation(30)


def test_indices_computed_from_the_argument():
    def f(x):
        return wf.take(x, wf.argsort(x)) * x

    J = wf.jacobian(f, format="csr")
    for _ in range(3):
        x = point(30)
        np.testing.assert_allclose(J(x).toarray(), by_jvp(f, x), rtol=1e-12)


def test_python_numbers_do_not_make_new_plans(monkeypatch):
    made = count_plans(monkeypatch)
    step = [0.1]

    def f(x):
        return x * step[0] + wf.sin(x)

    J = wf.jacobian(f, format="csr")
    for step[0] in (0.1, 0.2, 0.3):
        x = point(30)
        np.testing.assert_allclose(J(x).toarray(), by_jvp(f, x), rtol=1e-12)
    assert len(made) == 1


def test_a_wrong_recovery_cannot_pass(monkeypatch):
    def shuffled(*args):
        return wf.flip(real(*args))

    real = sweeps.entries
    monkeypatch.setattr(sweeps, "entries", shuffled)
    with pytest.raises(wf.errors.PlanError, match="forward sweep"):
        wf.jacobian(lambda x: tridiagonal(x), mode="columns", verify=True)(point(30))


def test_verification_on_every_call(monkeypatch):
    J = wf.jacobian(lambda x: tridiagonal(x), mode="columns", verify=True)
    J(point(30))
    real = sweeps.entries
    monkeypatch.setattr(sweeps, "entries", lambda *args: real(*args) * 1.001)
    with pytest.raises(wf.errors.PlanError):
        J(point(30))


def test_verification_of_every_element_of_a_batch(monkeypatch):
    J = wf.jacobian(lambda x: tridiagonal(x), mode="columns", verify=True)
    batch = wf.stack([point(30), 0 * point(30), 2 * point(30)])
    wf.vmap(J)(batch)
    real = sweeps.entries

    def wrong_where_large(*args):
        found = real(*args)
        return wf.where(found > 12, found * 1.001, found)

    monkeypatch.setattr(sweeps, "entries", wrong_where_large)
    J(batch[0])
    with pytest.raises(wf.errors.PlanError, match="forward sweep"):
        wf.vmap(J)(batch)


# The scheduler.


def kind(f, x, **fields):
    return wf.HybridScheduler(wf.SchedulerConfig(**fields)).plan(f, x).chosen.kind


def test_every_field_of_the_configuration_counts():
    x = point(20)
    assert kind(bottleneck, x, strategy="forward") == "forward"
    assert kind(bottleneck, x, strategy=wf.SchedulingStrategy.Reverse) == "reverse"
    assert kind(bottleneck, x, strategy="mixed") == "mixed"
    assert kind(bottleneck, x, forward_mode_threshold=1.1) == "forward"
    assert kind(bottleneck, x, reverse_mode_threshold=1.3) == "reverse"
    kinds = {c.kind for c in wf.HybridScheduler().plan(bottleneck, x).candidates}
    assert "mixed" in kinds
    config = wf.SchedulerConfig(enable_mixed_mode=False)
    kinds = {c.kind for c in wf.HybridScheduler(config).plan(bottleneck, x).candidates}
    assert "mixed" not in kinds


def test_configurations_are_strict():
    with pytest.raises(wf.errors.ArgumentError, match="'auto', 'forward'"):
        wf.SchedulerConfig(strategy="sideways")
    with pytest.raises(wf.errors.ArgumentError, match="reverse_mode_threshold"):
        wf.SchedulerConfig(forward_mode_threshold=0.1, reverse_mode_threshold=0.5)
    with pytest.raises(TypeError):
        wf.SchedulerConfig(threshold=1)
    with pytest.raises(AttributeError):
        wf.SchedulerConfig().strategy = "forward"


@pytest.mark.parametrize("strategy", ["auto", "forward", "reverse", "mixed"])
def test_a_tape_with_a_scheduler(strategy):
    x = point(20)
    with wf.GradientTape.with_scheduler_config(wf.SchedulerConfig(strategy=strategy)) as tape:
        y = bottleneck(tape.watch(x))
    found = tape.jacobian(y, x)
    np.testing.assert_allclose(found.numpy(), by_jvp(bottleneck, x), rtol=1e-11, atol=1e-13)
    with pytest.raises(wf.errors.TapeConsumed):
        tape.jacobian(y, x)


def test_forward_gradient_of_a_tape():
    x = point(20)
    tape = wf.GradientTape(persistent=True)
    y = bottleneck(tape.watch(x))
    first = tape.forward_gradient(x, y)
    want = by_jvp(bottleneck, point_of(x))
    np.testing.assert_allclose(first.detach().numpy(), want, rtol=1e-11, atol=1e-13)
    second = tape.gradient((first**2).sum(), x)
    want = wf.grad(lambda x: (wf.jacrev(bottleneck)(x) ** 2).sum())(point_of(x))
    np.testing.assert_allclose(second.detach().numpy(), want.numpy(), rtol=1e-10)


def point_of(x):
    return wf.asarray(x.detach().numpy())


# Jacobians inside other transformations.


def test_jacobians_compose():
    x = point(20)

    def f(x):
        return (wf.jacobian(tridiagonal)(x) ** 2).sum()

    want = wf.grad(lambda x: (wf.jacfwd(tridiagonal, 0)(x) ** 2).sum())(x).numpy()
    eps = 1e-6
    e = np.zeros(20)
    e[3] = eps
    difference = (f(x + wf.asarray(e)).item() - f(x - wf.asarray(e)).item()) / (2 * eps)
    assert abs(want[3] - difference) < 1e-6 * abs(difference) + 1e-7
    np.testing.assert_allclose(wf.grad(f)(x).numpy(), want, rtol=1e-10)
    batch = wf.asarray(RNG.uniform(0.5, 1.5, (3, 20)))
    found = wf.vmap(wf.jacobian(tridiagonal))(batch).numpy()
    for k in range(3):
        np.testing.assert_allclose(found[k], by_jvp(tridiagonal, batch[k]), rtol=1e-12, atol=1e-13)
    twice = wf.jacobian(wf.jacobian(tridiagonal))(x)
    assert twice.shape == (20, 20, 20)


def test_linearize_runs_the_function_once():
    calls = []

    def f(x):
        calls.append(1)
        return {"y": wf.sin(x) * x}

    x, v = point(5), point(5)
    y, push = wf.linearize(f, x)
    for _ in range(3):
        got = push(v)["y"]
    want = wf.jvp(lambda x: wf.sin(x) * x, (x,), (v,))
    np.testing.assert_allclose(y["y"].numpy(), want[0].numpy())
    np.testing.assert_allclose(got.numpy(), want[1].numpy())
    assert len(calls) == 1


def test_laplacian():
    x = point(6)
    f = lambda x: wf.sin(x).prod() + (x**3).sum()  # noqa: E731
    want = np.trace(by_jvp(wf.grad(f), x))
    assert abs(wf.laplacian(f)(x).item() - want) < 1e-12 * abs(want)


# Mistakes.


def test_mistakes_are_named():
    x = point(4)
    with pytest.raises(wf.errors.ArgumentError, match="mode='sideways'"):
        wf.jacobian(tridiagonal, mode="sideways")
    with pytest.raises(wf.errors.ArgumentError, match="format='csc'"):
        wf.jacobian(tridiagonal, format="csc")
    with pytest.raises(wf.errors.NotDifferentiable, match="int"):
        wf.jacobian(tridiagonal)(wf.tensor([1, 2]))
    with pytest.raises(wf.errors.NotDifferentiable, match="real and imaginary"):
        wf.jacobian(lambda z: z)(wf.tensor([1j]))
    with pytest.raises(wf.errors.DTypeError, match="returned None"):
        wf.jacobian(lambda x: None)(x)
    with pytest.raises(wf.errors.NotDifferentiable, match="result"):
        wf.jacobian(lambda x: x > 0)(x)
    with pytest.raises(wf.errors.InterchangeError, match="dense"):
        wf.grad(lambda x: wf.jacobian(tridiagonal, format="csr")(x).sum())(x)
    with pytest.raises(wf.errors.InterchangeError, match="trace"):
        wf.jacobian(lambda x: wf.asarray(x.numpy()))(x)
    with pytest.raises(wf.errors.MissingGradient, match="not computed"):
        wf.GradientTape().jacobian(x * 1, x)
