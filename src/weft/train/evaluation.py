"""Evaluating a trainer's model: the loss and the metrics over all batches, on all ranks."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays import random
from ..transform.modes.backward import no_grad
from . import arguments
from .collation import place_batch
from .objective import Means
from .parts import shares_of
from .ranks import same_facts

if TYPE_CHECKING:
    from .trainer import Trainer


def evaluate(trainer: Trainer, loader: Any, averaged: bool | None) -> dict[str, float]:
    """The means of the loss and the metrics over all batches; each counts by its samples.

    trainer   whose model, loss and precision they are
    loader    batches
    averaged  whether to use the averages of the parameters; None: if there are any
    """
    means, ranks = Means(), trainer.ranks

    def add() -> dict[str, Any]:
        batches = _add_losses(trainer, means, loader, averaged)
        return {"sums": means.sums(), "the number of batches": batches}

    found = ranks.together("Trainer.evaluate", add)
    if not ranks.alone:
        same_facts("Trainer.evaluate", [{**facts, "sums": None} for facts in found])
        means.replace([facts["sums"] for facts in found])
    if not means.result():
        raise errors.ArgumentError(
            "Trainer.evaluate: the loader has no batches; give it more samples"
        )
    return means.result()


def _add_losses(trainer: Trainer, means: Means, loader: Any, averaged: bool | None) -> int:
    """Add losses and metrics of all batches, or of this rank's part; returns their number."""
    position, number = random.get_state(), 0
    weights = weights_in_use(trainer, averaged)
    limited = trainer.checkpoint is not None and trainer.checkpoint.budget is not None
    if limited:  # no program keeps its memory for another one
        trainer.release()
    whole = getattr(loader, "all_batches", None)
    cursor = loader.state_dict() if whole is None and hasattr(loader, "state_dict") else None
    device = arguments.device_of(trainer.model)
    modes = [(module, module.training) for module in trainer.model.modules()]
    trainer.model.eval()
    try:
        with no_grad(), weights:
            for share in shares_of(loader, trainer.ranks.part):
                number += 1
                if not share.counts:
                    continue
                batch = place_batch(share.batch, device)
                loss, metrics = trainer._evaluated(batch)
                means.add({"loss": loss, **metrics}, trainer._objective.count(batch))
    finally:
        if limited:
            trainer.release()
        for module, training in modes:
            module.training = training
        random.set_state(position)
        if cursor is not None:
            loader.load_state_dict(cursor)
    return number


def weights_in_use(trainer: Trainer, averaged: bool | None) -> AbstractContextManager[Any]:
    """A block in which the parameters are those to evaluate."""
    own = arguments.self_averaging(trainer.optimizer)
    averages = trainer.ema if own is None else own
    if averaged and averages is None:
        raise errors.ArgumentError(
            "Trainer.evaluate: averaged=True, but there is no EMA; give the Trainer one, or "
            "pass averaged=False"
        )
    if averaged is False and own is not None and own.is_averaged:
        raise errors.ArgumentError(
            "Trainer.evaluate: averaged=False, but the parameters are the optimizer's average; "
            "call optimizer.train() first"
        )
    return nullcontext() if averages is None or averaged is False else averages.swapped()
