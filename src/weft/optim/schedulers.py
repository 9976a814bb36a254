"""Learning rates as functions of the step.

Every schedule is a frozen dataclass whose `get_lr(step)` is pure: the first step is 0, and past
the end the last value holds. A training loop calls `optimizer.set_lr(schedule.get_lr(step))`.
"""

from abc import abstractmethod
from dataclasses import dataclass, fields
from itertools import pairwise
from math import cos, isfinite, pi, sqrt

from .. import errors
from ..core.kinds import demand_number
from .configs import check_choice
from .plateau import PlateauScheduler as PlateauScheduler

__all__ = """
    CosineScheduler ExponentialScheduler LinearScheduler OneCycleScheduler PlateauScheduler
    PolynomialScheduler Scheduler StepScheduler WSDScheduler cosine_lr
""".split()

_COUNTS = ("warmup_steps", "total_steps", "decay_steps", "stable_steps", "step_size")


def cosine_lr(initial_lr: float, current_step: int, total_steps: int) -> float:
    """initial_lr·½(1 + cos(π·step/total)), and 0 past the end.

    initial_lr    the rate at step 0
    current_step  the step
    total_steps   where it ends

    >>> import weft as wf
    >>> [round(wf.optim.cosine_lr(1.0, step, 4), 3) for step in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """
    demand_number("cosine_lr: current_step", current_step)
    return CosineScheduler(initial_lr, 0.0, 0, total_steps).get_lr(current_step)


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * 0.5 * (1.0 + cos(pi * share))


def _linear(start: float, end: float, share: float) -> float:
    return start + (end - start) * share


def _root(start: float, end: float, share: float) -> float:
    return start + (end - start) * sqrt(share)


_SHAPES = {"cosine": _cosine, "linear": _linear, "sqrt": _root}


@dataclass(frozen=True)
class Scheduler:
    """A learning rate for every step; the base of all schedules.

    A subclass is a frozen dataclass with a method `rate(step)`.

    >>> import weft as wf
    >>> isinstance(wf.optim.StepScheduler(1.0, 2), wf.optim.schedulers.Scheduler)
    True
    """

    def __post_init__(self) -> None:
        what = type(self).__name__
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _COUNTS:
                least = 0 if field.name in ("warmup_steps", "stable_steps") else 1
                if isinstance(value, bool) or not isinstance(value, int) or value < least:
                    raise errors.ArgumentError(
                        f"{what}: {field.name}={value!r}, expected an integer ≥ {least}"
                    )
            elif field.type in (float, "float"):
                demand_number(f"{what}: {field.name}", value)
            if isinstance(value, int | float) and (not isfinite(value) or value < 0):
                raise errors.ArgumentError(
                    f"{what}: {field.name}={value}, expected a finite number ≥ 0"
                )
        self.check(what)

    def check(self, what: str) -> None:
        """Raise if the fields do not go together."""

    def get_lr(self, step: int) -> float:
        """The learning rate of a step, the first of which is 0.

        step  a nonnegative integer; past the end the last value holds

        >>> import weft as wf
        >>> wf.optim.StepScheduler(1.0, 2, gamma=0.5).get_lr(4)
        0.25
        """
        demand_number(f"{type(self).__name__}: step", step)
        if step < 0:
            raise errors.ArgumentError(f"{type(self).__name__}: step {step}, expected 0 or more")
        return self.rate(step)

    @abstractmethod
    def rate(self, step: int) -> float:
        """`get_lr` for a step that makes sense."""

    def _check_order(self, what: str, first: str, second: str) -> None:
        if getattr(self, first) > getattr(self, second):
            raise errors.ArgumentError(
                f"{what}: {first}={getattr(self, first)} is more than "
                f"{second}={getattr(self, second)}"
            )


@dataclass(frozen=True)
class CosineScheduler(Scheduler):
    """From 0 up to `initial_lr` in a straight line, then down to `min_lr` along a cosine.

    initial_lr    the rate at the top
    min_lr        the rate at the end
    warmup_steps  how many steps it goes up
    total_steps   how many steps there are in all

    >>> import weft as wf
    >>> schedule = wf.optim.schedulers.CosineScheduler(1.0, 0.2, warmup_steps=2, total_steps=6)
    >>> [round(schedule.get_lr(step), 3) for step in range(8)]
    [0.0, 0.5, 1.0, 0.883, 0.6, 0.317, 0.2, 0.2]
    """

    initial_lr: float
    min_lr: float = 0.0
    warmup_steps: int = 0
    total_steps: int = 1

    def check(self, what: str) -> None:
        self._check_order(what, "warmup_steps", "total_steps")

    def rate(self, step: int) -> float:
        if step < self.warmup_steps:
            return self.initial_lr * step / self.warmup_steps
        length = self.total_steps - self.warmup_steps
        share = min((step - self.warmup_steps) / length, 1.0) if length else 1.0
        return _cosine(self.initial_lr, self.min_lr, share)


@dataclass(frozen=True)
class LinearScheduler(Scheduler):
    """From `initial_lr` to `target_lr` in a straight line, then constant.

    initial_lr    the rate at step 0
    target_lr     the rate at the end
    warmup_steps  how many steps there are between

    >>> import weft as wf
    >>> schedule = wf.optim.schedulers.LinearScheduler(0.0, 1.0, warmup_steps=4)
    >>> [round(schedule.get_lr(step), 3) for step in range(6)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
    """

    initial_lr: float
    target_lr: float
    warmup_steps: int

    def rate(self, step: int) -> float:
        share = min(step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        return _linear(self.initial_lr, self.target_lr, share)


@dataclass(frozen=True)
class ExponentialScheduler(Scheduler):
    """initial_lr·decay_rate^(step/decay_steps).

    initial_lr   the rate at step 0
    decay_rate   what it is multiplied by
    decay_steps  in how many steps

    >>> import weft as wf
    >>> schedule = wf.optim.schedulers.ExponentialScheduler(1.0, decay_rate=0.25, decay_steps=2)
    >>> [round(schedule.get_lr(step), 3) for step in range(5)]
    [1.0, 0.5, 0.25, 0.125, 0.062]
    """

    initial_lr: float
    decay_rate: float
    decay_steps: int = 1

    def rate(self, step: int) -> float:
        return self.initial_lr * self.decay_rate ** (step / self.decay_steps)


@dataclass(frozen=True)
class StepScheduler(Scheduler):
    """initial_lr·gamma^⌊step/step_size⌋.

    initial_lr  the rate at first
    step_size   how many steps it stays
    gamma       what it is then multiplied by

    >>> import weft as wf
    >>> schedule = wf.optim.schedulers.StepScheduler(1.0, step_size=2, gamma=0.5)
    >>> [round(schedule.get_lr(step), 3) for step in range(6)]
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """

    initial_lr: float
    step_size: int
    gamma: float = 0.1

    def rate(self, step: int) -> float:
        return self.initial_lr * self.gamma ** (step // self.step_size)


@dataclass(frozen=True)
class PolynomialScheduler(Scheduler):
    """From `initial_lr` to `end_lr` as (1 − step/total)^power, after a straight warm-up from 0.

    initial_lr    the rate at the top
    end_lr        the rate at the end
    total_steps   how many steps there are in all
    power         1 is a straight line
    warmup_steps  how many steps it goes up

    >>> import weft as wf
    >>> schedule = wf.optim.schedulers.PolynomialScheduler(1.0, total_steps=4, power=2.0)
    >>> [round(schedule.get_lr(step), 3) for step in range(6)]
    [1.0, 0.562, 0.25, 0.062, 0.0, 0.0]
    """

    initial_lr: float
    end_lr: float = 0.0
    total_steps: int = 1
    power: float = 1.0
    warmup_steps: int = 0

    def check(self, what: str) -> None:
        self._check_order(what, "warmup_steps", "total_steps")

    def rate(self, step: int) -> float:
        if step < self.warmup_steps:
            return self.initial_lr * step / self.warmup_steps
        length = self.total_steps - self.warmup_steps
        left = max(1.0 - (step - self.warmup_steps) / length, 0.0) if length else 0.0
        return self.end_lr + (self.initial_lr - self.end_lr) * left**self.power


@dataclass(frozen=True)
class OneCycleScheduler(Scheduler):
    """Up to `max_lr`, down again, and far down (Smith and Topin, 2019).

    max_lr            the rate at the top
    total_steps       how many steps there are in all
    pct_start         the share of the steps that go up
    div_factor        the rate starts at max_lr/div_factor
    final_div_factor  and ends at that divided by final_div_factor
    anneal            "cosine" or "linear"
    three_phase       whether the way down to the initial rate mirrors the way up, and the rest
                      goes on to the end; otherwise all the rest goes there

    >>> import weft as wf
    >>> schedule = wf.optim.schedulers.OneCycleScheduler(1.0, 5, 0.5, 4.0, anneal="linear")
    >>> [round(schedule.get_lr(step), 3) for step in range(6)]
    [0.25, 0.75, 0.8, 0.4, 0.0, 0.0]
    """

    max_lr: float
    total_steps: int
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    anneal: str = "cosine"
    three_phase: bool = False

    def check(self, what: str) -> None:
        check_choice(what, "anneal", self.anneal, ("cosine", "linear"))
        if not 0 < self.pct_start < (0.5 if self.three_phase else 1):
            raise errors.ArgumentError(
                f"{what}: pct_start={self.pct_start}, expected a share of the steps between 0 and "
                f"{0.5 if self.three_phase else 1}"
            )
        if not self.div_factor or not self.final_div_factor:
            raise errors.ArgumentError(f"{what}: div_factor and final_div_factor must not be 0")

    def rate(self, step: int) -> float:
        first = self.max_lr / self.div_factor
        final, top = first / self.final_div_factor, self.pct_start * self.total_steps - 1
        phases = [(0.0, first), (top, self.max_lr)]
        if self.three_phase:
            phases.append((2 * top, first))
        phases.append((self.total_steps - 1, final))
        for (a, start), (b, end) in pairwise(phases):
            if step <= b:
                return _SHAPES[self.anneal](start, end, (step - a) / (b - a) if b > a else 1.0)
        return final


@dataclass(frozen=True)
class WSDScheduler(Scheduler):
    """Warm-up from 0, a stable stretch at `peak_lr`, and a decay to `min_lr`.

    peak_lr                                  the rate at the top
    warmup_steps, stable_steps, decay_steps  how many steps each of the three takes
    min_lr                                   the rate at the end
    decay                                    the shape of the decay: "linear", "cosine" or
                                             "sqrt"

    >>> import weft as wf
    >>> schedule = wf.optim.schedulers.WSDScheduler(1.0, 2, 2, 2)
    >>> [round(schedule.get_lr(step), 3) for step in range(8)]
    [0.0, 0.5, 1.0, 1.0, 1.0, 0.5, 0.0, 0.0]
    """

    peak_lr: float
    warmup_steps: int
    stable_steps: int
    decay_steps: int
    min_lr: float = 0.0
    decay: str = "linear"

    def check(self, what: str) -> None:
        check_choice(what, "decay", self.decay, tuple(_SHAPES))

    def rate(self, step: int) -> float:
        if step < self.warmup_steps:
            return self.peak_lr * step / self.warmup_steps
        past = step - self.warmup_steps - self.stable_steps
        share = min(max(past / self.decay_steps, 0.0), 1.0)
        return _SHAPES[self.decay](self.peak_lr, self.min_lr, share)


def __dir__() -> list[str]:
    return list(__all__)
