"""A run's numbers as TensorBoard event files."""

from contextlib import suppress
from importlib.util import find_spec
from math import isnan
from os import PathLike
from pathlib import Path
from secrets import token_hex
from time import time, time_ns
from typing import TYPE_CHECKING, Any

from .. import errors
from ..io.durable import make_directories
from ..io.room import naming_full_disk
from .callbacks import Callback

if TYPE_CHECKING:
    from .trainer import Trainer


class TensorBoard(Callback):
    """Writes loss, gradient norm, learning rate and metrics into an event file.

    directory  where TensorBoard looks: `tensorboard --logdir directory`
    every      how many steps are from one row to the next; validations are always written

    Rows are on disk before the checkpoint that goes with them. After an interruption, what an
    earlier file has from the checkpoint's step on is declared void, and that step's rows, which
    the checkpoint holds, are written again: no row is lost, and none is there twice.

    >>> import weft as wf
    >>> board = wf.train.TensorBoard("run/events", every=10)
    """

    reads_model = False
    every_rank = False

    def __init__(self, directory: str | PathLike[str], every: int = 1):
        if not find_spec("tensorboardX"):
            raise errors.ArgumentError(
                "TensorBoard: needs tensorboardX; pip install 'weft[train]' or tensorboardX"
            )
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise errors.ArgumentError(f"TensorBoard: every={every!r}, expected 1 or more")
        self.directory = directory
        self.every = every
        self._writer: Any = None

    def on_fit_start(self, trainer: "Trainer") -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto import event_pb2

        directory = Path(self.directory)
        make_directories(directory)
        # Readers order files by name, which has the time in seconds only: a run that restarts
        # at once needs a later one.
        own = f".{time_ns():020d}-{token_hex(4)}"
        # Not a SummaryWriter: its flush() does not write its queue.
        with naming_full_disk(directory):
            self._writer = EventsWriter(str(directory / "events"), own)
        events: Any = event_pb2  # made at run time
        void = events.SessionLog(status=events.SessionLog.START)
        event = events.Event(wall_time=time(), step=trainer.step, session_log=void)
        self._write_event(event)
        # A validation may come after the save at its step: the history holds those before it.
        for row in trainer.history.train.rows(trainer.step):
            self.on_step_end(trainer, row)
        for row in trainer.history.validation.rows(trainer.step):
            self._write("validation", {k: v for k, v in row.items() if k != "epoch"}, trainer.step)

    def on_step_end(self, trainer: "Trainer", row: dict[str, float]) -> None:
        if row["step"] % self.every == 0:
            self._write("train", row, row["step"])

    def on_validation_end(self, trainer: "Trainer", metrics: dict[str, float]) -> None:
        self._write("validation", metrics, trainer.step)

    def _write(self, part: str, row: dict[str, float], step: float) -> None:
        from tensorboardX.proto import event_pb2, summary_pb2
        from tensorboardX.summary import scalar

        shown = {name: value for name, value in row.items() if name != "step" and not isnan(value)}
        values = [scalar(f"{part}/{name}", value).value[0] for name, value in shown.items()]
        events: Any = event_pb2  # made at run time, as is the other
        summaries: Any = summary_pb2
        summary = summaries.Summary(value=values)
        self._write_event(events.Event(wall_time=time(), step=step, summary=summary))

    def _write_event(self, event: Any) -> None:
        with naming_full_disk(Path(self.directory)):
            self._writer.write_event(event)

    def on_save_start(self, trainer: "Trainer") -> None:
        with naming_full_disk(Path(self.directory)):
            self._writer.flush()

    def on_fit_end(self, trainer: "Trainer") -> None:
        with naming_full_disk(Path(self.directory)):
            self._writer.close()

    def on_error(self, trainer: "Trainer", error: BaseException) -> None:
        if self._writer is None:
            return
        with suppress(OSError):  # the first error is the one to report
            self._writer.close()
        with suppress(OSError):  # it leaves the file open if its rest cannot be written
            self._writer._py_recordio_writer.close()
