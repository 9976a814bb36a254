"""The gradient descent that `particle` and `saddle` share, and gradients in either mode.

The step starts at 1e-5, doubles after ten steps that lowered the value and halves after one that
did not. The search ends where the gradient or the next step is no longer than 1e-5. The rule is
part of the two problems: their answers depend on where it stops.
"""

from math import hypot

import weft as wf

TOLERANCE = 1e-5
FIRST_STEP = 1e-5
STREAK = 10

reverse = wf.value_and_grad


def forward(f):
    """f's value and gradient, by forward sweeps along all coordinates at once."""

    def value_and_gradient(x):
        def sweep(along):
            return wf.jvp(f, (x,), (along,))

        return wf.vmap(sweep, out_axes=(None, 0))(wf.eye(x.shape[0], dtype=x.dtype))

    return value_and_gradient


def argmin(f, start, mode):
    """Where f is least, by descent from `start`; `mode` gives f's value and gradient."""
    at = mode(f)
    x, (value, slope) = start, at(start)
    step, streak = FIRST_STEP, 0
    steepness = _length(slope)
    while steepness > TOLERANCE:
        if streak == STREAK:
            step, streak = 2 * step, 0
        if step * steepness <= TOLERANCE:
            break
        trial = x - step * slope
        lower, next_slope = at(trial)
        if lower < value:
            x, value, slope, streak = trial, lower, next_slope, streak + 1
            steepness = _length(slope)
        else:
            step, streak = step / 2, 0
    return x


def argmax(f, start, mode):
    """Where f is greatest, by descent on −f."""
    return argmin(lambda x: -f(x), start, mode)


def _length(slope) -> float:
    return hypot(*slope.detach().tolist())
