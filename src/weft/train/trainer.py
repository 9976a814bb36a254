"""`Trainer`: the loop that trains a model, and continues exactly after an interruption."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import is_dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import errors
from ..backend.device import canonical_device
from ..io import directory as checkpoints
from ..io import locked, save_checkpoint, steps
from ..io.durable import make_directories
from ..optim import EMA
from ..transform.checkpoint.choose import check_config
from ..transform.modes.backward import enable_grad
from . import arguments, state
from .callbacks import Callback, Callbacks
from .cursor import Cursor, continues
from .evaluation import evaluate, weights_in_use
from .frozen import FrozenParameters
from .history import History
from .interrupts import Interrupts
from .joining import check_same, joined_ranks, load_together, share_state
from .objective import Objective
from .plan import TrainingPlan
from .precision import Precision
from .progress import progress_for
from .ranks import Ranks, positions
from .rewind import sound_step
from .running import RunningSteps
from .step import Clip, Stepper

if TYPE_CHECKING:
    from os import PathLike

    from ..amp import AmpConfig, GradScaler, PrecisionMode
    from ..arrays.types import Device, DTypeLike
    from ..core.checkpointing import CheckpointConfig
    from ..dist.reducer import GradientReducer
    from ..io import Checkpoint
    from ..nn.module import Module
    from ..optim.groups import AnyOptimizer
    from .arguments import Schedule
    from .cursor import Loader


class Trainer:
    """Trains a model on batches by an optimizer; runs that were killed go on to the bit.

    model       a `wf.nn.Module`; if it is in evaluation mode, it is put into training mode, else
                parts of it that are (a frozen batch norm) stay so
    optimizer   an optimizer of `wf.optim`, `EMAOptimizer` and `MultiGroupOptimizer` included; one
                without parameters gets those of the model
    loss        (model, batch) -> scalar, or (scalar, dict of metrics). Losses of `wf.nn` (functions
                and modules) and `wf.train.supervised(criterion)` take `(model(x), y)` of batches
                (x, y). A loss is a mean over what `count` counts
    schedule    a schedule of `wf.optim.schedulers`, by step; a plateau follows the validation loss
    accumulate  batches of the loader in one step, which equals the step of one large batch
    precision   None, "bfloat16", "float16", or a `wf.amp.AmpConfig`, for the forward pass
    scaler      a `wf.amp.GradScaler`; with float16, one is made
    clip_norm   the largest norm of all gradients together
    clip_value  the largest absolute value of each element of the gradients
    compile     whether steps and evaluations run as compiled programs (see `wf.compile`); the
                model, the loss and the metrics must not look at values then. A step is one
                program (without a scaler, and if no callback has `on_gradients`), which keeps no
                `.grad`; on a GPU the next one is launched before its numbers are read
    checkpoint  a `wf.CheckpointConfig`: what steps keep for the backward pass, and what they
                compute again; or a budget of bytes for them
    device      where the model is moved to; batches go to the device of the model's parameters in
                any case, if they are on one
    ema         the decay of averages of the parameters, or an `EMA`; validation uses the averages,
                as it does those of an optimizer that averages itself (`ScheduleFreeAdamW`)
    count       batch -> how many things its loss is the mean of; by default its samples
    callbacks   `Callback`s, called in their order
    directory   where checkpoints go
    save_every  steps from one checkpoint to the next; one is saved at the end in any case
    save_frozen  whether checkpoints hold parameters that do not require gradients; False: they are
                told by name, shape, dtype and a digest of some of their elements, and a run is
                resumed only with the same ones: load the base into the model before `fit`
    keep        how many of the newest checkpoints stay; None: all
    log_every   steps from one printed line to the next, where there is no bar
    progress    True: a bar at a terminal, lines elsewhere; "bar"; "lines"; False. They say how many
                bytes of memory are live and were at most, of a GPU, or of the innermost
                `wf.profile.Counter` that counts while `fit` runs
    nonfinite   "raise": a loss or gradient that is NaN or infinite is an error that names the
                operation; the run is then where it was before that step, and saved if there is a
                directory; "skip": that step is left out and recorded; "rewind": as "raise", but the
                run goes on from the newest checkpoint after which a loss was at most 10 times the
                median of those before. The state before that step, and checkpoints that are not
                sound so, go into the folder `aside` of the directory. One that is sound stays in
                any case, whatever `keep` says
    max_skips   so many steps left out in a row are an error (also those of a loss scale that
                was too large)
    dist        whether the processes of `wf.dist.init()` train together: they make the same
                trainer, and call `fit` and `evaluate` with the same arguments. Batches are those of
                all ranks, each of which loads its share; order, steps, losses and validation are
                then those of one process. Rank 0 writes checkpoints and the rest (see
                `Callback.every_rank`); draws differ between ranks, and running statistics of
                layers are those of rank 0's shares. A run may go on with another number of ranks
    signals     whether SIGINT, SIGTERM and SIGHUP (a terminal that is closed) wait for the end of
                the step and its checkpoint; a second one does not wait, but for SIGHUP

    >>> import weft as wf
    >>> wf.random.seed(0)
    >>> x = wf.rand((64, 3))
    >>> data = wf.train.TensorDataset(x, x @ wf.tensor([[1.0], [2.0], [3.0]]))
    >>> loader = wf.train.DataLoader(data, batch_size=16, shuffle=True)
    >>> model = wf.nn.Linear(3, 1)
    >>> optimizer = wf.optim.Adam(model, lr=0.1)
    >>> trainer = wf.train.Trainer(model, optimizer, wf.nn.functional.mse_loss, progress=False)
    >>> history = trainer.fit(loader, epochs=100)
    >>> len(history), history["loss"][-1] < 1e-3
    (400, True)
    """

    def __init__(
        self,
        model: Module,
        optimizer: AnyOptimizer,
        loss: Callable[..., Any],
        *,
        schedule: Schedule | None = None,
        accumulate: int = 1,
        precision: PrecisionMode | AmpConfig | DTypeLike | None = None,
        scaler: GradScaler | None = None,
        clip_norm: float | None = None,
        clip_value: float | None = None,
        compile: bool = False,
        checkpoint: CheckpointConfig | None = None,
        device: Device | None = None,
        ema: float | EMA | None = None,
        count: Callable[[Any], float] | None = None,
        callbacks: Iterable[Callback] = (),
        directory: str | PathLike[str] | None = None,
        save_every: int | None = None,
        save_frozen: bool = True,
        keep: int | None = 3,
        log_every: int = 10,
        progress: bool | Literal["bar", "lines"] = True,
        nonfinite: Literal["raise", "skip", "rewind"] = "raise",
        max_skips: int = 25,
        dist: bool = False,
        signals: bool = True,
    ):
        arguments.check_model(model)
        arguments.bind(optimizer, model)
        arguments.check_clip(clip_norm, clip_value)
        arguments.check_schedule(schedule)
        arguments.check_choice("compile", compile, (True, False))
        arguments.check_choice("save_frozen", save_frozen, (True, False))
        arguments.check_choice("dist", dist, (True, False))
        arguments.check_choice("progress", progress, (True, False, "bar", "lines"))
        arguments.check_choice("nonfinite", nonfinite, ("raise", "skip", "rewind"))
        arguments.check_kinds(callbacks, directory, scaler)
        self.ranks: Ranks = joined_ranks(dist)
        self.model = model
        self.optimizer = optimizer
        self.schedule: Any = schedule
        if device is not None:
            model.to(device=canonical_device(device))
        self.accumulate: int = arguments.at_least_one("accumulate", accumulate)
        self.own_ema: EMA | None = arguments.averages(ema, model, optimizer)
        self.directory: Path | None = None if directory is None else Path(directory)
        self.save_every: int | None = arguments.interval("save_every", save_every, directory)
        self.save_frozen = save_frozen
        self.frozen: FrozenParameters = FrozenParameters(model, optimizer)
        self.keep: int | None = None if keep is None else arguments.at_least_one("keep", keep)
        self.nonfinite = nonfinite
        self.max_skips: int = arguments.at_least_one("max_skips", max_skips)
        self.signals = signals
        self.step: int = 0  # how many steps have been applied
        self.samples: float = 0  # how many samples this trainer has trained on since it was made
        self.skips: int = 0  # how many steps in a row were not applied
        self.history: History = History()
        self.stopped: str | None = None  # why the run stopped early
        self.idle: str | None = None  # why the last call of fit() did nothing
        self.total_steps: int | None = None
        self.compile = compile
        self.checkpoint: CheckpointConfig | None = check_config("Trainer", checkpoint)
        self._precision = Precision(precision, scaler)
        self._clip = Clip(clip_norm, clip_value)
        every = arguments.at_least_one("log_every", log_every)
        shown = progress_for(progress, every) if self.ranks.first else None
        self._shows = shown is not None
        self.callbacks: Callbacks = Callbacks((*callbacks, *([shown] if shown else [])), self.ranks)
        self._objective = Objective(loss, count)
        self._plan: TrainingPlan | Any = None  # the arguments of the last call of fit()
        self.cursor: Cursor | Any = None  # the run's position in its data
        self._logged: dict[str, float] = {}  # numbers of callbacks for the step's row
        self._stepper: Stepper | None = None
        self._joined = False  # whether all ranks have the same model, optimizer and averages
        self._saved: tuple[int, ...] | None = None  # the run's position at the last save or load

    # For callbacks

    @property
    def scaler(self) -> GradScaler | None:
        """The scale of the loss, if there is one."""
        return self._precision.scaler

    @property
    def ema(self) -> EMA | None:
        """The averages of the parameters: the trainer's, or those of an `EMAOptimizer`."""
        return getattr(self.optimizer, "ema", None) if self.own_ema is None else self.own_ema

    @property
    def epoch(self) -> int:
        """How many epochs have been gone through."""
        return 0 if self.cursor is None else self.cursor.epoch

    @property
    def validates(self) -> bool:
        """Whether this run was given data to validate on."""
        return self._plan is not None and self._plan.validation is not None

    def stop(self, reason: str) -> None:
        """End the run after this step; that of several ranks ends if any of them calls it.

        reason  what the progress says

        >>> import weft as wf
        >>> class AfterTwo(wf.train.Callback):
        ...     def on_step_end(self, trainer, row):
        ...         if row["step"] == 2:
        ...             trainer.stop("two are enough")
        >>> model = wf.nn.Linear(1, 1)
        >>> data = wf.train.TensorDataset(wf.ones((4, 1)), wf.ones((4, 1)))
        >>> trainer = wf.train.Trainer(
        ...     model, wf.optim.SGD(model), wf.nn.MSELoss(), callbacks=[AfterTwo()], progress=False
        ... )
        >>> len(trainer.fit(wf.train.DataLoader(data), epochs=5))
        2
        """
        self.stopped = reason

    def log(self, **numbers: float) -> None:
        """Add numbers to the row of the step that is being taken; for `Callback.on_gradients`.

        numbers  by their names in the history

        >>> import weft as wf
        >>> class Largest(wf.train.Callback):
        ...     def on_gradients(self, trainer, gradients):
        ...         trainer.log(largest=max(g.abs().max().item() for g in gradients.values()))
        >>> model = wf.nn.Linear(1, 1)
        >>> data = wf.train.TensorDataset(wf.ones((4, 1)), wf.ones((4, 1)))
        >>> trainer = wf.train.Trainer(
        ...     model, wf.optim.SGD(model), wf.nn.MSELoss(), callbacks=[Largest()], progress=False
        ... )
        >>> len(trainer.fit(wf.train.DataLoader(data), epochs=1)["largest"])
        4
        """
        self._logged |= numbers

    def release(self) -> None:
        """Free what compiled programs keep from one step to the next, until they run again.

        For callbacks that take much memory by themselves.

        >>> import weft as wf
        >>> model = wf.nn.Linear(1, 1)
        >>> trainer = wf.train.Trainer(model, wf.optim.SGD(model), wf.nn.MSELoss(), progress=False)
        >>> trainer.release()
        """
        if self._stepper is not None:
            self._stepper.release()
        if self.compile and "_evaluated" in self.__dict__:
            self._evaluated.release()  # type: ignore[attr-defined]

    def weights(self) -> dict[str, Any]:
        """Copies of the model's state and of the averages; frozen parameters with `save_frozen`.

        >>> import weft as wf
        >>> model = wf.nn.Linear(1, 1)
        >>> trainer = wf.train.Trainer(model, wf.optim.SGD(model), wf.nn.MSELoss(), progress=False)
        >>> kept = trainer.weights()
        >>> list(kept["model"])
        ['weight', 'bias']
        """
        return state.weights(self)

    def set_weights(self, kept: dict[str, Any]) -> None:
        """Go back to what `weights()` gave.

        kept  what `weights()` gave

        >>> import weft as wf
        >>> model = wf.nn.Linear(1, 1, bias=False)
        >>> trainer = wf.train.Trainer(model, wf.optim.SGD(model), wf.nn.MSELoss(), progress=False)
        >>> kept, before = trainer.weights(), model.weight.tolist()
        >>> model.set_weights([[5.0]])
        >>> trainer.set_weights(kept)
        >>> model.weight.tolist() == before
        True
        """
        state.set_weights(self, kept)

    def settings(self) -> dict[str, Any]:
        """The settings that determine a run's numbers, besides the parts with a state."""
        return {
            "accumulate": self.accumulate,
            "precision": str(self._precision),
            "clip_norm": self._clip.norm,
            "clip_value": self._clip.value,
            "compile": self.compile,
            "device": arguments.device_of(self.model),
            "schedule": (repr if is_dataclass(self.schedule) else _kind)(self.schedule),
            "nonfinite": "skip" if self.nonfinite == "skip" else "raise",  # of the numbers
            **({} if self.ranks.alone else {"ranks": self.ranks.size}),
        }

    # Training

    def fit(
        self,
        loader: Loader,
        *,
        epochs: int | None = None,
        steps: int | None = None,
        validation: Iterable[Any] | None = None,
        validate_every: int | None = None,
        resume: str | PathLike[str] | None = None,
    ) -> History:
        """Train until so many epochs or steps are done, counted from the run's beginning.

        loader          a `wf.train.DataLoader`
        epochs          how many epochs the run has in all
        steps           how many steps the run has in all, in place of epochs
        validation      batches to evaluate the model on, every `validate_every` steps or, without
                        that, at the end of each epoch
        validate_every  steps from one validation to the next; None: at the end of each epoch
        resume          "auto": go on from the newest intact checkpoint in `directory`, if there is
                        one; a path: from that checkpoint

        A second call goes on where the first ended: after `epochs=2`, `epochs=4` trains two more,
        and `epochs=2` again does nothing: `idle` says so then, the progress too, and unless a
        checkpoint was resumed from, a `wf.errors.NothingToDoWarning`.

        A model, optimizer or loader other than the saved one is an error that names all that
        differs; other settings or versions are a `wf.errors.ResumeWarning`.

        >>> import weft as wf
        >>> model = wf.nn.Linear(1, 1)
        >>> trainer = wf.train.Trainer(model, wf.optim.SGD(model), wf.nn.MSELoss(), progress=False)
        >>> data = wf.train.TensorDataset(wf.ones((4, 1)), wf.ones((4, 1)))
        >>> len(trainer.fit(wf.train.DataLoader(data, batch_size=2), epochs=3))
        6
        """
        if not self.ranks.alone:
            arguments.check_compression(self.model, self.directory)
        plan = TrainingPlan(loader, epochs, steps, validation, validate_every)
        arguments.check_plan(plan, self.schedule)
        arguments.bind(self.optimizer, self.model)  # either may have changed since
        self._plan, self.stopped = plan, None
        self.ranks.begin()
        self.frozen = FrozenParameters(self.model, self.optimizer)
        with ExitStack() as stack:
            try:
                self._enter_directory(stack)
                check_same(self, resume)
                resumed = self._begin(resume)
            except BaseException as error:
                self.ranks.announce(error)
                raise
            interrupts = Interrupts(self.signals, self._before_signals(), not self.ranks.alone)
            self._interrupts = stack.enter_context(interrupts)
            stack.enter_context(enable_grad())
            try:
                self._run(plan, interrupts, resumed)
            except BaseException as error:
                self.ranks.announce(error)
                self.callbacks.call("on_error", self, error)
                raise
        return self.history

    def _enter_directory(self, stack: ExitStack) -> None:
        """Make the directory of the run, and lock it."""
        directory = self.directory
        if directory is None:
            return

        def enter() -> None:
            make_directories(directory)
            stack.enter_context(locked(directory))

        self.ranks.from_first("Trainer.fit", enter)

    def _before_signals(self) -> str | None:
        """What is done before a signal takes effect, in words; None: nothing is printed."""
        saving = "" if self.directory is None else " and saving a checkpoint"
        return f"finishing this step{saving}" if self._shows else None

    # Ranks

    def _wishes(self) -> dict[str, Any]:
        """What this rank asks of all: to stop, or to end since a signal came."""
        return {"stop": self.stopped, "signal": self._interrupts.pending}

    def _heed(self, found: list[dict[str, Any]]) -> bool:
        """Whether the run stops, on all ranks, since one asks for it."""
        reasons = [facts["stop"] for facts in found if facts["stop"] is not None]
        if reasons:
            self.stopped = self.ranks.stopped = reasons[0]
        signals = [(r, f["signal"]) for r, f in enumerate(found) if f["signal"] is not None]
        if signals:
            self._interrupts.receive(*signals[0])
        return bool(reasons or signals)

    def _meet(self) -> None:
        """Wait for all ranks, and heed what any of them asks for; raise if one has failed."""
        if not self.ranks.alone:
            self._heed(self.ranks.together("Trainer.fit", self._wishes))

    def _begin(self, resume: str | PathLike[str] | None) -> bool:
        """Load the checkpoint to resume from; returns whether there was one."""
        saved, loader = load_together(self, resume), self._plan.loader
        directory = self.directory
        if directory is not None and self._saved is None:
            step = self.step if saved is None or saved.step is None else saved.step
            check = state.check_directory
            self.ranks.from_first("Trainer.fit", lambda: check(directory, resume, step))
        if saved is not None:
            self.ranks.together("Trainer.fit", lambda: state.restore(self, loader, saved))
            self._joined = True
        else:
            share_state(self)
        if self.cursor is None or self.cursor.loader is not loader or continues(loader):
            self.cursor = Cursor(loader)
        if saved is not None:
            self.cursor.epoch = saved.epoch
            self._saved = self._place()
        at = self.cursor
        self.total_steps = self._plan.last_step(self.step, at.epoch, at.position, self.accumulate)
        return saved is not None

    def _run(self, plan: TrainingPlan, interrupts: Interrupts, resumed: bool) -> None:
        self.callbacks.call("on_fit_start", self)
        self._meet()
        if not self.model.training:
            self.model.train()
        own = arguments.self_averaging(self.optimizer)
        if own is not None:
            own.train()
        stepper = self._stepper = self._make_stepper()
        self.idle = plan.nothing_to_do(self.step, self.epoch, self.stopped)
        if self.idle is not None and not resumed and self.ranks.first:
            warnings.warn(self.idle, errors.NothingToDoWarning, stacklevel=3)
        steps = RunningSteps(self, stepper)
        try:
            while not self._over():
                self._train_epoch(steps, interrupts)
                if interrupts.due is not None:
                    self._save_if_moved()
                    interrupts.deliver()
        except BaseException:
            steps.close()
            raise
        finally:
            stepper.reducing.clear()
            self._stepper = None
        self._save_if_moved()
        self.callbacks.call("on_fit_end", self)
        self._meet()

    def _show_gradients(self, gradients: dict[str, Any]) -> None:
        self._logged.clear()
        self.callbacks.call("on_gradients", self, gradients)

    def _make_stepper(self) -> Stepper:
        return self._kind_of_step()(
            self.model,
            self.optimizer,
            lambda: arguments.trained_parameters(self.optimizer),
            self._objective,
            self._precision,
            self._clip,
            self.own_ema,
            self.checkpoint,
            self._show_gradients if self.callbacks.define("on_gradients") else None,
            self.ranks,
            self._reducers(),
        )

    def _reducers(self) -> list[GradientReducer]:
        """What averages gradients while backward passes run; compiled steps have that in them."""
        if self.ranks.group is None or self.compile:
            return []
        from ..dist.parallel import DataParallel  # most runs have no other ranks
        from ..dist.reducer import GradientReducer

        if isinstance(self.model, DataParallel):
            return [self.model.reducer]
        return [GradientReducer(arguments.trained_parameters(self.optimizer), self.ranks.group)]

    def _kind_of_step(self) -> type[Stepper]:
        if not self.compile:
            return Stepper
        if self.scaler is not None or self.callbacks.define("on_gradients"):
            from .compiled import CompiledStepper  # loads the compiler

            return CompiledStepper
        from .whole import WholeStepper

        return WholeStepper

    def _over(self) -> bool:
        stopped = self.stopped if self.ranks.alone else self.ranks.stopped
        return stopped is not None or self._plan.is_done(self.step, self.epoch)

    def _train_epoch(self, steps: RunningSteps, interrupts: Interrupts) -> None:
        """The rest of an epoch, or a part of it.

        No batch beyond the last is requested, so that the loader's cursor stays in the epoch until
        the end of the epoch has been handled.
        """
        cursor, size = self.cursor, len(self._plan.loader)
        batches = cursor.rest(self.ranks.part)
        while left := size - cursor.position:
            start = steps.begin()
            loaded = steps.load(start, batches, min(left, self.accumulate))
            if loaded is None:
                return
            cursor.note()
            steps.launch(start, loaded, last=bool(interrupts.due) or cursor.position == size)
            del loaded  # not kept beside the next one
            if interrupts.due or (self._over() and cursor.position < size):
                steps.settle()
                return
        cursor.end_epoch()
        if self._plan.validates_epochs:
            self._validate()
        self.callbacks.call("on_epoch_end", self)

    def _acts_after(self, step: int) -> bool:
        """Whether a step is followed by something that looks at the model, or by none."""
        every = [n for n in (self._plan.validate_every, self.save_every) if n is not None]
        return self._plan.is_done(step, self.epoch) or any(step % n == 0 for n in every)

    def _end_step(self, row: dict[str, float]) -> None:
        """What follows a step that was applied and recorded."""
        self.callbacks.call("on_step_end", self, row)
        if self._plan.validate_every is not None and self.step % self._plan.validate_every == 0:
            self._validate()
        due = self.save_every is not None and self.step % self.save_every == 0
        if due and not self._ends_with_save():
            self.save()

    def _ends_with_save(self) -> bool:
        """Whether nothing that takes long is between this step and the run's last save."""
        ends = self._over() or self.step == self.total_steps
        return ends and not self._plan.validates_epochs

    # Validation

    def _validate(self) -> None:
        metrics = self.evaluate(self._plan.validation)
        self.history.validation.append({"step": self.step, "epoch": self.epoch, **metrics})
        if hasattr(self.schedule, "step"):
            self.schedule.step(metrics["loss"])
        self.callbacks.call("on_validation_end", self, metrics)

    def evaluate(self, loader: Any, *, averaged: bool | None = None) -> dict[str, float]:
        """The loss and the metrics over all batches; each counts by its samples.

        loader    batches
        averaged  whether to use the averages of the parameters; by default if there are any

        Nothing changes: dropout and the like are off, and random numbers and the loader are
        afterwards where they were. All ranks call it; each evaluates its part of the batches.

        >>> import weft as wf
        >>> model = wf.nn.Linear(1, 1, bias=False)
        >>> model.set_weights([[2.0]])
        >>> trainer = wf.train.Trainer(model, wf.optim.SGD(model), wf.nn.MSELoss(), progress=False)
        >>> data = wf.train.TensorDataset(wf.ones((4, 1)), wf.zeros((4, 1)))
        >>> trainer.evaluate(wf.train.DataLoader(data, batch_size=2))
        {'loss': 4.0}
        """
        return evaluate(self, loader, averaged)

    def averaged(self) -> AbstractContextManager[Any]:
        """A block in which the parameters are their averages, if the run keeps any.

        >>> import weft as wf
        >>> model = wf.nn.Linear(1, 1, bias=False)
        >>> trainer = wf.train.Trainer(
        ...     model, wf.optim.SGD(model), wf.nn.MSELoss(), ema=0.5, progress=False
        ... )
        >>> before = model.weight.tolist()
        >>> model.set_weights([[5.0]])
        >>> with trainer.averaged():
        ...     model.weight.tolist() == before
        True
        """
        return weights_in_use(self, None)

    @cached_property
    def _evaluated(self) -> Callable[..., Any]:
        """The loss and the metrics of a batch."""

        def evaluated(batch):
            with self._precision.autocast():
                return self._objective(self.model, batch)

        if not self.compile:
            return evaluated
        from .compiled import compile_part

        return compile_part("Trainer.evaluate", evaluated)

    # Saving

    def _place(self) -> tuple:
        return self.step, self.epoch, self.cursor.position

    def save(self) -> Path:
        """Save a checkpoint of the run as it is now; returns its path. All ranks call it.

        >>> import weft as wf
        >>> import tempfile
        >>> model = wf.nn.Linear(1, 1)
        >>> data = wf.train.TensorDataset(wf.ones((4, 1)), wf.ones((4, 1)))
        >>> with tempfile.TemporaryDirectory() as run:
        ...     trainer = wf.train.Trainer(
        ...         model, wf.optim.SGD(model), wf.nn.MSELoss(), directory=run, progress=False
        ...     )
        ...     history = trainer.fit(wf.train.DataLoader(data), epochs=1)
        ...     trainer.save().name
        'step-00000004'
        """
        if self.directory is None or self._plan is None:
            raise errors.ArgumentError(
                "Trainer.save: needs Trainer(…, directory=…), and a run that fit() has begun"
            )
        return self._save(self.directory, self.keep)

    def _save(self, directory: Path, keep: int | None) -> Path:
        self._meet_streams()
        self.callbacks.call("on_save_start", self)
        # All ranks take part: a state may be spread over them.
        path = directory / self.ranks.from_first(
            "Trainer.save", partial(self._write, directory, keep, state.capture(self))
        )
        self._saved = self._place()
        self.callbacks.call("on_save", self, path)
        return path

    def _write(self, directory: Path, keep: int | None, whole: Checkpoint) -> str:
        """Write a checkpoint; returns the name of its folder."""
        rewinds = self.nonfinite == "rewind"
        path = save_checkpoint(directory, whole, keep_last=None if rewinds else keep)
        if rewinds and keep is not None:
            with locked(directory) as turn, turn:
                sound = sound_step(self.history, steps(directory))
                checkpoints.prune(directory, self.step, keep, sound)
        return path.name

    def _meet_streams(self) -> None:
        """Put the random streams of all ranks behind what any of them has drawn."""
        if not self.ranks.alone:
            self.ranks.meet_streams(self.ranks.together("Trainer.save", positions))

    def _save_if_moved(self, keep_all: bool = False) -> None:
        """Save a checkpoint if there is a directory, and the run has moved since the last one."""
        if self.directory is not None and self._saved != self._place():
            self._save(self.directory, None if keep_all else self.keep)


def _kind(x) -> str | None:
    return None if x is None else type(x).__name__
