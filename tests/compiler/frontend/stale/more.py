"""More kinds: objects whose state lies in other places than attributes and containers."""

import abc
import ctypes
import enum
import functools
import logging
import operator
import threading
from types import SimpleNamespace

import numpy as np

import weft as wf

from .kinds import Kind


class Base(abc.ABC):  # noqa: B024  (others are registered)
    pass


class First:
    k = 2.0

    def scale(self):
        return 2.0


class Second:
    k = 5.0

    def scale(self):
        return 5.0


class Third(wf.nn.Module):
    def forward(self, x):
        return 2 * x


class Fourth(wf.nn.Module):
    def forward(self, x):
        return 5 * x


class Array(np.ndarray):
    pass


class Point(ctypes.Structure):
    _fields_ = [("a", ctypes.c_double)]


def _class_of(x, kind):
    x.__class__ = kind


def _heir(k):
    """An object of a class whose base can be exchanged."""
    return type("Heir", ((First, Second)[k],), {})()


def _rebase(x):
    type(x).__bases__ = (Second,)


def _maker(k):
    """A class whose objects are made by the function."""

    def begin(self):
        self.k = 2.0 + k

    return type("Made", (), {"__init__": begin})


def _begins_anew(kind):
    def begin(self):
        self.k = 7.0

    kind.__init__ = begin


def _set_on(name, value):
    """An attribute of a function, or of the function behind a method."""
    return lambda f: setattr(getattr(f, "__func__", f), name, value)


def _function(k):
    def f():
        return 1

    f.k = 2.0 + k
    return f


def _member(k):
    kind = enum.Enum("Made", "A")
    kind.A.scale = 2.0 + k
    return kind.A


def _local(k):
    x = threading.local()
    x.k = 2.0 + k
    return x


def _partial(k):
    p = functools.partial(operator.mul, 2.0 + k)
    p.k = 3.0 + k
    return p


def _array(k):
    x = np.ones(3).view(Array)
    x.k = 2.0 + k
    return x


def _registered(k):
    return type("Registered", (First,), {})()


def _logger(k):
    x = logging.Logger(f"stale {k}")
    x.setLevel(10 + k)
    return x


def _cached(k):
    held = [2.0 + k]

    @functools.lru_cache
    def f(*_):
        return held[0]

    f.held = held
    return f


def _forget(f):
    f.held[0] = 9.0
    f()
    f.cache_clear()


def _hooked(k):
    w = wf.Parameter([1.0, 2.0, 3.0])
    if k:
        w.register_hook(lambda g: g * 10)
    return w


def _gradient(w, x):
    w.grad = None
    (w * x).sum().backward()
    found = w.grad
    w.grad = None
    return found


def _optimizer(k):
    w = wf.Parameter([1.0])
    optimizer = wf.optim.SGD([w], lr=(0.1, 0.5)[k])
    optimizer.weight = w
    return optimizer


def _stepped(optimizer, x):
    w = optimizer.weight
    with wf.no_grad():
        w *= 0.0
    w.grad = wf.ones(1)
    optimizer.step()
    return x * w


def _given(optimizer):
    optimizer.param_groups[0]["lr"] = 0.7


def _scaled(k):
    return wf.amp.GradScaler(init_scale=(4.0, 64.0)[k])


A, B = wf.tensor([1.0]), wf.tensor([1.0])


MORE: dict[str, Kind] = {
    "class of an object": Kind(
        lambda k: (First, Second)[k](),
        lambda v, x: x * v.scale() * v.k,
        lambda v: _class_of(v, Second),
    ),
    "class of a module": Kind(
        lambda k: (Third, Fourth)[k](), lambda v, x: v(x), lambda v: _class_of(v, Fourth)
    ),
    "bases of a class": Kind(_heir, lambda v, x: x * v.k * v.scale(), _rebase),
    "how objects begin": Kind(_maker, lambda v, x: x * v().k, _begins_anew),
    "attribute of a function": Kind(_function, lambda v, x: x * v.k, _set_on("k", 7.0)),
    "name of a function": Kind(
        _function, lambda v, x: x * len(v.__name__), _set_on("__name__", "longer")
    ),
    "attribute of a member": Kind(
        _member, lambda v, x: x * v.scale, lambda v: setattr(v, "scale", 7.0)
    ),
    "arguments of an error": Kind(
        lambda k: ValueError(2.0 + k),
        lambda v, x: x * v.args[0],
        lambda v: setattr(v, "args", (7.0,)),
    ),
    "a thread's own": Kind(_local, lambda v, x: x * v.k, lambda v: setattr(v, "k", 7.0)),
    "attribute of a partial": Kind(_partial, lambda v, x: x * v.k, lambda v: setattr(v, "k", 7.0)),
    "what a partial calls": Kind(
        _partial, lambda v, x: v(x), lambda v: v.__setstate__((operator.mul, (7.0,), {}, {}))
    ),
    "polynomial": Kind(
        lambda k: np.poly1d([1.0, 2.0 + k]),
        lambda v, x: x * float(v(2)),
        lambda v: v.__setitem__(0, 7.0),
    ),
    "attribute of an array": Kind(_array, lambda v, x: x * v.k, lambda v: setattr(v, "k", 7.0)),
    "contents of such an array": Kind(
        _array, lambda v, x: x * float(v[0]) * v.k, lambda v: v.__setitem__(0, 7.0)
    ),
    "number of C's": Kind(
        lambda k: ctypes.c_double(2.0 + k),
        lambda v, x: x * v.value,
        lambda v: setattr(v, "value", 7.0),
    ),
    "structure of C's": Kind(
        lambda k: Point(2.0 + k), lambda v, x: x * v.a, lambda v: setattr(v, "a", 7.0)
    ),
    "attribute by attrgetter": Kind(
        lambda k: (operator.attrgetter("a.b"), SimpleNamespace(a=SimpleNamespace(b=2.0 + k))),
        lambda v, x: x * v[0](v[1]),
        lambda v: setattr(v[1].a, "b", 7.0),
    ),
    "registered class": Kind(
        _registered,
        lambda v, x: x * (2.0 if isinstance(v, Base) else 3.0),
        lambda v: Base.register(type(v)),
    ),
    "level of a logger": Kind(_logger, lambda v, x: x * v.level, lambda v: v.setLevel(40)),
    "results that are kept": Kind(_cached, lambda v, x: x * v(), _forget),
    "hook on a gradient": Kind(_hooked, _gradient, lambda v: v.register_hook(lambda g: g * 7)),
    "optimizer": Kind(_optimizer, _stepped, _given),
    "loss scale": Kind(_scaled, lambda v, x: v.scale(x.sum())),
    "one tensor or two": Kind(
        lambda k: [A, (A, B)[k]],
        lambda v, x: x * (2.0 if v[0] is v[1] else 3.0),
        lambda v: v.__setitem__(1, B),
    ),
    "a tensor as a key": Kind(
        lambda k: [(A, B)[k], {A: 2.0, B: 5.0}],
        lambda v, x: x * v[1][v[0]],
        lambda v: v.__setitem__(0, B),
    ),
    "which object": Kind(
        lambda k: [(A, B)[k], {id(A): 2.0, id(B): 5.0}],
        lambda v, x: x * v[1][id(v[0])],
        lambda v: v.__setitem__(0, B),
    ),
}
