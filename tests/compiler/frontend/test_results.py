"""What a compiled function may return: the same kinds of objects as in eager mode, or an error."""

import collections
import copy
import dataclasses
import functools
import typing
from types import SimpleNamespace

import numpy as np
import pytest

import weft as wf
from weft.errors import StagingError

X = wf.tensor([1.0, 2.0, 3.0])


@dataclasses.dataclass
class Mutable:
    a: object
    b: object = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: object
    b: object = 3


@dataclasses.dataclass(slots=True)
class Slotted:
    a: object
    b: object = 3


@dataclasses.dataclass
class Counted:
    a: object
    total: object = dataclasses.field(init=False)

    def __post_init__(self):
        self.total = self.a + 1
        self.extra = self.a * 3


class Mapping(dict):
    pass


class Named(dict):
    def __init__(self, **items):
        super().__init__(**items)
        self.label = "named"


class Ordered(collections.OrderedDict):
    pass


class Default(collections.defaultdict):
    pass


class Listed(list):
    pass


class Coupled(tuple):
    __slots__ = ()


class Pair(typing.NamedTuple):
    a: object
    b: object = 3


@dataclasses.dataclass
class Output(collections.OrderedDict):
    """As the outputs of models are in other libraries: fields that are items too."""

    a: object = None

    def __post_init__(self):
        self["a"] = self.a


def ordered(a):
    made = Ordered(a=1, z=a)
    made.move_to_end("z", last=False)
    return made


def default(a):
    made = Default(list)
    made["k"] = a
    return made


KINDS = {
    "tuple": lambda a: (a, 3),
    "list": lambda a: [a, "s"],
    "dict": lambda a: {"z": a, "a": 1},
    "dataclass": lambda a: Mutable(a),
    "frozen dataclass": lambda a: Frozen(a, "x"),
    "dataclass with slots": lambda a: Slotted(a),
    "dataclass with a field of its own": lambda a: Counted(a),
    "namedtuple": lambda a: Pair(a),
    "dict subclass": lambda a: Mapping(z=a, a=1),
    "dict subclass with attributes": lambda a: Named(z=a),
    "OrderedDict": lambda a: collections.OrderedDict(z=a, a=1),
    "OrderedDict subclass": ordered,
    "defaultdict": lambda a: collections.defaultdict(list, z=a),
    "defaultdict subclass": default,
    "Counter": lambda a: collections.Counter({"k": a}),
    "deque": lambda a: collections.deque([a, 1], maxlen=3),
    "list subclass": lambda a: Listed([a, 2]),
    "tuple subclass": lambda a: Coupled((a, 2)),
    "set": lambda a: {a},
    "frozenset": lambda a: frozenset([a]),
    "model output": lambda a: Output(a=a),
}


def same(want, got) -> None:
    assert type(want) is type(got)
    if isinstance(want, wf.Tensor):
        np.testing.assert_array_equal(got.numpy(), want.numpy())
        return
    if isinstance(want, dict):
        assert list(want) == list(got)
        for key in want:
            same(want[key], got[key])
    elif isinstance(want, list | tuple | set | frozenset | collections.deque):
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            same(a, b)
        assert getattr(want, "maxlen", None) == getattr(got, "maxlen", None)
    elif not hasattr(want, "__dict__") and not dataclasses.is_dataclass(want):
        assert want == got
    assert getattr(want, "default_factory", None) == getattr(got, "default_factory", None)
    names = [f.name for f in dataclasses.fields(want)] if dataclasses.is_dataclass(want) else []
    names += list(getattr(want, "__dict__", ()))
    for name in names:
        same(getattr(want, name), getattr(got, name))


# Not with any inner object: what they do to it, or whether it has a hash.
CHOOSY = {"dataclass with a field of its own", "set", "frozenset"}
NESTED = [(o, i) for o in (None, *KINDS) for i in KINDS if o not in CHOOSY]
NESTED += [("frozenset", "frozen dataclass"), ("set", "tuple"), ("set", "frozenset")]


@pytest.mark.parametrize(("outer", "inner"), NESTED)
def test_a_result_is_rebuilt(outer, inner):
    """Every kind in every kind, of a tensor that the program computes."""

    def f(x, v):
        made = KINDS[inner](x * v)
        return made if outer is None else KINDS[outer](made)

    compiled = wf.compile(f)
    first = compiled(X, 2.0)
    same(f(X, 2.0), first)
    kept = copy.copy(first)
    second = compiled(X + 1, 3.0)
    same(f(X + 1, 3.0), second)
    same(f(X, 2.0), first)
    assert second is not first and type(kept) is type(first)


def test_gradients_flow_through_the_results():
    x = X.detach().requires_grad_()
    out = wf.compile(lambda x: Mutable(x * x, {"k": Frozen(x**3)}))(x)
    found = (out.a.sum() + out.b["k"].a.sum()).backward()
    np.testing.assert_allclose(found[x].numpy(), 2 * X.numpy() + 3 * X.numpy() ** 2)


def test_what_is_in_a_result_twice_is_one_object():
    def f(x):
        made = Mutable(x * 2)
        return made, [made], made.a

    first, (second,), tensor = wf.compile(f)(X)
    assert first is second and first.a is tensor


class Plain:
    def __init__(self, a):
        self.a = a


class Holder:
    __slots__ = ("__private",)

    def __init__(self, a):
        self.__private = a


class Copied(list):
    def __reduce__(self):
        return Copied, ()


def closure(a):
    return lambda: a


def module(a):
    made = wf.nn.ReLU()
    made.scale = a
    return made


def circular(a):
    made = Mutable(a)
    made.b = made
    return made


REFUSED = {
    "object": Plain,
    "object with slots": Holder,
    "namespace": lambda a: SimpleNamespace(a=a),
    "class with its own way of copying": lambda a: Copied([a]),
    "closure": closure,
    "partial": lambda a: functools.partial(wf.add, a),
    "module": module,
    "object that holds itself": circular,
    "dataclass of an object": lambda a: Mutable(Plain(a)),
    "list in an object": lambda a: Plain([{"k": (a,)}]),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_objects_are_refused(kind):
    with pytest.raises(StagingError, match=r"returns a \w+ that holds values of the program"):
        wf.compile(lambda x: REFUSED[kind](x * 2))(X)


def test_objects_without_values_are_returned_as_they_are():
    thing, settings = Plain(X), Mutable(1)

    @wf.compile
    def f(x):
        return x * 2, thing, settings, np.float32

    out = f(X)
    assert out[1] is thing and out[2] is settings and out[3] is np.float32
