"""A charged particle steered through the origin: descent over a path that needs gradients itself.

Two charges are fixed at (10, 10 − w) and (10, 0); a third, of mass 1, starts at (0, 8) with the
velocity (0.75, 0) and obeys x″ = −∇p(x), where p(x) is the sum of the inverse distances from the
two. Its path is found by Euler's rule with steps of 0.1 until it crosses the x axis, where the last
step is cut. The search is for the w that makes the square of the crossing's abscissa least.

The outer gradient, by w, and the inner one, ∇p, can each be taken in forward (f) or reverse mode
(r): in `fr` the outer is forward and the inner reverse. All four give the same w.

Size: the start w = 0.
Source: the eval `particle` of github.com/gradbench/gradbench, after B. A. Pearlmutter and
J. M. Siskind, "Using programming language theory to make automatic differentiation sound and
efficient", Advances in Automatic Differentiation (2008) 79-90.
"""

from functools import partial

import weft as wf

from .descent import argmin, forward, reverse

SIZES = (0.0,)
TIME_STEP = 0.1


def inputs(size=SIZES[0]):
    """Where the search for w starts."""
    return (wf.asarray([size], dtype="float64"),)


def potential(charges, x):
    """Σ 1/|x − c| over the charges."""
    away = x - charges
    return wf.sum(1 / wf.sqrt(wf.sum(away * away, axis=1)))


def crossing(inner, w):
    """The squared abscissa where the path meets the x axis."""
    ten = wf.full_like(w, 10.0)
    charges = wf.stack([wf.concat([ten, 10.0 - w]), wf.concat([ten, 0.0 * w])])
    pull = inner(partial(potential, charges))
    x = wf.asarray([0.0, 8.0], dtype=w.dtype)
    velocity = wf.asarray([0.75, 0.0], dtype=w.dtype)
    while True:
        ahead = x + TIME_STEP * velocity
        if ahead[1] <= 0:
            break
        velocity = velocity - TIME_STEP * pull(x)[1]
        x = ahead
    abscissa = x[0] - x[1] / velocity[1] * velocity[0]
    return abscissa * abscissa


def particle(outer, inner, w):
    """The w that sends the particle through the origin."""
    return argmin(partial(crossing, inner), w, outer)[0]


ff = partial(particle, forward, forward)
fr = partial(particle, forward, reverse)
rf = partial(particle, reverse, forward)
rr = partial(particle, reverse, reverse)

FUNCTIONS = {"rr": rr, "ff": ff, "fr": fr, "rf": rf}


def main():
    for name, function in FUNCTIONS.items():
        print(name, function(*inputs()).item())


if __name__ == "__main__":
    main()
