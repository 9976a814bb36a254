"""The objective: the loss of a model on a batch, and the batch's weight in a mean."""

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from .. import errors
from ..core import dtypes
from ..core.record import field, record
from ..core.value import TENSORS
from ..transform.modes.trees import flatten

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..nn.module import Module

RESERVED = ("step", "epoch", "loss", "grad_norm", "lr")


@record
class Supervised:
    """A criterion as a loss of a model on pairs: `criterion(model(x), y)` for a batch (x, y).

    criterion  (prediction, target) -> scalar
    metrics    (prediction, target) -> number, by name; recorded beside the loss

    >>> import weft as wf
    >>> from weft.train.objective import Supervised
    >>> loss = Supervised(wf.nn.functional.mse_loss, {"bias": lambda p, y: (p - y).mean()})
    >>> value, metrics = loss(lambda x: 2 * x, (wf.tensor([1.0, 2.0]), wf.tensor([2.0, 3.0])))
    >>> value.item(), metrics["bias"].item()
    (0.5, 0.5)
    """

    criterion: Callable[..., Any]
    metrics: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    def __call__(self, model: Callable[..., Any], batch: Any) -> Any:
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            parts = f" of {len(batch)}" if isinstance(batch, tuple | list | dict) else ""
            raise errors.ArgumentError(
                f"Trainer: a batch is a {type(batch).__name__}{parts}, expected a pair (x, y) for "
                "a criterion of predictions and targets; give a loss(model, batch) instead"
            )
        x, y = batch
        prediction = model(x)
        loss = self.criterion(prediction, y)
        found = prediction.detach() if type(prediction) in TENSORS else prediction
        return loss, {name: metric(found, y) for name, metric in self.metrics.items()}


def supervised(criterion: Callable[..., Any], **metrics: Callable[..., Any]) -> Supervised:
    """The loss `criterion(model(x), y)` of batches (x, y), with metrics of the same arguments.

    criterion  (prediction, target) -> a scalar, a mean over the samples
    metrics    functions of the same arguments, by the names they are recorded under

    >>> import weft as wf
    >>> hits = lambda p, y: (p.argmax(-1) == y).mean()
    >>> loss = wf.train.supervised(wf.nn.functional.cross_entropy, accuracy=hits)
    """
    return Supervised(criterion, metrics)


def _is_criterion(loss) -> bool:
    """Whether it is one of Weft's losses, or a module: these take predictions and targets."""
    return hasattr(loss, "named_parameters") or getattr(loss, "__module__", "").startswith(
        "weft.nn."
    )


@record
class Counts:
    """What the batches of a step count.

    own    of each batch, how many things its loss is the mean of; 0: it does not count
    total  of all batches of the step, on all ranks
    """

    own: Sequence[float]
    total: float

    @property
    def shares(self) -> list[float]:
        """The weight of each batch in the step's means."""
        return [count / self.total for count in self.own]


class Objective:
    """The loss and the metrics of a model on a batch, checked, and the batch's count."""

    def __init__(self, loss: Callable[..., Any], count: Callable[[Any], float] | None):
        if not callable(loss):
            raise errors.DTypeError(
                f"Trainer: loss is a {type(loss).__name__}, expected a function (model, batch) -> "
                "scalar, a loss of wf.nn, or wf.train.supervised(criterion)"
            )
        self.loss: Callable[..., Any] = Supervised(loss) if _is_criterion(loss) else loss
        self._count = samples if count is None else count

    def __call__(self, model: "Module", batch: Any) -> "tuple[Tensor, dict[str, Any]]":
        """The scalar loss and the metrics, which are tensors or numbers."""
        found: Any = self.loss(model, batch)
        loss: Any
        loss, metrics = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
        if type(loss) not in TENSORS or loss.shape != () or not dtypes.is_inexact(loss.dtype):
            came = f"{loss.dtype} of shape {loss.shape}" if type(loss) in TENSORS else type(loss)
            raise errors.ArgumentError(
                f"Trainer: the loss is {came}, expected a scalar tensor, or a pair of one and a "
                "dict of metrics; reduce it with .mean()"
            )
        _check_metrics(metrics)
        return loss, metrics

    def count_all(self, batches: list[Any]) -> Counts:
        """The counts of batches that are a step by themselves."""
        own = [self.count(batch) for batch in batches]
        return Counts(own, sum(own))

    def count(self, batch: Any) -> Any:
        """The number of terms that the batch's loss averages."""
        n: Any = self._count(batch)
        n = n.item() if type(n) in TENSORS else n
        if not isinstance(n, Real) or not float(n) > 0:
            raise errors.ArgumentError(f"Trainer: count(batch) is {n!r:.40}, expected a number > 0")
        return n


def _check_metrics(metrics) -> None:
    if not isinstance(metrics, Mapping):
        raise errors.DTypeError(
            f"Trainer: beside the loss, the function returned {type(metrics).__name__}, expected "
            "a dict of metrics"
        )
    for name, value in metrics.items():
        if name in RESERVED or not isinstance(name, str):
            raise errors.ArgumentError(
                f"Trainer: a metric is called {name!r}, expected a string other than "
                f"{', '.join(RESERVED)}"
            )
        scalar = value.shape == () if type(value) in TENSORS else isinstance(value, Real)
        if not scalar:
            raise errors.ArgumentError(
                f"Trainer: the metric {name!r} is a {type(value).__name__}"
                f"{getattr(value, 'shape', '')}, expected a scalar"
            )


def samples(batch: Any) -> int:
    """How many samples a batch has: the length of the first array in it.

    >>> import weft as wf
    >>> from weft.train.objective import samples
    >>> samples({"image": wf.zeros((4, 3, 8, 8)), "label": wf.zeros(4)})
    4
    """
    for leaf in flatten(batch)[0]:
        if getattr(leaf, "shape", ()):
            return leaf.shape[0]
    raise errors.ArgumentError(
        "Trainer: no array with an axis in the batch, so its samples cannot be counted; give "
        "count=, a function of the batch"
    )


class Means:
    """Weighted means over batches."""

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._shares: dict[str, float] = {}

    def add(self, values: Mapping[str, Any], share: float) -> None:
        """Add a batch's values with its weight."""
        for name, value in values.items():
            number = float(value.item() if type(value) in TENSORS else value)
            self._sums[name] = self._sums.get(name, 0.0) + number * share
            self._shares[name] = self._shares.get(name, 0.0) + share

    def sums(self) -> dict[str, list[float]]:
        """By name, the weighted sum of the values, and the sum of their weights."""
        return {name: [total, self._shares[name]] for name, total in self._sums.items()}

    def replace(self, sums: list[dict[str, list[float]]]) -> None:
        """Become the means over what several ranks have added, in the order of the ranks."""
        self._sums, self._shares = {}, {}
        for found in sums:
            for name, (total, share) in found.items():
                self._sums[name] = self._sums.get(name, 0.0) + total
                self._shares[name] = self._shares.get(name, 0.0) + share

    def result(self) -> dict[str, float]:
        """The means; each over the batches that had this value."""
        return {name: total / self._shares[name] for name, total in self._sums.items()}
