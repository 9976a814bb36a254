"""Curves of a run as a picture: loss, gradient norm and learning rate over the steps."""

from contextlib import suppress
from importlib.util import find_spec
from io import BytesIO
from math import isnan
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .. import errors
from ..io.durable import make_directories, write_file
from .callbacks import Callback
from .history import History

if TYPE_CHECKING:
    from .trainer import Trainer


def draw_curves(history: History, path: str | PathLike[str]) -> Path:
    """Draw a history's curves into a PNG file, in place of what was there; returns its path.

    history  a `History`
    path     the PNG file

    One panel each for the loss (validation beside training), the gradient norm and the learning
    rate, and one for each metric.

    >>> import weft as wf
    >>> import tempfile
    >>> model = wf.nn.Linear(1, 1)
    >>> trainer = wf.train.Trainer(model, wf.optim.SGD(model), wf.nn.MSELoss(), progress=False)
    >>> data = wf.train.TensorDataset(wf.ones((4, 1)), wf.ones((4, 1)))
    >>> history = trainer.fit(wf.train.DataLoader(data), epochs=1)
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.train.draw_curves(history, f"{here}/curves.png").name
    'curves.png'
    """
    if not find_spec("matplotlib"):
        raise errors.ArgumentError("draw_curves: needs matplotlib; pip install 'weft[plot]'")
    if not len(history.train):
        raise errors.ArgumentError("draw_curves: the history has no steps yet; train first")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [n for n in history.train.names if n not in ("step", "epoch")]
    names += [n for n in history.validation.names if n not in (*names, "step", "epoch")]
    figure = Figure(figsize=(8, 2.2 * len(names)), layout="constrained", dpi=100)
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for panel, name in zip(panels, names, strict=True):
        _panel(panel, history, name)
    panels[-1].set_xlabel("step")
    picture = BytesIO()
    figure.savefig(picture, format="png")
    path = Path(path)
    make_directories(path.parent)
    write_file(path, [picture.getvalue()])
    return path


def _panel(panel: Any, history: History, name: str) -> None:
    if name in history.train:
        pairs = zip(history.train["step"], history.train[name], strict=True)
        known = [(step, value) for step, value in pairs if not isnan(value)]  # not of every step
        panel.plot([step for step, _ in known], [v for _, v in known], lw=1, label="training")
    if name in history.validation:
        steps = history.validation["step"]
        panel.plot(steps, history.validation[name], "o-", ms=3, lw=1, label="validation")
        panel.legend()
    values = [v for part in (history.train, history.validation) if name in part for v in part[name]]
    if name in ("loss", "grad_norm") and all(v > 0 for v in values):
        panel.set_yscale("log")
    panel.set_ylabel(name.replace("_", " "))
    panel.grid(alpha=0.3)


class Curves(Callback):
    """Draws the curves into a PNG file at saves and at the end of the run.

    path  the PNG file

    A picture takes longer than a small step: at saves it is drawn only if drawing has taken less
    than a twentieth of the time since it was last drawn. Also a run that fails draws its last.

    >>> import weft as wf
    >>> curves = wf.train.Curves("run/curves.png")
    """

    reads_model = False
    every_rank = False
    SHARE = 0.05  # of the time may be spent on drawing

    def __init__(self, path: str | PathLike[str]):
        self.path: Path = Path(path)
        self._drawn = self._took = 0.0

    def _draw(self, trainer) -> None:
        if len(trainer.history):
            begun = perf_counter()
            draw_curves(trainer.history, self.path)
            self._drawn = perf_counter()
            self._took = self._drawn - begun

    def on_fit_start(self, trainer: "Trainer") -> None:
        self._drawn, self._took = perf_counter(), 0.0

    def on_save(self, trainer: "Trainer", path: Path) -> None:
        if self._took <= self.SHARE * (perf_counter() - self._drawn):
            self._draw(trainer)

    def on_fit_end(self, trainer: "Trainer") -> None:
        self._draw(trainer)

    def on_error(self, trainer: "Trainer", error: BaseException) -> None:
        with suppress(OSError):  # the first error is the one to report
            self._draw(trainer)
