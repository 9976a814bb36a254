"""A run's numbers as TensorBoard event files."""

from importlib.util import find_spec
from math import isnan
from secrets import token_hex
from typing import Any

from .. import errors
from .callbacks import Callback


class TensorBoard(Callback):
    """Writes loss, gradient norm, learning rate and metrics into an event file.

    directory  where TensorBoard looks: `tensorboard --logdir directory`
    every      how many steps are from one row to the next; validations are always written

    After an interruption, what an earlier file has beyond the checkpoint is declared void.

    >>> import weft as wf
    >>> board = wf.train.TensorBoard("run/events", every=10)
    """

    def __init__(self, directory, every: int = 1):
        if not find_spec("tensorboardX"):
            raise errors.ArgumentError(
                "TensorBoard: needs tensorboardX; pip install 'weft[train]' or tensorboardX"
            )
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise errors.ArgumentError(f"TensorBoard: every={every!r}, expected 1 or more")
        self.directory, self.every = directory, every
        self._writer: Any = None

    def on_fit_start(self, trainer) -> None:
        from tensorboardX import SummaryWriter

        void = trainer.step + 1 if trainer.step else None
        # Its name has the time in seconds: a run that begins anew at once must not overwrite it.
        own = f".{trainer.step:08d}-{token_hex(4)}"
        self._writer = SummaryWriter(str(self.directory), purge_step=void, filename_suffix=own)

    def on_step_end(self, trainer, row) -> None:
        if row["step"] % self.every == 0:
            self._write("train", row, row["step"])

    def on_validation_end(self, trainer, metrics) -> None:
        self._write("validation", metrics, trainer.step)

    def _write(self, part: str, row: dict[str, float], step: int) -> None:
        for name, value in row.items():
            if name != "step" and not isnan(value):
                self._writer.add_scalar(f"{part}/{name}", value, step)

    def on_save(self, trainer, path) -> None:
        self._writer.flush()

    def on_fit_end(self, trainer) -> None:
        self._writer.close()

    def on_error(self, trainer, error) -> None:
        if self._writer is not None:
            self._writer.close()
