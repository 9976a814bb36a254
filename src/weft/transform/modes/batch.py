"""Batching: values with a batch axis that the user's function does not see."""

from typing import Any

from ... import errors
from ...arrays.tensor import Tensor
from ...core.box import NAMESPACE, NUMBERS, Box, Level
from ...core.call import caller
from ...core.explain import infer, unknown_shape
from ...core.op import Op
from ...core.types import Array, Raw, Static
from ...core.value import TENSORS, install_level
from .dual import raw_of


class Batch(Box):
    """A value whose first axis is the batch (`mapped`), or one that all elements share."""

    __slots__ = ("data", "mapped", "size")
    maker = "vmap"
    level: float
    data: Raw
    size: int
    mapped: bool

    def __init__(self, level: float, data: Raw, size: int, mapped: bool = True):
        self.level, self.data, self.size, self.mapped = level, data, size, mapped

    @property
    def inner(self) -> Raw:
        return self.data

    @property
    def shape(self) -> tuple[int, ...]:
        shape = tuple(self.data.shape)
        return shape[1:] if self.mapped else shape

    @classmethod
    def interpret(cls, op: Op, level: float, operands: list[Raw], static: Static) -> Any:
        """The operation on the whole batch, by the row's batching rule."""
        args, mapped, size = [], [], 0
        for x in operands:
            at_level = x.__class__ is cls and x.level == level
            args.append(x.data if at_level else x)
            mapped.append(at_level and x.mapped)
            size = x.size if at_level else size
        call = caller(op)
        if any(mapped):
            if op.batch is None:
                raise errors.BatchingError(
                    f"{unknown_shape(op)}, so the elements of a batch cannot be done together; "
                    "use wf.where, or a Python loop"
                )
            if not size:
                infer(op, operands, static)  # a kernel on an empty batch finds no fault
            z = op.batch(call, size, mapped, args, static)
        else:
            z = op.call(call, args, static)
        if op.outputs == 1:
            return cls(level, z, size, any(mapped))
        return tuple(cls(level, r, size, any(mapped)) for r in z)

    @classmethod
    def lift(cls, level: Level, value: Raw) -> "Batch":
        return cls(level.tag, value, level.size or 0, mapped=False)

    def beside(self, value: Raw) -> "Batch":
        return Batch(self.level, value, self.size, mapped=False)

    def across(self, data: Raw) -> "Batch":
        """Other data, with the same batch axis in front, at this level."""
        return Batch(self.level, data, self.size)

    def stop_gradient(self) -> "Batch":
        inner = self.data
        inner = inner.stop_gradient() if isinstance(inner, Box) else raw_of(inner)
        return Batch(self.level, inner, self.size, self.mapped)

    def text(self) -> str:
        one_of = f"one of {self.size}" if self.mapped else f"the same for all {self.size}"
        return f"BatchTensor(shape={self.shape}, dtype={NAMESPACE.dtype_of(self)}, {one_of})"

    def refuse(self, use: str) -> None:
        if not self.mapped:
            return
        if use in NUMBERS:
            raise errors.BatchingError(
                "inside vmap a tensor stands for a whole batch and has no single value: branch "
                "with wf.where or wf.cond, or keep the value an array"
            )
        raise errors.InterchangeError(
            f"{use}: inside vmap a tensor stands for a whole batch, which another library cannot "
            "take as one array; compute with wf's functions"
        )


class BatchTensor(Tensor):
    """A tensor inside `vmap`: one element of the batch, standing for all."""

    __slots__ = ()


install_level(Batch, BatchTensor)


def batch_in_front(level: float, x: Array, size: int) -> Batch:
    """A value with its batch axis in front, at the level."""
    return Batch(level, x._data if x.__class__ in TENSORS and x._node is None else x, size)
