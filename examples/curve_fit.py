"""Fit a published data set, with the uncertainty of the parameters and of the fitted curve.

Thurber's measurements of electron mobility in a semiconductor, from NIST's Statistical Reference
Datasets (https://www.itl.nist.gov/div898/strd/nls/data/thurber.shtml): 37 observations, a cubic
over a cubic with seven parameters, "higher level of difficulty". NIST certifies the parameters
and their standard deviations to 11 digits, found in extended precision; the table shows how many
of them the fit has.

The band around the curve is J·Σ·Jᵀ: Σ is the parameters' covariance, J the derivative of the
curve by the parameters, and both come from exact derivatives of `mobility`.

Run: python examples/curve_fit.py [picture.png]
"""

import sys
from typing import Any

import numpy as np
from scipy.stats import t as student

import weft as wf

LOG_DENSITY = """
-3.067 -2.981 -2.921 -2.912 -2.840 -2.797 -2.702 -2.699 -2.633 -2.481 -2.363 -2.322 -1.501
-1.460 -1.274 -1.212 -1.100 -1.046 -0.915 -0.714 -0.566 -0.545 -0.400 -0.309 -0.109 -0.103
0.010 0.119 0.377 0.790 0.963 1.006 1.115 1.572 1.841 2.047 2.200
"""
MOBILITY = """
80.574 84.248 87.264 87.195 89.076 89.608 89.868 90.101 92.405 95.854 100.696 101.060 401.672
390.724 567.534 635.316 733.054 759.087 894.206 990.785 1090.109 1080.914 1122.643 1178.351
1260.531 1273.514 1288.339 1327.543 1353.863 1414.509 1425.208 1421.384 1442.962 1464.350
1468.705 1447.894 1457.628
"""
STARTS = (
    (1000.0, 1000.0, 400.0, 40.0, 0.7, 0.3, 0.03),
    (1300.0, 1500.0, 500.0, 75.0, 1.0, 0.4, 0.05),
)
CERTIFIED = {  # value, standard deviation
    "b1": (1.2881396800e03, 4.6647963344e00),
    "b2": (1.4910792535e03, 3.9571156086e01),
    "b3": (5.8323836877e02, 2.8698696102e01),
    "b4": (7.5416644291e01, 5.5675370270e00),
    "b5": (9.6629502864e-01, 3.1333340687e-02),
    "b6": (3.9797285797e-01, 1.4984928198e-02),
    "b7": (4.9727297349e-02, 6.5842344623e-03),
}
CERTIFIED_DEVIATION = 1.3714600784e01  # of the residuals


def data():
    """log density and mobility."""
    x, y = (wf.tensor(np.array(text.split(), float)) for text in (LOG_DENSITY, MOBILITY))
    return x, y


def mobility(x, b1, b2, b3, b4, b5, b6, b7):
    """The model: a cubic over a cubic."""
    above = b1 + x * (b2 + x * (b3 + x * b4))
    below = 1 + x * (b5 + x * (b6 + x * b7))
    return above / below


def fit(start):
    """The parameters, their covariance, and the standard deviation of the residuals."""
    x, y = data()
    tight: dict[str, Any] = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15}
    best, covariance = wf.optimize.curve_fit(mobility, x, y, start, **tight)
    misfit = wf.sum((mobility(x, *best) - y) ** 2)
    return best, covariance, (misfit.item() / (x.size - best.size)) ** 0.5


def curve_with_deviation(x, best, covariance):
    """The fitted curve at x, and its standard deviation, the root of the diagonal of J·Σ·Jᵀ."""

    def curve(parameters):
        return mobility(x, *parameters)

    slopes = wf.jacobian(curve)(best)
    return curve(best), wf.sqrt(wf.sum((slopes @ covariance) * slopes, axis=1))


def digits(found: float, certified: float) -> float:
    """How many decimal digits agree; certified values have 11."""
    return min(11.0, -np.log10(max(abs(found / certified - 1), 1e-16)))


def table(best, deviations):
    """Print each parameter beside its certified value; returns the numbers of digits."""
    print(f"{'':4}{'fitted':>16}{'certified':>18}{'digits':>8}{'deviation':>16}{'digits':>8}")
    agreeing = []
    for name, value, deviation in zip(CERTIFIED, best.tolist(), deviations.tolist(), strict=True):
        certified = CERTIFIED[name]
        agreeing.append((digits(value, certified[0]), digits(deviation, certified[1])))
        print(
            f"{name:4}{value:16.9e}{certified[0]:18.10e}{agreeing[-1][0]:8.1f}"
            f"{deviation:16.9e}{agreeing[-1][1]:8.1f}"
        )
    return agreeing


def draw(path, best, covariance, deviation):
    """The data, the curve with its 95 % bands, and the residuals within them."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    x, y = data()
    grid = wf.linspace(-3.15, 2.3, 300, dtype="float64")
    wide = student.ppf(0.975, x.size - best.size)
    figure, (upper, lower) = plt.subplots(
        2, 1, figsize=(8, 6.5), sharex=True, height_ratios=[2, 1], layout="constrained"
    )
    curve, spread = (v.numpy() for v in curve_with_deviation(grid, best, covariance))
    fitted = curve_with_deviation(x, best, covariance)[0].numpy()
    again = np.hypot(spread, deviation)
    for axes, centre, points in ((upper, curve, y.numpy()), (lower, 0 * curve, y.numpy() - fitted)):
        for half, shade, label in ((again, 0.15, "a new measurement"), (spread, 0.4, "the curve")):
            axes.fill_between(
                grid.numpy(),
                centre - wide * half,
                centre + wide * half,
                color="C3",
                alpha=shade,
                lw=0,
                label=f"95 % band of {label}",
            )
        axes.plot(grid.numpy(), centre, color="C3", label="fitted curve")
        axes.plot(x.numpy(), points, "k.", label="measured")
    upper.set(ylabel="electron mobility", title="Thurber's data: seven parameters, 37 points")
    upper.legend(frameon=False)
    lower.set(xlabel="log density", ylabel="measured − fitted", ylim=(-60, 60))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(path="curve_fit.png"):
    best, covariance, deviation = fit(STARTS[0])
    deviations = wf.sqrt(wf.diagonal(covariance))
    agreeing = table(best, deviations)
    print(f"residuals' deviation {deviation:.9e}, certified {CERTIFIED_DEVIATION:.10e}")
    draw(path, best, covariance, deviation)
    print(f"drawn to {path}")
    return agreeing


if __name__ == "__main__":
    main(*sys.argv[1:])
