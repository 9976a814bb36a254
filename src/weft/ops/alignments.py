"""Rows: the probability of a sequence of labels, over all its alignments with a longer one.

Connectionist temporal classification (Graves et al. 2006). The log-probabilities are (…, T,
classes), the states (…, 2L + 1): the labels with a blank before, between and after them. Each
array of labels has its own number of frames and of labels.
"""

from functools import reduce
from math import inf

import numpy as np

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.op import Caller
from ..errors import ShapeError
from .along import scatter_sum, take_along_axis
from .arrange import pad
from .axes import floating, real_only
from .batching import Stacked
from .elementwise import exp, logaddexp, where
from .logic import equal, greater, less, logical_and, not_equal
from .positions import index_like, integers
from .rows import general
from .samples import neural as samples
from .slicing import narrow
from .structural import broadcast_to, reshape, stack, sum_, unbroadcast, unstack


def _shape(x: Aval, states: Aval, frames: Aval, labels: Aval, blank) -> Aval:
    real_only("ctc", x)
    for a in (states, frames, labels):
        integers("ctc", a)
    if x.ndim < 2 or not states.ndim or not x.shape[-2]:
        raise ShapeError(
            f"ctc: log-probabilities of shape {x.shape} and states of shape {states.shape}; "
            "expected (…, frames, classes), with at least one frame, and (…, states)"
        )
    lead = broadcast("ctc", x.shape[:-2], states.shape[:-1], frames.shape, labels.shape)
    return x.like(lead, floating(x.dtype))


def _last(x):
    return reshape(x, (*x.shape, 1))


def _shift(x, by: int, fill: float):
    """x shifted by `by` places along its last axis (back if negative), `fill` in the gap."""
    n, axis = x.shape[-1], len(x.shape) - 1
    k = min(abs(by), n)
    kept = narrow(x, axis, 0, n - k) if by > 0 else narrow(x, axis, k, n)
    widths = (*((0, 0),) * axis, (k, 0) if by > 0 else (0, k))
    return pad(kept, widths, fill)


class _Lattice:
    """The states of all frames: how they are entered, and what is emitted in them."""

    def __init__(self, x, states, frames, labels, blank: int):
        lead = broadcast("ctc", x.shape[:-2], states.shape[:-1], frames.shape, labels.shape)
        self.steps, self.classes, n = x.shape[-2], x.shape[-1], states.shape[-1]
        x = broadcast_to(x, (*lead, self.steps, self.classes))
        self.places = broadcast_to(
            reshape(states, (*states.shape[:-1], 1, n)), (*lead, self.steps, n)
        )
        self.axis = len(lead) + 1
        self.emitted = unstack(take_along_axis(x, self.places, self.axis), self.axis - 1)
        self.frames, self.end = _last(frames), _last(labels) * 2
        self.number = index_like(x, np.arange(n))
        # A label may be entered from the label before it, skipping the blank, if the two differ.
        other = not_equal(states, _shift(states, 2, blank))
        self.skips = logical_and(other, not_equal(states, blank))

    def before(self, reached):
        """For each state the log-probabilities of the three states that it is entered from."""
        further = where(self.skips, _shift(reached, 2, -inf), -inf)
        return reached, _shift(reached, 1, -inf), further

    def is_final(self):
        """The last label and the blank after it."""
        return logical_and(greater(self.number, self.end - 2), less(self.number, self.end + 1))

    def forward(self) -> list:
        """The log-probability of reaching each state, frame by frame."""
        start = self.emitted[0]
        reached = [where(less(self.number, 2), start, -inf)]
        for t in range(1, self.steps):
            here = _sum_of_logs(self.before(reached[-1])) + self.emitted[t]
            reached.append(where(greater(self.frames, t), here, reached[-1]))
        return reached


def _sum_of_logs(terms):
    return logaddexp(logaddexp(terms[0], terms[1]), terms[2])


def _shares(terms, total):
    """exp(term - total), and zero where the total is -∞."""
    total = where(equal(total, -inf), inf, total)
    return [exp(term - total) for term in terms]


def _log_total(lattice: _Lattice, last):
    """The log-probability of ending in a final state."""
    ends = where(lattice.is_final(), last, -inf)
    return reduce(logaddexp, unstack(ends, len(ends.shape) - 1)), ends


def _loss(x, states, frames, labels, blank):
    lattice = _Lattice(x, states, frames, labels, blank)
    return -_log_total(lattice, lattice.forward()[-1])[0]


def _occupation(x, states, frames, labels, blank):
    """The probability of each state in each frame, given the labels: (…, T, states)."""
    lattice = _Lattice(x, states, frames, labels, blank)
    reached = lattice.forward()
    total, ends = _log_total(lattice, reached[-1])
    (share,) = _shares([ends], _last(total))
    occupied = [share] * lattice.steps
    for t in range(lattice.steps - 1, 0, -1):
        terms = lattice.before(reached[t - 1])
        stay, step, skip = _shares(terms, _sum_of_logs(terms))
        back = share * stay + _shift(share * step, -1, 0.0) + _shift(share * skip, -2, 0.0)
        running = greater(lattice.frames, t)
        occupied[t] = where(running, share, 0.0)
        share = where(running, back, share)
    occupied[0] = share
    return stack(occupied, lattice.axis - 1), lattice


def _push(tangents, y, x, states, frames, labels, blank):
    occupied, lattice = _occupation(x, states, frames, labels, blank)
    t = broadcast_to(tangents[0], (*y.shape, *x.shape[-2:]))
    moved = take_along_axis(t, lattice.places, lattice.axis)
    return -sum_(occupied * moved, (lattice.axis - 1, lattice.axis), False)


def _pull(g, y, x, states, frames, labels, blank):
    occupied, lattice = _occupation(x, states, frames, labels, blank)
    weighed = occupied * _last(_last(-g))
    dx = scatter_sum(weighed, lattice.places, lattice.axis, lattice.classes)
    return unbroadcast(dx, x.shape), None, None, None


def _compute(xp, x, states, frames, labels, blank):
    wide = dtypes.accumulator(xp.dtype_of(x))
    y = xp.quietly(_loss, xp.cast(x, wide), states, frames, labels, blank)
    return xp.cast(xp.whole(y), xp.dtype_of(x))


# -log Σ over alignments of the product of the probabilities along them.
ctc: Caller = general(
    "ctc",
    compute=_compute,
    shape=_shape,
    push=_push,
    pull=_pull,
    reads="x states frames labels",
    arity=4,
    promote=(0,),
    floating=True,
    static=True,
    precision="single",
    batch=Stacked((2, 1, 0, 0)),
    sample=samples("label_sequences"),
)
