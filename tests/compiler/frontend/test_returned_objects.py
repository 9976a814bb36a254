"""Objects that compiled functions return: what they make is new at each call, the rest is not.

Programs are drawn that make objects of many kinds, share them, and mix them with objects that were
there before: variables from outside and arguments. What two calls give (contents, who is whom, who
is shared) is written down and compared with eager mode.
"""

import collections
import copy
import dataclasses
import functools
import os
import random
import threading
import types

import numpy as np
import pytest

import weft as wf
from weft.compiler.frontend.fresh import FreshObjects
from weft.errors import StagingError

ROUNDS = 3000 if os.environ.get("WEFT_SOAK") else 120


class Plain:
    def __init__(self, held):
        self.held = held


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


@dataclasses.dataclass
class Data:
    held: object


@dataclasses.dataclass(frozen=True)
class Frozen:
    held: object


class Tagged(list):
    pass


# How an object is made of another one, with tensors in it or only without.
OPEN = {
    "list": "[{0}]",
    "pair": "[{0}, {0}]",
    "tuple": "({0}, 1)",
    "dict": "{{'k': {0}}}",
    "ordered": "OrderedDict(b={0}, a=1)",
    "default": "defaultdict(int, k={0})",
    "deque": "deque([{0}], 3)",
    "data": "Data({0})",
    "frozen": "Frozen({0})",
    "tagged": "Tagged([{0}])",
}
CLOSED = {
    "plain": "Plain({0})",
    "slotted": "Slotted({0})",
    "namespace": "SimpleNamespace(k={0})",
    "cycle": "cycle({0})",
    "partial": "partial(max, {0})",
}
LEAVES = {
    "number": "3",
    "text": "'s'",
    "set": "{1, 2}",
    "counter": "Counter('aab')",
    "bytes": "bytearray(b'a')",
    "array": "np.arange(3)",
    "empty": "[]",
    "bare": "object()",
}
OUTSIDE = {
    "outer": "outer",
    "argument": "given",
    "inner": "given['l']",
    "kept": "outer[0]",
    "deep": "outer[0].held",
}
SPACE = {
    "Plain": Plain,
    "Slotted": Slotted,
    "Data": Data,
    "Frozen": Frozen,
    "Tagged": Tagged,
    "Counter": collections.Counter,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": collections.defaultdict,
    "deque": collections.deque,
    "SimpleNamespace": types.SimpleNamespace,
    "partial": functools.partial,
    "np": np,
}


def cycle(held):
    made = Plain(held)
    made.itself = made
    return made


def drawn(rng: random.Random) -> str:
    """A function of a tensor and of a dict of the caller's, as text."""
    lines, names, pure = ["def f(x, given):", "    y = x * 2"], ["y"], []
    for k in range(rng.randint(1, 6)):
        style = rng.random()
        if style < 0.3:
            text, plain = rng.choice(list(LEAVES.values())), True
        elif style < 0.5:
            text, plain = rng.choice(list(OUTSIDE.values())), True
        elif style < 0.8 or not pure:
            part = rng.choice(names)
            text, plain = rng.choice(list(OPEN.values())).format(part), part in pure
        else:
            text, plain = rng.choice(list(CLOSED.values())).format(rng.choice(pure)), True
        lines.append(f"    v{k} = {text}")
        names.append(f"v{k}")
        pure += [f"v{k}"] * plain
    last = rng.sample(names, min(len(names), rng.randint(1, 3)))
    return "\n".join([*lines, f"    return {', '.join(last)}"])


def told(x, known: dict[int, str], kept: list):
    """An object in words: what it holds, and which of those that were met it is."""
    if isinstance(x, wf.Tensor):
        return ("tensor", x.tolist())
    if (
        x is None
        or isinstance(x, int | float | str | type)
        or (callable(x) and not isinstance(x, functools.partial))
    ):
        return repr(x)
    if isinstance(x, tuple) and type(x) is tuple:
        return ("tuple", [told(v, known, kept) for v in x])
    if id(x) in known:
        return ("again", known[id(x)])
    known[id(x)] = f"object {len(known)}"
    kept.append(x)  # so that no other one gets its id
    return (type(x).__name__, known[id(x)], [told(v, known, kept) for v in held(x)])


def held(x) -> list:
    """What an object holds, in order."""
    if isinstance(x, np.ndarray):
        return [x.tolist()]
    if isinstance(x, bytearray):
        return [bytes(x).decode()]
    if isinstance(x, functools.partial):
        return [x.func, x.args[0]]
    items = []
    if isinstance(x, dict):
        items = [v for item in x.items() for v in item]
    elif isinstance(x, list | collections.deque):
        items = list(x)
    elif isinstance(x, set):
        items = sorted(x)
    return [*items, *getattr(x, "__dict__", {}).values(), *([x.held] if type(x) is Slotted else [])]


def outcome(text: str, compiled: bool):
    """What two calls give, between which the results of the first are spoilt."""
    outer = [Plain([1]), {2}]
    space = {**SPACE, "cycle": cycle, "outer": outer}
    exec(compile(text, "<drawn>", "exec"), space)
    f = wf.compile(space["f"]) if compiled else space["f"]
    x, given = wf.tensor([1.0, 2.0]), {"l": [1, 2], "t": wf.tensor([3.0])}
    known = {id(outer): "outer", id(outer[0]): "kept", id(outer[1]): "set", id(given): "given"}
    known[id(given["l"])] = "l"
    known[id(outer[0].held)] = "held"
    kept: list = [outer, given]
    first = f(x, given)
    one = told(first, known, kept)
    for made in kept[2:]:
        spoil(made)
    return one, told(f(x, given), known, kept)


def spoil(made) -> None:
    """Change an object, as its owner may."""
    if isinstance(made, list | collections.deque):
        made.append("spoilt")
    elif isinstance(made, dict):
        made["spoilt"] = 1
    elif isinstance(made, set):
        made.add(99)
    elif isinstance(made, bytearray):
        made.extend(b"spoilt")
    elif type(made) in (Plain, Data, types.SimpleNamespace):
        made.spoilt = 1
    elif isinstance(made, np.ndarray):
        made += 1


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_returned_objects(seed):
    text = drawn(random.Random(seed))
    try:
        got = outcome(text, True)
    except StagingError as e:
        assert "holds values of the program" in str(e), text
        assert any(word in text for word in ("Plain", "Slotted", "Simple", "cycle", "partial"))
        return
    assert got == outcome(text, False), text


def test_what_cannot_be_copied_is_refused():
    with pytest.raises(StagingError, match="new at each call and cannot be copied"):
        wf.compile(lambda x: (x, threading.Lock()))(wf.ones(2))


def test_what_a_table_keeps_is_one_object():
    @functools.lru_cache
    def made(n):
        return Plain([n])

    g = wf.compile(lambda x: (x * 2, made(3)))
    assert g(wf.ones(2))[1] is g(wf.ones(2))[1] is made(3)


def test_the_callers_containers_come_back():
    given = {"l": [1], "t": wf.ones(2)}
    g = wf.compile(lambda x, d: (d, d["l"], x))
    for _ in range(2):
        d, inner, _ = g(wf.ones(2), given)
        assert d is given and inner is given["l"]
    other = copy.deepcopy(given)
    assert g(wf.ones(2), other)[0] is other


@pytest.mark.parametrize("last", ["outer[0], outer[0].held", "Plain(outer[0]), outer[0].held"])
def test_what_an_object_from_outside_holds_is_from_outside(last):
    text = f"def f(x, given):\n    return x * 2, {last}"
    assert outcome(text, True) == outcome(text, False)


def test_what_is_held_by_the_held_is_not_fresh():
    keeper = Plain([1])
    made = FreshObjects([({1}, keeper, keeper.held)], {})
    assert {type(x) for x in made.fresh.values()} == {tuple, set}
    assert id(keeper.held) in made.others and id(keeper.held) not in made.shared
