"""The sweep that each entry of a matrix is read from, if more than one holds it.

An entry can be read through a colour if no other entry of its row (for a reverse sweep: of its
column) has that colour. Colours that no entry needs are dropped.
"""

from typing import Any

import numpy as np


def find_unmixed(lines: np.ndarray, colours: np.ndarray) -> np.ndarray[Any, Any]:
    """Which entries are the only one of their colour in their row (or column); 0 is no colour."""
    keys = lines * (colours.max(initial=0) + 1) + colours
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return (counts[inverse] == 1) & (colours > 0)


def choose_readers(one: np.ndarray, other: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """New numbers for the colours, 0 for those dropped; which entries are read through `one`.

    one, other  the colours through which each entry can be read; 0: it cannot
    count       how many colours there are

    A greedy cover of the entries by colours: first those without an alternative, then the colour
    that reads most of the rest.
    """
    assert (one | other).all(), "an entry that no sweep holds unmixed"
    needed = np.zeros(count + 1, bool)
    needed[one[(other == 0) | (other == one)]] = True
    needed[other[one == 0]] = True
    while (undecided := ~(needed[one] | needed[other])).any():
        either = np.concatenate([one[undecided], other[undecided]])
        needed[np.argmax(np.bincount(either))] = True
    return np.where(needed, np.cumsum(needed), 0), needed[one]
