"""Putting samples together into a batch."""

from collections.abc import Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any

import numpy as np

from .. import errors
from ..arrays.foreign import is_torch
from ..arrays.make import asarray
from ..arrays.manipulation import stack
from ..core.kinds import demand
from ..core.value import TENSORS

_TEXT = (str, bytes)


def collate(samples: list[Any]) -> Any:
    """Samples of one structure as one: arrays and numbers stacked along a new first axis.

    samples  a list of samples

    Tensors, NumPy's and PyTorch's arrays and numbers become tensors; dicts, tuples, named tuples
    and lists are gone through; text stays a list. Numbers and NumPy's arrays go to the device of
    the tensors beside them.

    >>> import weft as wf
    >>> from weft.train.collation import collate
    >>> batch = collate([{"x": [1.0, 2.0], "name": "a"}, {"x": [3.0, 4.0], "name": "b"}])
    >>> [x.tolist() for x in batch["x"]], batch["name"]
    ([[1.0, 3.0], [2.0, 4.0]], ['a', 'b'])
    """
    demand("collate: samples", samples, Sequence, "a list of samples")
    places: set[str] = set()
    _find_devices(samples[0], places)
    return _join_samples(samples, "sample", places.pop() if len(places) == 1 else None)


def _find_devices(sample, found: set[str]) -> None:
    """Collect the devices of a sample's tensors."""
    if type(sample) in TENSORS or is_torch(sample):
        found.add(sample.device if type(sample) in TENSORS else asarray(sample.detach()).device)
    elif isinstance(sample, Mapping):
        for value in sample.values():
            _find_devices(value, found)
    elif isinstance(sample, list | tuple):
        for value in sample:
            _find_devices(value, found)


def place_batch(batch: Any, device: str | None) -> Any:
    """A batch with its arrays on a device; None leaves it as it is.

    Dicts, tuples, named tuples, lists and dataclasses are gone through. What is no array stays.
    """
    if device is None:
        return batch
    if type(batch) in TENSORS:
        return batch.to(device)
    if is_torch(batch) or (isinstance(batch, np.ndarray) and batch.dtype.kind in "biufc"):
        return asarray(batch).to(device)
    if isinstance(batch, Mapping):
        made = copy(batch)
        if isinstance(made, MutableMapping):
            made.update({k: place_batch(v, device) for k, v in batch.items()})
            return made
        return {k: place_batch(v, device) for k, v in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [place_batch(x, device) for x in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    if is_dataclass(batch) and not isinstance(batch, type):
        made = copy(batch)
        for field in fields(batch):
            object.__setattr__(made, field.name, place_batch(getattr(batch, field.name), device))
        return made
    return batch


def _join_samples(samples: list, path: str, device: str | None) -> Any:
    first = samples[0]
    if _is_array(first):
        return _stack_samples(samples, path, device)
    if isinstance(first, _TEXT):
        _alike(samples, path, _TEXT)
        return list(samples)
    if isinstance(first, Mapping):
        _alike(samples, path, Mapping)
        _same(samples, path, "keys", list, lambda s: sorted(map(repr, s)))
        return {k: _join_samples([s[k] for s in samples], f"{path}[{k!r}]", device) for k in first}
    if isinstance(first, list | tuple):
        _alike(samples, path, (list, tuple))
        _same(samples, path, "length", len, len)
        columns = [[s[i] for s in samples] for i in range(len(first))]
        parts = [_join_samples(c, f"{path}[{i}]", device) for i, c in enumerate(columns)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    raise errors.DTypeError(
        f"collate: {path} is of type {type(first).__name__}: expected tensors, arrays, numbers or "
        "text, alone or in dicts, tuples and lists; give the loader a collate= of your own"
    )


def _is_array(x) -> bool:
    return type(x) in TENSORS or isinstance(x, np.ndarray | Number | np.generic) or is_torch(x)


def _stack_samples(samples: list, path: str, device: str | None):
    for i, s in enumerate(samples):
        if not _is_array(s):
            _refuse(path, "type", i, type(samples[0]).__name__, type(s).__name__)
    if isinstance(samples[0], Number) and all(isinstance(s, Number) for s in samples):
        return asarray(samples, device=device)
    if all(type(s) is np.ndarray for s in samples):
        if len({(s.dtype, s.shape) for s in samples}) == 1:
            # Converting each to a tensor would take three times as long.
            return asarray(np.stack(samples), device=device)
    own = [type(s) in TENSORS or is_torch(s) for s in samples]
    boxes = [asarray(s, device=None if o else device) for s, o in zip(samples, own, strict=True)]
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
