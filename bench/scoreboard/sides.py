"""What a library brings to a problem."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Side:
    """A problem in one library.

    call    the work that is timed; it has ended when it returns
    arrays  what the call returned, as NumPy arrays
    state   the parameters, of a training step
    """

    call: Callable
    arrays: Callable[..., list[np.ndarray]]
    state: Callable[[], list[np.ndarray]] | None = None


Makers = dict[str, Callable[..., Side]]
