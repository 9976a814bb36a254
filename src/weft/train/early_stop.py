"""Ending a run whose validation does not get better any more."""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from .. import errors
from ..core.differences import differences
from ..core.kinds import demand_number
from .callbacks import Callback

if TYPE_CHECKING:
    from .trainer import Trainer


class EarlyStopping(Callback):
    """Stops when a validation metric has not got better for `patience` validations.

    monitor       which metric: "loss", or one that the loss function returns
    patience      how many validations in a row without an improvement end the run
    min_delta     what counts as an improvement: by more than this
    mode          whether the metric should be "min" or "max"
    restore_best  whether the model ends with the weights (and their averages) that scored best

    >>> import weft as wf
    >>> stopping = wf.train.EarlyStopping(patience=2, restore_best=True)
    """

    def __init__(
        self,
        monitor: str = "loss",
        patience: int = 3,
        min_delta: float = 0.0,
        mode: str = "min",
        restore_best: bool = False,
    ):
        if mode not in ("min", "max"):
            raise errors.ArgumentError(f"EarlyStopping: mode={mode!r}, expected 'min' or 'max'")
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise errors.ArgumentError(f"EarlyStopping: patience={patience!r}, expected 1 or more")
        demand_number("EarlyStopping: min_delta", min_delta)
        if not min_delta >= 0:
            raise errors.ArgumentError(f"EarlyStopping: min_delta={min_delta}, expected 0 or more")
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.mode = mode
        self.restore_best = restore_best
        self.best: float = inf if mode == "min" else -inf
        self.waited: int = 0
        self._kept: dict[str, Any] | None = None

    def on_fit_start(self, trainer: "Trainer") -> None:
        if not trainer.validates:
            raise errors.ArgumentError(
                f"EarlyStopping: monitors the validation's {self.monitor!r}, but fit() was given "
                "no validation=; give it the data to validate on"
            )
        self._judge(trainer)

    def on_validation_end(self, trainer: "Trainer", metrics: dict[str, float]) -> None:
        if self.monitor not in metrics:
            raise errors.ArgumentError(
                f"EarlyStopping: monitor={self.monitor!r}, expected one of the validation's "
                f"metrics: {', '.join(metrics)}"
            )
        value = metrics[self.monitor]
        sign = 1 if self.mode == "min" else -1
        if sign * value < sign * self.best - self.min_delta:
            self.best, self.waited = value, 0
            if self.restore_best:
                self._kept = trainer.weights()
        else:
            self.waited += 1
        self._judge(trainer)

    def _judge(self, trainer) -> None:
        if self.waited >= self.patience:
            trainer.stop(
                f"{self.monitor} was best with {self.best:g}, {self.waited} validations ago"
            )

    def on_fit_end(self, trainer: "Trainer") -> None:
        if self._kept is not None:
            trainer.set_weights(self._kept)

    def state_dict(self) -> dict[str, Any]:
        """The best value, how long ago it was, and the weights that had it.

        >>> import weft as wf
        >>> sorted(wf.train.EarlyStopping().state_dict())
        ['best', 'kept', 'waited']
        """
        return {"best": self.best, "waited": self.waited, "kept": self._kept}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> stopping = wf.train.EarlyStopping()
        >>> stopping.load_state_dict(stopping.state_dict())
        """
        expected = dict.fromkeys(self.state_dict(), 0)
        differences(expected, dict.fromkeys(saved, 0)).refuse("EarlyStopping")
        self.best, self.waited, self._kept = saved["best"], saved["waited"], saved["kept"]
