"""DualTensors that a user makes: of duals, and inside and outside of functions' derivatives."""

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(params=["cpu", "torch"])
def make(request):
    """Numbers as a float64 tensor on each device."""
    return lambda values: wf.tensor(np.asarray(values, np.float64), device=request.param)


def test_a_dual_is_a_tensor(make):
    x = wf.DualTensor(make([1.0, 2.0]), make([1.0, 0.0]))
    assert isinstance(x, wf.Tensor)
    assert (x.shape, x.dtype, x.device) == ((2,), wf.float64, make(0.0).device)
    y = (wf.exp(x) * x).sum() - x[1]
    assert np.isclose(y.tangent.item(), 2 * np.e, rtol=1e-14)
    assert "tangent" in repr(x)


def test_a_dual_without_a_tangent_is_a_constant(make):
    y = wf.DualTensor(make(2.0)) * wf.DualTensor(make(3.0), make(1.0))
    assert (y.value.item(), y.tangent.item()) == (6.0, 2.0)
    assert wf.DualTensor(make([1.0, 2.0])).tangent.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("value", "tangent", "error", "fix"),
    [
        ([1.0, 2.0], [1.0], errors.ShapeError, "must be equal"),
        (3, 1, errors.NotDifferentiable, "make it a float"),
    ],
)
def test_a_tangent_must_fit(value, tangent, error, fix):
    with pytest.raises(error, match=rf"{fix}.*test_dual\.py"):
        wf.DualTensor(wf.tensor(value), wf.tensor(tangent))


def test_a_tangent_must_be_where_its_value_is():
    with pytest.raises(errors.DeviceError, match=r"on 'torch'.*on 'cpu'"):
        wf.DualTensor(wf.tensor(1.0), wf.tensor(1.0, device="torch"))


def test_a_dual_of_duals_has_second_derivatives(make):
    one = wf.ForwardADContext()
    inner = one.dual(make(2.0), make(1.0))
    for tangent in (make(1.0), one.dual(make(1.0), make(0.0))):
        y = wf.DualTensor(inner, tangent) ** 3
        parts = (y.value.value, y.value.tangent, y.tangent.value, y.tangent.tangent)
        assert [p.item() for p in parts] == [8.0, 12.0, 12.0, 12.0]


def test_parts_of_a_dual_of_duals_are_duals(make):
    x = wf.DualTensor(wf.DualTensor(make(2.0), make(1.0)), make(1.0))
    assert (x * 3.0).tangent.tangent.item() == 0.0
    y = wf.DualTensor(make(2.0), wf.DualTensor(make(3.0), make(1.0)))
    assert y.value.tangent.item() == 0.0 and y.tangent.tangent.item() == 1.0


def test_duals_of_one_calculation_share_its_level(make):
    one = wf.ForwardADContext()
    a, b = one.dual(make(2.0), make(1.0)), one.dual(make(5.0), make(10.0))
    y = a * b
    assert (y.value.item(), y.tangent.item()) == (10.0, 5.0 + 20.0)


def test_two_calculations_by_hand_are_not_confused(make):
    """x·∂(x + y)/∂y is x, whose derivative is 1; with one level for both it would be 2."""

    def of_a_derivative(dual):
        def slope(f):
            return f(dual(make(1.0), make(1.0))).tangent

        return slope(lambda x: x * slope(lambda y: x + y))

    with pytest.raises(errors.ArgumentError, match=r"wf\.ForwardADContext.*use wf\.jvp"):
        of_a_derivative(wf.DualTensor)
    assert of_a_derivative(lambda x, dx: wf.ForwardADContext().dual(x, dx)).item() == 1.0


def test_a_dual_made_inside_is_not_confused_with_the_level_around_it(make):
    """ε of (2 + ε)x is x, whose derivative by x is 1."""

    def f(x):
        return (wf.DualTensor(make(2.0), make(1.0)) * x).tangent

    y, dy = wf.jvp(f, (make(3.0),), (make(1.0),))
    assert (y.item(), dy.item()) == (3.0, 1.0)
    assert wf.grad(f)(make(3.0)).item() == 1.0
    assert wf.vmap(f)(make([3.0, 4.0])).tolist() == [3.0, 4.0]


def test_a_dual_of_the_argument(make):
    def slope(x):
        return (wf.DualTensor(x, wf.ones_like(x)) ** 3).tangent

    y, dy = wf.jvp(slope, (make(2.0),), (make(1.0),))
    assert (y.item(), dy.item()) == (12.0, 12.0)
    assert wf.grad(slope)(make(2.0)).item() == 12.0
    assert wf.vmap(slope)(make([1.0, 2.0])).tolist() == [3.0, 12.0]


def test_a_dual_from_outside(make):
    d = wf.DualTensor(make(2.0), make(1.0))
    y, dy = wf.jvp(lambda x: d * d * x**2, (make(3.0),), (make(1.0),))
    assert (y.value.item(), y.tangent.item()) == (36.0, 36.0)
    assert (dy.value.item(), dy.tangent.item()) == (24.0, 24.0)


@pytest.mark.parametrize("outer", ["jvp", "vmap"])
def test_a_dual_cannot_leave_the_function_that_made_it(outer, make):
    def f(x):
        return wf.DualTensor(x * x, x)

    with pytest.raises(errors.ArgumentError, match=r"return its \.value and its \.tangent"):
        wf.vmap(f)(make([1.0])) if outer == "vmap" else wf.jvp(f, (make(1.0),), (make(1.0),))


def test_a_dual_of_a_parameter_is_recorded(make):
    parameter = wf.Parameter(make([2.0, 3.0]))
    y = wf.DualTensor(parameter, make([1.0, 1.0])) ** 3
    y.tangent.sum().backward()
    assert parameter.grad.tolist() == [12.0, 18.0]
