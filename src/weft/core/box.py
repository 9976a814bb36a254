"""Boxes: the values that an interpreter (forward mode, batching, tracing) computes with."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from numpy import dtype, ndarray

from .. import errors
from .aval import Shape
from .backends import BACKENDS
from .node import Leaf, Node
from .op import Op
from .record import record
from .settings import current
from .types import Array, Raw, Static

tags: Iterator[int] = count(1)


class Tag(int):
    """A transformation's tag, which also records whether the transformation has ended."""

    ended: bool = False
    maker: str

    def __new__(cls, maker: str) -> "Tag":
        self = super().__new__(cls, next(tags))
        self.maker = maker
        return self

    def __enter__(self) -> "Tag":
        return self

    def __exit__(self, *exc: object) -> None:
        self.ended = True


@record
class Level:
    """One running transformation: its kind of box, and a unique tag.

    Later transformations run inside earlier ones: the highest tag is the innermost.
    """

    kind: type["Box"]
    tag: float
    size: int | None = None  # the batch size, under vmap
    trace: Any = None  # the trace that is being recorded, if it is one


class Box:
    """A value that an interpreter computes with: it has a shape, a dtype and a level."""

    __slots__ = ("level",)
    __array_ufunc__ = None  # NumPy leaves `array * box` to the box
    staged = False  # whether its value is not computed yet
    maker = "a transformation"  # the name of the interpreter, for messages
    level: float

    @property
    @abstractmethod
    def inner(self) -> Raw:
        """The value one level below, which has the same shape, dtype and device."""

    @property
    def contents(self) -> tuple[Raw, ...]:
        """All values one level below."""
        return (self.inner,)

    @classmethod
    @abstractmethod
    def interpret(cls, op: Op, level: float, operands: list[Raw], static: Static) -> Any:
        """Apply `op`; operands are boxes of this kind and level, or values below it.

        Results in floating point are boxes of the level, others may be values below it.
        """

    @classmethod
    @abstractmethod
    def lift(cls, level: Level, value: Raw) -> "Box":
        """A value from a lower level as a constant at this one."""

    @abstractmethod
    def beside(self, value: Raw) -> "Box":
        """A value from a lower level as a constant at this box's level."""

    @abstractmethod
    def stop_gradient(self) -> Any:
        """The same value without a derivative."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.inner.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def dtype(self) -> Any:
        return ground(self).dtype

    @property
    def device(self) -> Any:
        return ground(self).device

    @abstractmethod
    def text(self) -> str:
        """The `repr` of a tensor that holds this box."""

    @abstractmethod
    def refuse(self, use: str) -> None:
        """Raise if reading the value below, as `use`, would lose a derivative or a batch."""


# The tensor class that holds each kind of box; filled by the modules that define the kinds.
BOXES: dict[Any, type] = {}
# The same tensor classes, and all classes that have a level: boxes and the tensors of boxes.
BOXED: set[Any] = set()


def ground(x: Array) -> Raw:
    """The backend's array at the bottom of a value."""
    while True:
        if x.__class__ in BOXES:
            x = x.inner
        elif hasattr(x, "_data"):
            x = x._data
        else:
            return x


# The conversions to one Python number. `bool()` decides a branch and `format()` makes a text:
# nothing is computed from their result, so they lose no derivative.
NUMBERS = frozenset(("int()", "float()", "complex()", "an index", "item()", "bool()", "format()"))
GLANCES = frozenset(("bool()", "format()"))
_LISTS = frozenset(("tolist()", "to_vec()"))


def readable(x: Array, use: str) -> Raw:
    """The backend's array at the bottom of a value, to be read outside of operations as `use`.

    Raises if that would lose a derivative at any level on the way down, or if a level has no
    single array (a batch, a staged value). Every read of a tensor's data goes through here.
    """
    while True:
        if x.__class__ in BOXES:
            x.refuse(use)
            x = x.inner
        elif hasattr(x, "_data"):
            if x._node.__class__ in (Leaf, Node):
                _refuse_recorded(use)
            x = x._data
        else:
            return x


def _refuse_recorded(use: str) -> None:
    """Refuse to read a recorded value as an array; as a number only under a transformation.

    A training loop with `backward()` may log numbers. In a function that `grad` differentiates a
    number would silently be a constant.
    """
    settings = current.get()
    if use in GLANCES:
        return
    if use not in NUMBERS and use not in _LISTS:
        raise errors.InterchangeError(
            f"{use} on a tensor that is being differentiated would drop its gradient; "
            f"use x.detach()"
        )
    if settings.grad and settings.enclosed:
        raise constant_error(use, "gradient")


def constant_error(use: str, lost: str) -> errors.InterchangeError:
    """The error for reading a value as a Python number while it is being differentiated."""
    return errors.InterchangeError(
        f"{use} of a tensor that is being differentiated would be a constant without its {lost}: "
        "compute with wf's functions (wf.sin(x), not math.sin(x)), or use x.detach() if a constant "
        "is meant"
    )


def level_of(x: Array) -> float:
    """The level of a raw value or of a tensor; 0 is the ground."""
    if x.__class__ in BOXED and x.__class__ not in BOXES:
        x = x._data
    return x.level if x.__class__ in BOXES else 0


def raise_to_level(value: Raw, others: Iterable[Array]) -> Raw:
    """A value as a constant at the highest level among `others`; unchanged at the ground."""
    top = max(others, key=level_of)
    box = top if isinstance(top, Box) else getattr(top, "_data", None)
    return box.beside(value) if isinstance(box, Box) else value


def nodes_below(x: Array) -> list[Leaf | Node]:
    """The nodes of the tensors inside the boxes of a tensor."""
    found, inside = [], [x._data]
    while inside:
        raw = inside.pop()
        if raw.__class__ in BOXES:
            inside += raw.contents
        elif hasattr(raw, "_data"):
            found.append(raw._node)
            inside.append(raw._data)
    return [node for node in found if node.__class__ in (Leaf, Node)]


def refuse_inner(what: str, x: Array, tag: float) -> None:
    """Refuse a result whose level belongs to the function that returned it."""
    if level_of(x) > tag:
        raise errors.ArgumentError(
            f"{what}: the function returned a tensor of a level of its own, a DualTensor that it "
            "made; return its .value and its .tangent"
        )


class LooseLevel(float):
    """The level of `DualTensor`s that the user made by hand, outside of any transformation.

    below  the loose levels that it was computed from; None: it may be mixed with any lower level
    """

    below: frozenset["LooseLevel"] | None

    def __new__(cls, below: frozenset["LooseLevel"] | None) -> "LooseLevel":
        self = super().__new__(cls, next(tags))
        self.below = below
        return self


def loose_levels(x: Array) -> frozenset[LooseLevel]:
    """The loose level of a value, with the loose levels below it."""
    level = level_of(x)
    return (
        frozenset((level, *(level.below or ()))) if isinstance(level, LooseLevel) else frozenset()
    )


def check_levels(args: Iterable[Array], top: float) -> None:
    """Refuse tensors whose transformation has ended, and a mixture of unrelated loose levels."""
    if isinstance(top, LooseLevel):
        if top.below is not None:
            _refuse_mixture(args, top)
    elif isinstance(top, Tag) and top.ended and not _replaying():
        raise errors.LeakedTensor(
            f"a tensor of {top.maker} was kept somewhere while the function ran (assigned to a "
            "tensor, an attribute, a list or a .grad from outside), and is used after that; return "
            "it from the function instead"
        )


def _replaying() -> bool:
    """Whether a checkpoint is replaying a call that ran inside the transformation."""
    draws = current.get().draws
    return draws is not None and draws.again


def _refuse_mixture(args, top: LooseLevel) -> None:
    for a in args:
        level = level_of(a)
        if level.__class__ is LooseLevel and level != top and level not in (top.below or ()):
            raw = a if a.__class__ in BOXES else a._data
            if getattr(raw, "tangent", None) is not None:
                raise errors.ArgumentError(
                    "DualTensors that were made by two calls of wf.DualTensor meet; is this one "
                    "derivative or one inside another? For one, make both in one calculation: "
                    "ctx = wf.ForwardADContext(); x, y = ctx.dual(a, da), ctx.dual(b, db); for a "
                    "derivative in a derivative use wf.jvp, or a context of its own"
                )


class BoxNamespace:
    """The backend namespace of boxes, for queries outside of operations; boxes are read-only."""

    array_type = Box

    def dtype_of(self, x: Raw) -> dtype:
        raw = ground(x)
        return BACKENDS[type(raw)].dtype_of(raw)

    def device_of(self, x: Raw) -> Any:
        raw = ground(x)
        return BACKENDS[type(raw)].device_of(raw)

    def quiet(self) -> AbstractContextManager[Any]:
        return BACKENDS[ndarray].quiet()

    def quietly(self, run: Callable[..., Any], *args: Any) -> Any:
        return BACKENDS[ndarray].quietly(run, *args)

    def zeros_like(self, x: Raw) -> Raw:
        return self.full(x.shape, 0, x.dtype, self.device_of(x))

    def full(self, shape: Shape, value: complex, dtype: dtype, device: Any) -> Raw:
        """A constant at the ground level, and so at every level."""
        on_host = device == "cpu"
        for xp in BACKENDS.values():
            cls = xp.array_type
            if cls not in (Box, None) and issubclass(cls, ndarray) == on_host:
                raw = xp.full(shape, value, dtype, device)
                staging = current.get().staging
                if staging is not None:
                    staging.note_raw(raw)
                return raw
        raise LookupError(device)

    def point(self, value: complex, dtype: Any) -> None:
        return None

    def raw_dtype(self, dtype: dtype) -> dtype:
        return dtype

    def whole(self, x: Raw) -> Raw:
        return x

    copy = whole
    freeze = whole
    frozen_view = whole

    def is_frozen(self, x: Raw) -> bool:
        return True

    def owns(self, x: Raw) -> bool:
        return False

    def owner(self, x: Raw) -> int:
        return id(x)

    def all_finite(self, x: Raw) -> bool:
        raws = [c._data if hasattr(c, "_data") else c for c in x.contents]
        return all([BACKENDS[type(r)].all_finite(r) for r in raws])

    def to_numpy(self, x: Raw) -> ndarray:
        raw = readable(x, "an array")
        return BACKENDS[type(raw)].to_numpy(raw)

    def nbytes(self, x: Raw) -> int:
        raw = ground(x)
        return BACKENDS[type(raw)].nbytes(raw)

    def as_index(self, i: Any, like: Raw) -> Raw:
        raw = ground(like)
        return i if i.__class__ in BOXES else BACKENDS[type(raw)].as_index(i, raw)


NAMESPACE = BoxNamespace()


def install_box(kind: type[Box], tensor: type) -> None:
    """Make a kind of box known, with the class of tensors that holds it."""
    BOXES[kind] = tensor
    BOXED.update((kind, tensor))
    BACKENDS[kind] = NAMESPACE


def innermost() -> Level | None:
    """The transformation that is running now, if any."""
    levels = current.get().levels
    return levels[-1] if levels else None
