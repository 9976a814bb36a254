"""Phantoms in the place of everything that a step reads and changes, for the time of a block."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import errors
from ..compiler.frontend.inputs import Captured, StateArray
from ..compiler.frontend.variant import Variant
from ..compiler.target import Target
from ..core.counter import Generator
from ..core.settings import override_settings
from ..core.value import wrap
from . import phantom

# What phantoms are made as, and reported as.
INPUT, GRADIENT, STATE = "input", "gradient", "optimizer state"


class _UnmovedDraw:
    """A draw by a row: the state of the stream, which stays where it is."""

    def __init__(self, generator: Generator):
        key, nonce, position = generator.here()
        self.state = np.array([key, position, nonce], np.uint64)


class _UnmovedDraws:
    """Replaces the generators' own draws."""

    again = False

    def __call__(self, generator: Generator, words: int) -> _UnmovedDraw:
        return _UnmovedDraw(generator)


class _NoTarget:
    """The target of programs inside of an eager step: they cannot run without values."""

    key = "estimate"

    def __getattr__(self, name: str) -> Any:
        if not hasattr(Target, name):  # asked by who looks at objects of any kind
            raise AttributeError(name)
        raise errors.StagingError(
            "estimate: the step runs in eager mode and calls a compiled function; compile the "
            "whole step, or estimate it with the function itself, fn.__wrapped__"
        )


UNMOVED_DRAWS, NO_TARGET = _UnmovedDraws(), _NoTarget()


class StandIns:
    """The tensors and optimizers of a step, and what they hold outside of the block."""

    def __init__(self, program: Variant, arguments: Sequence[Any]):
        places = program.places
        captured = [p.tensor for p in places if isinstance(p, Captured)]
        self.tensors: list[Any] = list({id(t): t for t in (*arguments, *captured)}.values())
        _refuse_others([p for p in places if isinstance(p, StateArray)])
        self.optimizers: list[Any] = _optimizers(program)
        self._held = [(t, t._data, t._share, t._node) for t in self.tensors]
        self._gradients = [(t, t._grad) for t in self.tensors if has_gradient(t)]
        self._states = [(o, o._state, o._changed) for o in self.optimizers]
        self._fitted = [(e, e.fitted) for o in self.optimizers for e in o.entries()]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A block in which the step finds phantoms, and draws leave the streams where they are."""
        try:
            for t in self.tensors:
                if has_gradient(t) and t._grad is not None:
                    g = t._grad
                    t._grad = wrap(phantom.like(g._data, GRADIENT), g._node)
                t._data = phantom.like(t._data, INPUT)
            for o in self.optimizers:
                o._state = phantom_state(o)
            with override_settings(draws=UNMOVED_DRAWS, target=NO_TARGET):
                yield
        finally:
            self._put_back()

    def _put_back(self) -> None:
        for t, data, share, node in self._held:
            t._data, t._share, t._node = data, share, node
        for t, gradient in self._gradients:
            t._grad = gradient
        for o, state, changed in self._states:
            o._state, o._changed = state, changed
        for entry, fitted in self._fitted:
            entry.fitted = fitted


def has_gradient(t: Any) -> bool:
    return hasattr(t, "_grad")  # a slot that only leaves set


def _optimizers(program: Variant) -> list[Any]:
    """The optimizers that make a step: the trace has left functions that read their settings."""
    readers = [getattr(read, "__self__", None) for read in program.preparing]
    found = [getattr(r, "optimizer", None) for r in readers]
    return list({id(o): o for o in found if o is not None}.values())


def _refuse_others(arrays: list[StateArray]) -> None:
    """Refuse arrays of other objects, which would not be put back."""
    for place in arrays:
        if not hasattr(place.keeper, "optimizer"):
            raise errors.StagingError(
                f"estimate: the step changes {place.label}, which an eager estimate cannot leave "
                "unchanged; leave that out of the step, or estimate it with compiled=True"
            )


def phantom_state(optimizer: Any) -> dict[str, Any]:
    """The state as after a first step, with phantoms for its arrays."""
    made = {}
    for e in optimizer.entries():
        own = dict(optimizer.state.get(e.key, optimizer.started))
        for name, slot in optimizer.slots(e.group, e.param._data).items():
            own[name] = phantom.make(slot.shape, slot.dtype, STATE)
        made[e.key] = own
    return made
