"""Callbacks: hooks at the events of a training run."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import errors
from .ranks import ALONE, Ranks

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from .trainer import Trainer


class Callback:
    """The moments of `Trainer.fit`; a subclass defines those that it cares about.

    A callback may end the run with `trainer.stop(reason)`. What it needs in order to go on after
    an interruption is its `state_dict()`, which checkpoints hold.

    reads_model  whether `on_step_end` looks at the model, the optimizer or the averages, or may
                 end the run. If no callback does, a compiled step on a GPU is launched before
                 the step before it has been read: `on_step_end` is called with that one's row
                 while the next already runs. A subclass that uses no more than the row and the
                 numbers of the trainer (step, epoch, samples, total_steps) says False
    every_rank   whether each rank of `Trainer(dist=True)` calls it. A subclass that writes files or
                 speaks to people says False: only rank 0 calls it then, and an error of it ends
                 the run on all ranks when they meet next. Those that all ranks call see the same
                 numbers on each of them

    >>> import weft as wf
    >>> class StopAt(wf.train.Callback):
    ...     def __init__(self, loss):
    ...         self.loss = loss
    ...     def on_step_end(self, trainer, row):
    ...         if row["loss"] <= self.loss:
    ...             trainer.stop(f"the loss is {row['loss']}")
    """

    reads_model: bool = True
    every_rank: bool = True

    def on_fit_start(self, trainer: "Trainer") -> None:
        """Before the first step, after a checkpoint was loaded.

        trainer  the `Trainer`
        """

    def on_gradients(self, trainer: "Trainer", gradients: dict[str, "Tensor"]) -> None:
        """Before a step is applied: its gradients, finite, without a loss scale, not yet clipped.

        trainer    the `Trainer`
        gradients  by the names of the parameters

        `trainer.log(name=number)` adds numbers to what the history records of the step. An error
        here ends the run before the step changes anything.
        """

    def on_step_end(self, trainer: "Trainer", row: dict[str, float]) -> None:
        """After a step was applied; `row` is what the history records of it.

        trainer  the `Trainer`
        row      what the history records of the step
        """

    def on_skip(self, trainer: "Trainer", row: dict[str, float]) -> None:
        """After a step was not applied, because the loss or the gradient was not finite.

        trainer  the `Trainer`
        row      what the history records of the step
        """

    def on_validation_end(self, trainer: "Trainer", metrics: dict[str, float]) -> None:
        """After a validation.

        trainer  the `Trainer`
        metrics  the loss and the metrics by name
        """

    def on_epoch_end(self, trainer: "Trainer") -> None:
        """After an epoch's last step and validation; `trainer.epoch` is the number of epochs.

        trainer  the `Trainer`
        """

    def on_save_start(self, trainer: "Trainer") -> None:
        """Before a checkpoint is saved: what must not be older than it is written now.

        trainer  the `Trainer`
        """

    def on_save(self, trainer: "Trainer", path: Path) -> None:
        """After a checkpoint was saved.

        trainer  the `Trainer`
        path     where the checkpoint is
        """

    def on_fit_end(self, trainer: "Trainer") -> None:
        """After the last save of a run that came to its end.

        trainer  the `Trainer`
        """

    def on_error(self, trainer: "Trainer", error: BaseException) -> None:
        """Instead of `on_fit_end`, if an exception ends the run.

        trainer  the `Trainer`
        error    the exception
        """

    def state_dict(self) -> dict[str, Any]:
        """What changes while the run goes on.

        >>> import weft as wf
        >>> wf.train.Callback().state_dict()
        {}
        """
        return {}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> wf.train.Callback().load_state_dict({})
        """
        if saved:
            raise errors.StateMismatch(
                f"{type(self).__name__}: a state with {', '.join(saved)}, expected none; define "
                "load_state_dict beside state_dict"
            )


def name_callbacks(callbacks: tuple[Callback, ...]) -> dict[str, Callback]:
    """Callbacks by the name that their state is saved under: their class, numbered if need be."""
    found: dict[str, Callback] = {}
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise errors.DTypeError(
                f"Trainer: callbacks has a {type(callback).__name__}, expected a wf.train.Callback"
            )
        kind = type(callback).__name__
        count = sum(type(c).__name__ == kind for c in found.values())
        found[f"{kind}-{count + 1}" if count else kind] = callback
    return found


class Callbacks:
    """All callbacks of a run as one, called in their order; their states by name."""

    def __init__(self, callbacks: tuple[Callback, ...], ranks: Ranks = ALONE):
        self._ranks = ranks
        self.named: dict[str, Callback] = name_callbacks(callbacks)

    def define(self, moment: str) -> bool:
        """Whether any callback has this hook."""
        own = [getattr(type(callback), moment) for callback in self.named.values()]
        return any(hook is not getattr(Callback, moment) for hook in own)

    @property
    def read_model(self) -> bool:
        """Whether any callback looks at the model after each step."""
        ends = [c for c in self.named.values() if type(c).on_step_end is not Callback.on_step_end]
        return any(callback.reads_model for callback in ends)

    def call(self, moment: str, trainer: "Trainer", *args: Any) -> None:
        """Call this hook of every callback."""
        for callback in self.named.values():
            if callback.every_rank or self._ranks.alone:
                getattr(callback, moment)(trainer, *args)
            elif self._ranks.first:
                try:
                    getattr(callback, moment)(trainer, *args)
                except Exception as e:  # raised on all ranks when they meet
                    self._ranks.note_failure(e)

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """The states of those that have one."""
        states = {name: callback.state_dict() for name, callback in self.named.items()}
        return {name: state for name, state in states.items() if state}

    def load_state_dict(self, saved: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from a `state_dict`; each state must find its callback."""
        expected = self.state_dict()
        missing = [name for name in saved if name not in expected]
        added = [name for name in expected if name not in saved]
        if missing or added:
            raise errors.StateMismatch(
                f"callbacks: saved with {', '.join(saved) or 'none that have a state'}, now there "
                f"are {', '.join(expected) or 'none that have a state'}; give the same ones"
            )
        for name, state in saved.items():
            self.named[name].load_state_dict(state)
