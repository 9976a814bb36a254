"""Find a rod's heat conductivity from a few noisy temperatures: an inverse problem by gradients.

The temperature u of a heated rod obeys −(k u′)′ = 1 with u = 0 at both ends. The conductivity
k(x) is unknown; u is measured at 30 places with 0.2 % noise. We minimise the misfit plus a
smoothness penalty over log k in 60 cells: each step solves the differential equation (a linear
system that depends on k) and differentiates through the solution. The penalty is lowered until the
misfit is what the noise explains, and no further.

Run: python examples/inverse_heat.py [picture.png]
"""

import sys

import numpy as np
from scipy.optimize import minimize

import weft as wf

CELLS = 60
STEP = 1.0 / CELLS


def true_conductivity(x):
    """A rod with a badly conducting stretch in the middle."""
    return 1.0 - 0.7 * np.exp(-(((x - 0.55) / 0.12) ** 2)) + 0.3 * x


def temperature(log_k):
    """Temperatures at the inner nodes for log-conductivities of the cells."""
    k = wf.exp(log_k)
    main = k[:-1] + k[1:]
    off = -k[1:-1]
    matrix = wf.diag(main) + wf.diag(off, 1) + wf.diag(off, -1)
    heat = wf.full(CELLS - 1, STEP * STEP, dtype="float64")
    return wf.linalg.solve(matrix, heat)


def misfit(log_k, where, measured, sigma, smoothing):
    """Half the squared residual in units of the noise, and the roughness of log k."""
    residual = (temperature(log_k)[where] - measured) / sigma
    return 0.5 * wf.sum(residual**2) + smoothing * wf.sum(wf.diff(log_k) ** 2)


def invert(where, measured, sigma, smoothing, start):
    """log k that minimises the misfit, by L-BFGS with Weft's gradients."""

    def value_and_gradient(p):
        log_k = wf.tensor(p, requires_grad=True)
        loss = misfit(log_k, where, measured, sigma, smoothing)
        return loss.item(), loss.backward()[log_k].numpy()

    options = {"maxiter": 500}
    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)


def recover(where, measured, sigma):
    """The smoothest log k that explains the measurements to within their noise."""
    log_k, smoothing, solves = np.zeros(CELLS), 1e4, 0
    while True:
        result = invert(where, measured, sigma, smoothing, log_k)
        log_k, solves = result.x, solves + result.nfev
        fitted = temperature(wf.tensor(log_k)).numpy()
        chi2 = np.mean(((fitted[where] - measured) / sigma) ** 2)
        if chi2 <= 1 or smoothing < 1:
            return log_k, fitted, chi2, solves
        smoothing /= 2


def draw(path, x, nodes, truth, found, where, measured, fitted):
    """Conductivity and temperature, true and recovered."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    left.plot(x, truth, color="0.6", lw=4, label="true")
    left.plot(x, found, color="C3", label="recovered")
    left.set(xlabel="x", ylabel="conductivity k", title="What we want to know")
    right.plot(nodes, fitted, color="C3", label="model with recovered k")
    right.plot(nodes[where], measured, "k.", label="measured (0.2 % noise)")
    right.set(xlabel="x", ylabel="temperature u", title="What we can measure")
    left.legend(frameon=False)
    right.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main(path="inverse_heat.png"):
    rng = np.random.default_rng(7)
    x = (np.arange(CELLS) + 0.5) * STEP
    nodes = np.arange(1, CELLS) * STEP
    truth = true_conductivity(x)
    exact = temperature(wf.tensor(np.log(truth))).numpy()
    where = np.arange(0, CELLS - 1, 2)
    sigma = 0.002 * exact.max()
    measured = exact[where] + sigma * rng.standard_normal(where.size)
    log_k, fitted, chi2, solves = recover(where, measured, sigma)
    found = np.exp(log_k)
    error = np.abs(found / truth - 1)
    print(f"{CELLS} unknown conductivities from {where.size} noisy temperatures")
    print(f"{solves} solves of the differential equation, each with its gradient")
    print(f"misfit per measurement {chi2:.2f} (noise alone gives about 1)")
    print(f"relative error of k: median {np.median(error):.1%}, worst {error.max():.1%}")
    draw(path, x, nodes, truth, found, where, measured, fitted)
    print(f"drawn to {path}")
    return error, chi2


if __name__ == "__main__":
    main(*sys.argv[1:])
