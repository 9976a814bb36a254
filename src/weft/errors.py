"""The exceptions Weft raises, each with the fix in its message and the user's line at its end."""

import numpy as np

from .core.origin import here


class WeftError(Exception):
    """Base of every exception that Weft itself raises."""

    def __init__(self, message: str):
        self.message = message
        super().__init__(f"{message} (at {here()})")


class ShapeError(WeftError, ValueError):
    """Shapes that do not fit together."""


class Unsized(ShapeError, TypeError):
    """The length of a tensor without axes, or a loop over it."""


class AxisError(WeftError, ValueError, IndexError):
    """An axis outside the array's dimensions, or one named twice."""


class DTypeError(WeftError, TypeError):
    """A dtype an operation does not take."""


class DeviceError(WeftError, ValueError):
    """Arrays on different devices, or a device that is not there."""


class ArgumentError(WeftError, ValueError):
    """An argument whose value makes no sense for the operation."""


class LinAlgError(WeftError, np.linalg.LinAlgError):
    """A matrix that has no such inverse, root or factor."""


class IndexingError(WeftError, IndexError):
    """An index that does not fit the array."""


class TemporaryAssignment(WeftError, TypeError):
    """`y[0][1] = v` would change a temporary and then lose it."""


class InterchangeError(WeftError, TypeError):
    """Handing a tensor to another library would drop its gradient."""


class GradientError(WeftError, RuntimeError):
    """Base of the errors about differentiation."""


class NotDifferentiable(GradientError, TypeError):
    """An operation or a dtype that has no derivative."""


class NoGraph(GradientError):
    """`backward()` on a value that was not recorded."""


class NonScalarBackward(GradientError, ValueError):
    """`backward()` on a non-scalar without a seed gradient."""


class GraphFreed(GradientError):
    """A second pass over a graph whose saved values are gone."""


class GradientNotRecorded(GradientError):
    """Differentiating a gradient that was made without `create_graph=True`."""


class TapeConsumed(GradientError):
    """A second `gradient()` on a tape that is not persistent."""


class SavedValueOverwritten(GradientError):
    """A value needed by the backward pass was overwritten in place."""


class MissingGradient(GradientError, KeyError):
    """A gradient map asked for a tensor that took no part."""

    __str__ = Exception.__str__


class MissingParameter(WeftError, KeyError):
    """A collection of parameters asked for a name it does not hold."""

    __str__ = Exception.__str__


class InPlaceOnTracked(GradientError):
    """`out=` into a tensor that is being differentiated."""


class AnomalyError(GradientError, FloatingPointError):
    """The first NaN or infinity under `detect_anomaly()`."""


class BatchingError(WeftError, TypeError):
    """Something that cannot be done for all elements of a batch at once."""
