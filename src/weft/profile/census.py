"""The census of live arrays: what each is, where it was made, and who holds it."""

import gc
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..arrays.parameter import Parameter
from ..core import objects
from ..core.backends import BACKENDS
from ..core.box import BOXES
from ..core.node import Leaf, Node
from ..core.objects import with_subclasses
from ..core.value import Value
from ..optim.optimizer import Optimizer
from ..transform.modes.inspect import arrays_in
from .holders import variables
from .origins import origin_of


@dataclass(frozen=True)
class LiveArray:
    """An array that is alive: what it is, and who holds it.

    shape, dtype, device  of the tensor or the saved value
    nbytes                the bytes of its memory, which several tensors may share
    role                  `parameter`, `gradient`, `optimizer state`, `saved`, `leaf` or `tensor`
    holder                for instance "saved by tanh at train.py:12", "`x` of function train"
    line                  where it was made, if that was recorded or profiled; None: unknown

    >>> import weft as wf
    >>> x = wf.Parameter(wf.ones((100, 3)))
    >>> [(a.shape, a.role) for a in wf.profile.census().arrays if a.shape == (100, 3)]
    [((100, 3), 'parameter')]
    """

    shape: tuple[int, ...]
    dtype: Any
    device: str
    nbytes: int
    role: str
    holder: str
    line: str | None


@dataclass(frozen=True)
class Census:
    """All live arrays of tensors and recorded graphs, the largest first.

    arrays  each piece of memory once

    >>> import weft as wf
    >>> x = wf.ones((1000, 1000))
    >>> census = wf.profile.census()
    >>> census.bytes >= 4_000_000, census.by_role["tensor"] >= 4_000_000
    (True, True)
    """

    arrays: tuple[LiveArray, ...]

    @property
    def bytes(self) -> int:
        """The bytes of all arrays."""
        return sum([a.nbytes for a in self.arrays])

    @property
    def by_role(self) -> dict[str, int]:
        """Bytes by what the arrays are."""
        return _sums((a.role, a.nbytes) for a in self.arrays)

    @property
    def by_line(self) -> dict[str, int]:
        """Bytes by the line where the arrays were made; those of unknown lines are left out."""
        return _sums((a.line, a.nbytes) for a in self.arrays if a.line is not None)

    def __str__(self) -> str:
        roles = ", ".join(f"{n:,} of {role}s" for role, n in self.by_role.items())
        rows = [f"{self.bytes:,} bytes in {len(self.arrays)} arrays: {roles}"]
        for a in self.arrays[:20]:
            made = "" if a.line is None else f", made at {a.line}"
            rows.append(f"  {a.nbytes:>14,}  {a.dtype}{list(a.shape)}  {a.holder}{made}")
        return "\n".join([*rows, *(["  …"] if len(self.arrays) > 20 else [])])


def _sums(pairs: Any) -> dict[Any, int]:
    found: Counter[Any] = Counter()
    for key, n in pairs:
        found[key] += n
    return dict(found.most_common())


@dataclass(frozen=True)
class Objects:
    """The live objects that hold arrays."""

    tensors: list[Any]
    nodes: list[Node]
    optimizers: list[Optimizer]


def live_objects() -> Objects:
    """All tensors, recorded operations and optimizers; there is no list of them.

    Garbage that waits for the collector is collected first.
    """
    gc.collect()
    tensors, optimizers = with_subclasses(Value), with_subclasses(Optimizer)
    found = objects.live_objects({*tensors, Node, *optimizers})
    return Objects(
        [x for x in found if type(x) in tensors and is_array(_data(x))],
        [x for x in found if type(x) is Node],
        [x for x in found if type(x) in optimizers],
    )


def _data(tensor: Any) -> Any:
    return getattr(tensor, "_data", None)  # one that is being made has none


def is_array(raw: Any) -> bool:
    """Whether it is an array with memory: the boxes of traces and transformations have none."""
    return type(raw) in BACKENDS and type(raw) not in BOXES


def owner_of(raw: Any) -> int:
    """The identity of an array's memory."""
    return BACKENDS[type(raw)].owner(raw)


def persistent(objects: Objects) -> Iterator[tuple[Any, str, str]]:
    """(array, role, holder) of what stays from step to step: parameters, gradients, moments."""
    names = variables()
    for t in objects.tensors:
        if isinstance(t, Parameter):
            yield t._data, "parameter", names.get(id(t), "a parameter")
    for t in objects.tensors:
        gradient = _data(getattr(t, "_grad", None))
        if is_array(gradient):
            yield gradient, "gradient", f"gradient of {names.get(id(t), 'a leaf')}"
    for optimizer in objects.optimizers:
        what = f"state of {type(optimizer).__name__}"
        for own in optimizer.state.values():
            for name, value in own.items():
                raw = _data(value) if isinstance(value, Value) else value
                if is_array(raw) and getattr(raw, "shape", None) is not None:
                    yield raw, "optimizer state", f"{name}, {what}"


def _all_arrays(objects: Objects) -> Iterator[tuple[Any, str, str, str | None]]:
    """(array, role, holder, line): the most telling role of each piece of memory first."""
    for raw, role, holder in persistent(objects):
        yield raw, role, holder, None
    for node in objects.nodes:
        for raw in arrays_in(node.saved):
            if is_array(raw):
                yield raw, "saved", f"saved by {node.name} at {node.line}", None
    names = variables()
    for t in objects.tensors:
        role = "leaf" if isinstance(t._node, Leaf) else "tensor"
        line = t._node.line if type(t._node) is Node else None
        yield t._data, role, names.get(id(t), f"a {role}"), line


def census() -> Census:
    """The live arrays of all tensors and recorded graphs: what they are, and who holds them.

    Lines are known of recorded operations, and of arrays from 16 KiB on that were made while a
    `GradientMemoryProfiler` was running. Garbage is collected first. What `gc.freeze()` has set
    apart is not found.

    >>> import weft as wf
    >>> x = wf.ones(10_000, requires_grad=True)
    >>> y = wf.exp(x)
    >>> [a.holder for a in wf.profile.census().arrays if a.role == "saved"][:1]
    ['saved by exp at ...']
    """
    objects = live_objects()
    seen: dict[int, LiveArray] = {}
    for raw, role, holder, line in _all_arrays(objects):
        owner = owner_of(raw)
        if owner in seen:
            continue
        xp = BACKENDS[type(raw)]
        whole = xp.owning(raw)
        origin = origin_of(raw)
        seen[owner] = LiveArray(
            tuple(raw.shape),
            xp.dtype_of(raw),
            xp.device_of(raw),
            xp.nbytes(raw if whole is None else whole),
            *(role, holder),
            line if origin is None else origin.place.line,
        )
    return Census(tuple(sorted(seen.values(), key=lambda a: -a.nbytes)))
