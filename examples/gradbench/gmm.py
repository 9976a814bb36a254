"""The log posterior of a Gaussian mixture with a Wishart prior on the precisions.

Component k has the weight φₖ = softmax(α)ₖ, the mean μₖ and the precision QₖᵀQₖ, where Qₖ is lower
triangular with diagonal exp(qₖ) and, column by column, the elements lₖ below it. With

    βᵢₖ = αₖ + Σⱼ qₖⱼ − ½ |Qₖ(xᵢ − μₖ)|²

the log likelihood of N points in D dimensions is

    Σᵢ logsumexp(βᵢ) − N (logsumexp(α) + ½ D log 2π),

and the log prior, Wishart with scale I/γ² and ν = D + m + 1 degrees of freedom, is

    Σₖ (m Σⱼ qₖⱼ − ½ γ² |Qₖ|²) + K (ν D log(γ/√2) − log Γ_D(ν/2)).

Sizes: (d, k), (2, 5) first, with N = 1000, m = 0 and γ = 1.
Source: the eval `gmm` of github.com/gradbench/gradbench, after F. Šrajer, Z. Kukelova and
A. Fitzgibbon, "A benchmark of selected algorithmic differentiation tools on some problems in
computer vision and machine learning", Optimization Methods and Software 33 (2018) 889-906.
"""

from math import log, pi, prod
from typing import Any

import numpy as np
from scipy.special import multigammaln  # pyright: ignore[reportAttributeAccessIssue]

import weft as wf

SIZES = tuple(sorted(((d, k) for d in (2, 10, 20, 32, 64) for k in (5, 10, 25, 50, 100)), key=prod))
POINTS = 1000


def inputs(size=SIZES[0], seed=31337):
    """α, μ, q, l, then the points, m and γ."""
    d, k = size
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(POINTS, d))
    alpha, mu, q = rng.normal(size=k), rng.random((k, d)), rng.normal(size=(k, d))
    below = rng.normal(size=(k, d * (d - 1) // 2))
    return *map(wf.asarray, (alpha, mu, q, below, points)), 0, 1.0


def factors(q, below):
    """The lower triangular Qₖ."""
    d = q.shape[1]
    columns, rows = np.triu_indices(d, 1)  # of the transpose: below the diagonal, by columns
    diagonal = np.arange(d)
    q_matrices = wf.zeros((q.shape[0], d, d), dtype=q.dtype).at[:, rows, columns].set(below)
    return q_matrices.at[:, diagonal, diagonal].set(wf.exp(q))


def objective(alpha, mu, q, below, x, m, gamma):
    """The log posterior."""
    (n, d), k = x.shape, alpha.shape[0]
    matrices = factors(q, below)
    log_dets = wf.sum(q, axis=1)
    whitened = (x - mu[:, None, :]) @ matrices.mT
    beta = (alpha + log_dets)[:, None] - 0.5 * wf.sum(whitened * whitened, axis=2)
    likelihood = wf.sum(wf.logsumexp(beta, axis=0)) - n * (
        wf.logsumexp(alpha) + 0.5 * d * log(2 * pi)
    )
    nu = d + m + 1
    normaliser = nu * d * log(gamma / 2**0.5) - float(multigammaln(nu / 2, d))
    prior = m * wf.sum(log_dets) - 0.5 * gamma**2 * wf.sum(matrices * matrices) + k * normaliser
    return likelihood + prior


def jacobian(*given):
    """The gradient with respect to α, μ, q and l."""
    gradients = wf.grad(objective, argnums=(0, 1, 2, 3))(*given)
    return dict(zip(("alpha", "mu", "q", "l"), gradients, strict=True))


FUNCTIONS = {"objective": objective, "jacobian": jacobian}


def main():
    given: Any = inputs()
    print("log posterior", objective(*given).item())
    for name, gradient in jacobian(*given).items():
        print("gradient by", name, gradient[0].tolist(), "...")


if __name__ == "__main__":
    main()
