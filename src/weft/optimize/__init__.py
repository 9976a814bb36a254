"""SciPy's optimizers for plain functions of tensors, with derivatives from Weft.

>>> import weft as wf
>>> found = wf.optimize.minimize(lambda x: ((x - 3.0) ** 2).sum(), [0.0, 1.0])
>>> [round(v, 6) for v in found.x.tolist()]
[3.0, 3.0]
"""

from .fit import curve_fit
from .least import least_squares, root
from .minimum import minimize

__all__ = ["curve_fit", "least_squares", "minimize", "root"]


def __dir__() -> list[str]:
    return list(__all__)
