"""The steps of a run: launched, and settled in their order, at most one of them behind."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from json import dumps
from math import nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .. import errors
from ..arrays import random
from ..core.record import record
from . import arguments, state
from .anomaly import NOT_FOUND, data_is_finite, find_operation, nonfinite_constants
from .collation import place_batch
from .objective import Counts
from .parts import Share
from .ranks import positions, same_facts
from .rewind import ASIDE, rewind
from .step import Launched, Outcome, Stepper

if TYPE_CHECKING:
    from .trainer import Trainer


@record
class StepStart:
    """Where a run was before a step and its batches: enough to go back there.

    step    how many steps it had
    cursor  the state of the loader, the position and the epoch
    rng     the random state
    rates   the optimizer's learning rate, and those of its groups
    """

    step: int
    cursor: tuple[Any, int, int]
    rng: dict[str, int]
    rates: tuple[Any, list[Any]]

    @staticmethod
    def of(trainer: "Trainer", step: int) -> "StepStart":
        """The present place of a run."""
        at, optimizer = trainer.cursor, arguments.base_of(trainer.optimizer)
        rates = optimizer.config.lr, [group["lr"] for group in optimizer.param_groups]
        return StepStart(step, (at.state, at.position, at.epoch), random.get_state(), rates)

    def facts(self) -> dict[str, Any]:
        """What must be the same on all ranks."""
        state, position, epoch = self.cursor
        digest = blake2b(dumps(dict(state), default=str).encode(), digest_size=8).hexdigest()
        return {"step": self.step, "epoch": epoch, "position": position, "place in data": digest}

    def restore(self, trainer: "Trainer") -> None:
        """Go back, if no step was applied since."""
        at, optimizer = trainer.cursor, arguments.base_of(trainer.optimizer)
        at.state, at.position, at.epoch = self.cursor
        random.set_state(self.rng)
        rate, each = self.rates
        optimizer._config = replace(optimizer.config, lr=rate)
        for group, own in zip(optimizer.param_groups, each, strict=True):
            group["lr"] = own


@record
class RunningStep:
    """A step that was launched and not settled.

    start     where the run was before it
    drawn     the random state after its batches were loaded
    batches   as the loader gave them; of several ranks, this one's shares of them
    counts    of the batches
    rate      the learning rate of the first group
    launched  its result
    """

    start: StepStart
    drawn: dict[str, int]
    batches: list[Any]
    counts: Counts
    rate: Any
    launched: Launched

    @property
    def where(self) -> str:
        """The place of the step, for messages."""
        _, first, epoch = self.start.cursor
        last = f" to {first + len(self.batches) - 1}" if len(self.batches) > 1 else ""
        return f"step {self.start.step + 1}, epoch {epoch}, batch {first}{last}"


@record
class LoadedStep:
    """The batches of a step.

    given   as the loader gave them
    placed  on the device of the model
    counts  of them
    """

    given: list[Any]
    placed: list[Any]
    counts: Counts


class RunningSteps:
    """Launches the steps of a run, and settles them: counts, rows, callbacks, validation, saves."""

    def __init__(self, trainer: "Trainer", stepper: Stepper):
        self.trainer, self.stepper = trainer, stepper
        self._unsettled: deque[RunningStep] = deque()
        self._settling = False
        fails = trainer.nonfinite != "skip" and trainer.scaler is None
        alone = trainer.ranks.alone  # ranks wait for each other before each step
        runs_ahead = stepper.runs_ahead and alone
        self._behind = fails and runs_ahead and not trainer.callbacks.read_model

    @property
    def launched(self) -> int:
        """How many steps the run has, with those that are not settled."""
        return self.trainer.step + len(self._unsettled)

    def begin(self) -> StepStart:
        """The place of the run before its next step."""
        return StepStart.of(self.trainer, self.launched)

    def load(self, start: StepStart, batches: Iterator[Any], number: int) -> "LoadedStep | None":
        """Load the batches of a step, on all ranks; None if the run stops before it.

        start    the place of the run
        batches  a loop over the loader
        number   how many batches the step has
        """
        ranks = self.trainer.ranks
        if ranks.alone:
            given = [next(batches) for _ in range(number)]
            placed = self._place(given)
            return LoadedStep(given, placed, self.trainer._objective.count_all(placed))
        loaded: list[LoadedStep] = []

        def load() -> dict[str, Any]:
            shares = [next(batches) for _ in range(number)]
            loaded.append(self._load_shares(shares))
            facts = {"streams": positions(), "counts": loaded[0].counts.own}
            return {"place": start.facts(), **facts, **self.trainer._wishes()}

        found = ranks.together("the next step", load)
        same_facts("Trainer.fit", [facts["place"] for facts in found])
        if self.trainer._heed(found):
            random.set_state(start.rng)  # those batches are not the run's
            return None
        ranks.meet_streams([facts["streams"] for facts in found])
        total = sum([sum(facts["counts"]) for facts in found])
        return replace(loaded[0], counts=Counts(loaded[0].counts.own, total))

    def _place(self, batches: list[Any]) -> list[Any]:
        device = arguments.device_of(self.trainer.model)
        return [place_batch(batch, device) for batch in batches]

    def _load_shares(self, shares: list[Share]) -> "LoadedStep":
        """This rank's shares of the batches of a step; those of other ranks count nothing."""
        given = [share.batch for share in shares]
        placed, count = self._place(given), self.trainer._objective.count
        pairs = zip(placed, shares, strict=True)
        own = [count(batch) if share.counts else 0 for batch, share in pairs]
        return LoadedStep(given, placed, Counts(own, sum(own)))

    def launch(self, start: StepStart, loaded: "LoadedStep", last: bool) -> None:
        """Launch a step, and settle those before it; if it is the last for now, itself, too."""
        trainer, drawn = self.trainer, random.get_state()
        rate = None if trainer.schedule is None else trainer.schedule.get_lr(start.step)
        run = self.stepper.launch if self._behind else self._take
        launched = run(loaded.placed, rate, loaded.counts)
        first = trainer.optimizer.param_groups[0]["lr"]
        running = RunningStep(start, drawn, loaded.given, loaded.counts, first, launched)
        self._unsettled.append(running)
        self.settle(0 if last or not self._behind or trainer._acts_after(self.launched) else 1)

    def _take(self, batches: list[Any], rate: float | None, counts: Counts) -> Launched:
        outcome = self.stepper.take(batches, rate, counts)
        return Launched(lambda: outcome)

    def settle(self, most: int = 0) -> None:
        """Settle launched steps, but for the `most` last."""
        self._settling = True
        while len(self._unsettled) > most:
            outcome = self._unsettled[0].launched.result()  # a signal may end the wait
            running = self._unsettled.popleft()
            if outcome.problem is None:
                self.trainer._end_step(self._count(running, outcome))
            else:
                self._withhold(running, outcome)
        self._settling = False

    def close(self) -> None:
        """Settle the rest after an error: those steps were applied.

        If a callback has raised it, callbacks are not called for them.
        """
        while self._settling and self._unsettled:
            outcome = self._unsettled[0].launched.result()  # a signal may end the wait
            running = self._unsettled.popleft()
            if outcome.problem is not None:
                running.start.restore(self.trainer)
                self._unsettled.clear()
                return
            self._count(running, outcome)
        self.settle()

    def _count(self, running: RunningStep, outcome: Outcome) -> dict[str, float]:
        """Count a step that was applied; returns its row."""
        trainer, rate = self.trainer, running.rate
        trainer.samples += outcome.count
        trainer.step, trainer.skips = trainer.step + 1, 0
        loss, metrics = outcome.values["loss"], dict(outcome.values)
        del metrics["loss"]
        row = {"step": trainer.step, "epoch": trainer.epoch, "loss": loss}
        row |= {"grad_norm": outcome.norm, "lr": nan if rate is None else rate}
        row |= {**metrics, **trainer._logged}
        trainer.history.train.append(row)
        return row

    def _withhold(self, running: RunningStep, outcome: Outcome) -> None:
        """Record a skipped step, or raise after too many."""
        trainer = self.trainer
        if trainer.nonfinite != "skip" and not outcome.overflow:
            self._fail(running, outcome)
        trainer.samples += outcome.count
        trainer.skips += 1
        batch = running.start.cursor[1]
        row: dict[str, float] = {"step": trainer.step + 1, "epoch": trainer.epoch, "batch": batch}
        row |= {"loss": outcome.values["loss"], "grad_norm": outcome.norm}
        row["overflow"] = int(outcome.overflow)
        trainer.history.skipped.append(row)
        trainer.callbacks.call("on_skip", trainer, row)
        if trainer.skips >= trainer.max_skips:
            raise errors.AnomalyError(
                f"Trainer: {running.where}: {outcome.problem}; {trainer.skips} steps in a row were "
                f"left out (max_skips={trainer.max_skips}), so this is not a single bad batch. "
                "Train under wf.detect_anomaly() to find the operation"
            )

    def _fail(self, running: RunningStep, outcome: Outcome) -> NoReturn:
        """Go back to where the run was before a step that is not finite, save, and raise.

        Steps that were launched after it were withheld, too.
        """
        trainer = self.trainer
        self._unsettled.clear()
        running.start.restore(trainer)
        saved = "" if trainer.nonfinite == "rewind" else self._save(rewinds=False)
        placed = self._place(running.batches)
        constants = nonfinite_constants(trainer.model, trainer.optimizer)
        if trainer.nonfinite == "rewind":
            sound = trainer.ranks.together("the data", lambda: data_is_finite(placed))
            saved = self._save(rewinds=not constants and all(sound))
        found = self._find_operation(running, placed)
        raise errors.AnomalyError(
            f"Trainer: {running.where}: {outcome.problem}; nothing was changed{saved}. {found}. "
            f"{self._advice(constants)}"
        )

    def _find_operation(self, running: RunningStep, placed: list[Any]) -> str:
        """A sentence about the operation to blame, on the first rank that has found it."""
        ranks, stepper, shares = self.trainer.ranks, self.stepper, running.counts.shares

        def find() -> str:
            return find_operation(stepper, placed, running.drawn, shares)

        found = ranks.together("looking for the operation", find)
        which = next((r for r, text in enumerate(found) if text != NOT_FOUND), 0)
        return found[which] if ranks.alone else f"On rank {which}: {found[which]}"

    def _advice(self, constants: list[str]) -> str:
        if constants:
            more = f" and {len(constants) - 10} more" if len(constants) > 10 else ""
            return (
                "What is not trained is not finite itself, so that no step can be: "
                f"{', '.join(constants[:10])}{more}; load intact weights"
            )
        if self.trainer.nonfinite == "rewind":
            return "Lower the learning rate"
        return "Lower the learning rate, clip, or leave such steps out with nonfinite='skip'"

    def _save(self, rewinds: bool) -> str:
        """Save the state before a step that is not finite; says where it is."""
        directory = self.trainer.directory
        if directory is None:
            return ""
        try:
            if rewinds:
                return self._rewind(directory)
            self.trainer._save_if_moved(keep_all=True)
        except (OSError, errors.DistributedError) as e:
            return f", but the state before it could not be saved ({type(e).__name__}: {e})"
        return f", and the state before it is saved in {directory}: resuming repeats this step"

    def _rewind(self, directory: Path) -> str:
        """Set the state before a step that is not finite aside; says what the run goes on from."""
        history = self.trainer.history
        losses = history.train["loss"][-5:] if len(history) else []
        trainer = self.trainer
        whole = None if trainer.ranks.alone else state.capture(trainer)  # which all ranks do
        kept, aside = trainer.ranks.from_first(
            "setting checkpoints aside", lambda: list(rewind(trainer, whole))
        )
        before = ", ".join([f"{loss:.4g}" for loss in losses])
        said = f"; the losses before it were {before}" if losses else ""
        if kept is None:
            said += ". No checkpoint is from before the run diverged: it will begin anew"
        else:
            said += f". The run will go on from step {kept}, whose parameters gave a sound loss"
        if aside:
            states = "the state" if len(aside) == 1 else "the states"
            numbers = ", ".join(map(str, aside))
            said += f"; {states} after step {numbers}, to be looked at, in {directory / ASIDE}"
        return said
