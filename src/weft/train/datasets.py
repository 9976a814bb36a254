"""Datasets: arrays by their first axes, parts of another dataset, random splits."""

from collections.abc import Callable, Iterator, Sequence, Sized
from math import floor, isclose
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from .. import errors
from ..arrays.arguments import as_tensor
from ..arrays.make import asarray
from ..core.counter import Generator
from ..core.kinds import demand, demand_iterable
from .order import shuffle

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Index


class Dataset(Protocol):
    """Samples by their numbers."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class TensorDataset:
    """Arrays of one length: sample i is the tuple of their elements i.

    arrays  tensors, or what `wf.asarray` makes tensors of (NumPy's memory is shared)

    A `DataLoader` takes a whole batch from each array by one index, instead of stacking samples.

    >>> import weft as wf
    >>> data = wf.train.TensorDataset([[1.0, 2.0], [3.0, 4.0]], [0, 1])
    >>> x, y = data[1]
    >>> len(data), x.tolist(), y.item()
    (2, [3.0, 4.0], 1)
    """

    def __init__(self, *arrays: "ArrayLike"):
        if not arrays:
            raise errors.ArgumentError("TensorDataset: no arrays; give at least one")
        self.tensors: tuple[Tensor, ...] = tuple([as_tensor(a) for a in arrays])
        shapes = [t.shape for t in self.tensors]
        if () in shapes or len({shape[0] for shape in shapes}) > 1:
            raise errors.ShapeError(
                f"TensorDataset: shapes {', '.join(map(str, shapes))}: expected first axes of one "
                "length, the number of samples"
            )

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def __getitem__(self, index: "Index") -> "tuple[Tensor, ...]":
        return tuple([t[index] for t in self.tensors])

    def gather_batch(self, indices: np.ndarray) -> "tuple[Tensor, ...]":
        """The batch of these samples, one index call for each array.

        indices  an array of integers

        >>> import weft as wf
        >>> import numpy as np
        >>> data = wf.train.TensorDataset([10.0, 20.0, 30.0])
        >>> data.gather_batch(np.array([2, 0]))[0].tolist()
        [30.0, 10.0]
        """
        return tuple([t[asarray(indices, device=t.device)] for t in self.tensors])


class Subset:
    """Some samples of a dataset, in the order of the indices.

    dataset  has `__len__` and `__getitem__`
    indices  integers, from the end if negative; a sample may occur several times

    >>> import weft as wf
    >>> part = wf.train.Subset(["a", "b", "c"], [2, 0])
    >>> len(part), part[0], part[1]
    (2, 'c', 'a')
    """

    def __init__(self, dataset: Dataset, indices: Sequence[int] | np.ndarray):
        demand("Subset: dataset", dataset, Sized, "a dataset, which has a length")
        n = len(dataset)
        found = np.asarray(indices)
        if found.ndim != 1 or not (found.dtype.kind in "iu" or found.size == 0):
            raise errors.ArgumentError(
                f"Subset: indices of shape {found.shape} and dtype {found.dtype}: expected a "
                "sequence of integers; for a mask give np.flatnonzero(mask)"
            )
        outside = found[(found < -n) | (found >= n)]
        if outside.size:
            raise errors.IndexingError(
                f"Subset: index {outside[0]} is out of range for a dataset of {n} samples"
            )
        self.dataset = dataset
        whole = np.where(found < 0, found + n, found)
        self.indices: np.ndarray[Any, np.dtype[np.int64]] = whole.astype(np.int64)

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[index])]


def gatherer(dataset: Dataset) -> Callable[[np.ndarray], Any] | None:
    """The function that takes whole batches from a dataset, if it has one, through subsets."""
    if isinstance(dataset, Subset):
        inner = gatherer(dataset.dataset)
        return None if inner is None else lambda picked: inner(dataset.indices[picked])
    return getattr(dataset, "gather_batch", None)


def random_split(
    dataset: Dataset, lengths: Sequence[int] | Sequence[float], seed: int = 0
) -> list[Subset]:
    """Disjoint random parts of a dataset that together are all of it.

    dataset  has `__len__` and `__getitem__`
    lengths  how many samples each part has, or fractions that add up to 1; what rounding down
             leaves over goes to the first parts, one sample each
    seed     the parts are a function of this and of the dataset's length

    >>> import weft as wf
    >>> train, test = wf.train.random_split(range(10), [0.8, 0.2], seed=1)
    >>> len(train), len(test), sorted([*train, *test]) == list(range(10))
    (8, 2, True)
    """
    demand("random_split: dataset", dataset, Sized, "a dataset, which has a length")
    demand_iterable("random_split: lengths", lengths, "a list of numbers")
    n = len(dataset)
    counts = _counts(list(lengths), n)
    order = shuffle(n, Generator(seed).fork("split"))
    ends = np.cumsum(counts)
    return [
        Subset(dataset, order[end - count : end]) for count, end in zip(counts, ends, strict=True)
    ]


def _counts(lengths: list, n: int) -> list[int]:
    """The sizes of the parts of n samples."""
    if lengths and all(isinstance(x, Integral) and int(x) >= 0 for x in lengths):
        if sum(lengths) != n:
            raise errors.ArgumentError(
                f"random_split: lengths {lengths} add up to {sum(lengths)}, the dataset has {n} "
                "samples; give lengths that add up to that, or fractions"
            )
        return [int(x) for x in lengths]
    fractions = lengths and all(isinstance(x, Real) and 0 <= float(x) <= 1 for x in lengths)
    if not fractions or not isclose(sum(lengths), 1.0, abs_tol=1e-6):
        raise errors.ArgumentError(
            f"random_split: lengths {lengths}: expected nonnegative integers that add up to {n}, "
            "or fractions that add up to 1"
        )
    # A product like 0.29·100 = 28.999… means 29: far above its rounding, far below a sample.
    counts = [floor(n * x + 1e-6) for x in lengths]
    left = n - sum(counts)
    return [count + (i < left) for i, count in enumerate(counts)]
