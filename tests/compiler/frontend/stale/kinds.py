"""Values that a function can depend on: how two of a kind differ, how one is changed in place."""

import collections
import dataclasses
import enum
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

import weft as wf


class Colour(enum.Enum):
    RED = 2.0
    GREEN = 3.0


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 3


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Record:
    a: float
    b: float


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: float
    b: float


class Slotted:
    __slots__ = ("a",)

    def __init__(self, a):
        self.a = a


@dataclass(frozen=True)
class Kind:
    """Values of one kind.

    make    the first value and the second, made anew at each call
    use     what a function does with one: a number, or a tensor, that depends on it
    change  what makes the first value something else where it is; None if nothing can
    """

    make: Callable[[int], Any]
    use: Callable[[Any, Any], Any]
    change: Callable[[Any], None] | None = None
    reorder: Callable[[Any], None] | None = None


def _times(value, x):
    return x * value


def _weighted(values, x):
    for k, v in enumerate(values):
        x = x + (k + 1) * v
    return x


def _reordered(d):
    first = next(iter(d))
    d[first] = d.pop(first)


def _double(x):
    return 2 * x


def _triple(x):
    return 3 * x


class Hooked(wf.nn.Module):
    def forward(self, x):
        return x + 1


def _hooked(k):
    module = Hooked()
    if k:
        module.register_forward_hook(lambda m, a, out: out * 5)
    return module


def _module(k):
    module = wf.nn.Sequential(wf.nn.LeakyReLU(0.1 + k), wf.nn.Tanh())
    return module


def _set(name, value):
    def change(x):
        setattr(x, name, value)

    return change


def _write(x):
    x[0] = 7.0


KINDS: dict[str, Kind] = {
    "float": Kind(lambda k: (0.5, 2.5)[k], _times),
    "negative zero": Kind(lambda k: (0.0, -0.0)[k], lambda v, x: 1 / (x * v)),
    "int": Kind(lambda k: (2, 3)[k], _times),
    "bool or int": Kind(lambda k: (1, True)[k], lambda v, x: x * (5 if v is True else 6)),
    "string": Kind(lambda k: ("sum", "mean")[k], lambda v, x: getattr(wf, v)(x) + x),
    "none": Kind(lambda k: (None, 2.0)[k], lambda v, x: x if v is None else x * v),
    "enum": Kind(lambda k: list(Colour)[k], lambda v, x: x * v.value),
    "enum by identity": Kind(
        lambda k: list(Colour)[k], lambda v, x: x * (2 if v is Colour.RED else 9)
    ),
    "int enum": Kind(lambda k: list(Level)[k], lambda v, x: x * int(v)),
    "numpy scalar": Kind(lambda k: np.float64((2.0, 3.0)[k]), lambda v, x: x * v),
    "numpy integer": Kind(lambda k: np.int64((2, 3)[k]), lambda v, x: x * int(v)),
    "numpy array": Kind(lambda k: np.array([1.0, 2.0, 3.0 + k]), lambda v, x: x * v, _write),
    "numpy array read": Kind(
        lambda k: np.array([1.0 + k, 2.0]), lambda v, x: x * float(v.sum()), _write
    ),
    "tensor": Kind(lambda k: wf.tensor([1.0, 2.0, 3.0 + k]), _times, _write),
    "shape of a tensor": Kind(lambda k: wf.zeros((2 + k,)), lambda v, x: x * v.shape[0]),
    "tracking": Kind(
        lambda k: wf.tensor([1.0], requires_grad=bool(k)),
        lambda v, x: x * (2 if v.requires_grad else 3),
        lambda v: v.requires_grad_(),
    ),
    "dtype": Kind(
        lambda k: (np.dtype("float32"), np.dtype("float64"))[k], lambda v, x: x.to(v) * 3
    ),
    "dtype of ours": Kind(lambda k: (wf.float32, wf.int64)[k], lambda v, x: x.to(v) * 3),
    "function": Kind(lambda k: (_double, _triple)[k], lambda v, x: v(x)),
    "lambda": Kind(
        lambda k: (lambda x: 2 * x) if k == 0 else (lambda x: 3 * x), lambda v, x: v(x)
    ),
    "closure": Kind(lambda k: (lambda n: lambda x: n * x)(k + 2), lambda v, x: v(x)),
    "class": Kind(lambda k: (Record, Frozen)[k], lambda v, x: x * (2 if v is Record else 3)),
    "tuple": Kind(lambda k: (1.0, 2.0 + k), _weighted),
    "list": Kind(lambda k: [1.0, 2.0 + k], _weighted, _write, lambda v: v.reverse()),
    "list that grows": Kind(lambda k: [1.0] * (k + 1), _weighted, lambda v: v.append(4.0)),
    "nested list": Kind(
        lambda k: [[1.0], [2.0 + k]],
        lambda v, x: _weighted(v[1], x),
        lambda v: v[1].append(3.0),
    ),
    "dict": Kind(
        lambda k: {"a": 1.0, "b": 2.0 + k},
        lambda v, x: _weighted(v.values(), x),
        lambda v: v.update(a=5.0),
        _reordered,
    ),
    "dict of dicts": Kind(
        lambda k: {"a": {"b": 2.0 + k}},
        lambda v, x: x * v["a"]["b"],
        lambda v: v["a"].update(b=5.0),
    ),
    "missing key": Kind(
        lambda k: {"a": 1.0} if k else {},
        lambda v, x: x * v.get("a", 3.0),
        lambda v: v.update(a=5.0),
    ),
    "set": Kind(lambda k: {1.0, 2.0 + k}, lambda v, x: x * sum(v), lambda v: v.add(9.0)),
    "frozenset": Kind(lambda k: frozenset((1.0, 2.0 + k)), lambda v, x: x * sum(v)),
    "deque": Kind(
        lambda k: collections.deque([1.0, 2.0 + k]),
        _weighted,
        lambda v: v.append(2.0),
        lambda v: v.rotate(),
    ),
    "ordered dict": Kind(
        lambda k: collections.OrderedDict(a=1.0, b=2.0 + k),
        lambda v, x: _weighted(v.values(), x),
        lambda v: v.update(a=5.0),
        lambda v: v.move_to_end("a"),
    ),
    "default dict": Kind(
        lambda k: collections.defaultdict((list, dict)[k], a=2.0),
        lambda v, x: x * (2 if v.default_factory is list else 3),
    ),
    "counter": Kind(
        lambda k: collections.Counter("a" * (k + 1)),
        lambda v, x: x * v["a"],
        lambda v: v.update("a"),
    ),
    "namedtuple": Kind(lambda k: Pair(1.0, 2.0 + k), lambda v, x: x * v.b + v.a),
    "dataclass": Kind(lambda k: Record(1.0, 2.0 + k), lambda v, x: x * v.b, _set("b", 6.0)),
    "frozen dataclass": Kind(
        lambda k: Frozen(1.0, 2.0 + k),
        lambda v, x: x * v.b,
        lambda v: object.__setattr__(v, "b", 6.0),
    ),
    "slots": Kind(lambda k: Slotted(2.0 + k), lambda v, x: x * v.a, _set("a", 6.0)),
    "namespace": Kind(lambda k: SimpleNamespace(a=2.0 + k), lambda v, x: x * v.a, _set("a", 6.0)),
    "attribute by computed name": Kind(
        lambda k: SimpleNamespace(a1=2.0 + k),
        lambda v, x: x * getattr(v, f"a{len('1')}"),
        _set("a1", 6.0),
    ),
    "attributes by vars": Kind(
        lambda k: SimpleNamespace(a=2.0 + k), lambda v, x: x * vars(v)["a"], _set("a", 6.0)
    ),
    "attribute that may be there": Kind(
        lambda k: SimpleNamespace(**{"a": 2.0} if k else {}),
        lambda v, x: x * (v.a if hasattr(v, "a") else 3.0),
        _set("a", 6.0),
    ),
    "module": Kind(_module, lambda v, x: v(-x), lambda v: setattr(v[0], "negative_slope", 0.7)),
    "hook": Kind(
        _hooked,
        lambda v, x: v(x),
        lambda v: v.register_forward_hook(lambda m, a, out: out * 3),
    ),
    "appended layer": Kind(
        _module, lambda v, x: v(-x), lambda v: v.append(wf.nn.Tanh())
    ),
    "replaced layer": Kind(
        _module, lambda v, x: v(-x), lambda v: v._modules.update({"0": wf.nn.Sigmoid()})
    ),
    "bytes": Kind(lambda k: bytes([2 + k]), lambda v, x: x * v[0]),
    "bytearray": Kind(
        lambda k: bytearray([2 + k]), lambda v, x: x * v[0], lambda v: v.append(1) or _set0(v)
    ),
    "range": Kind(lambda k: range(2 + k), lambda v, x: x * len(v)),
    "slice": Kind(lambda k: slice(0, 1 + k), lambda v, x: x[v].sum() + x),
    "complex": Kind(lambda k: complex(1, k), lambda v, x: x * abs(v)),
    "object array": Kind(
        lambda k: np.array([2.0 + k, "a"], object), lambda v, x: x * v[0], _write
    ),
}  # fmt: skip


def _set0(v):
    v[0] = 9
