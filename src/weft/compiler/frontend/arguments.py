"""Flattening the arguments of a call: tensors, host scalars, and static values."""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any

import numpy as np
import optree

from ... import errors
from ...arrays.foreign import is_torch
from ...arrays.make import asarray
from ...core import dtypes
from ...core.exact import Exact
from ...core.node import Leaf, Severed
from ...core.record import record
from ...core.settings import Settings
from ...core.value import TENSORS
from .containers import CONTAINERS, ContainerCopies, Path, is_whole, sharing
from .inputs import Call

Kind = tuple[Any, ...]  # (TENSOR, …), (SAME, position), (NUMBER,) or (STATIC, type, value)
# The key of a call: the structure of its arguments and the kinds of their leaves. Variants are kept
# by this key with the settings appended.
CallKey = tuple[Any, ...]
TENSOR, SAME, NUMBER, STATIC = "tensor", "same", "number", "static"
SEVERED = "a gradient without its graph"


@record
class CallArguments:
    """The arguments of a call, flattened.

    call       the tensors and numbers, which a variant reads at each call
    kinds      of each leaf; with `structure` they are the key that selects a variant
    rebuild    makes args and kwargs of the leaves again
    statics    static leaves: the key may hold only their identity, so they stay alive
    """

    call: Call
    kinds: tuple[Kind, ...]
    rebuild: Callable[[ContainerCopies], tuple[tuple[Any, ...], dict[str, Any]]]
    structure: Any
    leaves: list[Any]
    statics: list[Any]

    @property
    def key(self) -> CallKey:
        return (self.structure, self.kinds)


def _ends(containers: list[Any], x: object) -> bool:
    """Whether x is a leaf of the tree; collects the containers on the way."""
    if isinstance(x, CONTAINERS):
        containers.append(x)
    return is_whole(x)


def flatten_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any], static: Callable[[Any], bool], grad: bool
) -> CallArguments:
    """Flatten the arguments; those with `static(position or name)` go into the key whole."""
    fixed: dict[Any, Any] = {}
    moving: dict[Any, Any] = {}
    for name, value in (*enumerate(args), *kwargs.items()):
        (fixed if static(name) else moving)[name] = value
    tree: Any = list(moving.values())  # optree's types do not accept a list of anything
    containers: list[Any] = []
    leaves, structure = optree.tree_flatten(tree, is_leaf=partial(_ends, containers))
    del containers[0]  # the tree itself
    # The order of a dict's keys: a function can observe it, and optree sorts the keys.
    orders = tuple([Exact(tuple(x)) for x in containers if isinstance(x, dict)])
    names = tuple(moving)
    call, kinds, statics = Call([], []), [], []
    seen: dict[int, int] = {}  # by identity, the positions of earlier tensors
    leaves = _beside(leaves)
    for leaf in leaves:
        kinds.append(_kind(leaf, call, statics, grad, seen))
    tensors = [x for x, kind in zip(leaves, kinds, strict=True) if kind[0] == TENSOR]
    call.arrays = [k for k, x in enumerate(tensors) if x is not call.tensors[k]]
    given = tuple((name, _hashable(name, value, statics)) for name, value in fixed.items())
    call.objects, call.containers = tuple(statics), containers

    def rebuild(copies: ContainerCopies) -> tuple[tuple[Any, ...], dict[str, Any]]:
        values = {name: copies.copy(x, (name,)) for name, x in moving.items()} | fixed
        positional = tuple([values[i] for i in range(len(args))])
        return positional, {name: values[name] for name in kwargs}

    key = (names, structure, given, orders, sharing(containers) if containers else ())
    return CallArguments(call, tuple(kinds), rebuild, key, leaves, statics)


def _beside(leaves: list[Any]) -> list[Any]:
    """The leaves with NumPy's numbers on the device of the first tensor, as operators take them."""
    if not any([isinstance(x, np.generic) for x in leaves]):
        return leaves
    device = next(
        (asarray(x).device for x in leaves if x.__class__ in TENSORS or is_torch(x)), None
    )
    if device is None or device == "cpu":
        return leaves
    return [asarray(x, device=device) if isinstance(x, np.generic) else x for x in leaves]


def _kind(leaf: Any, call: Call, statics: list[Any], grad: bool, seen: dict[int, int]) -> Kind:
    if leaf.__class__ in TENSORS or isinstance(leaf, np.ndarray | np.generic) or is_torch(leaf):
        x = asarray(leaf)
        if not isinstance(leaf, np.generic):
            first = seen.setdefault(id(leaf), len(call.tensors))
            if first < len(call.tensors):
                return (SAME, first)
        call.tensors.append(x)
        return (TENSOR, x.shape, x.dtype, x.device, _tracking(x, grad))
    if leaf.__class__ is float:
        call.numbers.append(leaf)
        return (NUMBER,)
    return (STATIC, *_static(leaf, statics))


def _tracking(x, grad: bool) -> str:
    """How gradients track an argument ("" if not), or that it is a severed gradient."""
    node = x._node
    if node.__class__ is Severed:
        return SEVERED
    if not grad or node is None:
        return ""
    if node.__class__ is not Leaf:
        return "computed"
    return "leaf" if node.requested else "tracked"


def _static(value, statics: list) -> tuple:
    statics.append(value)
    try:
        hash(value)
    except TypeError:
        return (type(value), "id", id(value))
    return (type(value), Exact(value))


def _hashable(name, value, statics: list) -> tuple:
    """The key of a static argument, which a variant is specialised on: it must be hashable."""
    try:
        hash(value)
    except TypeError:
        raise errors.ArgumentError(
            f"compile: the static argument {name!r} is a {type(value).__name__}, which has no hash "
            "and could change without notice; pass a tuple, a frozenset or a frozen dataclass"
        ) from None
    if value.__class__ in TENSORS:
        raise errors.ArgumentError(
            f"compile: the static argument {name!r} is a tensor; tensors are read at each call, "
            "so leave it out of static_argnums and static_argnames"
        )
    return _static(value, statics)


def settings_key(settings: Settings) -> tuple[Any, ...]:
    """The settings that a variant depends on."""
    if settings.anomaly:
        raise errors.StagingError(
            "compile: under detect_anomaly() every value is looked at, and a compiled function has "
            "none in between; call the function itself, fn.__wrapped__"
        )
    floats, target = dtypes.default_float(), settings.target
    return (settings.grad, settings.autocast, settings.determinism, floats, target)


_SETTINGS = ("grad mode", "autocast", "deterministic mode", "the default dtype", "the target")


def difference(old: CallKey, new: CallKey, parameters: tuple[str, ...] = ()) -> str:
    """A text that says how two keys differ.

    parameters  the names of the function's arguments by their positions
    """
    (was_structure, was_kinds, was_settings), (structure, kinds, settings) = old, new
    if was_structure != structure:
        return _structures(was_structure, structure, parameters)
    paths = structure[1].paths()
    for k, (was, now) in enumerate(zip(was_kinds, kinds, strict=True)):
        if was != now:
            first, *rest = paths[k]
            where = label((structure[0][first], *rest), parameters)
            return f"{where}: {describe_kind(was)} became {describe_kind(now)}"
    for name, was, now in zip(_SETTINGS, was_settings, settings, strict=True):
        if was != now:
            return f"{name}: {was!r} became {now!r}"
    return "nothing"


def find_resized(old: CallKey, new: CallKey, parameters: tuple[str, ...] = ()) -> str | None:
    """The arguments in which only lengths differ, as a text for `compile(dynamic=…)`.

    None if there are none, or if anything else differs.
    """
    (was_structure, was_kinds, was_settings), (structure, kinds, settings) = old, new
    if was_structure != structure or was_settings != settings:
        return None
    found = {}
    for path, was, now in zip(structure[1].paths(), was_kinds, kinds, strict=True):
        if was == now:
            continue
        if was[0] != TENSOR or now[0] != TENSOR or was[2:] != now[2:] or len(was[1]) != len(now[1]):
            return None
        axes = [k for k, (m, n) in enumerate(zip(was[1], now[1], strict=True)) if m != n]
        found[argument_name(structure[0][path[0]], parameters)] = (
            axes[0] if len(axes) == 1 else (*axes,)
        )
    return repr(found) if found else None


def _structures(old: tuple, new: tuple, parameters: tuple[str, ...]) -> str:
    """A text that says how the containers, names or static arguments of two calls differ."""
    if old[0] != new[0]:
        return f"other arguments: {_spell_names(old[0])} became {_spell_names(new[0])}"
    for k, what in ((1, "the structure of the arguments"), (3, "the order of keys")):
        if old[k] != new[k]:
            return f"{what}: {old[k]} became {new[k]}"
    if old[4] != new[4]:
        return "which containers among the arguments are one object"
    given = [[name for name, _ in s[2]] for s in (old, new)]
    if given[0] != given[1]:
        return f"other static arguments: {_spell_names(given[0])} became {_spell_names(given[1])}"
    changed = [
        (n, was, now) for (n, was), (_, now) in zip(old[2], new[2], strict=True) if was != now
    ]
    name, was, now = changed[0]
    return f"static argument {argument_name(name, parameters)!r}: {was[-1]!r} became {now[-1]!r}"


def positional_names(f: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters that can be passed by position, in order."""
    try:
        parameters = signature(f).parameters.values()
    except ValueError:  # the names of a builtin's parameters are not known
        return ()
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    return tuple([p.name for p in parameters if p.kind in positional])


def label(path: Path, parameters: tuple[str, ...]) -> str:
    """A text for a place in an argument: `argument 'c'['h']`."""
    first, *rest = path
    return f"argument {argument_name(first, parameters)!r}{''.join([f'[{p!r}]' for p in rest])}"


def argument_name(argument: Any, parameters: tuple[str, ...]) -> Any:
    """The name of an argument that was passed by position or by name."""
    return parameters[argument] if argument in range(len(parameters)) else argument


def _spell_names(names) -> str:
    return ", ".join(map(repr, names)) or "none"


def describe_kind(kind: Kind) -> str:
    """A text for the kind of an argument."""
    if kind[0] == TENSOR:
        _, shape, dtype, device, tracking = kind
        more = f" ({tracking})" if tracking else ""
        return f"{dtype}{list(shape)}{'' if device == 'cpu' else f' on {device}'}{more}"
    if kind[0] == SAME:
        return f"the same as tensor {kind[1]}"
    if kind[0] == NUMBER:
        return "a number"
    return f"{kind[-1]!r}"
