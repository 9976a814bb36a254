"""Putting samples together into a batch."""

from collections.abc import Mapping
from numbers import Number
from typing import Any

import numpy as np

from .. import errors
from ..array.foreign import is_torch
from ..array.make import asarray
from ..array.manipulation import stack
from ..core.value import TENSORS

_TEXT = (str, bytes)


def collate(samples: list) -> Any:
    """Samples of one structure as one: arrays and numbers stacked along a new first axis.

    Tensors, NumPy's and PyTorch's arrays and numbers become tensors; dicts, tuples, named tuples
    and lists are gone through; text stays a list.

    >>> from weft.train.collation import collate
    >>> batch = collate([{"x": [1.0, 2.0], "name": "a"}, {"x": [3.0, 4.0], "name": "b"}])
    >>> [x.tolist() for x in batch["x"]], batch["name"]
    ([[1.0, 3.0], [2.0, 4.0]], ['a', 'b'])
    """
    return _joined(samples, "sample")


def _joined(samples: list, path: str) -> Any:
    first = samples[0]
    if _is_array(first):
        return _stacked(samples, path)
    if isinstance(first, _TEXT):
        _alike(samples, path, _TEXT)
        return list(samples)
    if isinstance(first, Mapping):
        _alike(samples, path, Mapping)
        _same(samples, path, "keys", list, lambda s: sorted(map(repr, s)))
        return {k: _joined([s[k] for s in samples], f"{path}[{k!r}]") for k in first}
    if isinstance(first, list | tuple):
        _alike(samples, path, (list, tuple))
        _same(samples, path, "length", len, len)
        parts = [_joined([s[i] for s in samples], f"{path}[{i}]") for i in range(len(first))]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    raise errors.DTypeError(
        f"collate: {path} is of type {type(first).__name__}: expected tensors, arrays, numbers or "
        "text, alone or in dicts, tuples and lists; give the loader a collate= of your own"
    )


def _is_array(x) -> bool:
    return type(x) in TENSORS or isinstance(x, np.ndarray | Number | np.generic) or is_torch(x)


def _stacked(samples: list, path: str):
    for i, s in enumerate(samples):
        if not _is_array(s):
            _refuse(path, "type", i, type(samples[0]).__name__, type(s).__name__)
    if isinstance(samples[0], Number) and all(isinstance(s, Number) for s in samples):
        return asarray(samples)
    if all(type(s) is np.ndarray for s in samples):
        if len({(s.dtype, s.shape) for s in samples}) == 1:
            return asarray(np.stack(samples))  # a tensor of each would take three times as long
    boxes = [asarray(s) for s in samples]
    _same(boxes, path, "shape", lambda x: x.shape, lambda x: x.shape)
    return stack(boxes)


def _alike(samples: list, path: str, kinds) -> None:
    """Refuse samples of another kind than the first."""
    for i, s in enumerate(samples):
        if not isinstance(s, kinds):
            _refuse(path, "type", i, type(samples[0]).__name__, type(s).__name__)


def _same(samples: list, path: str, what: str, shown, key) -> None:
    """Refuse samples that differ from the first in shape, length or keys."""
    wanted = key(samples[0])
    for i, s in enumerate(samples):
        if key(s) != wanted:
            _refuse(path, what, i, shown(samples[0]), shown(s))


def _refuse(path: str, what: str, i: int, first, other) -> None:
    raise errors.ShapeError(
        f"collate: {path} has {what} {first} in the batch's first sample and {other} in number "
        f"{i}: make the samples alike in the dataset (pad or crop them), or give the loader a "
        "collate= of your own"
    )
