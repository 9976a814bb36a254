"""`wf.special` has SciPy's defaults, not those of the functions for networks."""

import numpy as np
import pytest
import scipy.special

import weft as wf

X = np.random.default_rng(0).normal(size=(2, 3, 4))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 0), (0, 1, 2), ()])
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_over_all_elements_or_some_axes(name, axis):
    ours, theirs = getattr(wf.special, name), getattr(scipy.special, name)
    given = {} if axis is None else {"axis": axis}
    want = theirs(X, **given)
    np.testing.assert_allclose(ours(wf.tensor(X), **given).numpy(), want, rtol=1e-12, atol=1e-15)
    wf.check_grads(lambda x: ours(x, **given), (wf.tensor(X),), order=1)
    assert ours(wf.tensor(0.7), **({} if axis is None else {"axis": None})).item() == theirs(0.7)


def test_the_top_level_ones_go_along_the_last_axis():
    np.testing.assert_allclose(wf.softmax(wf.tensor(X)).numpy(), scipy.special.softmax(X, axis=-1))


def test_zeta_of_one_argument_is_riemanns():
    x = np.array([1.5, 2.0, 3.5])
    np.testing.assert_allclose(wf.special.zeta(wf.tensor(x)).numpy(), scipy.special.zeta(x))
    np.testing.assert_allclose(scipy.special.zeta(wf.tensor(x)).numpy(), scipy.special.zeta(x))
    got = wf.special.zeta(wf.tensor(x), 2.0)
    np.testing.assert_allclose(got.numpy(), scipy.special.zeta(x, 2.0))
    assert wf.grad(lambda q: wf.special.zeta(2.0, q))(wf.tensor(1.0, dtype="float64")).item() == (
        pytest.approx(-2 * scipy.special.zeta(3.0))
    )
    with pytest.raises(wf.NotDifferentiable, match="zeta"):
        wf.grad(lambda x: wf.special.zeta(x, 2.0))(wf.tensor(2.0))


def test_riemanns_zeta_everywhere():
    x = np.array(
        [-20.3, -6.5, -4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 0.999, 1.0, 1.001, 2.0, 30.0, 700.0]
    )
    got = wf.special.zeta(wf.tensor(x)).numpy()
    np.testing.assert_allclose(got, scipy.special.zeta(x), rtol=3e-14)
    single = wf.special.zeta(wf.tensor(x.astype(np.float32))).numpy()
    apart = abs(x - 1) > 0.1
    np.testing.assert_allclose(single[apart], scipy.special.zeta(x)[apart], rtol=1e-5)
    wf.check_grads(wf.special.zeta, (wf.tensor(x[apart][1:-2]),), order=2)
    one = wf.grad(wf.special.zeta)(wf.tensor(2.0, dtype="float64"))
    assert one.item() == pytest.approx(-0.9375482543158437, rel=1e-13)  # ζ'(2)
