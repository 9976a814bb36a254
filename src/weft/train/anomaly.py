"""Finding the operation that made a step's loss or gradient NaN or infinite."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from .. import errors
from ..arrays import random
from ..core.backends import BACKENDS
from ..core.dtypes import is_inexact
from ..core.value import TENSORS
from ..nn.state import changing_buffers
from ..optim import global_norm
from ..transform.modes.backward import detect_anomaly
from ..transform.modes.trees import flatten
from .arguments import trained_parameters
from .objective import Means
from .step import Stepper

NOT_FOUND = (
    "The operation could not be found: computed again under wf.detect_anomaly(), the step was "
    "finite"
)


def find_operation(
    stepper: Stepper, batches: list[Any], drawn: dict[str, int], shares: list[float]
) -> str:
    """A sentence about the operation, found by computing the step's gradients again.

    stepper  whose step it was; what it changes is put back
    batches  of the step
    drawn    the random state that the step began with
    shares   of each batch in the step's means
    """
    stepper.release()
    stepper.reducing.clear()  # each rank looks by itself
    eager = Stepper(**{f.name: getattr(stepper, f.name) for f in fields(Stepper)})
    with _unchanged(eager, drawn):
        try:
            with detect_anomaly(), eager.ranks.own_streams():
                _compute_gradients(eager, batches, shares)
        except errors.AnomalyError as e:
            # Of the backward pass, the message has the line of the operation already.
            found = e.message if "(at " in e.message else str(e)
            return f"Computed again, {found}{_describe_data(batches)}"
        except Exception as e:  # the user's functions run again: what they raise is reported
            if _is_out_of_memory(e):
                return "The memory did not suffice to look for the operation"
            return f"Looking for the operation failed: {type(e).__name__}: {e}"
    return NOT_FOUND


@contextmanager
def _unchanged(stepper: Stepper, drawn: dict[str, int]) -> Iterator[None]:
    """A block with the random numbers of a step, after which all is as it was."""
    state = random.get_state()
    buffers = [b.detach().clone() for b in changing_buffers(stepper.model)]
    random.set_state(drawn)
    try:
        yield
    finally:
        stepper._put_back(buffers)
        random.set_state(state)


def _compute_gradients(stepper: Stepper, batches: list[Any], shares: list[float]) -> None:
    stepper._forget_gradients()
    for i, (batch, share) in enumerate(zip(batches, shares, strict=True)):
        reserve = stepper._gradient_bytes() if i == 0 and len(batches) > 1 else 0
        stepper._add_gradient(batch, share, Means(), reserve)
    global_norm([p.grad for _, p in stepper._pairs()])


def _describe_data(batches: list[Any]) -> str:
    """Which arrays of the batches are not finite themselves."""
    found = []
    for i, batch in enumerate(batches):
        for k, leaf in enumerate(flatten(batch)[0]):
            if type(leaf) not in TENSORS or not is_inexact(leaf.dtype):
                continue
            if not BACKENDS[type(leaf._data)].all_finite(leaf._data):
                which = f" of batch {i + 1}" if len(batches) > 1 else ""
                found.append(f"array {k}{which}, {leaf.dtype}{list(leaf.shape)}")
    if not found:
        return ""
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"; the data itself is not finite: {', '.join(found[:5])}{more}"


def data_is_finite(batches: list[Any]) -> bool:
    """Whether all arrays of batches are."""
    return not _describe_data(batches)


def nonfinite_constants(model: Any, optimizer: Any) -> list[str]:
    """The names of a model's parameters and buffers that are not trained and not finite."""
    trained = {id(p) for _, p in trained_parameters(optimizer)}
    found = [(n, p) for n, p in model.named_parameters() if id(p) not in trained]
    return [
        name
        for name, x in (*found, *model.named_buffers())
        if is_inexact(x.dtype) and not BACKENDS[type(x._data)].all_finite(x._data)
    ]


def _is_out_of_memory(error: Exception) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(error, MemoryError) or (
        torch is not None and isinstance(error, torch.OutOfMemoryError)
    )
