"""A learning rate that follows a metric."""

from math import inf, isfinite
from typing import Any

from .. import errors
from ..core.differences import differences
from ..core.kinds import demand_number
from .configs import check_choice

_NUMBERS = ("initial_lr", "factor", "threshold", "min_lr", "eps")


class PlateauScheduler:
    """Lowers the learning rate when a metric stops getting better.

    initial_lr      the rate to begin with
    factor          what the rate is multiplied by
    patience        how many steps without an improvement are tolerated
    threshold       what counts as an improvement: by this share of the best, or by this much
    cooldown        how many steps after a reduction are not counted
    min_lr          the least rate
    mode            whether the metric should be "min" or "max"
    threshold_mode  "rel": the threshold is a share of the best; "abs": an amount
    eps             a smaller change of the rate is not made

    >>> import weft as wf
    >>> schedule = wf.optim.PlateauScheduler(1.0, factor=0.5, patience=1)
    >>> [schedule.step(loss) for loss in (3.0, 2.0, 2.0, 2.0, 2.0)]
    [1.0, 1.0, 1.0, 0.5, 0.5]
    """

    def __init__(
        self,
        initial_lr: float,
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        mode: str = "min",
        threshold_mode: str = "rel",
        eps: float = 1e-8,
    ):
        check_choice("PlateauScheduler", "mode", mode, ("min", "max"))
        check_choice("PlateauScheduler", "threshold_mode", threshold_mode, ("rel", "abs"))
        for name, value in zip(_NUMBERS, (initial_lr, factor, threshold, min_lr, eps), strict=True):
            demand_number(f"PlateauScheduler: {name}", value)
        if not 0 <= factor < 1:
            raise errors.ArgumentError(
                f"PlateauScheduler: factor={factor}, expected 0 ≤ factor < 1"
            )
        for name, value in (("initial_lr", initial_lr), ("min_lr", min_lr), ("eps", eps)):
            if not isfinite(value) or value < 0:
                raise errors.ArgumentError(
                    f"PlateauScheduler: {name}={value}, expected a finite number ≥ 0"
                )
        self.lr: float = float(initial_lr)
        self.factor = factor
        self.patience = patience
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode = mode
        self.cooldown = cooldown
        self.min_lr = min_lr
        self.eps = eps
        self.best: float = -inf if mode == "max" else inf
        self.bad_steps: int = 0
        self.cooling: int = 0

    def get_lr(self, step: int | None = None) -> float:
        """The learning rate now, whatever the step.

        step  not looked at

        >>> import weft as wf
        >>> wf.optim.PlateauScheduler(1.0).get_lr()
        1.0
        """
        return self.lr

    def step(self, metric: float) -> float:
        """Take note of a metric; returns the learning rate from now on.

        metric  its value

        >>> import weft as wf
        >>> wf.optim.PlateauScheduler(1.0).step(3.0)
        1.0
        """
        metric = float(metric)
        if self._is_better(metric):
            self.best, self.bad_steps = metric, 0
        else:
            self.bad_steps += 1
        if self.cooling > 0:
            self.cooling -= 1
            self.bad_steps = 0
        if self.bad_steps > self.patience:
            lower = max(self.lr * self.factor, self.min_lr)
            self.lr = lower if self.lr - lower > self.eps else self.lr
            self.cooling, self.bad_steps = self.cooldown, 0
        return self.lr

    def _is_better(self, metric: float) -> bool:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            return sign * metric > sign * self.best * (1 + sign * self.threshold)
        return sign * metric > sign * self.best + self.threshold

    def state_dict(self) -> dict[str, Any]:
        """What changes: the rate, the best metric and the counts.

        >>> import weft as wf
        >>> schedule = wf.optim.PlateauScheduler(1.0)
        >>> rate = schedule.step(3.0)
        >>> schedule.state_dict()["best"]
        3.0
        """
        names = ("lr", "best", "bad_steps", "cooling")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> first, second = wf.optim.PlateauScheduler(1.0), wf.optim.PlateauScheduler(1.0)
        >>> rate = first.step(3.0)
        >>> second.load_state_dict(first.state_dict())
        >>> second.best
        3.0
        """
        differences(self.state_dict(), saved)._replace(mismatched=[]).refuse("PlateauScheduler")
        for name, value in saved.items():
            setattr(self, name, value)
