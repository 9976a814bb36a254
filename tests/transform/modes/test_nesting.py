"""Transformations inside each other: functions, tapes, `backward()`, closures, assignment."""

import math
from itertools import product

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


@pytest.fixture
def make(device):
    """Numbers as a float64 tensor on the device."""
    return lambda values: wf.tensor(np.asarray(values, np.float64), device=device)


def close(got, expected, units: float = 1e-13) -> bool:
    return np.allclose(got.detach().to("cpu").numpy(), expected, rtol=units, atol=units)


# Each transformation as an operator on functions of one number. vmap evaluates at bx for two b
# and weighs the results, so that it too changes the function.
WEIGHTS = {1.0: 0.75, -2.0: 0.5}


def by_grad(g):
    return wf.grad(g)


def by_jvp(g):
    return lambda x: wf.jvp(g, (x,), (wf.ones_like(x),))[1]


def by_vjp(g):
    def derivative(x):
        y, pull = wf.vjp(g, x)
        return pull(wf.ones_like(y))[0]

    return derivative


def by_vmap(g):
    def weighed(x):
        ys = wf.vmap(g)(wf.stack([b * x for b in WEIGHTS]))
        return sum(w * ys[k] for k, w in enumerate(WEIGHTS.values()))

    return weighed


def by_tape(g):
    def derivative(x):
        with wf.GradientTape() as tape:
            y = g(tape.watch(x))
        return tape.gradient(y, x, unconnected="zero")

    return derivative


OPERATORS = {"grad": by_grad, "jvp": by_jvp, "vjp": by_vjp, "vmap": by_vmap}

# A function is a sum of c·sin⁽ⁿ⁾(mx), written {(m, n): c}: closed under all operators.
SINE = {(1.0, 0): 1.0}


def closed(names, terms):
    """The terms after applying the named operators, the last one first."""
    for name in reversed(names):
        after: dict = {}
        for (m, n), c in terms.items():
            if name == "vmap":
                parts = {(m * b, n): c * w for b, w in WEIGHTS.items()}
            else:
                parts = {(m, n + 1): c * m}
            for key, value in parts.items():
                after[key] = after.get(key, 0.0) + value
        terms = after
    return terms


def evaluated(terms, x: float) -> float:
    return sum(c * math.sin(m * x + n * math.pi / 2) for (m, n), c in terms.items())


def nested(names, f, operators=OPERATORS):
    for name in reversed(names):
        f = operators[name](f)
    return f


NESTINGS = [names for depth in (1, 2, 3) for names in product(OPERATORS, repeat=depth)]


@pytest.mark.parametrize("names", NESTINGS, ids=" of ".join)
def test_every_nesting_has_its_closed_form(names, make):
    x = 0.7
    got = nested(names, wf.sin)(make(x))
    assert type(got) is wf.Tensor
    assert close(got, evaluated(closed(names, SINE), x))


@pytest.mark.parametrize("names", NESTINGS, ids=" of ".join)
def test_every_nesting_leads_back_to_an_outer_tensor(names, make):
    """∂/∂w of a nesting of x ↦ w² sin x, by `backward` outside of all."""
    w, x = wf.Parameter(make(3.0)), 0.7
    nested(names, lambda x: w * w * wf.sin(x))(make(x)).backward()
    assert close(w.grad, 6.0 * evaluated(closed(names, SINE), x))


@pytest.mark.parametrize("names", NESTINGS, ids=" of ".join)
def test_every_nesting_is_differentiated_by_a_tape_outside(names, make):
    x = make(0.7)
    with wf.GradientTape() as tape:
        y = nested(names, wf.sin)(tape.watch(x))
    assert close(tape.gradient(y, x), evaluated(closed(("grad", *names), SINE), 0.7))


@pytest.mark.parametrize("names", NESTINGS[:20], ids=" of ".join)
def test_every_nesting_carries_a_dual_through(names, make):
    y = nested(names, wf.sin)(wf.DualTensor(make(0.7), make(1.0)))
    assert close(y.value, evaluated(closed(names, SINE), 0.7))
    assert close(y.tangent, evaluated(closed(("jvp", *names), SINE), 0.7))


WITH_TAPES = {**OPERATORS, "tape": by_tape}


@pytest.mark.parametrize(
    "names",
    [n for d in (1, 2, 3) for n in product(WITH_TAPES, repeat=d) if "tape" in n],
    ids=" of ".join,
)
def test_a_tape_inside(names, make):
    x = 0.7
    got = nested(names, wf.sin, WITH_TAPES)(make(x))
    terms = closed(["grad" if n == "tape" else n for n in names], SINE)
    assert close(got, evaluated(terms, x))


def test_many_levels():
    """The fifth derivative of x⁵ by alternating modes, mapped: 120 everywhere."""
    f = lambda x: x**5  # noqa: E731
    for operator in (by_grad, by_jvp, by_vjp, by_jvp, by_grad):
        f = operator(f)
    x = wf.tensor(np.array([1.0, -2.0, 0.5]))
    assert np.allclose(wf.vmap(f)(x).numpy(), 120.0, rtol=1e-13)


def test_vmap_of_vmap_is_a_table(make):
    f = wf.vmap(wf.vmap(lambda a, b: a * b + a, in_axes=(None, 0)), in_axes=(0, None))
    a, b = np.arange(3.0), np.arange(4.0)
    assert close(f(make(a), make(b)), np.multiply.outer(a, b) + a[:, None])


def test_the_hessian_by_vmap_over_directions(make):
    """f = (Σx)³: every second derivative is 6Σx."""
    x = make([1.0, 2.0, -0.5])
    rows = make(np.eye(3))
    by_hvp = wf.vmap(lambda v: wf.hvp(lambda x: x.sum() ** 3, (x,), (v,)))(rows)
    _, pull = wf.vjp(wf.grad(lambda x: x.sum() ** 3), x)
    by_pull = wf.vmap(lambda v: pull(v)[0])(rows)
    assert close(by_hvp, np.full((3, 3), 15.0)) and close(by_pull, np.full((3, 3), 15.0))


def test_a_pull_back_made_outside_is_differentiated_inside(make):
    """The pull-back is linear in its cotangent: the tangent of pull(u) is pull(u̇)."""
    _, pull = wf.vjp(lambda x: x**3, make(2.0))
    y, dy = wf.jvp(lambda u: pull(u)[0], (make(5.0),), (make(1.0),))
    assert (y.item(), dy.item()) == (60.0, 12.0)
    assert wf.grad(lambda u: pull(u * u)[0])(make(5.0)).item() == 120.0


# Closures: what is not an argument is a constant to the transformation, not to those around it.


@pytest.fixture
def parameter(make):
    return wf.Parameter(make([2.0, 3.0]))


def test_gradients_reach_a_parameter_through_jvp(parameter, make):
    y, dy = wf.jvp(lambda x: (parameter * x**2).sum(), (make([1.0, 4.0]),), (make([1.0, 1.0]),))
    (y + 10 * dy).backward()
    assert parameter.grad.tolist() == [1.0 + 20.0, 16.0 + 80.0]


def test_gradients_reach_a_parameter_through_grad(parameter, make):
    slopes = wf.grad(lambda x: (parameter * x**3).sum())(make([1.0, 2.0]))
    slopes.sum().backward()
    assert parameter.grad.tolist() == [3.0, 12.0]


def test_gradients_reach_a_parameter_through_vmap(parameter, make):
    y = wf.vmap(lambda x: (parameter * x).sum())(make([[1.0, 2.0], [3.0, 4.0]]))
    assert y.tolist() == [8.0, 18.0]
    (y * make([1.0, 10.0])).sum().backward()
    assert parameter.grad.tolist() == [31.0, 42.0]


def test_gradients_reach_a_parameter_through_vjp(parameter, make):
    y, pull = wf.vjp(lambda x: parameter * x**2, make([1.0, 2.0]))
    (pull(make([1.0, 1.0]))[0] + y).sum().backward()
    assert parameter.grad.tolist() == [2.0 + 1.0, 4.0 + 4.0]


def test_gradients_reach_a_parameter_as_argument_and_closure(parameter):
    """d/dw of Σ w·∂/∂x(w x²) at x = w: 2w² as a whole, so 4w by w."""
    slopes = wf.grad(lambda x: (parameter * x**2).sum())(parameter)
    slopes.sum().backward()
    assert parameter.grad.tolist() == [8.0, 12.0]


def test_a_gradient_penalty_trains_the_parameter(parameter, make):
    """Σᵢ ∂/∂xᵢ Σ w xᵢ² squared, by w: 8 Σ xᵢ² w."""
    x = make([[1.0, 2.0], [3.0, 4.0]])
    per_sample = wf.vmap(wf.grad(lambda x: (parameter * x**2).sum()))(x)
    (per_sample**2).sum().backward()
    assert parameter.grad.tolist() == [8 * 10.0 * 2.0, 8 * 20.0 * 3.0]


def test_nothing_is_recorded_without_need(make):
    x = make([1.0, 2.0])
    with wf.no_grad():
        w = wf.Parameter(make(2.0))
        assert not wf.grad(lambda x: (w * x**2).sum())(x).requires_grad
    assert not wf.grad(lambda x: (x**2).sum())(x).requires_grad


# backward() and tapes inside and outside.


def test_backward_inside_grad_needs_its_graph(make):
    """∂/∂x of (∂/∂c xc²) at c = 2 is 4."""

    def slope(x, **options):
        c = make(2.0).requires_grad_()
        return (x * c**2).backward(**options)[c]

    assert wf.grad(lambda x: slope(x, create_graph=True))(make(3.0)).item() == 4.0
    with pytest.raises(errors.GradientNotRecorded, match=r"create_graph=True.*test_nesting\.py"):
        wf.grad(slope)(make(3.0))


@pytest.mark.parametrize("create_graph", [False, True])
def test_backward_by_the_argument_inside_jvp_and_vmap(create_graph, make):
    """Forward mode and batching are above the graph: they go through any backward pass."""

    def slope(x):
        x = x.requires_grad_()
        return (x**3).backward(create_graph=create_graph)[x]

    y, dy = wf.jvp(slope, (make(2.0),), (make(1.0),))
    assert (y.item(), dy.item()) == (12.0, 12.0)
    assert wf.vmap(slope)(make([1.0, 2.0])).tolist() == [3.0, 12.0]


@pytest.mark.parametrize("inside", ["jvp", "vmap"])
def test_backward_by_something_else_says_what_to_do(inside, make):
    c = wf.Parameter(make(2.0))
    run = {
        "jvp": lambda f: wf.jvp(f, (make(3.0),), (make(1.0),)),
        "vmap": lambda f: wf.vmap(f)(make([3.0, 4.0])),
    }[inside]
    with pytest.raises(errors.NoGraph, match=r"use wf\.grad there.*test_nesting\.py"):
        run(lambda x: (x * c**2).backward()[c])

    def taped(x):
        with wf.GradientTape() as tape:
            y = x * c**2
        return tape.gradient(y, c)

    with pytest.raises(errors.GradientError, match=r"use wf\.grad there.*test_nesting\.py"):
        run(taped)


def test_what_it_says_to_do_works(make):
    c = wf.Parameter(make(2.0))
    f = lambda x: wf.grad(lambda c: x * c**2)(c)  # noqa: E731
    y, dy = wf.jvp(f, (make(3.0),), (make(1.0),))
    assert (y.item(), dy.item()) == (12.0, 4.0)
    assert wf.vmap(f)(make([3.0, 4.0])).tolist() == [12.0, 16.0]


def test_a_tape_outside_sees_through_functions(make):
    x = make([1.0, 2.0])
    with wf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, dy = wf.jvp(lambda x: x**3, (x,), (wf.ones_like(x),))
        slopes = wf.vmap(wf.grad(lambda x: x**4))(x)
    assert tape.gradient(y, x).tolist() == [3.0, 12.0]
    assert tape.gradient(dy, x).tolist() == [6.0, 12.0]
    assert tape.gradient(slopes, x).tolist() == [12.0, 48.0]


def test_a_tape_inside_grad_leaves_the_argument_alone(make):
    """The end of the tape's block is not the end of the function."""

    def f(x):
        with wf.GradientTape() as tape:
            y = tape.watch(x) ** 3
        return tape.gradient(y, x) * x + x

    assert wf.grad(f)(make(2.0)).item() == 9 * 4.0 + 1.0


def test_hooks_run_in_gradients_of_functions(make):
    seen = []

    def f(x):
        y = x * x
        y.register_hook(lambda g: seen.append(g.shape) or g * 10)
        return (y * 3).sum()

    assert wf.grad(f)(make(2.0)).item() == 120.0
    assert wf.vmap(wf.grad(f))(make([2.0, 3.0])).tolist() == [120.0, 180.0]
    assert wf.jvp(wf.grad(f), (make(2.0),), (make(1.0),))[1].item() == 60.0
    assert seen == [(), (), ()]


def test_an_infinite_tangent_is_an_anomaly(make):
    with wf.detect_anomaly():
        assert wf.jvp(wf.sqrt, (make(4.0),), (make(1.0),))[1].item() == 0.25
        with pytest.raises(errors.AnomalyError, match=r"sqrt made the first.*test_nesting\.py"):
            wf.jvp(wf.sqrt, (make(0.0),), (make(1.0),))


# Assignment inside.


def assigning(x):
    """(x₁², 5, x₂ + x₀, 0)."""
    y = wf.zeros(4, dtype=x.dtype, device=x.device)
    y[0] = x[1] ** 2
    y[1] = 5.0
    y[2:3] += x[2]
    y[2] += x[0]
    return y


ASSIGNED = np.array([[0, 4.0, 0], [0, 0, 0], [1.0, 0, 1.0], [0, 0, 0]])


def test_assignment_inside_jvp_grad_and_vmap(make):
    x, v = np.array([1.0, 2.0, 3.0]), np.array([1.0, 10.0, 100.0])
    y, dy = wf.jvp(assigning, (make(x),), (make(v),))
    assert y.tolist() == [4.0, 5.0, 4.0, 0.0]
    assert dy.tolist() == (ASSIGNED @ v).tolist()
    _, pull = wf.vjp(assigning, make(x))
    assert pull(make([1.0, 10.0, 100.0, 1000.0]))[0].tolist() == [100.0, 4.0, 100.0]
    batch = wf.vmap(assigning)(make([x, 2 * x]))
    assert batch.tolist() == [[4.0, 5.0, 4.0, 0.0], [16.0, 5.0, 8.0, 0.0]]
    second = wf.vmap(lambda x: wf.jvp(wf.grad(lambda x: assigning(x).sum()), (x,), (x,))[1])
    assert second(make([x, 2 * x])).tolist() == [[0.0, 4.0, 0.0], [0.0, 8.0, 0.0]]


def test_assignment_into_the_argument(make):
    """It is differentiable in every mode, and the caller's tensor stays as it was."""

    def f(x):
        x[0] = x[1] ** 2
        return x

    x = make([1.0, 2.0, 3.0])
    ones = make([1.0, 1.0, 1.0])
    assert wf.jvp(f, (x,), (ones,))[1].tolist() == [4.0, 1.0, 1.0]
    assert wf.grad(lambda x: f(x).sum())(x).tolist() == [0.0, 5.0, 1.0]
    assert wf.grad(lambda x: f(x.clone()).sum())(x).tolist() == [0.0, 5.0, 1.0]
    assert wf.vmap(f)(x.reshape(1, 3)).tolist() == [[4.0, 2.0, 3.0]]
    assert x.tolist() == [1.0, 2.0, 3.0]


def test_assignment_of_a_dual_into_a_plain_tensor_from_outside(make):
    """A buffer of the caller's becomes a value of the level it was assigned from."""
    y, dy = wf.jvp(lambda x: make([0.0, 0.0]).at[1].set(x), (make(2.0),), (make(1.0),))
    assert (y.tolist(), dy.tolist()) == ([0.0, 2.0], [0.0, 1.0])
