"""Checkpoint strategies in eager mode: which saved values are kept, and which computed again."""

from math import prod
from typing import Any
from weakref import ref

from ... import errors
from ...core.backends import BACKENDS
from ...core.box import BOXED
from ...core.checkpointing import CheckpointConfig, CheckpointStrategy
from ...core.node import Node, NodeExtra
from ...core.recording import Packed
from ...core.types import Raw
from ...core.value import wrap
from ...ops.flops import flops
from .values import Kept, Step, Value, Values, flat, is_repeatable

# Saved values of fewer bytes are kept: a value's own records take about as much.
LEAST = 1024


class Saving:
    """What `settings.saving` is under a strategy: it decides about each value that a node saves."""

    def __init__(self, config: CheckpointConfig):
        self.config = config
        self.values = Values(config.verify)

    def save(self, node: Node, y: Any, raws: Any, static: tuple) -> None:
        """Take over what a node saves, if its operation can be run again or its arguments can."""
        first = y[0] if y.__class__ is tuple else y
        if first.__class__ in BOXED or any([r.__class__ in BOXED for r in raws]):
            return  # at a level: its values are kept
        op, values = node.op, self.values
        inputs = tuple([values.of(r) for r in raws])
        outs = y if y.__class__ is tuple else (y,)
        if is_repeatable(op):
            step = Step(op, inputs, static, (node.code, node.lasti))
            operands = [None if v.__class__ is not Value else r for v, r in zip(inputs, raws, strict=True)]
            step.flops = flops(op, outs, operands, static)
            values.made(step, outs)
            if getattr(op.rule, "keep", None) is not None:
                self._note_kept(step, node, outs)
        saved = node.saved
        node.saved = self._pack(saved)
        if node.saved is not saved:
            node.extra = node.extra or NodeExtra()
            node.extra.unpack = self.unpack

    def _note_kept(self, step: Step, node: Node, outs: tuple) -> None:
        """The step of what the row's rule keeps, where that is neither a result nor an argument."""
        keeping = Step(step.op, (*[self.values.of(r) for r in outs], *step.inputs), step.static, step.origin)
        keeping.keeps, keeping.flops = True, 0
        self.values.made(keeping, flat(node.saved))

    def _pack(self, saved: Any) -> Any:
        if saved.__class__ is tuple:
            made = tuple([self._pack(v) for v in saved])
            return saved if all(a is b for a, b in zip(made, saved, strict=True)) else made
        if saved is None or saved.__class__ not in BACKENDS:
            return saved
        value = self.values.of(saved)
        if value.__class__ is not Value or value.step is None or value.nbytes < LEAST:
            return saved
        kept = value.kept()
        if kept is None:
            kept = Kept(value, saved)
            value.kept = ref(kept)
            if self.drops(value) and self.values.firm(value):
                kept.array = None
        return Packed(kept)

    def unpack(self, kept: Kept) -> Any:
        """A saved value as a tensor, computed again if it is not there."""
        array = kept.array
        if array is None:
            array = kept.value.array
            if array is None:
                array = self.values.compute(kept.value, self.fills)
            kept.array = array
        return wrap(array)

    def drops(self, value: Value) -> bool:
        """Whether a value that a node saves now is computed again later."""
        raise NotImplementedError

    def fills(self, saved: list[Value]) -> set[Value]:
        """Which of the saved values that are computed on the way to another are kept again."""
        return set(saved)


class Selective(Saving):
    """Keeps what is expensive: values that took `min_compute_cost` operations for each element."""

    def drops(self, value: Value) -> bool:
        step, array = value.step, value.array
        assert step is not None
        return step.flops < self.config.min_compute_cost * max(1, prod(array.shape))


class Block(Saving):
    """Keeps every n-th of the values that are saved."""

    def __init__(self, config: CheckpointConfig):
        super().__init__(config)
        self._count = 0

    def drops(self, value: Value) -> bool:
        self._count += 1
        return self._count % self.config.checkpoint_every_n != 0


class Full(Saving):
    """Keeps nothing that can be computed again; halves of the way are kept while going back."""

    def drops(self, value: Value) -> bool:
        return True

    def fills(self, saved: list[Value]) -> set[Value]:
        kept, start = set(), 0
        while len(saved) - start > 2:
            start += (len(saved) - start) // 2
            kept.add(saved[start])
        return kept


SAVING = {
    CheckpointStrategy.Selective: Selective,
    CheckpointStrategy.Block: Block,
    CheckpointStrategy.Full: Full,
}


def check_config(what: str, config: Any) -> Any:
    """The config, which must be one."""
    if config is None or isinstance(config, CheckpointConfig):
        return config
    raise errors.DTypeError(
        f"{what}: checkpoint is a {type(config).__name__}, expected a wf.CheckpointConfig"
    )


def saving_for(config: CheckpointConfig | None) -> Saving | None:
    """What saves under a config, for one program; None if everything is kept."""
    if config is None or config.strategy is CheckpointStrategy.None_:
        return None
    return SAVING[config.strategy](config)
