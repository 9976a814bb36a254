"""The ambient settings: one frozen value in one context variable."""

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

RECORD, PLAIN, GENERAL = 1, 0, 2


@dataclass(frozen=True)
class Settings:
    """What changes the meaning of an operation without being one of its arguments.

    grad         whether operations on tracked tensors are recorded
    anomaly      whether every result is checked for NaN and infinity
    saved_hooks  (pack, unpack) for what is saved for the backward pass
    tapes        the gradient tapes whose `with` block is running
    levels       the transformations that are running, the innermost last
    enclosed     whether a function is being differentiated here, and gradients in it with it
    draws        (generator, words) -> Draw, in place of the generators' own `advance`
    """

    grad: bool = True
    anomaly: bool = False
    saved_hooks: Any = None
    tapes: tuple = ()
    levels: tuple = ()
    enclosed: bool = False
    draws: Any = None
    # Which way operations take: RECORD and PLAIN are the quick ones.
    way: int = field(init=False, default=RECORD)

    def __post_init__(self):
        general = self.anomaly or self.saved_hooks is not None
        object.__setattr__(self, "way", GENERAL if general else RECORD if self.grad else PLAIN)


DEFAULT = Settings()
current: ContextVar[Settings] = ContextVar("weft_settings", default=DEFAULT)


@contextmanager
def changed(**fields):
    """Run a block under the current settings with some fields replaced."""
    token = current.set(replace(current.get(), **fields))
    try:
        yield
    finally:
        current.reset(token)
