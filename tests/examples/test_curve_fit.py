"""The example of a curve fit agrees with NIST's certified values and draws its picture."""

import runpy
from pathlib import Path

import numpy as np
import pytest

import weft as wf

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "curve_fit.py"))


def test_the_example_runs_and_draws(tmp_path, capsys):
    image = pytest.importorskip("matplotlib.image")
    path = tmp_path / "fit.png"
    agreeing = EXAMPLE["main"](str(path))
    assert np.min(agreeing) >= 7
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[1:8]] == list(EXAMPLE["CERTIFIED"])
    for line in printed[1:8]:
        _, fitted, certified, *_ = line.split()
        assert float(fitted) == pytest.approx(float(certified), rel=1e-7)
    pixels = image.imread(path)[..., :3]
    assert pixels.shape[0] > 300 and pixels.shape[1] > 300
    colours = np.unique(pixels.reshape(-1, 3), axis=0)
    inked = np.mean(np.any(pixels < 0.99, axis=-1))
    assert len(colours) > 50 and 0.05 < inked < 0.9


@pytest.mark.parametrize("start", [0, 1])
def test_certified_values_from_both_starts(start):
    best, covariance, deviation = EXAMPLE["fit"](EXAMPLE["STARTS"][start])
    certified = np.array(list(EXAMPLE["CERTIFIED"].values()))
    np.testing.assert_allclose(best.numpy(), certified[:, 0], rtol=1e-7)
    deviations = np.sqrt(np.diag(covariance.numpy()))
    np.testing.assert_allclose(deviations, certified[:, 1], rtol=1e-7)
    assert deviation == pytest.approx(EXAMPLE["CERTIFIED_DEVIATION"], rel=1e-9)


def test_the_band_is_that_of_the_derivatives_by_hand():
    best, covariance, _ = EXAMPLE["fit"](EXAMPLE["STARTS"][0])
    x = np.linspace(-3.0, 2.0, 11)
    curve, spread = EXAMPLE["curve_with_deviation"](wf.asarray(x), best, covariance)
    b, powers = best.numpy(), x[:, None] ** np.arange(4)
    below = powers @ np.array([1.0, *b[4:]])
    fitted = powers @ b[:4] / below
    slopes = np.concatenate([powers, -fitted[:, None] * powers[:, 1:]], axis=1) / below[:, None]
    variance = np.diag(slopes @ covariance.numpy() @ slopes.T)
    np.testing.assert_allclose(curve.numpy(), fitted, rtol=1e-12)
    np.testing.assert_allclose(spread.numpy(), np.sqrt(variance), rtol=1e-7)
