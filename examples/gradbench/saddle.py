"""A saddle point by descent inside descent: min over p, max over q of |p|² − |q|², both in ℝ².

Each of the two searches needs a gradient, and the outer one differentiates through the whole inner
one. Every gradient can be taken in forward (f) or reverse mode (r): `fr` has forward mode in the
outer search and reverse mode in the inner one. With p found, q is searched for once more, in the
outer mode. All four give the same four numbers (p, q).

Size: the start, (1, 1), for all searches.
Source: the eval `saddle` of github.com/gradbench/gradbench, after B. A. Pearlmutter and
J. M. Siskind, "Using programming language theory to make automatic differentiation sound and
efficient", Advances in Automatic Differentiation (2008) 79-90.
"""

from functools import partial

import weft as wf

from .descent import argmax, argmin, forward, reverse

SIZES = ((1.0, 1.0),)


def inputs(size=SIZES[0]):
    """The start of all searches."""
    return (wf.asarray(size, dtype="float64"),)


def height(p, q):
    """|p|² − |q|²."""
    return wf.sum(p * p) - wf.sum(q * q)


def greatest(inner, start, p):
    """The height at p and the q that is highest there."""
    return height(p, argmax(partial(height, p), start, inner))


def saddle(outer, inner, start):
    """(p, q) at the saddle, with the gradients of the two searches in the modes given."""
    p = argmin(partial(greatest, inner, start), start, outer)
    q = argmax(partial(height, p), start, outer)
    return wf.concat([p, q])


ff = partial(saddle, forward, forward)
fr = partial(saddle, forward, reverse)
rf = partial(saddle, reverse, forward)
rr = partial(saddle, reverse, reverse)

FUNCTIONS = {"rr": rr, "ff": ff, "fr": fr, "rf": rf}


def main():
    for name, function in FUNCTIONS.items():
        print(name, function(*inputs()).tolist())


if __name__ == "__main__":
    main()
