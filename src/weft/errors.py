"""The exceptions Weft raises, each with the fix in its message and the user's line at its end."""

from collections.abc import Callable

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


class UnknownKeyword(WeftError, TypeError):
    """A keyword that a function does not have."""


class IntegerOutOfRange(ArgumentError, OverflowError):
    """A Python integer that the dtype of the tensor beside it does not hold."""


class LinAlgError(WeftError, np.linalg.LinAlgError):
    """A matrix that has no such inverse, root or factor."""


class IndexingError(WeftError, IndexError):
    """An index that does not fit the array."""


class TemporaryAssignment(WeftError, TypeError):
    """`y[0][1] = v` would change a temporary and then lose it."""


class ViewAssignment(WeftError, ValueError):
    """A write into a view, which what it is a view of would not see."""


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
    """Differentiating what was computed from a gradient that was made without its graph."""


class TapeConsumed(GradientError):
    """A second `gradient()` on a tape that is not persistent."""


class SavedValueOverwritten(GradientError):
    """A value needed by the backward pass was overwritten in place."""


class MissingGradient(GradientError, KeyError):
    """A gradient map asked for a tensor that took no part."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class MissingParameter(WeftError, KeyError):
    """A collection of parameters asked for a name it does not hold."""

    def __str__(self) -> str:
        return Exception.__str__(self)


class ModuleError(WeftError, TypeError, AttributeError):
    """A module without `forward` or before `super().__init__()`, or a name given something else."""


class InPlaceOnTracked(GradientError):
    """`out=` into a tensor that is being differentiated."""


class AnomalyError(GradientError, FloatingPointError):
    """The first NaN or infinity under `detect_anomaly()`."""


class ReplayDiffers(GradientError):
    """A checkpointed function did something else when it was run again."""


class GradientCheckError(GradientError, AssertionError):
    """A derivative that finite differences contradict, or cannot confirm.

    Where one element is to blame: `argument` and `index` say which, `analytical` and `numerical`
    what was found, `error` how far they are apart.
    """

    argument: str | None = None
    index: tuple[int, ...] | None = None
    analytical: float | None = None
    numerical: float | None = None
    error: float | None = None


class OffloadError(WeftError, OSError):
    """Saved values that could not be moved out: there is no space, or no place, where they go."""


class NotDeterministic(WeftError, RuntimeError):
    """Something that may give another result in the next run, where that is to be refused."""


class BatchingError(WeftError, TypeError):
    """Something that cannot be done for all elements of a batch at once."""


class StagingError(WeftError, TypeError):
    """Something that a function cannot do while it is being compiled: its values are not known."""


class PaddingError(StagingError):
    """A function that cannot be compiled for many lengths: padding would change its results."""


class LeakedTensor(StagingError):
    """A tensor that a function which was compiled or transformed left behind, used later."""


class VariantsExhausted(WeftError, RuntimeError):
    """A compiled function that was called in more ways than it may be compiled for."""


class BudgetExceeded(WeftError, MemoryError):
    """A budget of bytes that a program does not fit into, however much it computes again.

    smallest  the least number of bytes that would do
    """

    smallest: int | None = None


class StackTooSmall(WeftError, RuntimeError):
    """A thread has less stack than native code needs."""


class LoopLimit(WeftError, RuntimeError):
    """A loop that was still going after its largest number of steps."""


class ConvergenceError(WeftError, RuntimeError):
    """An iterative method that did not reach its tolerance."""


class PlanError(GradientError):
    """A plan that is wrong for its program, or a Jacobian that disagrees with a sweep."""


class ConfigError(WeftError, ValueError):
    """A configuration file has keys or values that make no sense; each is named with its line."""


class CheckpointError(WeftError, ValueError):
    """A file or directory that does not hold what was saved, or cannot be saved."""


class CheckpointNotFound(CheckpointError, FileNotFoundError):
    """A directory without a checkpoint, or without the one that was asked for."""


class CheckpointLocked(CheckpointError):
    """A directory that another process is writing checkpoints into."""


class DiskFull(WeftError, OSError):
    """A file that could not be written since the disk, or a quota on it, is full.

    needed  the bytes that were to be written; None: not known
    """

    needed: int | None = None


class StateMismatch(CheckpointError, RuntimeError):
    """A state of something else: names that are missing or unexpected, or other shapes."""


class DatasetError(WeftError, ValueError):
    """Images, captions or masks that cannot be used, or a cache of them that is not complete."""


class DistributedError(WeftError, RuntimeError):
    """Base of the errors about several processes."""


class RendezvousError(DistributedError, ConnectionError):
    """Processes that did not find each other, or that cannot be one group."""


class RanksDiffer(DistributedError, ValueError):
    """Ranks that called different collectives, or whose arrays, models or steps differ."""


class PeerLost(DistributedError, ConnectionError):
    """A rank that ended, left, failed or stopped answering, or that did not come in time.

    ranks  those that are behind it, as far as this rank knows
    """

    ranks: tuple[int, ...] = ()


class CheckpointWarning(UserWarning):
    """A checkpoint that was passed over because it is damaged."""


class AdapterWarning(UserWarning):
    """A saved adapter that does nothing in some layers, or that some program would not read."""


class ResumeWarning(UserWarning):
    """A run that goes on under other settings, versions or hardware than it was saved under."""


class NothingToDoWarning(UserWarning):
    """A call of `Trainer.fit` whose epochs or steps have been done already."""


class GradientHealthWarning(UserWarning):
    """Gradients of a run that vanish or explode."""


class NotDeterministicWarning(UserWarning):
    """Something that may give another result in the next run, where that is allowed."""


class SideEffectWarning(UserWarning):
    """A compiled function that changes Python's objects, which happens once, not at each call."""


class CacheWarning(UserWarning):
    """Compiled code that cannot be kept on disk; it is compiled anew in each process."""


class UnknownName(AttributeError):
    """A name that is not there; what to write instead is found when somebody reads the message."""

    def __init__(self, owner: str, name: str, instead: Callable[[], str] = str):
        super().__init__(name=name)
        self.owner: str = owner
        self.instead: Callable[[], str] = instead

    def __str__(self) -> str:
        return f"{self.owner!r} has no {self.name!r}; {self.instead()}"

    def __reduce__(self) -> tuple[type[AttributeError], tuple[str]]:
        return AttributeError, (str(self),)


__all__ = sorted(
    [n for n, v in globals().items() if isinstance(v, type) and v.__module__ == __name__]
)


def __dir__() -> list[str]:
    return list(__all__)
