"""What a function takes in eager mode on phantoms of tensors that it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..core.record import record
from ..core.settings import override_settings
from . import phantom
from .ledger import Ledger
from .stand_ins import NO_TARGET, STATE, UNMOVED_DRAWS, has_gradient, phantom_state

AVERAGE = "averages"


@record
class EagerBytes:
    """The most bytes that were alive at once, those of phantoms that were given included.

    given   what stood in for given tensors, by label
    peak    the most bytes
    at_peak what was alive then, by label or by operation
    """

    given: dict[str, int]
    peak: int
    at_peak: dict[str, int]


def eager_bytes(
    run: Callable[[], Any],
    tensors: Mapping[str, Sequence[Any]],
    optimizer: Any = None,
    averages: Any = None,
    before: int = 0,
) -> EagerBytes:
    """What `run()` takes, without values: phantoms are in the place of all tensors given.

    run        what is run; it may read no values
    tensors    what it finds, by label
    optimizer  one whose state exists
    averages   a `wf.optim.EMA`
    before     so often it runs before bytes are measured: gradients and the like exist then
    """
    with phantom.simulation() as ledger, _in_place(tensors, optimizer, averages):
        given: dict[str, int] = {}
        for e in ledger.events:
            given[e.op] = given.get(e.op, 0) + e.nbytes
        for _ in range(before):
            run()
        ledger.reset_peak()
        run()
        return EagerBytes(given, ledger.peak, _alive(ledger))


def _alive(ledger: Ledger) -> dict[str, int]:
    found: dict[str, int] = {}
    for e in ledger.alive(ledger.peak_at).values():
        found[e.op] = found.get(e.op, 0) + e.nbytes
    name, _, extra = ledger.at_work
    if extra:
        found[f"temporaries of {name}"] = extra
    return found


@contextmanager
def _in_place(tensors: Mapping[str, Sequence[Any]], optimizer: Any, averages: Any) -> Iterator[Any]:
    """A block in which everything given has phantoms for its arrays; random streams stay."""
    each = {id(t): (t, label) for label, ts in tensors.items() for t in ts}.values()
    held = [(t, t._data, t._share, getattr(t, "_grad", None)) for t, _ in each]
    state = None if optimizer is None else (optimizer._state, optimizer._changed)
    kept = None if averages is None else (averages._averages, averages._count)
    try:
        for t, label in each:
            t._data = phantom.like(t._data, label)
        if optimizer is not None:
            optimizer._state = phantom_state(optimizer)
        if averages is not None:
            averages._averages = {
                k: phantom.make(x.shape, x.dtype, AVERAGE) for k, x in averages._averages.items()
            }
        with override_settings(draws=UNMOVED_DRAWS, target=NO_TARGET):
            yield
    finally:
        for t, data, share, grad in held:
            t._data, t._share = data, share
            if has_gradient(t):
                t._grad = grad
        if optimizer is not None:
            optimizer._state, optimizer._changed = state  # type: ignore[misc]
        if averages is not None:
            averages._averages, averages._count = kept  # type: ignore[misc]


__all__ = ["AVERAGE", "STATE", "EagerBytes", "eager_bytes"]
