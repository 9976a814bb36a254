"""How far a run is, for people: a bar at a terminal, lines elsewhere."""

import sys
from contextlib import suppress
from importlib.util import find_spec
from math import isnan
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .. import errors
from ..profile import gpu
from ..profile.counter import counted_now
from ..profile.page import size
from .arguments import base_of, device_of
from .callbacks import Callback

if TYPE_CHECKING:
    from .trainer import Trainer

CHOICES = (True, False, "bar", "lines")


def progress_for(choice: bool | str, log_every: int) -> Callback | None:
    """The progress display: True means a bar at a terminal where rich is installed."""
    if choice is False:
        return None
    if choice is True:
        choice = "bar" if sys.stderr.isatty() and find_spec("rich") else "lines"
    return Bar() if choice == "bar" else Lines(log_every)


def quantities(row: dict[str, float], trainer: "Trainer | None" = None) -> list[tuple[str, str]]:
    """The quantities of a step to show: (name, number) pairs.

    trainer  that took the step: the rate of an optimizer that finds its own is not shown
    """
    own = trainer is not None and base_of(trainer.optimizer).estimates_rate
    hidden = {"step", "epoch"} | ({"lr"} if own or isnan(row.get("lr", 0.0)) else set())
    shown = {name: value for name, value in row.items() if name not in hidden}
    names = {"grad_norm": "grad norm"}
    return [(names.get(name, name), f"{value:.4g}") for name, value in shown.items()]


class Pace:
    """Samples per second, measured anew every so often, and seconds to the end of the run.

    Programs are compiled in the first steps, which say nothing of the time that is left: the mean
    speed is that of the last half of this run's steps, or of a little more.
    """

    def __init__(self, trainer: "Trainer", every_seconds: float):
        self._every = every_seconds
        self._asked, self._samples = perf_counter(), trainer.samples
        self._rate = 0.0
        self._first_step = trainer.step
        # Steps and their times after the last two powers of two of steps.
        self._older = self._newer = trainer.step, self._asked

    def note(self, trainer: "Trainer") -> None:
        """Take notice of a step; to be called after each."""
        done = trainer.step - self._first_step
        if done & (done - 1) == 0:
            self._older, self._newer = self._newer, (trainer.step, perf_counter())

    def samples_per_second(self, trainer: "Trainer") -> float:
        """Over the time since it was last measured."""
        now = perf_counter()
        if now - self._asked >= self._every or not self._rate:
            self._rate = (trainer.samples - self._samples) / max(now - self._asked, 1e-9)
            self._asked, self._samples = now, trainer.samples
        return self._rate

    def seconds_left(self, trainer: "Trainer") -> float | None:
        """At the mean speed of late; None if the end is not known."""
        first, began = self._older
        done = trainer.step - first
        if trainer.total_steps is None or not done:
            return None
        return (perf_counter() - began) / done * (trainer.total_steps - trainer.step)

    def describe(self, trainer: "Trainer", row: dict[str, float]) -> str:
        """The text for a step: quantities, speed and time left."""
        parts = [f"{name} {number}" for name, number in quantities(row, trainer)]
        parts.append(f"{self.speed(trainer)} {unit_of(trainer)}/s")
        memory = memory_of(trainer)
        if memory is not None:
            parts.append("memory {}, peak {}".format(*map(size, memory)))
        return "  ".join([*parts, f"ETA {clock(self.seconds_left(trainer))}"])

    def speed(self, trainer: "Trainer") -> str:
        """Samples per second as a number to be read."""
        speed = self.samples_per_second(trainer)
        return f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"


def clock(seconds: float | None) -> str:
    """A duration as h:mm:ss.

    >>> from weft.train.progress import clock
    >>> clock(3725.4), clock(None)
    ('1:02:05', '-:--:--')
    """
    if seconds is None:
        return "-:--:--"
    minutes, second = divmod(int(max(seconds, 0)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{second:02d}"


def unit_of(trainer: "Trainer") -> str:
    """What the run's batches are made of, in words: a loss may say so in `unit`."""
    return getattr(trainer._objective.loss, "unit", "samples")


def memory_of(trainer: "Trainer") -> tuple[int, int] | None:
    """Live and peak bytes: of the model's GPU, else of the `Counter` that counts here."""
    device = device_of(trainer.model) or ""
    if device.startswith("cuda"):
        return gpu.live(device), gpu.peak(device)
    return counted_now()


def brief(live: int, peak: int) -> str:
    """Both numbers of bytes, in the unit of the larger one.

    >>> from weft.train.progress import brief
    >>> brief(21 << 29, 22 << 29)
    'mem 10.5/11.0 GiB'
    """
    unit = next((u for u in (1 << 30, 1 << 20) if peak >= u), 1 << 10)
    name = {1 << 30: "GiB", 1 << 20: "MiB", 1 << 10: "KiB"}[unit]
    return f"mem {live / unit:.1f}/{peak / unit:.1f} {name}"


class Lines(Callback):
    """A line to standard error every `every` steps, and for each validation and skipped step."""

    reads_model = False
    every_rank = False

    def __init__(self, every: int):
        self.every = every
        self._pace: Any = None

    def on_fit_start(self, trainer: "Trainer") -> None:
        self._pace = Pace(trainer, 0.0)

    def on_step_end(self, trainer: "Trainer", row: dict[str, float]) -> None:
        self._pace.note(trainer)
        if row["step"] % self.every == 0 or row["step"] == trainer.total_steps:
            self._say(f"{_place(trainer, row)}  {self._pace.describe(trainer, row)}")

    def on_skip(self, trainer: "Trainer", row: dict[str, float]) -> None:
        self._say(f"{_place(trainer, row)}  {_skip(row)}")

    def on_validation_end(self, trainer: "Trainer", metrics: dict[str, float]) -> None:
        parts = [f"{name} {number}" for name, number in quantities(metrics)]
        self._say(f"step {trainer.step}  validation  {'  '.join(parts)}")

    def on_fit_end(self, trainer: "Trainer") -> None:
        if trainer.idle is not None:
            self._say(trainer.idle)
        elif trainer.stopped is not None:
            self._say(f"step {trainer.step}  stopped: {trainer.stopped}")

    def _say(self, text: str) -> None:
        with suppress(OSError):  # whoever read it may be gone, and the run goes on
            print(text, file=sys.stderr, flush=True)


def _place(trainer, row) -> str:
    total = "" if trainer.total_steps is None else f"/{trainer.total_steps}"
    return f"step {row['step']}{total}  {_epoch(row)}"


def _epoch(row) -> str:
    """Of what is counted from 0: the first is epoch 1."""
    return f"epoch {row['epoch'] + 1}"


def _skip(row) -> str:
    why = "loss scale too large" if row["overflow"] else "not finite"
    return f"skipped: {why} (loss {row['loss']:.4g}, grad norm {row['grad_norm']:.4g})"


BAR = " " * 10  # a placeholder for the bar, of its least width
_GAP = 2


def fitting(parts: list[tuple[int, str]], width: int) -> list[str]:
    """The parts that fit into a line, in their order; lower ranks have priority.

    >>> from weft.train.progress import fitting
    >>> fitting([(1, "epoch 3"), (0, "12/40"), (2, "lr 0.1")], 16)
    ['epoch 3', '12/40']
    """
    taken: list[int] = []
    for i in sorted(range(len(parts)), key=lambda i: parts[i][0]):
        if sum(len(parts[k][1]) + _GAP for k in (*taken, i)) - _GAP <= width or not taken:
            taken.append(i)
    return [parts[i][1] for i in sorted(taken)]


class Bar(Callback):
    """A bar by rich: loss, gradient norm, learning rate, samples per second, memory, time left.

    What does not fit into the terminal's width is left out: the metrics first; step, loss and
    speed last.
    """

    reads_model = False
    every_rank = False

    def __init__(self, console: Any = None):
        if not find_spec("rich"):
            raise errors.ArgumentError(
                "Trainer: progress='bar' needs rich; pip install 'weft[train]', or take 'lines'"
            )
        self._console = console
        self._bar: Any = None
        self._task: Any = None
        self._pace: Any = None

    def on_fit_start(self, trainer: "Trainer") -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = self._console or Console(stderr=True)
        self._bar = Progress(_line_column()(console), console=console, expand=True)
        self._task = self._bar.add_task(
            "", total=trainer.total_steps, completed=trainer.step, parts=[(3, BAR)]
        )
        self._pace = Pace(trainer, 0.5)
        self._bar.start()

    def on_step_end(self, trainer: "Trainer", row: dict[str, float]) -> None:
        parts = self._parts(trainer, row)
        self._bar.update(self._task, completed=row["step"], parts=parts)

    def _parts(self, trainer, row) -> list[tuple[int, str]]:
        """The parts of the line with their ranks; the word for samples goes first."""
        self._pace.note(trainer)
        unit = unit_of(trainer)
        total = "" if trainer.total_steps is None else f"/{trainer.total_steps}"
        ranks = {"loss": 1, "lr": 6, "grad norm": 8}
        said = [(ranks.get(n, 9), f"{n} {number}") for n, number in quantities(row, trainer)]
        place, speed = (0, f"{row['step']}{total}"), self._pace.speed(trainer)
        kept = [place, *[part for part in said if part[0] == 1], (2, f"{speed} {unit}/s")]
        roomy = len(fitting(kept, self._bar.console.width)) == len(kept)
        pace = (2, f"{speed} {unit}/s" if roomy else f"{speed}/s")
        left = (4, f"ETA {clock(self._pace.seconds_left(trainer))}")
        memory = memory_of(trainer)
        counted = [] if memory is None else [(5, brief(*memory))]
        return [(7, _epoch(row)), (3, BAR), place, *said, pace, *counted, left]

    def on_skip(self, trainer: "Trainer", row: dict[str, float]) -> None:
        self._bar.console.print(f"{_place(trainer, row)}  {_skip(row)}")

    def on_validation_end(self, trainer: "Trainer", metrics: dict[str, float]) -> None:
        parts = [f"{name} {number}" for name, number in quantities(metrics)]
        self._bar.console.print(f"step {trainer.step}  validation  {'  '.join(parts)}")

    def on_fit_end(self, trainer: "Trainer") -> None:
        if trainer.idle is not None:
            self._bar.console.print(trainer.idle)
        elif trainer.stopped is not None:
            self._bar.console.print(f"stopped: {trainer.stopped}")
        self._bar.stop()

    def on_error(self, trainer: "Trainer", error: BaseException) -> None:
        if self._bar is not None:
            self._bar.stop()


def _line_column() -> type:
    """The column of rich that is the whole line."""
    from rich.progress import ProgressColumn
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    class Line(ProgressColumn):
        def __init__(self, console):
            super().__init__()
            self._console = console

        def render(self, task):
            width = self._console.width
            shown = fitting(task.fields["parts"], width)
            room = width - sum(len(part) + _GAP for part in shown) + _GAP
            line = Table.grid(padding=(0, _GAP, 0, 0))
            cells = []
            for part in shown:
                wide = len(BAR) + max(room, 0) if part is BAR else len(part)
                line.add_column(no_wrap=True, width=wide)
                bar = ProgressBar(task.total, task.completed, wide) if part is BAR else Text(part)
                cells.append(bar)
            line.add_row(*cells)
            return line

    return Line
