"""Rows: moving a value between devices."""

from typing import Any

from ..backend.device import canonical_device, place
from ..core.aval import Aval
from ..core.op import Caller
from ..core.types import Array
from ..core.value import aval_of
from .batching import pointwise
from .rows import linear

transfer: Caller = linear(
    "transfer",
    compute=lambda xp, x, target, source: place(x, target),
    shape=lambda x, target, source: Aval(x.shape, x.dtype, target),
    transpose=[lambda g, x, target, source: transfer(g, source, target)],
    reads="",
    recast=True,
    moves="indices",
    pulls_mask=True,
    batch=pointwise,
)


def move(x: Array, device: Any) -> Array:
    """x on another device; the same object where it is there already."""
    source, target = aval_of(x).device, canonical_device(device)
    return x if source == target else transfer(x, target, source)
