"""From a config to what saves under it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ... import errors
from ...core.checkpointing import CheckpointConfig, CheckpointStrategy
from ...core.settings import current, override_settings
from .auto import Auto
from .strategies import Block, Full, Saving, Selective


class _LimitedSelective(Auto, Selective): ...


class _LimitedBlock(Auto, Block): ...


class _LimitedFull(Auto, Full): ...


# What saves under a strategy without and with a budget.
_SAVING: dict[Any, tuple[type[Saving], type[Saving]]] = {
    CheckpointStrategy.None_: (Saving, Auto),
    CheckpointStrategy.Selective: (Selective, _LimitedSelective),
    CheckpointStrategy.Block: (Block, _LimitedBlock),
    CheckpointStrategy.Full: (Full, _LimitedFull),
    CheckpointStrategy.Auto: (Auto, Auto),
}


def check_config(what: str, config: Any) -> Any:
    """The config, which must be one."""
    if config is None or isinstance(config, CheckpointConfig):
        return config
    raise errors.DTypeError(
        f"{what}: checkpoint is a {type(config).__name__}, expected a wf.CheckpointConfig"
    )


def saving_for(config: CheckpointConfig | None) -> Saving | None:
    """What saves under a config, for one program; None if everything is kept."""
    if config is None:
        return None
    keeps_all = config.strategy is CheckpointStrategy.None_ and config.budget is None
    if keeps_all and not config.verify:
        return None
    return _SAVING[config.strategy][config.budget is not None](config)


@contextmanager
def checkpointing(config: CheckpointConfig | None, reserve: int = 0) -> Iterator[None]:
    """A block that is recorded under a config.

    reserve  bytes of a budget that others will take

    In a function that is being compiled it does nothing: there `wf.compile` has the config.
    """
    settings = current.get()
    saving = saving_for(config) if settings.grad and settings.staging is None else None
    if saving is None:
        yield
        return
    saving.reserve(reserve)
    with saving.block(), override_settings(saving=saving):
        yield
