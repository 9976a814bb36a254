"""Inputs for the rows that join processes: a group of one, which is always connected."""

from ...core.communicator import ALONE
from .case import Sampler
from .structural import over

arrays: Sampler = over(*(((*shape,), ALONE, 1) for shape in ((2, 3), (), (0, 2))))
parts: Sampler = over(*(((1, *shape), ALONE, 1) for shape in ((2, 3), (), (0, 2))))
rooted: Sampler = over(((2, 3), ALONE, 1, 0), ((), ALONE, 1, 0))
extremes: Sampler = over(*(((2, 3), ALONE, 1, kind) for kind in ("max", "min")))
compared: Sampler = over(((2, 3), ALONE, 1, "a step"), ((), ALONE, 1, "a step"))
