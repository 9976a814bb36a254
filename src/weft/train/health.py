"""Watching the gradients of a run: which vanish, which explode."""

import warnings
from typing import TYPE_CHECKING, Any, Literal

from .. import errors
from ..profile.health import GradientHealthReport, grad_stats
from .arguments import at_least_one, check_choice
from .callbacks import Callback

if TYPE_CHECKING:
    from .trainer import Trainer


class GradientHealth(Callback):
    """Looks at the gradients of every n-th step, before they are clipped.

    every       how many steps are from one look to the next; the others cost nothing
    on_problem  for gradients that vanish or explode (see `wf.profile.grad_stats`): "warn", once
                for each set of problems; "raise": the run ends before that step; None: neither
    history     how many reports are kept in `reports`, the newest last, by step; each has a
                histogram for every parameter

    The history's rows of those steps get grad_rms_min, grad_rms_max (over the parameters),
    vanishing and exploding (how many parameters): TensorBoard, the curves and the checkpoints have
    them too. Gradients that are not finite are the trainer's own affair (`nonfinite`).

    >>> import weft as wf
    >>> health = wf.train.GradientHealth(every=2, on_problem="raise")
    >>> model = wf.nn.Linear(1, 1)
    >>> data = wf.train.TensorDataset(wf.ones((4, 1)), wf.zeros((4, 1)))
    >>> trainer = wf.train.Trainer(
    ...     model, wf.optim.SGD(model), wf.nn.MSELoss(), callbacks=[health], progress=False
    ... )
    >>> history = trainer.fit(wf.train.DataLoader(data), epochs=1)
    >>> history["vanishing"], list(health.reports)
    ([nan, 0, nan, 0], [2, 4])
    """

    reads_model = False

    def __init__(
        self,
        every: int = 100,
        on_problem: Literal["warn", "raise"] | None = "warn",
        history: int = 10,
    ):
        check_choice("on_problem", on_problem, ("warn", "raise", None), "GradientHealth")
        self.every: int = at_least_one("every", every, "GradientHealth")
        self.on_problem = on_problem
        self.history: int = at_least_one("history", history, "GradientHealth")
        self.reports: dict[int, GradientHealthReport] = {}
        self._warned: dict[str, str] = {}

    def on_gradients(self, trainer: "Trainer", gradients: dict[str, Any]) -> None:
        step = trainer.step + 1
        if step % self.every:
            return
        report = grad_stats(gradients)
        self.reports[step] = report
        while len(self.reports) > self.history:
            del self.reports[next(iter(self.reports))]
        marks = report.marks()
        kinds = list(marks.values())
        sizes = [s.rms for s in report.values()]
        trainer.log(
            grad_rms_min=min(sizes),
            grad_rms_max=max(sizes),
            vanishing=kinds.count("vanishing"),
            exploding=kinds.count("exploding"),
        )
        self._judge(trainer, step, marks, report)

    def _judge(
        self, trainer: "Trainer", step: int, marks: dict[str, str], report: GradientHealthReport
    ) -> None:
        if not marks or self.on_problem is None:
            return
        named = [f"{n} ({kind}, rms {report[n].rms:.1e})" for n, kind in marks.items()]
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        text = f"GradientHealth: step {step}: {', '.join(named[:5])}{more}"
        if self.on_problem == "raise":
            raise errors.AnomalyError(
                f"{text}; nothing was changed. Look at the callback's reports[{step}], clip, or "
                "change the initialization, the normalization or the learning rate"
            )
        if marks != self._warned:
            if trainer.ranks.first:
                warnings.warn(text, errors.GradientHealthWarning, stacklevel=2)
            self._warned = marks
