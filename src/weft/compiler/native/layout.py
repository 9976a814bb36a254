"""Memory layout of NumPy's arrays and Python's lists and dicts, as byte offsets.

The fields are those of `PyArrayObject_fields` in NumPy's C interface, after the head of every
Python object, whose last field is the type. `verify_layout` compares with what Python says.
"""

import ctypes
import sys
from functools import lru_cache
from typing import Any

import numpy as np

HEAD = object.__basicsize__
TYPE = HEAD - 8
COUNT = TYPE - 8  # the reference count of an object
SIZE, ITEMS = HEAD, HEAD + 8  # of a list: its length and its items
TUPLE_ITEMS = tuple.__basicsize__  # of a tuple; its length is where that of a list is
# Of a dict: its version tag, which every change renews (PEP 509); Python 3.13 dropped it.
VERSION = HEAD + 8 if sys.version_info < (3, 13) else None
DATA, NDIM, DIMENSIONS, STRIDES, BASE, DESCR, FLAGS = (HEAD + 8 * i for i in range(7))


class UnknownLayout(RuntimeError):
    """A Python or NumPy whose objects have an unknown layout."""


@lru_cache(maxsize=1)
def verify_layout() -> None:
    """Raise `UnknownLayout` unless objects are laid out as this module says."""
    for sample in (np.zeros((3, 5, 2), np.float32)[1:, ::2], np.zeros(7, np.int16)):
        at, data = id(sample), sample.__array_interface__["data"][0]
        count = _word(at + COUNT)
        held = [sample] * 3
        fields: dict[str, tuple[Any, Any]] = {
            "references": (_word(at + COUNT), count + len(held)),
            "type": (_word(at + TYPE), id(np.ndarray)),
            "data": (_word(at + DATA), data),
            "ndim": (_half(at + NDIM), sample.ndim),
            "base": (_word(at + BASE), 0 if sample.base is None else id(sample.base)),
            "descr": (_word(at + DESCR), id(sample.dtype)),
            "flags": (_half(at + FLAGS) & 0xFFFF, sample.flags.num & 0xFFFF),
        }
        listed = [sample, sample.dtype]
        pair = tuple(listed)
        fields |= {
            "tuple size": (_word(id(pair) + SIZE), 2),
            "tuple items": (_words(id(pair) + TUPLE_ITEMS, 2), tuple(map(id, pair))),
            "list size": (_word(id(listed) + SIZE), 2),
            "list items": (_words(_word(id(listed) + ITEMS), 2), tuple(map(id, listed))),
        }
        if VERSION is not None:
            fields["version of a dict"] = (_versions_count(), True)
        wrong = [name for name, (found, expected) in fields.items() if found != expected]
        # A pointer is dereferenced only if all fields around it are as expected.
        if wrong or _words(_word(at + DIMENSIONS), sample.ndim) != sample.shape:
            raise UnknownLayout(
                f"array objects of NumPy {np.__version__} on Python {sys.version.split()[0]} are "
                f"laid out in a way that is not known: {wrong or ['dimensions']}"
            )


def _versions_count() -> bool:
    """Whether each change of a dict gives it a new version tag."""
    assert VERSION is not None
    sample: dict[str, int] = {}
    seen = [_word(id(sample) + VERSION)] * 2
    for value in (1, 2, 1):
        sample["name"] = value
        seen.append(_word(id(sample) + VERSION))
    del sample["name"]
    seen.append(_word(id(sample) + VERSION))
    return len(set(seen)) == 5 and _word(id(sample) + VERSION) == seen[-1]


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value


def _words(address: int, count: int) -> tuple[int, ...]:
    return tuple(_word(address + 8 * i) for i in range(count))


def _half(address: int) -> int:
    return ctypes.c_int32.from_address(address).value
