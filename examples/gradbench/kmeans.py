"""k-means clustering: the cost, and the step of Newton's method.

    f(C) = Σᵢ minⱼ |Pᵢ − Cⱼ|²

of n points P and k centroids C in d dimensions. The Hessian is diagonal, so its product with the
vector of ones, one forward sweep over the gradient, is its diagonal h; `direction` is ∇f / h. (With
nⱼ points nearest to Cⱼ, h is 2nⱼ and the direction Cⱼ less the mean of those points.)

Sizes: (k, n, d), (10, 1000, 8) first.
Source: the eval `kmeans` of github.com/gradbench/gradbench, after L. Bottou and Y. Bengio,
"Convergence properties of the k-means algorithms", NIPS 7 (1994) 585-592.
"""

from math import prod

import numpy as np

import weft as wf

SIZES = tuple(
    sorted(((k, n, d) for k in (10, 100, 1000) for n in (1000, 10000) for d in (8, 16)), key=prod)
)


def inputs(size=SIZES[0], seed=31337):
    """Points in the unit cube; the last k are the centroids, so that no cluster is empty."""
    k, n, d = size
    points = np.random.default_rng(seed).random((n, d))
    return wf.asarray(points), wf.asarray(points[-k:])


def cost(points, centroids):
    """The sum of the points' squared distances from their nearest centroids."""
    squares = wf.sum(points * points, axis=1)[:, None] + wf.sum(centroids * centroids, axis=1)
    return wf.sum(wf.min(squares - 2 * points @ centroids.mT, axis=1))


def direction(points, centroids):
    """The gradient over the diagonal of the Hessian, by centroid."""
    slope = wf.grad(lambda c: cost(points, c))
    gradient, diagonal = wf.jvp(slope, (centroids,), (wf.ones_like(centroids),))
    return gradient / diagonal


FUNCTIONS = {"cost": cost, "dir": direction}


def main():
    given = inputs()
    print("cost", cost(*given).item())
    print("direction of the first centroid", direction(*given)[0].tolist())


if __name__ == "__main__":
    main()
