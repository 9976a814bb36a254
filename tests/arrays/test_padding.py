"""`pad` in every mode of NumPy's: values against NumPy, derivatives against differences."""

import numpy as np
import pytest

import weft as wf
from weft import errors

rng = np.random.default_rng(0)
MODES = {
    "constant": [
        {},
        *[{"constant_values": v} for v in (2.0, (1.0, 2.0), ((1.0, 2.0), (3.0, 4.0)))],
        {"constant_values": ((1.0,), (2.0,))},
    ],
    "edge": [{}],
    "wrap": [{}],
    "empty": [],
    "reflect": [{}, {"reflect_type": "odd"}],
    "symmetric": [{}, {"reflect_type": "odd"}],
    "linear_ramp": [{}, {"end_values": 2.0}, {"end_values": (1.0, 2.0)}],
    "mean": [{}, {"stat_length": 2}, {"stat_length": ((1, 2), (3, 9))}],
    "median": [{}, {"stat_length": 3}],
    "maximum": [{}, {"stat_length": (1, 2)}],
    "minimum": [{}, {"stat_length": 2}],
}
WIDTHS = [1, (2, 0), (0, 3), ((1, 2), (3, 0)), ((0, 0), (4, 7)), ((9, 2), (1, 11)), {1: (1, 2)}]
CASES = [(m, o, w) for m, options in MODES.items() for o in options for w in WIDTHS]


@pytest.mark.parametrize("mode, options, widths", CASES)
def test_like_numpy(mode, options, widths):
    x = rng.normal(size=(3, 4))
    want = np.pad(x, widths, mode, **options)
    got = wf.pad(wf.tensor(x), widths, mode, **options)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)
    kept = wf.tensor(x, requires_grad=True)
    got = np.pad(kept, widths, mode, **options)
    assert got.requires_grad
    np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-12, atol=1e-12)
    wf.check_grads(lambda x: np.pad(x, widths, mode, **options), (wf.tensor(x),), order=1)
    batch = wf.vmap(lambda x: wf.pad(x, widths, mode, **options))(wf.tensor(np.stack([x, x])))
    np.testing.assert_allclose(batch[1].numpy(), want, rtol=1e-12, atol=1e-12)


def test_constants_keep_their_gradient():
    x, a, b = rng.normal(size=4), wf.tensor(0.3, dtype="float64"), wf.tensor(2.0, dtype="float64")

    def f(x, a, b):
        return np.pad(x, (2, 3), constant_values=(a, b))

    wf.check_grads(f, (wf.tensor(x), a, b), order=1)
    assert wf.grad(lambda a: f(wf.tensor(x), a, b).sum())(a).item() == 2.0
    assert wf.grad(lambda a: wf.pad(wf.tensor(x), 2, constant_values=a).sum())(a).item() == 4.0
    assert wf.grad(lambda a: wf.pad(wf.tensor(x), 2, "linear_ramp", end_values=a).sum())(a) == 3.0


def test_integers():
    x = np.array([3, 1, 2])
    for mode in ("edge", "maximum", "minimum", "reflect", "constant"):
        np.testing.assert_array_equal(wf.pad(wf.tensor(x), 2, mode).numpy(), np.pad(x, 2, mode))
    got = wf.pad(wf.tensor(x), 1, constant_values=(7, 8))
    assert got.dtype == wf.int64 and got.tolist() == [7, 3, 1, 2, 8]
    with pytest.raises(errors.DTypeError, match=r"fractions.*x\.to\('float64'\)"):
        wf.pad(wf.tensor(x), 1, "mean")


def test_what_makes_no_sense():
    x = wf.tensor([1.0, 2.0])
    with pytest.raises(errors.ArgumentError, match=r"mode 'round'.*linear_ramp"):
        wf.pad(x, 1, "round")
    with pytest.raises(errors.ArgumentError, match="reflect_type='strange'"):
        wf.pad(x, 1, "reflect", reflect_type="strange")
    with pytest.raises(errors.ArgumentError, match="constant_values"):
        wf.pad(x, 1, constant_values=(1.0, 2.0, 3.0))
    with pytest.raises(errors.ArgumentError, match="stat_length 0"):
        wf.pad(x, 1, "mean", stat_length=0)
