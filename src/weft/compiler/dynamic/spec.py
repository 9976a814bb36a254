"""Which arguments have a dynamic length, and the bucket that a length falls into."""

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import numpy as np
import optree

from ... import errors
from ...core.aval import Shape
from ...core.node import Leaf
from ...core.value import TENSORS, wrap
from ..frontend.arguments import SAME, TENSOR, CallArguments, argument_name, is_whole
from ..frontend.inputs import Call

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor

SMALLEST = 16  # the first default bucket
VALID = "valid"


class Sizes(NamedTuple):
    """The length of a call, and the axes of that length, by the positions of its tensors."""

    length: int
    axes: dict[int, tuple[int, ...]]


class DynamicAxes:
    """The dynamic axes of a function's arguments.

    axes     by the names of arguments
    buckets  the lengths that programs are compiled for; None: powers of two
    valid    whether the function takes a mask of the call's own positions, `valid`
    """

    names: tuple[str, ...]
    axes: dict[str, tuple[int, ...]]
    buckets: tuple[int, ...] | None
    valid: bool

    def __init__(
        self, f: Callable[..., Any], dynamic: Mapping[Any, Any], buckets: Sequence[int] | None
    ):
        self.names = parameters_of(f)
        self.axes = {self._name(f, k): _axes(k, v) for k, v in dynamic.items()}
        if not self.axes:
            raise errors.ArgumentError(
                "compile: dynamic={} names no argument; give {name: axis}, as in {'tokens': 1}"
            )
        self.buckets = None if buckets is None else _checked_buckets(buckets)
        self.valid = VALID in self.names and VALID not in self.axes

    def _name(self, f: Callable[..., Any], key: Any) -> str:
        """The name of an argument that is given by name or by position."""
        if isinstance(key, int) and not isinstance(key, bool) and 0 <= key < len(self.names):
            return self.names[key]
        if key not in self.names:
            called = getattr(f, "__name__", type(f).__name__)
            raise errors.ArgumentError(
                f"compile: dynamic has {key!r}, which is no parameter of {called}; it has "
                f"{', '.join(self.names) or 'none'}"
            )
        return key

    def bucket(self, length: int) -> int:
        """The bucket of a length."""
        if self.buckets is None:
            return max(SMALLEST, 1 << (length - 1).bit_length())
        for b in self.buckets:
            if length <= b:
                return b
        raise errors.ArgumentError(
            f"compile: a call of length {length}, above the largest of buckets={self.buckets}; "
            "give a larger one"
        )

    def with_valid(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments with `valid`, unless the call passes it."""
        if VALID in kwargs or VALID in self.names[: len(args)]:
            return kwargs
        given = dict(zip(self.names, args, strict=False)) | kwargs
        for name, axes in self.axes.items():
            for x in optree.tree_leaves(given.get(name), is_leaf=is_whole):  # type: ignore[arg-type]
                if hasattr(x, "shape") and len(x.shape) > max(axes):
                    valid = wrap(np.ones(x.shape[axes[0]], bool))
                    beside = valid.to(x.device) if x.__class__ in TENSORS else valid
                    return {**kwargs, VALID: beside}
        return kwargs

    def sizes(self, taken: CallArguments) -> Sizes:
        """The length of a call; all dynamic axes must have the same length."""
        names, structure = taken.structure[:2]
        lengths: dict[str, int] = {}
        found: dict[int, tuple[int, ...]] = {}
        count = 0
        for path, kind in zip(structure.paths(), taken.kinds, strict=True):
            if kind[0] not in (TENSOR, SAME):
                continue
            position = count if kind[0] == TENSOR else kind[1]
            count += kind[0] == TENSOR
            name = argument_name(names[path[0]], self.names)
            axes = (0,) if name == VALID and self.valid else self.axes.get(name, ())
            own = self._own(name, taken.call.tensors[position].shape, axes, lengths)
            if kind[0] == SAME and own != found[position]:
                raise errors.ArgumentError(
                    f"compile: argument {name!r} is a tensor that is given twice, once with "
                    f"dynamic axes {own} and once with {found[position]}; give a .clone() of it"
                )
            found[position] = own
        if not lengths:
            raise errors.ArgumentError(
                f"compile: none of {', '.join(map(repr, self.axes))} is a tensor, so the call has "
                "no length"
            )
        if len(set(lengths.values())) > 1:
            text = ", ".join(f"{name} has {n}" for name, n in lengths.items())
            raise errors.ShapeError(
                f"compile: dynamic axes of one call must have one length, and {text}"
            )
        return Sizes(next(iter(lengths.values())), {k: a for k, a in found.items() if a})

    def _own(
        self, name: str, shape: Shape, axes: tuple[int, ...], lengths: dict[str, int]
    ) -> tuple[int, ...]:
        """The dynamic axes of a tensor, counted from the front; adds their sizes to `lengths`."""
        own = []
        for a in axes:
            if not -len(shape) <= a < len(shape):
                raise errors.AxisError(
                    f"compile: dynamic axis {a} of argument {name!r}, whose shape is {shape}"
                )
            own.append(a % len(shape))
            lengths[name if len(axes) == 1 else f"{name}, axis {a},"] = shape[a]
        return tuple(own)


def parameters_of(f: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's parameters; of a module those of `forward`."""
    asked = getattr(f, "forward", f) if is_whole(f) else f
    try:
        found = signature(asked).parameters.values()
    except ValueError:  # the names of a builtin's parameters are not known
        return ()
    several = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return tuple([p.name for p in found if p.kind not in several])


def _axes(name: Any, axes: Any) -> tuple[int, ...]:
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    if not axes or not all([isinstance(a, int) and not isinstance(a, bool) for a in axes]):
        raise errors.ArgumentError(
            f"compile: dynamic[{name!r}] is {axes!r}, expected an axis or a tuple of axes"
        )
    return axes


def _checked_buckets(buckets: Sequence[int]) -> tuple[int, ...]:
    found = tuple(buckets)
    good = all([isinstance(b, int) and not isinstance(b, bool) and b > 0 for b in found])
    if not found or not good or list(found) != sorted(set(found)):
        raise errors.ArgumentError(
            f"compile: buckets={found}, expected lengths in ascending order, as in (64, 256, 1024)"
        )
    return found


# -- calls of another length -----------------------------------------------------------------------


def resize_call(taken: CallArguments, sizes: Sizes, length: int) -> CallArguments:
    """A call like this one at another length, with arbitrary values."""
    call, kinds, count = taken.call, [], 0
    tensors = [_resize(x, sizes.axes.get(k, ()), length) for k, x in enumerate(call.tensors)]
    for kind in taken.kinds:
        if kind[0] == TENSOR:
            kind = (TENSOR, tensors[count].shape, *kind[2:])
            count += 1
        kinds.append(kind)
    new = Call(tensors, call.numbers, call.arrays, call.objects, call.containers)
    return CallArguments(
        new, tuple(kinds), taken.rebuild, taken.structure, taken.leaves, taken.statics
    )


def _resize(x: "Tensor", axes: tuple[int, ...], length: int) -> "Tensor":
    """A tensor like x with another length along its dynamic axes, tracked as x is."""
    if not axes:
        return x
    shape = tuple([length if a in axes else n for a, n in enumerate(x.shape)])
    made = wrap(np.zeros(shape, x.dtype), x._node)
    if isinstance(x._node, Leaf):
        made._node = Leaf(shape, x.dtype, ref(made), x._node.requested)
        made._node.extra = x._node.extra
        held = x._node.held
        made._grad = None if held is None else wrap(np.zeros(shape, held.dtype), held._node)
    return made
