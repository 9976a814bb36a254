"""A system of n differential equations by Runge and Kutta's fourth-order rule.

    y₀′ = x₀,   yᵢ′ = xᵢ yᵢ₋₁,   y(0) = 0,   0 ≤ t ≤ 2 in s equal steps.

`primal` is y(2), `gradient` the gradient of its last element. One step is a polynomial of degree
four in the (nilpotent) system matrix: y₀ … y₃ are exact, x₀ ⋯ xᵢ 2ⁱ⁺¹/(i + 1)!, and yᵢ is zero from
i = 4s on. So at most of the sizes the gradient is exactly zero, the first among them.

Sizes: (n, s) equations and steps, (1000, 1) first.
Source: the eval `ode` of github.com/gradbench/gradbench, after `an_ode` of B. Bell's cmpad. (Its
text has a sum in the equations that its reference program has not; this is the program's problem.)
"""

import numpy as np

import weft as wf

SIZES = tuple(
    sorted(((n, s) for n in (1000, 10000, 100000) for s in (1, 10, 100)), key=lambda v: v[0] * v[1])
)
END = 2.0


def inputs(size=SIZES[0], seed=31337):
    """Coefficients between 0 and 1, and the number of steps."""
    n, steps = size
    return wf.asarray(np.random.default_rng(seed).random(n)), steps


def primal(x, steps):
    """y at the end."""
    h = END / steps

    def rate(y):
        return wf.concat([x[:1], x[1:] * y[:-1]])

    def step(y, _):
        k1 = rate(y)
        k2 = rate(y + h / 2 * k1)
        k3 = rate(y + h / 2 * k2)
        k4 = rate(y + h * k3)
        return y + h / 6 * (k1 + 2 * (k2 + k3) + k4), ()

    return wf.scan(step, wf.zeros_like(x), length=steps)[0]


gradient = wf.grad(lambda x, steps: primal(x, steps)[-1])

FUNCTIONS = {"primal": primal, "gradient": gradient}


def main():
    given = inputs()
    print("y(2)", primal(*given)[:6].tolist(), "...")
    print("gradient", gradient(*given)[:4].tolist(), "...")


if __name__ == "__main__":
    main()
