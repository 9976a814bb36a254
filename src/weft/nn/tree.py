"""Modules as trees of tensors: flattening and unflattening."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import optree

from .. import errors
from ..core import dtypes
from ..core.backends import PYTHON_SCALARS
from ..core.value import TENSORS

if TYPE_CHECKING:
    from .module import Module

_TENSOR_STORES = ("_parameters", "_buffers")


class LeafSlot(NamedTuple):
    """A name in a module: the index of its leaf, or what stays there whatever the leaves are."""

    name: str
    leaf: int | None
    constant: Any


class ModuleCell(NamedTuple):
    """One module without its leaves."""

    kind: type
    attributes: dict[str, Any]
    stores: tuple[tuple[LeafSlot, ...], ...]
    children: tuple[tuple[str, int | None], ...]


class Skeleton:
    """A module and all modules in it, without their leaves; the first cell is the root.

    Skeletons are equal whose classes and names are, and which share tensors in the same places.
    """

    __slots__ = ("cells", "key")

    def __init__(self, cells: list[ModuleCell]):
        self.cells: list[ModuleCell] = cells
        self.key: tuple[Any, ...] = tuple(
            (
                c.kind,
                tuple(tuple((s.name, s.leaf) for s in slots) for slots in c.stores),
                c.children,
            )
            for c in cells
        )

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Skeleton) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        root = self.cells[0]
        names = [s.name for slots in root.stores for s in slots] + [n for n, _ in root.children]
        return f"{root.kind.__name__}({', '.join(names)})"


def is_differentiable(x: Any) -> bool:
    """Whether x is a leaf to transformations; integers belong to the structure."""
    return x.__class__ not in TENSORS or dtypes.is_inexact(x.dtype)


def take_apart(
    module: Any, is_leaf: Callable[[Any], bool] = is_differentiable
) -> tuple[list[Any], Skeleton]:
    """The parameters and buffers of a module, each once, and the skeleton around them."""
    leaves: list[Any] = []
    places: dict[int, int] = {}

    def slot(name: str, x) -> LeafSlot:
        if x is None or not is_leaf(x):
            return LeafSlot(name, None, x)
        if x.__class__ in PYTHON_SCALARS or id(x) not in places:  # equal numbers stay apart
            places[id(x)] = len(leaves)
            leaves.append(x)
        return LeafSlot(name, places[id(x)], None)

    modules = list(module.modules())
    numbers = {id(m): k for k, m in enumerate(modules)} | {id(None): None}
    cells = [
        ModuleCell(
            getattr(m, "_uncompiled", type(m)),
            dict(vars(m)),
            tuple(tuple(slot(n, x) for n, x in vars(m)[store].items()) for store in _TENSOR_STORES),
            tuple((name, numbers[id(child)]) for name, child in m._modules.items()),
        )
        for m in modules
    ]
    return leaves, Skeleton(cells)


def put_together(skeleton: Skeleton, leaves: Iterable[Any]) -> Any:
    """A module of this structure around these leaves; it shares everything else with the first."""
    leaves = list(leaves)
    made = [object.__new__(cell.kind) for cell in skeleton.cells]
    for module, cell in zip(made, skeleton.cells, strict=True):
        own = vars(module)
        own.update(cell.attributes)
        for store, slots in zip(_TENSOR_STORES, cell.stores, strict=True):
            own[store] = {s.name: s.constant if s.leaf is None else leaves[s.leaf] for s in slots}
        own["_modules"] = {n: None if k is None else made[k] for n, k in cell.children}
    return made[0]


def register(kind: type) -> None:
    """Make a class of modules known to optree, where every transformation looks it up."""
    library: Any = optree  # its types know neither `registry` nor our leaves
    library.register_pytree_node(
        kind,
        take_apart,
        put_together,
        namespace=library.registry.__GLOBAL_NAMESPACE,
    )


def functional_call(module: "Module", state: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    """module(*args, **kwargs) with the tensors of `state` in the place of its own.

    module        the module, which does not change
    state         tensors by the names of `named_parameters()` and `named_buffers()`; what is
                  not named stays. A tensor that the module holds under several names is
                  replaced under all of them
    args, kwargs  what the module is called with

    Batch statistics which `state` does not name are followed in the module's memory.

    >>> import weft as wf
    >>> layer = wf.nn.Linear(2, 1, bias=False)
    >>> x = wf.tensor([3.0, 4.0])
    >>> wf.nn.functional_call(layer, {"weight": wf.ones((1, 2))}, x).tolist()
    [7.0]
    """
    if args and type(args[0]) is tuple and len(args) <= 2:
        raise errors.ArgumentError(
            "functional_call: the arguments came as a tuple, as in PyTorch; write "
            "functional_call(module, state, *args, **kwargs)"
        )
    own: dict[str, Any] = dict(module.named_parameters(remove_duplicate=False))
    own |= dict(module.named_buffers(remove_duplicate=False))
    unknown = [name for name in state if name not in own]
    if unknown:
        raise errors.StateMismatch(
            f"functional_call: {', '.join(map(repr, unknown))} in the state, which "
            f"{type(module).__name__} does not hold; it has {', '.join(own) or 'nothing'}"
        )
    for where, part in module.named_modules():
        part._check_replaced(
            {n for n in part._parameters if (f"{where}.{n}" if where else n) in state}
        )
    replaced: dict[int, Any] = {}
    for name, value in state.items():
        if replaced.setdefault(id(own[name]), value) is not value:
            raise errors.StateMismatch(
                f"functional_call: {name!r} shares its tensor with another name in the state, "
                "which has another value; give one of them"
            )
    leaves, skeleton = take_apart(module, is_leaf=lambda x: True)
    return put_together(skeleton, [replaced.get(id(x), x) for x in leaves])(*args, **kwargs)
