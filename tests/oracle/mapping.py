"""The table from torch's op names to Weft functions that take torch's arguments."""

from collections.abc import Callable
from operator import attrgetter

import weft as wf

from .spelling import (
    creation,
    elementwise,
    fourier,
    indexing,
    linalg,
    masked,
    reductions,
    shape,
)

MAPPED: dict[str, str | Callable] = {
    **elementwise.SPELLINGS,
    **shape.SPELLINGS,
    **indexing.SPELLINGS,
    **reductions.SPELLINGS,
    **linalg.SPELLINGS,
    **fourier.SPELLINGS,
    **masked.SPELLINGS,
    **creation.SPELLINGS,
}


def spelling(name: str) -> Callable:
    """The Weft function for an op of torch's."""
    entry = MAPPED[name]
    return attrgetter(entry)(wf) if isinstance(entry, str) else entry
