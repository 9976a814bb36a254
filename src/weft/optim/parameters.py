"""Reading users' parameters, groups of parameters and gradients."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import errors
from ..arrays.foreign import refuse_imaginary
from ..arrays.inplace import refuse_levels
from ..compiler.builder.values import Value, Variable
from ..core import dispatch, dtypes
from ..core.backends import BACKENDS
from ..core.node import Node
from ..core.record import record
from ..core.value import GROUND, TENSORS
from ..transform.modes.gradient_map import GradientMap

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike
    from ..nn.module import Module

# A parameter, with its name or without, or a group of them.
Item: TypeAlias = "Tensor | tuple[str, Tensor] | Variable | ParameterGroup | Mapping[str, Any]"
# A container of parameters: a module, a dict by name, a group, or an iterable of items.
Params: TypeAlias = "Module | ParameterGroup | Mapping[str, Any] | Iterable[Item]"
# A container of gradients: a map, a dict by name, or a list in the order of the parameters, or of
# (parameter, gradient) or (id, parameter, gradient).
Gradients: TypeAlias = "GradientMap | Mapping[str, ArrayLike | None] | Sequence[ArrayLike | None]"


@dataclass
class ParameterGroup:
    """Parameters with settings of their own; what is None is the optimizer's.

    params        tensors, (name, tensor) pairs, or a module
    lr_scale      multiplies the learning rate, whatever it is
    lr            a learning rate of their own; `set_lr` keeps its ratio to the optimizer's
    weight_decay  a weight decay of their own
    name          what the group is called in messages and in `param_groups`

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> optimizer = wf.optim.SGD([wf.optim.ParameterGroup([p], lr_scale=0.5)], lr=0.5)
    >>> optimizer.step([wf.tensor([1.0])])
    >>> p.tolist()
    [0.75]
    """

    params: Params
    lr_scale: float = 1.0
    lr: float | None = None
    weight_decay: float | None = None
    name: str | None = None

    def options(self) -> dict[str, Any]:
        """What the group sets, as a dict.

        >>> import weft as wf
        >>> wf.optim.ParameterGroup([wf.Parameter([1.0])], lr=0.5).options()
        {'lr_scale': 1.0, 'lr': 0.5}
        """
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "params"}
        return {name: value for name, value in given.items() if value is not None}


@record(frozen=False, eq=False)
class ParameterEntry:
    """A parameter of an optimizer: the key of its state, its group, and the form of its state.

    name    the one that it was given; without one, the key is its position
    staged  its value in the program that is being traced, where that is not the tensor's own
    """

    param: "Tensor"
    key: str
    group: dict[str, Any]
    name: str | None = None
    fitted: Any = None
    staged: Any = None


def named_parameters(params: Any) -> list[tuple[str | None, Any]]:
    """(name or None, parameter) pairs of a container of parameters."""
    if hasattr(params, "named_parameters"):
        return list(params.named_parameters())
    if isinstance(params, Mapping):
        return list(params.items())
    if type(params) in TENSORS or not isinstance(params, Iterable):
        raise errors.ArgumentError(
            f"parameters: got a {type(params).__name__}, expected a list of tensors, of (name, "
            "tensor) pairs or of groups, a dict, or a module"
        )
    return [(None, p) if type(p) in TENSORS else _pair(p) for p in params]


def _pair(item) -> tuple[str, Any]:
    if isinstance(item, Variable):
        return item.name, item.parameter
    if isinstance(item, tuple | list) and len(item) == 2 and isinstance(item[0], str):
        return item[0], item[1]
    raise errors.DTypeError(
        f"parameters: got a {type(item).__name__} among them, expected tensors or (name, tensor) "
        "pairs"
    )


def groups_of(params: Any) -> list[Any]:
    """Groups as they were given, or all parameters as one group."""
    if isinstance(params, ParameterGroup):
        return [params]
    if isinstance(params, Mapping) or hasattr(params, "named_parameters"):
        one = isinstance(params, Mapping) and "params" in params
        return [params] if one else [ParameterGroup(params)]
    listed = params if type(params) in TENSORS or not isinstance(params, Iterable) else list(params)
    if isinstance(listed, list) and listed:
        if all(isinstance(item, Mapping | ParameterGroup) for item in listed):
            return listed
    return [ParameterGroup(listed)]


def group_options(group: Any) -> tuple[list[tuple[str | None, Any]], dict[str, Any]]:
    """The named parameters of one group, and the options it sets."""
    if isinstance(group, ParameterGroup):
        return named_parameters(group.params), group.options()
    if isinstance(group, Mapping) and "params" in group:
        return named_parameters(group["params"]), {k: v for k, v in group.items() if k != "params"}
    return named_parameters(group), {}


def check_parameter(what: str, p: Any) -> None:
    """Refuse values that an optimizer cannot update."""
    if type(p) not in GROUND:
        raise errors.DTypeError(f"{what}: got a {type(p).__name__}, expected tensors to optimize")
    if p._node.__class__ is Node:
        raise errors.ArgumentError(
            f"{what}: a tensor made by {p._node.name} (at {p._node.line}) is no parameter; give "
            "the leaf it was computed from, or wf.Parameter(x)"
        )
    if not dtypes.is_inexact(p.dtype):
        raise errors.DTypeError(f"{what}: a parameter of {p.dtype}, expected floating point")


def raw_gradient(what: str, entry: ParameterEntry, g: Any) -> Any:
    """The raw gradient of a parameter, checked against its shape and dtype."""
    p = entry.param
    if type(g) in GROUND and type(g._data) is type(p._data):
        raw, own = g._data, p._data
        if raw.shape == own.shape and raw.dtype == own.dtype and raw.device == own.device:
            return raw
    g = dispatch.above.adopt(g)
    refuse_levels((g, p), what)
    if g.shape != p.shape:
        raise errors.ShapeError(
            f"{what}: a gradient of shape {g.shape} for {entry.key!r} of shape {p.shape}"
        )
    if g.device != p.device:
        raise errors.DeviceError(
            f"{what}: the gradient of {entry.key!r} is on {g.device!r}, the parameter on "
            f"{p.device!r}; move it with .to()"
        )
    refuse_imaginary(what, g.dtype, p.dtype)
    real = dtypes.is_complex(p.dtype) and not dtypes.is_complex(g.dtype)
    return BACKENDS[type(g._data)].cast(g._data, p.dtype) if real else g._data


def gradient_pairs(optimizer: Any, grads: Any) -> list[tuple[ParameterEntry, Any]]:
    """(entry, gradient) pairs of the parameters that have a gradient, from any container."""
    what, entries = f"{type(optimizer).__name__}.step", optimizer.entries()
    if isinstance(grads, list | tuple) and all(isinstance(item, tuple) for item in grads):
        if grads or not entries or optimizer.takes_more:
            return _read_tuples(what, optimizer, grads)
    if not entries:
        raise errors.ArgumentError(
            f"{what}: there are no parameters yet; give them to the optimizer, or step with "
            "(id, parameter, gradient) triples"
        )
    if grads is None:
        found = [(e, e.param.grad) for e in entries]
    elif isinstance(grads, GradientMap):
        found = [(e, grads.get(e.param)) for e in entries]
    elif isinstance(grads, Mapping):
        found = _of_names(what, entries, grads)
    else:
        found = _of_list(what, entries, grads)
    return [(e, g) for e, g in found if g is not None]


def _read_tuples(what: str, optimizer, grads) -> list[tuple[ParameterEntry, Any]]:
    """(parameter, gradient) pairs and (id or name, parameter, gradient) triples."""
    if any(len(item) not in (2, 3) for item in grads):
        raise errors.ArgumentError(
            f"{what}: expected (parameter, gradient) or (id, parameter, gradient)"
        )
    found, seen = [], set()
    for *name, param, g in grads:
        entry = optimizer.entry_of(param, name[0] if name and isinstance(name[0], str) else None)
        if entry.key in seen:
            raise errors.ArgumentError(f"{what}: two gradients for {entry.key!r}; add them up")
        seen.add(entry.key)
        found.append((entry, g))
    return [(e, g) for e, g in found if g is not None]


def graph_of_gradients(pairs: list[tuple[Any, ...]]) -> Any:
    """The graph that computes the gradients of (variable, gradient) pairs; None for tensors."""
    return next((g.graph for _, g in pairs if isinstance(g, Value)), None)


def parameters_of_variables(pairs: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """(parameter, gradient) pairs, where variables of a graph are their parameters."""
    return [(p.name, p.parameter, g) if isinstance(p, Variable) else (p, g) for p, g in pairs]


def _of_names(what: str, entries, grads) -> list[tuple[ParameterEntry, Any]]:
    keys = {e.key for e in entries}
    unknown = [str(k) for k in grads if k not in keys]
    if unknown:
        raise errors.ArgumentError(
            f"{what}: gradients of {', '.join(unknown[:10])}, which are no parameters here"
        )
    return [(e, grads.get(e.key)) for e in entries]


def _of_list(what: str, entries, grads) -> list[tuple[ParameterEntry, Any]]:
    if not isinstance(grads, list | tuple):
        raise errors.DTypeError(
            f"{what}: got a {type(grads).__name__}, expected nothing, a closure, a GradientMap, a "
            "list of gradients, or (id, parameter, gradient) triples"
        )
    if len(grads) != len(entries):
        raise errors.ArgumentError(
            f"{what}: {len(grads)} gradients for {len(entries)} parameters; None stands for one "
            "that has none"
        )
    return list(zip(entries, grads, strict=True))
