"""Reading and checking a trainer's arguments."""

from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol

from .. import errors
from ..amp import GradScaler
from ..core.kinds import demand, demand_iterable
from ..optim import EMA, LBFGS, EMAOptimizer, Optimizer
from ..optim.averaged import SelfAveragingOptimizer
from ..optim.clip import check_limit
from ..optim.groups import AnyOptimizer
from .plan import TrainingPlan

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..nn.module import Module


class Schedule(Protocol):
    """Learning rates: one of `wf.optim.schedulers`, or the like."""

    def get_lr(self, step: int, /) -> float: ...


_MODEL = ("named_parameters", "parameters", "buffers", "modules", "state_dict", "train", "training")
_LOADER = ("epoch", "position", "__len__", "__iter__", "state_dict", "load_state_dict")


def check_choice(name: str, value: Any, choices: tuple[object, ...], who: str = "Trainer") -> None:
    """Raise unless the value is one of the choices."""
    if not any(value is c or (isinstance(c, str) and value == c) for c in choices):
        listed = ", ".join(map(repr, choices))
        raise errors.ArgumentError(f"{who}: {name}={value!r:.40}, expected one of {listed}")


def at_least_one(name: str, value: Any, who: str = "Trainer") -> int:
    """An integer ≥ 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise errors.ArgumentError(f"{who}: {name}={value!r:.40}, expected an integer ≥ 1")
    return value


def interval(name: str, value: Any, directory: Any) -> int | None:
    """A number of steps from one save to the next, which needs a directory."""
    if value is not None and directory is None:
        raise errors.ArgumentError(
            f"Trainer: {name}={value!r:.40} needs a directory to save into; give directory="
        )
    return None if value is None else at_least_one(name, value)


def check_kinds(callbacks: Any, directory: Any, scaler: Any) -> None:
    """Raise unless these arguments of a trainer are of the kinds that they have to be."""
    demand_iterable("Trainer: callbacks", callbacks, "a list of wf.train.Callback")
    if directory is not None:
        demand("Trainer: directory", directory, (str, PathLike), "a path")
    if scaler is not None:
        demand("Trainer: scaler", scaler, GradScaler, "a wf.amp.GradScaler")


def check_model(model: Any) -> None:
    """Raise unless the model is a module."""
    missing = [name for name in _MODEL if not hasattr(model, name)]
    if missing:
        raise errors.DTypeError(
            f"Trainer: the model is a {type(model).__name__} without {', '.join(missing)}; "
            "expected a wf.nn.Module"
        )


def device_of(model: "Module") -> str | None:
    """The device of the model's parameters; None if there are several, or no parameters."""
    found = {p.device for p in model.parameters()}
    return found.pop() if len(found) == 1 else None


def base_of(optimizer: Any) -> Optimizer:
    """The optimizer inside of those that wrap one."""
    while not isinstance(optimizer, Optimizer):
        inner = getattr(optimizer, "optimizer", None) or getattr(optimizer, "base_optimizer", None)
        if inner is None:
            raise errors.DTypeError(
                f"Trainer: the optimizer is a {type(optimizer).__name__}, expected one of wf.optim"
            )
        optimizer = inner
    return optimizer


def bind(optimizer: AnyOptimizer, model: "Module") -> None:
    """Give an optimizer without parameters those of the model; refuse parameters of others."""
    base = base_of(optimizer)
    if isinstance(base, LBFGS):
        raise errors.ArgumentError(
            "Trainer: LBFGS computes the loss many times in one step; call its step(closure) in a "
            "loop of your own, or take another optimizer"
        )
    if not base.entries():
        base.add_param_group([(n, p) for n, p in model.named_parameters() if p.requires_grad])
    own = {id(p) for p in model.parameters()}
    strange = [entry.key for entry in base.entries() if id(entry.param) not in own]
    if strange:
        raise errors.ArgumentError(
            f"Trainer: the optimizer changes {', '.join(strange[:10])}, which the model does not "
            "hold, so checkpoints would not either; make them parameters of the model"
        )


def trained_parameters(optimizer: AnyOptimizer) -> "list[tuple[str, Tensor]]":
    """(name, parameter) pairs of an optimizer's parameters."""
    return [(entry.key, entry.param) for entry in base_of(optimizer).entries()]


def self_averaging(optimizer: AnyOptimizer) -> SelfAveragingOptimizer | None:
    """The optimizer, if its steps average the parameters; what has its state moves them."""
    base = base_of(optimizer)
    if not isinstance(base, SelfAveragingOptimizer):
        return None
    return base if base.sharded is None else base.sharded


def averages(ema: float | EMA | None, model: "Module", optimizer: AnyOptimizer) -> EMA | None:
    """The averages that the trainer keeps."""
    if ema is None or isinstance(ema, EMA):
        found = ema
    else:
        found = EMA([(n, p) for n, p in model.named_parameters() if p.requires_grad], ema)
    own = self_averaging(optimizer)
    if own is not None and (found is not None or isinstance(optimizer, EMAOptimizer)):
        raise errors.ArgumentError(
            f"Trainer: an EMA beside {type(own).__name__}, which averages the parameters itself; "
            "leave the EMA out"
        )
    if found is not None and isinstance(optimizer, EMAOptimizer):
        raise errors.ArgumentError(
            "Trainer: ema= beside an EMAOptimizer, which keeps averages already; give one of them"
        )
    return found


def check_clip(norm: float | None, value: float | None) -> None:
    """Refuse limits that are no numbers ≥ 0, and limits of both kinds together."""
    for name, limit in (("clip_norm", norm), ("clip_value", value)):
        if limit is not None:
            check_limit("Trainer", name, limit)
    if norm is not None and value is not None:
        raise errors.ArgumentError("Trainer: got clip_norm and clip_value; give one of them")


def check_schedule(schedule: Any) -> None:
    """Raise unless the schedule gives learning rates."""
    if schedule is not None and not hasattr(schedule, "get_lr"):
        raise errors.DTypeError(
            f"Trainer: schedule is a {type(schedule).__name__} without get_lr(step); expected one "
            "of wf.optim.schedulers"
        )


def check_plan(plan: TrainingPlan, schedule: Any) -> None:
    """Check the loader, the limits and the validation data of a run."""
    _check_loader(plan.loader)
    _check_end(plan)
    _check_validation(plan, schedule)


def _check_loader(loader) -> None:
    missing = [name for name in _LOADER if not hasattr(loader, name)]
    if missing:
        raise errors.DTypeError(
            f"Trainer.fit: got a {type(loader).__name__}, which has no {', '.join(missing)}; "
            "expected a wf.train.DataLoader, whose position in the data can be saved"
        )
    if not len(loader):
        raise errors.ArgumentError("Trainer.fit: the loader has no batches; give it more samples")


def _check_end(plan: TrainingPlan) -> None:
    if plan.epochs is None and plan.steps is None:
        raise errors.ArgumentError("Trainer.fit: give epochs=, steps=, or both")
    for name in ("epochs", "steps"):
        value = getattr(plan, name)
        if isinstance(value, bool) or not isinstance(value, int | None) or (value or 0) < 0:
            raise errors.ArgumentError(
                f"Trainer.fit: {name}={value!r:.40}, expected an integer ≥ 0"
            )


def _check_validation(plan: TrainingPlan, schedule) -> None:
    every, validation = plan.validate_every, plan.validation
    if every is not None:
        at_least_one("validate_every", every)
    if validation is None and (every is not None or hasattr(schedule, "step")):
        what = "validate_every" if every is not None else type(schedule).__name__
        raise errors.ArgumentError(
            f"Trainer.fit: {what} needs validation=, the data to validate on"
        )
    if isinstance(validation, Iterator):
        raise errors.ArgumentError(
            "Trainer.fit: validation is an iterator, which can be gone through only once; give a "
            "list or a DataLoader"
        )
    if validation is plan.loader:
        raise errors.ArgumentError(
            "Trainer.fit: validation is the loader that is trained on, whose position in the data "
            "would change; make a second DataLoader"
        )


def check_compression(model: Any, directory: Any) -> None:
    """Refuse to save runs whose gradients are compressed by what remembers earlier ones."""
    from ..dist.parallel import DataParallel  # most runs have no other ranks

    if directory is not None and isinstance(model, DataParallel):
        if model.reducer.compressor.state:
            raise errors.ArgumentError(
                f"Trainer: {model.reducer.compression!r} remembers on each rank what was not sent, "
                "which checkpoints of a Trainer do not have, so that a run could not go on to the "
                "bit; give no directory, or a compression without a memory ('float16', 'bfloat16', "
                "None)"
            )
