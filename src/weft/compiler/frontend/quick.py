"""The fast path of calls: recognise one that is like the last one, without its whole key."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import optree

from ...core import dtypes
from ...core.settings import Settings
from ...core.value import GROUND
from .arguments import NUMBER, STATIC, TENSOR, CallArguments, Kind
from .containers import CONSTANTS
from .inputs import Call

if TYPE_CHECKING:
    from .variant import Variant

# Collects the leaves and the containers of one; False if it is not like that of the last call.
Open = Callable[[Any, list[Any], list[Any]], bool]


class Quick:
    """Calls like the last one: tensors, numbers and the same objects, in the same containers.

    settings  those of the call; they are compared by identity
    names     of the arguments that are passed by name, which come last
    floats    the default dtype at that call
    array     the class of arrays that it accepts
    direct    runs the variant on the arguments' arrays, where it reads nothing else; else None
    """

    __slots__ = (
        *("_is_here", "_objects", "_open", "array", "direct", "floats", "kinds", "names"),
        *("program", "settings"),
    )
    settings: Settings
    names: tuple[str, ...]
    kinds: tuple[Any, ...]  # (shape, dtype) for a tensor, None for a number, [x] for an object x
    program: "Variant"
    floats: np.dtype
    array: type[Any]
    direct: Callable[[list[Any]], Any] | None

    def __init__(self, settings: Settings, taken: CallArguments, program: "Variant"):
        self.settings, self.program = settings, program
        self.floats, self.array = dtypes.default_float(), program.arrays.kind
        self.kinds = tuple(_kinds(taken, program.arrays.raw_dtype))
        self.names = tuple([name for name in taken.structure[0] if isinstance(name, str)])
        self._open = _opener(taken)
        self._objects = taken.call.objects
        # Arrays of a library that has several devices must be on that of the variant.
        self._is_here = None if program.arrays.device == "cpu" else program.arrays.is_here
        plain = all([kind.__class__ is tuple for kind in self.kinds])
        self.direct = program.direct() if plain else None

    @classmethod
    def of(cls, settings: Settings, taken: CallArguments, program: "Variant") -> "Quick | None":
        """The fast path for calls like this one; None where the whole key must be compared."""
        _, structure, static, _, shared = taken.structure
        if static or shared or not all(map(_is_quick, taken.kinds, taken.leaves)):
            return None
        if not is_flat(structure) and not _is_plain(structure):
            return None
        return cls(settings, taken, program)

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """All arguments, by position and then by name; None if the names are others."""
        return (*args, *kwargs.values()) if (*kwargs,) == self.names else None

    def _leaves(self, args: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """The leaves and the containers of these arguments; no leaves if the containers differ."""
        if self._open is None:
            return args, ()
        leaves: list[Any] = []
        containers: list[Any] = []
        if not self._open(args, leaves, containers):
            return (), ()
        if len(containers) > 2 and len(set(map(id, containers))) < len(containers):
            return (), ()  # a function can observe that one is passed twice
        del containers[0]  # the arguments themselves
        return leaves, containers

    def raws(self, args: Sequence[Any]) -> list[Any] | None:
        """The arrays of these arguments, if the call matches; else None."""
        kinds, array = self.kinds, self.array
        if self._open is not None:
            args, _ = self._leaves(args)
        if len(args) != len(kinds):
            return None
        raws = []
        for a, (shape, dtype) in zip(args, kinds):  # noqa: B905  (as many)
            if a.__class__ not in GROUND or a._node is not None:
                return None
            raw = a._data
            if raw.__class__ is not array or raw.dtype is not dtype or raw.shape != shape:
                return None
            raws.append(raw)
        if len(raws) > 1 and len(set(args)) < len(raws):
            return None  # a function can observe that one tensor is passed twice
        return raws if self._is_here is None or all(map(self._is_here, raws)) else None

    def call(self, args: Sequence[Any]) -> Call | None:
        """The call with these arguments, if it matches; else None."""
        args, containers = self._leaves(args)
        if len(args) != len(self.kinds):
            return None
        tensors, raws, numbers, array = [], [], [], self.array
        for a, kind in zip(args, self.kinds):  # noqa: B905  (as many)
            if kind.__class__ is tuple:
                if a.__class__ not in GROUND or a._node is not None:
                    return None
                raw = a._data
                if raw.__class__ is not array or raw.shape != kind[0] or raw.dtype is not kind[1]:
                    return None
                tensors.append(a)
                raws.append(raw)
            elif kind is None:
                if a.__class__ is not float:
                    return None
                numbers.append(a)
            elif a is not kind[0]:
                return None
        away = self._is_here is not None and not all(map(self._is_here, raws))
        if away or len(set(tensors)) < len(tensors):
            return None
        return Call(tensors, numbers, (), self._objects, containers)


# -- leaves ----------------------------------------------------------------------------------


def _kinds(taken: CallArguments, own: Callable[[np.dtype], Any]) -> Iterator[Any]:
    for kind, leaf in zip(taken.kinds, taken.leaves, strict=True):
        if kind[0] == TENSOR:
            yield kind[1], own(kind[2])
        else:
            yield None if kind[0] == NUMBER else [leaf]


def _is_quick(kind: Kind, leaf: Any) -> bool:
    """Whether the fast path recognises a leaf, of this kind."""
    if kind[0] == TENSOR:
        return not kind[-1]
    return kind[0] == NUMBER or (kind[0] == STATIC and _is_itself(leaf))


def _is_itself(x: object) -> bool:
    """Whether the key of an object is the same as long as the object is."""
    compares = x.__class__.__hash__
    return x.__class__ in CONSTANTS or compares is None or compares is object.__hash__


_NONE = type(None)

# -- containers ------------------------------------------------------------------------------


def is_flat(structure: optree.PyTreeSpec) -> bool:
    """Whether a tree is one container with nothing but leaves in it, not even None."""
    return structure.num_nodes == structure.num_leaves + 1


def _is_plain(structure: optree.PyTreeSpec) -> bool:
    """Whether there are only containers that the fast path opens; a dict's keys must be text."""
    if structure.type is dict and not all([key.__class__ is str for key in structure.entries()]):
        return False
    known = structure.is_leaf() or structure.type in (tuple, list, dict, _NONE)
    return known and all(map(_is_plain, structure.children()))


def _opener(taken: CallArguments) -> Open | None:
    """Opens arguments like these; None if there are no containers among them."""
    _, structure, _, orders, _ = taken.structure
    if is_flat(structure):
        return None
    left = iter([order.value for order in orders])
    return _open_sequence(tuple, [_open_node(part, left) for part in structure.children()])


def _open_node(structure: optree.PyTreeSpec, orders: Iterator[tuple[str, ...]]) -> Open | None:
    """Opens what has this structure; None for a leaf.

    orders  the keys of the dicts, in the order in which optree meets these
    """
    if structure.is_leaf():
        return None
    if structure.type is _NONE:
        return lambda x, leaves, held: x is None
    order = next(orders) if structure.type is dict else ()
    parts = [_open_node(part, orders) for part in structure.children()]
    if structure.type is dict:
        return _open_dict(order, [*zip(structure.entries(), parts, strict=True)])
    assert structure.type is not None
    return _open_sequence(structure.type, parts)


def _open_sequence(kind: type[Any], parts: list[Open | None]) -> Open:
    count = len(parts)

    def opens(x: Any, leaves: list[Any], held: list[Any]) -> bool:
        items: Any = x
        if x.__class__ is not kind or len(items) != count:
            return False
        held.append(x)
        for value, part in zip(items, parts):  # noqa: B905  (as many)
            if part is None:
                leaves.append(value)
            elif not part(value, leaves, held):
                return False
        return True

    return opens


def _open_dict(keys: Sequence[str], parts: list[tuple[str, Open | None]]) -> Open:
    """keys  in the order of the dict, which a function can observe; `parts` is in optree's."""
    count = len(keys)

    def opens(x: Any, leaves: list[Any], held: list[Any]) -> bool:
        if x.__class__ is not dict or len(x) != count:
            return False
        for key, was in zip(x, keys):  # noqa: B905  (as many)
            if key is not was and (key.__class__ is not str or key != was):
                return False
        held.append(x)
        for key, part in parts:
            if part is None:
                leaves.append(x[key])
            elif not part(x[key], leaves, held):
                return False
        return True

    return opens
