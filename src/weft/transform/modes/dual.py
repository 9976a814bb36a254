"""Forward mode: values that carry a tangent."""

from typing import Any

from ... import errors
from ...arrays.make import asarray, zeros_like
from ...arrays.tensor import Tensor
from ...core.backends import BACKENDS
from ...core.box import (
    GLANCES,
    NAMESPACE,
    NUMBERS,
    Box,
    Level,
    LooseLevel,
    constant_error,
    level_of,
    loose_levels,
    raise_to_level,
)
from ...core.call import caller
from ...core.dtypes import bfloat16
from ...core.op import Op
from ...core.recording import inexact
from ...core.settings import traced
from ...core.types import Array, Raw, Static
from ...core.value import TENSORS, install_level, wrap
from ...ops.structural import cast
from .rules import push


class Dual(Box):
    """A primal and its tangent (None: zero), both of one shape."""

    __slots__ = ("primal", "tangent")
    maker = "jvp"
    level: float
    primal: Raw
    tangent: Raw | None

    def __init__(self, level: float, primal: Raw, tangent: Raw | None):
        self.level, self.primal, self.tangent = level, primal, tangent

    @property
    def inner(self) -> Raw:
        return self.primal

    @property
    def contents(self) -> tuple[Raw, ...]:
        return (self.primal,) if self.tangent is None else (self.primal, self.tangent)

    @classmethod
    def interpret(cls, op: Op, level: float, operands: list[Raw], static: Static) -> Any:
        """y and the push-forward of the tangents, both one level down."""
        primals, tangents = [], []
        for x in operands:
            at_level = x.__class__ is cls and x.level == level
            primals.append(x.primal if at_level else x)
            tangents.append(x.tangent if at_level else None)
        y = op.call(caller(op), primals, static)
        moving = any([t is not None for t in tangents])
        if op.outputs == 1 and not inexact(y):
            return y
        dy: Any = None if op.outputs == 1 else (None,) * op.outputs
        if moving:
            # An infinite partial gives no warning, as in a reverse sweep.
            dy = NAMESPACE.quietly(push, op, y, primals, tuple(tangents), static)
        if op.outputs == 1:
            return cls(level, y, _narrow(dy, y))
        return tuple(
            cls(level, v, _narrow(dy[k], v) if k in op.tracked else None) if inexact(v) else v
            for k, v in enumerate(y)
        )

    @classmethod
    def lift(cls, level: Level, value: Raw) -> "Dual":
        return cls(level.tag, value, None)

    def beside(self, value: Raw) -> "Dual":
        return Dual(self.level, value, None)

    def stop_gradient(self) -> Raw:
        primal = self.primal
        return primal.stop_gradient() if isinstance(primal, Box) else raw_of(primal)

    def text(self) -> str:
        tangent = "zero" if self.tangent is None else repr(to_tensor(self.tangent))
        return f"DualTensor({to_tensor(self.primal)!r}, tangent={tangent})"

    def refuse(self, use: str) -> None:
        if self.tangent is None or use in GLANCES:
            return
        if use in NUMBERS:
            raise constant_error(use, "tangent")
        raise errors.InterchangeError(
            f"{use} of a dual tensor would lose its tangent; use x.detach() if that is meant, or "
            "compute with wf's functions"
        )


def _narrow(t: Raw | None, y: Raw) -> Raw | None:
    """A tangent in the dtype of its value: in rules NumPy widens bfloat16 beside Python floats."""
    if t is None or y.dtype is not bfloat16 or t.dtype is bfloat16:
        return t
    return cast(t, bfloat16)


def raw_of(x: Array) -> Raw:
    """A tensor's raw value, without its node; raw values unchanged."""
    return traced(x).detach()._data if x.__class__ in TENSORS else x


def unwrap_if_plain(x: Tensor) -> Raw:
    """What a box is made of: the raw value, or the tensor itself if it has a node."""
    x = traced(x)
    return x._data if x._node is None else x


def to_tensor(value: Array) -> Tensor:
    """A value from inside a box as a tensor; NumPy's 0-d results are scalars."""
    return value if value.__class__ in TENSORS else wrap(BACKENDS[value.__class__].whole(value))


class DualTensor(Tensor):
    """A tensor at a dual level: `.value` and `.tangent`, through all operations.

    value    the value, a tensor
    tangent  its tangent, of the same shape; None: zeros

    Each is a calculation of its own: a dual of duals has second derivatives, which are never
    confused with first ones. Duals that belong to one calculation are made by one
    `ForwardADContext`.

    >>> import weft as wf
    >>> x = wf.DualTensor(wf.tensor(2.0), wf.tensor(1.0))
    >>> y = x * x + 3 * x
    >>> y.value.item(), y.tangent.item()
    (10.0, 7.0)
    """

    __slots__ = ()

    def __new__(cls, value: Any, tangent: Any = None) -> Any:
        value = asarray(value)
        if tangent is not None:
            tangent = matching_tangent("DualTensor", value, asarray(tangent))
        below = loose_levels(value) | loose_levels(tangent)
        held_tangent = None if tangent is None else unwrap_if_plain(tangent)
        return wrap(Dual(LooseLevel(below), unwrap_if_plain(value), held_tangent))

    @property
    def value(self) -> Tensor:
        """The primal."""
        return _beside(self._data.primal, self._data.tangent)

    @property
    def tangent(self) -> Tensor:
        """The tangent; zeros if there is none."""
        tangent = self._data.tangent
        if tangent is None:
            return tangent_of(self, self._data.level)
        return _beside(tangent, self._data.primal)


def _beside(part, other) -> Tensor:
    """One part of a dual, raised to the level of the other part."""
    return to_tensor(raise_to_level(part, [other]) if level_of(part) < level_of(other) else part)


install_level(Dual, DualTensor)


def matching_tangent(what: str, value: Tensor, tangent: Tensor) -> Tensor:
    """The tangent of a value, after checking that it can be one."""
    if not inexact(value):
        raise errors.NotDifferentiable(
            f"{what}: a value of dtype {value.dtype} has no tangent; make it a float first"
        )
    if tangent.shape != value.shape:
        raise errors.ShapeError(
            f"{what}: a tangent of shape {tangent.shape} for a value of shape {value.shape}; "
            "they must be equal"
        )
    if tangent.device != value.device:
        raise errors.DeviceError(
            f"{what}: the tangent is on {tangent.device!r}, the value on {value.device!r}"
        )
    return tangent.to(value.dtype)


def primal_of(x: Tensor, level: float) -> Tensor:
    """x one level down."""
    raw = x._data
    return to_tensor(raw.primal) if raw.__class__ is Dual and raw.level == level else x


def tangent_of(x: Tensor, level: float) -> Tensor:
    """The tangent of x at a level; zeros if it has none there."""
    raw = x._data
    if raw.__class__ is Dual and raw.level == level and raw.tangent is not None:
        return to_tensor(raw.tangent)
    return zeros_like(primal_of(x, level).detach())
