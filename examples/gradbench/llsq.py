"""Least squares: the polynomial with coefficients x against the sign function at n places.

    y(x) = ½ Σᵢ (sᵢ − Σⱼ xⱼ tᵢʲ)²,   tᵢ = −1 + 2i/(n − 1),   sᵢ = sign(tᵢ).

Sizes: (n, m) places and coefficients, (16, 128) first.
Source: the eval `llsq` of github.com/gradbench/gradbench, after `llsq_obj` of B. Bell's cmpad.
"""

import numpy as np

import weft as wf

PLACES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8196, 16392)
SIZES = tuple((n, 128) for n in PLACES)


def inputs(size=SIZES[0], seed=31337):
    """Coefficients between 0 and 1, and the number of places."""
    n, m = size
    return wf.asarray(np.random.default_rng(seed).random(m)), n


def primal(x, n):
    """Half the squared misfit at n places."""
    t = wf.linspace(-1.0, 1.0, n, dtype=x.dtype)
    powers = t[:, None] ** wf.arange(x.shape[0], dtype=x.dtype)
    misfit = wf.sign(t) - powers @ x
    return wf.sum(misfit * misfit) / 2


gradient = wf.grad(primal)

FUNCTIONS = {"primal": primal, "gradient": gradient}


def main():
    given = inputs()
    print("misfit", primal(*given).item())
    print("gradient", gradient(*given)[:4].tolist(), "...")


if __name__ == "__main__":
    main()
