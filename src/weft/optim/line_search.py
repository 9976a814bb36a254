"""A step length that satisfies the strong Wolfe conditions, by bracketing and cubic interpolation.

After Nocedal and Wright, Numerical Optimization, section 3.5; where the book leaves a choice, it
is PyTorch's, so that the two take the same steps.
"""

from collections.abc import Callable
from typing import Any

from ..core.record import field, record

DECREASE, CURVATURE = 1e-4, 0.9


@record
class Trial:
    """A point on the line: how far, the loss there, its gradient and its slope along the line."""

    t: float
    loss: float
    grad: Any
    slope: float


def cubic_minimum(a: Trial, b: Trial, low: float, high: float) -> float:
    """Where the cubic through two trials is least between the bounds; their middle if nowhere."""
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    d2 = square**0.5
    left, right = (a, b) if a.t <= b.t else (b, a)
    weight = (right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2)
    return min(max(right.t - (right.t - left.t) * weight, low), high)


@record(frozen=False, eq=False)
class LineSearch:
    """The search along one direction from `start`, the trial at t = 0.

    evaluate  t -> Trial
    reach     the largest element of the direction: with `tolerance`, what is too short to matter
    """

    evaluate: Callable[[float], Trial]
    start: Trial
    reach: float
    tolerance: float
    trials: int = field(init=False, default=0)

    def find(self, t: float, limit: int) -> Trial:
        """A trial that satisfies both conditions, or the best one after `limit` trials."""
        found = self._bracket(t, limit)
        return found[0] if len(found) == 1 else self._zoom(found, limit)

    def _try(self, t: float) -> Trial:
        self.trials += 1
        return self.evaluate(t)

    def _rises(self, new: Trial) -> bool:
        return new.loss > self.start.loss + DECREASE * new.t * self.start.slope

    def _is_flat(self, new: Trial) -> bool:
        return abs(new.slope) <= -CURVATURE * self.start.slope

    def _bracket(self, t: float, limit: int) -> list[Trial]:
        """Two trials around a right one, or a right one alone."""
        previous, new = self.start, self._try(t)
        for step in range(limit):
            if self._rises(new) or (step > 1 and new.loss >= previous.loss):
                return [previous, new]
            if self._is_flat(new):
                return [new]
            if new.slope >= 0:
                return [previous, new]
            low, high = new.t + 0.01 * (new.t - previous.t), new.t * 10
            t = cubic_minimum(previous, new, low, high)
            previous, new = new, self._try(t)
        return [self.start, new]

    def _zoom(self, pair: list[Trial], limit: int) -> Trial:
        """Narrow a bracket until a trial satisfies both conditions."""
        low, slow = _lower(pair), False
        while self.trials <= limit and abs(pair[1].t - pair[0].t) * self.reach >= self.tolerance:
            t, slow = _guarded_step(pair[0], pair[1], slow)
            new, high = self._try(t), 1 - low
            if self._rises(new) or new.loss >= pair[low].loss:
                pair[high] = new
                low = _lower(pair)
                continue
            if self._is_flat(new):
                return new
            if new.slope * (pair[high].t - pair[low].t) >= 0:
                pair[high] = pair[low]
            pair[low] = new
        return pair[low]


def _lower(pair: list[Trial]) -> int:
    return 0 if pair[0].loss <= pair[1].loss else 1


def _guarded_step(a: Trial, b: Trial, slow: bool) -> tuple[float, bool]:
    """A trial step inside a bracket, kept off its ends; whether it came near one."""
    least, most = min(a.t, b.t), max(a.t, b.t)
    t, margin = cubic_minimum(a, b, least, most), 0.1 * (most - least)
    if min(most - t, t - least) >= margin:
        return t, False
    if slow or t >= most or t <= least:
        return (most - margin if abs(t - most) < abs(t - least) else least + margin), False
    return t, True
