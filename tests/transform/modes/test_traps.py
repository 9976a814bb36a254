"""Classic traps: perturbation confusion, stopped gradients, NaN from branches not taken."""

from itertools import product

import numpy as np
import pytest

import weft as wf


@pytest.fixture(params=["cpu", "torch"])
def make(request):
    """Numbers as a float64 tensor on each device."""
    return lambda values: wf.tensor(np.asarray(values, np.float64), device=request.param)


def by_rev(f):
    return wf.grad(f)


def by_fwd(f):
    return lambda x: wf.jvp(f, (x,), (wf.ones_like(x),))[1]


def by_pull(f):
    def derivative(x):
        y, pull = wf.vjp(f, x)
        return pull(wf.ones_like(y))[0]

    return derivative


def by_tape(f):
    def derivative(x):
        with wf.GradientTape() as tape:
            x = tape.watch(x.clone())  # another variable than what it is a copy of
            y = f(x)
        return tape.gradient(y, x, unconnected="zero")

    return derivative


def by_dual_of(f):
    """A user's own forward mode."""
    return lambda x: (f(wf.DualTensor(x, wf.ones_like(x))) + wf.zeros_like(x)).tangent


MODES = {"fwd": by_fwd, "rev": by_rev, "pull": by_pull, "tape": by_tape}


def nestings(depth: int):
    """Every way to nest the modes.

    Inside jvp a tape takes derivatives by what depends on jvp's argument, not by constants.
    """
    names = ["-".join(n) for n in product(MODES, repeat=depth)]
    allowed = [n for n in names if "tape" not in n.partition("fwd")[2]]
    return [pytest.param(*map(MODES.get, n.split("-")), id=n) for n in allowed]


PAIRS = pytest.mark.parametrize(("outer", "inner"), nestings(2))


@PAIRS
def test_x_times_the_derivative_of_a_sum(outer, inner, make):
    """d/dx [x · d/dy (x + y)] = 1; whoever takes x's perturbation for y's finds 2."""
    assert outer(lambda x: x * inner(lambda y: x + y)(make(1.0)))(make(1.0)).item() == 1.0


@PAIRS
def test_the_same_where_the_inner_point_is_x_itself(outer, inner, make):
    """d/dx [x · d/dy (x + y) at y = x] = 1, and of x·d/dy(xy): 2x."""
    assert outer(lambda x: x * inner(lambda y: x + y)(x))(make(3.0)).item() == 1.0
    assert outer(lambda x: x * inner(lambda y: x * y)(x))(make(3.0)).item() == 6.0


@PAIRS
def test_x_times_the_derivative_of_a_product(outer, inner, make):
    """x · ∂/∂y (xy²) at y = 2 is 4x², whose derivative is 8x."""
    f = outer(lambda x: x * inner(lambda y: x * y**2)(make(2.0)))
    assert f(make(3.0)).item() == 24.0


@PAIRS
def test_a_closure_over_the_outer_variable(outer, inner, make):
    """x ↦ d/dy (y³x²) at y = x is 3x⁴; its derivative 12x³. With x̂ detached inside: 3x²x̂²."""
    f = outer(lambda x: inner(lambda y: y**3 * x**2)(x))
    assert f(make(2.0)).item() == 96.0
    f = outer(lambda x: inner(lambda y: y**3 * x.detach() ** 2)(x))
    assert f(make(2.0)).item() == 48.0


@pytest.mark.parametrize(("one", "two", "three"), nestings(3))
def test_three_levels_that_close_over_each_other(one, two, three, make):
    """∂x ∂y ∂z (x³y²z + xyz²) = 6x²y + 2z."""
    f = one(
        lambda x: two(lambda y: three(lambda z: x**3 * y**2 * z + x * y * z**2)(make(5.0)))(
            make(3.0)
        )
    )
    assert f(make(2.0)).item() == 6 * 4.0 * 3.0 + 2 * 5.0


@PAIRS
def test_the_derivative_of_a_function_returning_function(outer, inner, make):
    """Manzyuk, Pearlmutter, Radul, Rush and Siskind, J. Funct. Program. 29 (2019), section 4.

    s(u)(f)(x) = f(x + u), so D̂ = d/du s(u) at 0 maps f to f′, and D̂(D̂ h) is h″. An
    implementation that has one perturbation for both uses of D̂ finds 0.
    """

    def s(u):
        return lambda f: lambda x: f(x + u)

    def hat(derivative):
        return lambda f: lambda x: derivative(lambda u: s(u)(f)(x))(make(0.0))

    h = lambda x: x**4  # noqa: E731
    assert hat(outer)(hat(inner)(h))(make(2.0)).item() == 48.0


@pytest.mark.parametrize("outer", MODES.values())
def test_a_tangent_is_a_variable_too(outer, make):
    """∂/∂v of f′(x)v is f′(x)."""
    f = outer(lambda v: wf.jvp(lambda x: x**3, (make(2.0),), (v,))[1])
    assert f(make(7.0)).item() == 12.0


@PAIRS
def test_levels_end_with_their_function(outer, inner, make):
    """A value that was kept from inside is a constant to the next derivative."""
    kept = []

    def f(x):
        kept.append(x)
        return x * x

    outer(f)(make(3.0))
    assert inner(lambda x: x * 2.0)(make(1.0)).item() == 2.0
    assert kept[0].detach().item() == 3.0


# Stopped gradients: the value of a constant in all orders and modes.

STOP = pytest.mark.parametrize("stop", [wf.stop_gradient, wf.Tensor.detach])


@STOP
@pytest.mark.parametrize("mode", MODES.values())
def test_a_stopped_gradient(stop, mode, make):
    assert mode(lambda x: x * stop(x**2))(make(3.0)).item() == 9.0
    assert mode(lambda x: x**2 * stop(x))(make(3.0)).item() == 18.0
    assert mode(lambda x: stop(x) * 1.0)(make(3.0)).item() == 0.0


@STOP
@PAIRS
def test_a_stopped_gradient_in_second_order(stop, outer, inner, make):
    assert outer(inner(lambda x: x * stop(x**2)))(make(3.0)).item() == 0.0
    assert outer(inner(lambda x: x**2 * stop(x)))(make(3.0)).item() == 6.0
    assert outer(lambda x: stop(inner(lambda y: y**3)(x)) * x)(make(3.0)).item() == 27.0
    assert outer(lambda x: inner(lambda y: y**3 * stop(x))(x))(make(3.0)).item() == 54.0


@STOP
@PAIRS
def test_a_stopped_gradient_of_a_batch(stop, outer, inner, make):
    x = make([1.0, 3.0])
    assert wf.vmap(outer(inner(lambda x: x**2 * stop(x))))(x).tolist() == [2.0, 6.0]
    mapped = outer(lambda x: wf.vmap(lambda b: b * x * stop(x))(make([1.0, 2.0])).sum())
    assert mapped(make(3.0)).item() == 9.0


# Branches that were not taken.

GUARDED = {
    "log": (lambda x: wf.where(x > 0, wf.log(x), 0.0), lambda x: 1 / x, lambda x: -1 / x**2),
    "sqrt": (
        lambda x: wf.where(x > 0, wf.sqrt(x), 0.0),
        lambda x: 0.5 * x**-0.5,
        lambda x: -0.25 * x**-1.5,
    ),
    "reciprocal": (
        lambda x: wf.where(x > 0, 1.0 / x, 0.0),
        lambda x: -1 / x**2,
        lambda x: 2 / x**3,
    ),
    "power": (
        lambda x: wf.where(x > 0, x**-0.5, 0.0),
        lambda x: -0.5 * x**-1.5,
        lambda x: 0.75 * x**-2.5,
    ),
}
POINTS = np.array([-1.0, 0.0, 4.0])


def guarded(closed) -> np.ndarray:
    return np.array([0.0, 0.0, closed(4.0)])


@pytest.fixture(params=GUARDED)
def branch(request):
    """(f, f′, f″) on the positive numbers; f is 0 elsewhere. The value itself may warn."""
    with np.errstate(all="ignore"):
        yield GUARDED[request.param]


@pytest.mark.parametrize("mode", MODES.values())
def test_a_dead_branch_has_no_derivative(mode, branch, make):
    f, slope, _ = branch
    each = mode(lambda x: f(x).sum()) if mode is not by_fwd else by_fwd(f)
    assert np.allclose(_numpy(each(make(POINTS))), guarded(slope), rtol=1e-14)
    batch = wf.vmap(mode(f))(make(POINTS))
    assert np.allclose(_numpy(batch), guarded(slope), rtol=1e-14)


@PAIRS
def test_a_dead_branch_has_no_second_derivative(outer, inner, branch, make):
    f, _, curvature = branch
    batch = wf.vmap(outer(inner(f)))(make(POINTS))
    assert np.allclose(_numpy(batch), guarded(curvature), rtol=1e-13)
    single = [outer(inner(f))(make(x)).item() for x in POINTS]
    assert np.allclose(single, guarded(curvature), rtol=1e-13)


def _numpy(x) -> np.ndarray:
    return x.to("cpu").numpy()


@pytest.mark.parametrize("mode", [*MODES.values(), by_dual_of])
def test_python_branches_on_values(mode, make):
    def f(x):
        total = x
        while total < 10:
            total = total * x
        return total if x > 0 else -total

    assert mode(f)(make(3.0)).item() == 27.0
