"""The determinant by expansion in minors, and its gradient, the matrix of cofactors.

The minor of the last k rows and a set C of k columns is

    M(C) = Σⱼ (−1)ʲ A[n − k, cⱼ] M(C without cⱼ),   c₀ < c₁ < … in C,

and the determinant is the minor of all rows and columns. All minors of k rows are computed
together from those of k − 1, each once: n·2ⁿ⁻¹ products, where plain recursion has about 1.7 n!.

Sizes: n from 5 to 11; A is given row by row.
Source: the eval `det` of github.com/gradbench/gradbench, after `det_by_minor` of B. Bell's cmpad.
"""

from functools import cache
from itertools import combinations

import numpy as np

import weft as wf

SIZES = tuple(range(5, 12))


def inputs(size=SIZES[0], seed=31337):
    """Elements between 0 and 1, and n."""
    return wf.asarray(np.random.default_rng(seed).random(size * size)), size


@cache
def expansion(n, k):
    """For each set of k columns: the columns, and the positions of the sets with one less."""
    position = {c: i for i, c in enumerate(combinations(range(n), k - 1))}
    columns = list(combinations(range(n), k))
    smaller = [[position[c[:j] + c[j + 1 :]] for j in range(k)] for c in columns]
    return np.array(columns), np.array(smaller)


def primal(a, n):
    """The determinant of A."""
    matrix = wf.reshape(a, (n, n))
    minors = matrix[-1]
    for k in range(2, n + 1):
        columns, smaller = expansion(n, k)
        signs = wf.asarray((-1.0) ** np.arange(k))
        minors = wf.sum(signs * matrix[n - k][columns] * minors[smaller], axis=1)
    return minors[0]


gradient = wf.grad(primal)

FUNCTIONS = {"primal": primal, "gradient": gradient}


def main():
    given = inputs()
    print("determinant", primal(*given).item())
    print("gradient", gradient(*given)[:5].tolist(), "...")


if __name__ == "__main__":
    main()
