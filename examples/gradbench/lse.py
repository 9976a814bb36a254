"""The logarithm of a sum of exponentials, of maximum, sum, exp and log.

    LSE(x) = a + log Σᵢ exp(xᵢ − a),   a = max x,

whose gradient is softmax(x): what reaches x by way of a cancels.

Sizes: n numbers, 2500 first.
Source: the eval `lse` of github.com/gradbench/gradbench.
"""

import numpy as np

import weft as wf

SIZES = tuple(2500 * 2**i for i in range(10))


def inputs(size=SIZES[0], seed=31337):
    """Numbers between 0 and 1."""
    return (wf.asarray(np.random.default_rng(seed).random(size)),)


def primal(x):
    """log Σ exp(x), without overflow."""
    top = wf.max(x)
    return top + wf.log(wf.sum(wf.exp(x - top)))


gradient = wf.grad(primal)

FUNCTIONS = {"primal": primal, "gradient": gradient}


def main():
    given = inputs()
    print("LSE", primal(*given).item())
    print("gradient", gradient(*given)[:4].tolist(), "...")


if __name__ == "__main__":
    main()
