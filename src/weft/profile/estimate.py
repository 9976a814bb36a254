"""How much memory a step needs, by a trace alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import errors
from ..compiler.frontend.arguments import flatten_arguments
from ..compiler.frontend.inputs import Captured, Gradient, StateArray, TensorArgument
from ..compiler.frontend.trace import trace
from ..compiler.frontend.variant import Variant
from ..core.counter import ReservedBlocks
from ..core.node import Leaf
from ..core.settings import current, override_settings
from ..core.value import wrap
from ..transform.modes import reverse
from . import phantom


def simulate(step, args, kwargs):
    step = getattr(step, "__wrapped__", step)
    taken = flatten_arguments(args, kwargs, lambda name: False, current.get().grad)
    program = trace(getattr(step, "__name__", "step"), step, taken)
    with phantom.simulation() as ledger:
        with _stand_ins(program, taken.call.tensors), override_settings(draws=_unmoved):
            step(*args, **kwargs)
            ledger.reset_peak()
            start = ledger.live
            step(*args, **kwargs)
    return ledger, start


class _Draw:
    def __init__(self, state):
        self.state = state


class _Draws:
    again = False

    def __call__(self, generator, words):
        key, nonce, position = generator.here()
        return _Draw(np.array([key, position, nonce], np.uint64))


_unmoved = _Draws()


@contextmanager
def _stand_ins(program, arguments):
    captured = [p.tensor for p in program.places if isinstance(p, Captured)]
    tensors = {id(t): t for t in (*arguments, *captured)}.values()
    saved = [(t, t._data, getattr(t, "_grad", None), t._share, t._node) for t in tensors]
    optimizers = {}
    for p in program.places:
        if isinstance(p, StateArray) and p.keeper is not None:
            optimizers[id(p.keeper.optimizer)] = p.keeper.optimizer
    states = [(o, o.state) for o in optimizers.values()]
    fitted = [(e, e.fitted) for o in optimizers.values() for e in o.entries()]
    try:
        for t in tensors:
            if t._grad is not None if hasattr(t, "_grad") else False:
                t._grad = wrap(phantom.like(t._grad._data, "gradient"), t._grad._node)
            t._data = phantom.like(t._data, "input")
        for o, state in states:
            o.state = _state(o)
        yield
    finally:
        for t, data, grad, share, node in saved:
            t._data, t._share, t._node = data, share, node
            if hasattr(t, "_grad"):
                t._grad = grad
        for o, state in states:
            o.state = state
        for e, fit in fitted:
            e.fitted = fit


def _state(o):
    made = {}
    for e in o.entries():
        own = dict(o.state.get(e.key, o.started))
        for name, slot in o.slots(e.group, e.param._data).items():
            own[name] = phantom.make(slot.shape, slot.dtype, "state")
        made[e.key] = own
    return made
