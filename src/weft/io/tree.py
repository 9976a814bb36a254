"""Trees of values as a JSON skeleton and named arrays, and back without loss.

None, booleans, integers, finite floats, strings and lists are themselves in JSON; so are dicts
whose keys are strings (a `$` in front of a key is doubled). The rest is an object with one key:
`$tensor`, `$array` and `$scalar` (a tensor's, a NumPy array's or a NumPy scalar's name), `$float`
(the 16 hexadecimal digits of an infinity or a NaN), `$complex` (two of these), `$tuple` (the
elements) or `$items` (pairs of key and value, of a dict with integers among its keys).
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..backend.device import place
from ..core import dtypes
from ..core.value import GROUND, Value, wrap
from . import strict_json
from .header import named_properly

if TYPE_CHECKING:
    from ..arrays.types import Device

DEPTH = 30
_LARGEST = 10 ** (strict_json.DIGITS - 1)


class Flattener:
    """Collects the arrays of a tree while building its skeleton."""

    def __init__(self, what: str):
        self.what = what
        self.arrays: dict[str, Any] = {}

    def skeleton(self, value: Any, path: tuple[str, ...] = ()) -> Any:
        """The JSON of a value; its arrays are kept under names made of the path."""
        if len(path) > DEPTH:
            raise errors.ArgumentError(
                f"save: {self._spell_path(path[:4])}… is nested deeper than {DEPTH} levels; nest "
                "it less"
            )
        if value is None or type(value) in (bool, str):
            return value
        kind = next((k for k in _SKELETONS if isinstance(value, k)), None)
        if kind is None or (kind in (int, float, complex, list, tuple) and type(value) is not kind):
            raise self._unknown(value, path)
        return _SKELETONS[kind](self, value, path)

    def tensor(self, value: Any, path: Any) -> Any:
        if type(value) not in GROUND:
            raise errors.ArgumentError(
                f"save: {self._spell_path(path)} belongs to a transformation that is running (jvp, "
                "vmap, …): save after it"
            )
        return {"$tensor": self._keep(value._data, path)}

    def array(self, value: Any, path: Any) -> Any:
        if value.dtype not in dtypes.KIND:
            raise self._unknown(value, path, f" of dtype {value.dtype}")
        kind = "$array" if isinstance(value, np.ndarray) else "$scalar"
        return {kind: self._keep(np.asarray(value, dtypes.canonical(value.dtype)), path)}

    def number(self, value: Any, path: Any) -> Any:
        if not -_LARGEST < value < _LARGEST:
            raise errors.ArgumentError(
                f"save: {self._spell_path(path)} is an integer of {strict_json.DIGITS} digits or "
                "more; save it as a string"
            )
        return value

    def real(self, value: Any, path: Any) -> Any:
        finite = value - value == 0.0
        return value if finite else {"$float": struct.pack(">d", value).hex()}

    def pair(self, value: Any, path: Any) -> Any:
        return {"$complex": [struct.pack(">d", x).hex() for x in (value.real, value.imag)]}

    def sequence(self, value: Any, path: Any) -> Any:
        out = [self.skeleton(v, (*path, str(i))) for i, v in enumerate(value)]
        return out if type(value) is list else {"$tuple": out}

    def mapping(self, value: Any, path: Any) -> Any:
        if not all(type(k) in (str, int) for k in value):
            raise errors.ArgumentError(
                f"save: {self._spell_path(path)} has keys that are neither strings nor integers; "
                "use only those"
            )
        pairs = [(k, self.skeleton(v, (*path, str(k)))) for k, v in value.items()]
        if any(type(k) is int for k in value):
            return {
                "$items": [[self.number(k, path) if type(k) is int else k, v] for k, v in pairs]
            }
        return {f"${k}" if k.startswith("$") else k: v for k, v in pairs}

    def _keep(self, raw, path) -> str:
        name = ".".join(path)
        number = len(self.arrays)
        while not named_properly(name) or name in self.arrays:
            name, number = f"~{number}", number + 1
        self.arrays[name] = raw
        return name

    def _unknown(self, value, path, more: str = ""):
        return errors.ArgumentError(
            f"save: {self._spell_path(path)} is a {type(value).__name__}{more}, expected tensors, "
            "numbers, strings, None, and lists, tuples and dicts of them"
        )

    def _spell_path(self, path) -> str:
        return ".".join((self.what, *path))


_SKELETONS = {
    Value: Flattener.tensor,
    np.ndarray: Flattener.array,
    np.generic: Flattener.array,
    int: Flattener.number,
    float: Flattener.real,
    complex: Flattener.pair,
    list: Flattener.sequence,
    tuple: Flattener.sequence,
    dict: Flattener.mapping,
}


class Restorer:
    """Rebuilds a tree from its skeleton and its arrays, each used once."""

    def __init__(self, arrays: dict[str, np.ndarray], device: Device, where: str):
        self.arrays: dict[str, np.ndarray[Any, Any]] = dict(arrays)
        self.device = device
        self.where = where

    def tree(self, skeleton: Any) -> Any:
        """The tree of a skeleton; arrays that it does not name are an error."""
        out = self.value(skeleton)
        if self.arrays:
            raise errors.CheckpointError(
                f"{self.where}: holds {len(self.arrays)} tensors that its tree does not name"
            )
        return out

    def value(self, skeleton: Any) -> Any:
        if type(skeleton) is list:
            return [self.value(v) for v in skeleton]
        if type(skeleton) is not dict:
            return skeleton
        tag = next(iter(skeleton), "")
        if len(skeleton) == 1 and tag in _VALUES:
            return _VALUES[tag](self, skeleton[tag])
        if any(k.startswith("$") and not k.startswith("$$") for k in skeleton):
            raise self._malformed_error(skeleton)
        return {k[1:] if k[:1] == "$" else k: self.value(v) for k, v in skeleton.items()}

    def tensor(self, name: Any) -> Any:
        return wrap(place(self.array(name), self.device))

    def array(self, name: Any) -> Any:
        if not isinstance(name, str) or name not in self.arrays:
            raise errors.CheckpointError(
                f"{self.where}: its tree names the tensor {str(name)[:80]!r}, which the file does "
                "not hold (or which was named before)"
            )
        return self.arrays.pop(name)

    def scalar(self, name: Any) -> Any:
        array = self.array(name)
        if array.shape:
            raise self._malformed_error({"$scalar": name})
        return array[()]

    def real(self, digits: Any) -> float:
        if not isinstance(digits, str) or not _SIXTEEN.fullmatch(digits):
            raise self._malformed_error({"$float": digits})
        return struct.unpack(">d", bytes.fromhex(digits))[0]

    def pair(self, parts: Any) -> complex:
        if type(parts) is not list or len(parts) != 2:
            raise self._malformed_error({"$complex": parts})
        return complex(*map(self.real, parts))

    def tuple_(self, elements: Any) -> tuple[Any, ...]:
        if type(elements) is not list:
            raise self._malformed_error({"$tuple": elements})
        return tuple(self.value(elements))

    def items(self, pairs: Any) -> dict[str, Any]:
        if type(pairs) is not list or not all(type(p) is list and len(p) == 2 for p in pairs):
            raise self._malformed_error({"$items": pairs})
        out = {k: self.value(v) for k, v in pairs if type(k) in (str, int)}
        if len(out) != len(pairs):
            raise self._malformed_error({"$items": [k for k, _ in pairs]})
        return out

    def _malformed_error(self, what):
        return errors.CheckpointError(f"{self.where}: its tree holds a malformed {str(what)[:80]}")


_SIXTEEN = re.compile("[0-9a-f]{16}")
_VALUES = {
    "$tensor": Restorer.tensor,
    "$array": Restorer.array,
    "$scalar": Restorer.scalar,
    "$float": Restorer.real,
    "$complex": Restorer.pair,
    "$tuple": Restorer.tuple_,
    "$items": Restorer.items,
}
