"""Random classes, each made with `dataclass` and with `record`, behave alike."""

import copy
import inspect
import os
import pickle
import random
import sys
import threading
import weakref
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from functools import cached_property
from types import ModuleType
from typing import ClassVar

import pytest

from weft.core import record as record_module
from weft.core.record import Deferred, record

PROGRAMS = 5000 if os.environ.get("WEFT_SOAK") == "1" else 250
_VALUES = (0, 1, -1, 2.5, "a", (1, 2), None, True, frozenset((3,)))
_OPTIONAL = (
    *("= {}", "= field(default={}, compare=False)", "= field(default={}, repr=False)"),
    *("= field(default={}, kw_only=True)", "= field(default={}, hash=False)"),
    *("= field(init=False, default={})", "= field(init=False, default_factory=dict)"),
    *("= field(default_factory=list)", "= field(default_factory=list, hash=False)"),
)
_REQUIRED = ("", "= field()", "= field(repr=False)", "= field(kw_only=True)", "= field(hash=False)")
# What a class may define by itself; the last ones need a dict.
_MEMBERS = (
    'def __repr__(self): return f"<{type(self).__name__}>"',
    "def __eq__(self, other): return type(other) is type(self)",
    "def __hash__(self): return 7",
    "__hash__ = None",
    "shared: ClassVar[int] = 5",
    "@cached_property\n    def cached(self): return [*vars(self)]",
    'def __post_init__(self): object.__setattr__(self, "after", len(vars(self)))',
    "def __post_init__(self):\n        if -1 in vars(self).values(): raise ValueError(-1)",
    "def __init__(self, f0): vars(self).update(f0=f0)",
    "def __init__(self, f0): vars(self).update(f9=1); super(C0, self).__init__()",
)


def _write_program(rng: random.Random) -> list[str]:
    """Sources of classes, the later ones perhaps subclasses of the earlier ones."""
    frozen, slots = rng.random() < 0.6, rng.random() < 0.15
    texts: list[str] = []
    for k in range(rng.randint(1, 3)):
        base = f"(C{k - 1})" if k and rng.random() < 0.7 else ""
        first = rng.choice((0, 2)) if base else 0  # a class may define fields of its base again
        names = [f"f{first + i}" for i in range(rng.randint(0, 4))]
        required = 0 if base else rng.randint(0, len(names))
        lines = [f"{n}: object {rng.choice(_REQUIRED)}" for n in names[:required]]
        for name in names[required:]:
            lines.append(
                f"{name}: object {rng.choice(_OPTIONAL).format(repr(rng.choice(_VALUES)))}"
            )
        lines += rng.sample(_MEMBERS[: 5 if slots else None], rng.choice((0, 0, 1, 2)))
        body = "\n    ".join(('"""Some fields."""', *lines))
        options = f"frozen={frozen}, eq={rng.random() < 0.7}, slots={slots}"
        texts.append(f"@make({options})\nclass C{k}{base}:\n    {body}\n")
    return texts


def _space(name: str, make, monkeypatch) -> ModuleType:
    """A module whose classes are made by a decorator."""
    space = ModuleType(name)
    vars(space).update(make=make, field=field, cached_property=cached_property, ClassVar=ClassVar)
    monkeypatch.setitem(sys.modules, name, space)
    return space


def _outcome(f):
    """The result of a call, or its error."""
    try:
        return f()
    except Exception as error:
        return type(error), str(error)


def _facts(cls: type, args: tuple, keywords: dict, others: tuple):
    """All that can be seen of a class and of an instance."""
    x = _outcome(lambda: cls(*args, **keywords))
    names = [f.name for f in fields(cls)]
    yield [(f.name, f.default, f.init, f.repr, f.compare, f.kw_only) for f in fields(cls)]
    yield cls.__match_args__, [(p.name, p.kind) for p in _parameters(cls)]
    if not isinstance(x, cls):
        yield x
        return
    y, again = _outcome(lambda: cls(*others)), cls(*args, **keywords)
    yield _outcome(x.__repr__), [getattr(x, n, "absent") for n in (*names, "after", "cached")]
    yield list(vars(x).items()) if hasattr(x, "__dict__") else None
    if all(hasattr(x, n) for n in names):  # which missing one is noticed differs with Python
        yield [(x == z, x != z) for z in (again, y, 1)]
    yield cls.__eq__(x, 1) is NotImplemented
    yield _outcome(lambda: hash(x) if cls.__hash__ is not object.__hash__ else "identity")
    yield _outcome(lambda: asdict(x))
    yield [_outcome(lambda n=n: repr(replace(x, **{n: 9}))) for n in (*names, "none")]
    yield [_outcome(lambda c=c: repr(c(x))) for c in (copy.copy, copy.deepcopy, _send)]
    yield [_outcome(lambda n=n: setattr(x, n, 3)) for n in (*names, "none")], _outcome(x.__repr__)
    yield [_outcome(lambda n=n: delattr(x, n)) for n in (*names, "none")]
    yield [getattr(again, n, "absent") for n in names]  # factories give each its own


def _parameters(cls: type):
    return inspect.signature(cls).parameters.values()


def _send(x):
    return pickle.loads(pickle.dumps(x))


def _differences(seed: int, monkeypatch) -> list[tuple]:
    rng = random.Random(seed)
    texts = _write_program(rng)
    spaces = [_space("as_" + m.__name__, m, monkeypatch) for m in (dataclass, record)]
    try:
        exec("".join(texts), vars(spaces[0]))
    except TypeError:  # a class that `dataclass` refuses: type checkers do, too
        return []
    exec("".join(texts), vars(spaces[1]))
    found = []
    for k in rng.choices(range(len(texts)), k=4):
        args, others = (tuple(rng.choices(_VALUES, k=rng.randint(0, 4))) for _ in "ab")
        keywords = {
            f"f{i}": rng.choice(_VALUES) for i in rng.sample(range(6), rng.choice((0, 1, 2)))
        }
        facts = [list(_facts(getattr(s, f"C{k}"), args, keywords, others)) for s in spaces]
        pairs = zip(*facts, strict=False)
        found += [(seed, f"C{k}", args, keywords, a, b) for a, b in pairs if repr(a) != repr(b)]
        found += [(seed, f"C{k}", *facts)] if len(facts[0]) != len(facts[1]) else []
    return found


@pytest.mark.parametrize("block", range(5))
def test_records_behave_like_dataclasses(block, monkeypatch):
    count = PROGRAMS // 5
    for seed in range(block * count, (block + 1) * count):
        assert _differences(seed, monkeypatch) == []


def _hash_all(items):
    return [], [f"return hash({record_module._values('self', list(items))})"], {}


_FAULTS = {
    "hash counts every field": ("_write_hash", _hash_all),
    "assignments are not refused": ("_refuse_changes", lambda cls, items: {}),
    "a field without a parameter is not set": ("_initial", lambda f, s: f.name if f.init else None),
    "defaults are lost": ("_parameter", lambda f: f.name),
    "repr shows every field": (
        "_write_repr",
        lambda items: ([], [f"return repr({record_module._values('self', list(items))})"], {}),
    ),
    "equal to any object": ("_write_eq", lambda items: (["other"], ["return True"], {})),
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_fault_is_found(fault, monkeypatch):
    monkeypatch.setattr(record_module, *_FAULTS[fault])
    assert any(_differences(seed, monkeypatch) for seed in range(60))


@record
class _Pair:
    """Two fields."""

    a: int
    b: list = field(default_factory=list)

    @cached_property
    def double(self) -> int:
        return 2 * self.a


def test_methods_are_generated_when_used():
    @record
    class Fresh:
        """A class that nobody has used."""

        a: int

    def waiting():
        return {n for n, method in vars(Fresh).items() if isinstance(method, Deferred)}

    assert waiting() == {"__init__", "__repr__", "__eq__", "__hash__"}
    x = Fresh(1)
    assert waiting() == {"__repr__", "__eq__", "__hash__"}
    assert x == Fresh(1) and hash(x) == hash((1,)) and "a=1" in repr(x)
    assert waiting() == set()


def test_a_method_is_generated_once_by_many_threads():
    for _ in range(20):

        @record
        class Fresh:
            """A class that many threads construct first."""

            a: int

        start, made, functions = threading.Barrier(8), [], set()

        def construct(cls=Fresh, start=start, made=made, functions=functions):
            start.wait()
            made.append(cls(3))
            functions.add(cls.__init__)

        threads = [threading.Thread(target=construct) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Fresh(3)] * 8 and len(functions) == 1


def test_subclasses_call_the_base():
    class Plain(_Pair):
        def __init__(self, a: int):
            super().__init__(a)
            self.more = 5  # no field: only fields are frozen in a plain subclass

    x = Plain(4)
    assert (x.a, x.b, x.more, x.double) == (4, [], 5, 8)
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
        x.a = 3  # type: ignore[misc]


def test_patterns_weak_references_and_cached_properties():
    x = _Pair(2, [1])
    match x:
        case _Pair(a, b):
            assert (a, b) == (2, [1])
    assert weakref.ref(x)() is x and x.double == 4 and replace(x, a=5).double == 10


def test_an_object_inside_itself_is_shown():
    x = _Pair(1)
    x.b.append(x)
    assert repr(x) == "_Pair(a=1, b=[...])"
