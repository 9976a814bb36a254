"""Flattening the result of a traced function, and rebuilding it at each call."""

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import optree

from ... import errors
from ...core.record import field, record
from ...core.value import TENSORS
from .containers import CONSTANTS, CONTAINERS, is_whole
from .fresh import FreshObjects
from .host_scalars import Host

Build = Callable[[list[Any]], Any]


class OpenedTree:
    """A tree with containers that are leaves for optree, but are flattened here.

    leaves  of the whole tree
    """

    structure: optree.PyTreeSpec
    holding: set[int]
    leaves: list[Any]

    def __init__(
        self,
        structure: optree.PyTreeSpec,
        tops: list[Any],
        holding: set[int],
        ends: Callable[[Any], bool],
    ):
        self.structure, self.holding, self._ends = structure, holding, ends
        self.leaves = []
        self._known: dict[int, ResultLeaf] = {}
        self._tops = [self._place(x) for x in tops]

    def _place(self, x) -> "ResultLeaf":
        if id(x) in self._known:
            return self._known[id(x)]
        found = _parts(x) if id(x) in self.holding else None
        if found is None:
            self.leaves.append(x)
            return ResultLeaf(len(self.leaves) - 1)
        parts, build = found
        tops, structure = optree.tree_flatten(parts, is_leaf=self._ends)
        made = ResultLeaf(0, build, structure, [self._place(part) for part in tops])
        self._known[id(x)] = made
        return made

    def unflatten(self, leaves: list[Any]) -> Any:
        """The tree with other leaves."""
        built: dict[int, Any] = {}  # an object that occurs twice is built once
        return self.structure.unflatten([top.rebuild(leaves, built) for top in self._tops])


@record
class ResultLeaf:
    """A leaf, by its position, or an object built of the parts below it."""

    position: int
    build: Build | None = None
    structure: Any = None
    below: list["ResultLeaf"] = field(default_factory=list)

    def rebuild(self, leaves: list[Any], built: dict[int, Any]) -> Any:
        """The leaf or the object, from these leaves."""
        if self.build is None:
            return leaves[self.position]
        if id(self) not in built:
            parts = [p.rebuild(leaves, built) for p in self.below]
            built[id(self)] = self.build(self.structure.unflatten(parts))
        return built[id(self)]


def flatten(
    name: str, out: Any, own: Callable[[Any], bool], made: FreshObjects, given: Container[int]
) -> tuple[list[Any], optree.PyTreeSpec | OpenedTree]:
    """The leaves of a function's result, and the structure, which has `unflatten`.

    own    whether a tensor is created at each call; an object without such tensors is a leaf
    made   the objects that the function has created for its result
    given  by identity, the copies of the caller's containers
    """

    search = _Search(name, own, given)

    def ends(x) -> bool:
        """Whether x is a leaf: an object that existed before stays the same object."""
        if is_whole(x) or id(x) in given or id(x) in made.shared:
            return True
        if id(x) in made.fresh or not isinstance(x, CONTAINERS):
            return False
        return not search.finds(x)

    leaves, structure = optree.tree_flatten(out, is_leaf=ends)
    for x in leaves:
        search.finds(x)
    if not any([id(x) in search.holding for x in leaves]):
        return leaves, structure
    tree = OpenedTree(structure, leaves, search.holding, ends)
    return tree.leaves, tree


# The containers that optree flattens, as far as they matter here.
_OPEN = frozenset((dict, list, tuple, OrderedDict, defaultdict, deque))
PLAIN = CONSTANTS | {Host}


class _Search:
    """Searches objects for values of the program; `holding` are the objects to open for them."""

    def __init__(self, name: str, own: Callable[[Any], bool], given: Container[int]):
        self._name, self._own, self._given = name, own, given
        self.holding: set[int] = set()

    def finds(self, x, above: tuple[int, ...] = ()) -> bool:
        """Whether an object holds values of the program."""
        if x.__class__ in TENSORS:
            return self._own(x)
        if type(x) is Host:
            return True
        if x.__class__ in PLAIN or isinstance(x, type | ModuleType) or hasattr(type(x), "parts"):
            return False
        if id(x) in above:
            return False  # found already
        inside, above = list(_held_objects(x)), (*above, id(x))
        if not any([self.finds(v, above) for v in inside]):
            return False
        if id(x) not in self._given:
            self._open(x, any([v is x for v in inside]))
        return True

    def _open(self, x, itself: bool) -> None:
        if type(x) not in _OPEN and (itself or _parts(x) is None):
            raise errors.StagingError(
                f"compile: {self._name} returns a {type(x).__name__} that holds values of the "
                "program, and nobody knows how to make such an object anew at each call; return "
                "the tensors in a tuple, a list, a dict or a dataclass, and make the object outside"
            )
        self.holding.add(id(x))


def _held_objects(x) -> Iterator[Any]:
    """The objects that an object refers to, as far as Python shows them."""
    if isinstance(x, dict):
        yield from x.values()
    elif isinstance(x, list | tuple | set | frozenset | deque):
        yield from x
    if isinstance(x, partial):
        yield from (x.func, *x.args, *x.keywords.values())
    elif isinstance(x, MethodType):
        yield from (x.__self__, x.__func__)
    elif isinstance(x, FunctionType):
        yield from [c.cell_contents for c in x.__closure__ or () if c != _EMPTY]
        yield from x.__defaults__ or ()
    else:
        yield from _attributes(x).values()


_EMPTY = CellType()


def _attributes(x) -> dict[str, Any]:
    """The attributes of an object itself, slots included."""
    named = [s for c in type(x).__mro__ for s in _slots(c)]
    named += [f.name for f in fields(x)] if is_dataclass(x) else []
    return {s: getattr(x, s) for s in named if hasattr(x, s)} | getattr(x, "__dict__", {})


def _slots(cls: type) -> list[str]:
    """The attribute names of a class's own `__slots__`, private ones as Python mangles them."""
    named = cls.__dict__.get("__slots__", ())
    named = (named,) if isinstance(named, str) else named
    private = f"_{cls.__name__.lstrip('_')}"
    return [
        private + s if s.startswith("__") and not s.endswith("__") else s
        for s in named
        if s not in ("__dict__", "__weakref__")
    ]


def _parts(x: Any) -> tuple[Any, Build] | None:
    """The parts of an object, and a function that builds one like it; None if not known.

    The parts include the attributes of an instance of a subclass.
    """
    cls = type(x)
    if isinstance(x, type) or is_whole(x):
        return None
    if cls is deque:
        return list(x), partial(deque, maxlen=x.maxlen)
    if cls in (set, frozenset):
        return list(x), cls
    make, items = _container(x)
    if make is None:
        return None
    attributes = _attributes(x)
    build = partial(_rebuild_object, cls, list(attributes), make)
    return [items, *attributes.values()], build


# Only classes with one of these are rebuilt; others define how they are copied themselves.
_COPIED = (object.__reduce__, OrderedDict.__reduce__, defaultdict.__reduce__, Counter.__reduce__)


def _container(x) -> tuple[Callable | None, list]:
    """A function that builds an object like x from items, and the items; (None, []) if unknown."""
    cls = type(x)
    if cls.__reduce_ex__ is not object.__reduce_ex__ or cls.__reduce__ not in _COPIED:
        return None, []
    if isinstance(x, dict):
        make = partial(_filled_dict, list(x), getattr(x, "default_factory", None))
        return make, list(x.values())
    if isinstance(x, list):
        return _filled_list, list(x)
    if isinstance(x, tuple):
        return tuple.__new__, list(x)
    return (_bare if is_dataclass(x) else None), []


def _bare(cls: type, items) -> Any:
    return object.__new__(cls)


def _filled_list(cls: type, items: list) -> Any:
    made = list.__new__(cls)
    list.extend(made, items)
    return made


def _filled_dict(keys: list, factory, cls: type, items: list) -> Any:
    base = next(c for c in cls.__mro__ if c in (OrderedDict, defaultdict, dict))
    made = base.__new__(cls)
    for key, value in zip(keys, items, strict=True):
        base.__setitem__(made, key, value)
    if factory is not None:
        made.default_factory = factory
    return made


def _rebuild_object(cls: type, names: list[str], make: Callable, parts: list) -> Any:
    """Build an object without calling its constructor, with the attributes from the trace."""
    items, *values = parts
    made = make(cls, items)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made
