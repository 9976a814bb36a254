"""Checkpoint strategies in eager mode: which saved values are kept, and which computed again."""

from collections import deque
from collections.abc import Container
from contextlib import AbstractContextManager, nullcontext
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from ...core.backends import BACKENDS
from ...core.box import BOXED
from ...core.checkpointing import CheckpointConfig
from ...core.node import Node, NodeExtra, ids
from ...core.recording import Packed
from ...core.value import wrap
from .values import Kept, Step, Value, Values, flat, is_filled, is_repeatable

if TYPE_CHECKING:
    from .offload import Place

# Saved values of fewer bytes are kept: a value's own records take about as much.
LEAST = 1024


def unpack(kept: Kept) -> Any:
    """A saved value as a tensor, computed again if it is not there."""
    return wrap(kept.owner.recall(kept))


class Saving:
    """What `settings.saving` is under a strategy: it decides about each value that a node saves."""

    def __init__(self, config: CheckpointConfig):
        self.config = config
        self.values = Values(config.verify)
        self.place: Place | None = None  # where values are moved to
        if config.offload is not None:
            from .offload import place_for  # rarely needed

            self.place = place_for(config.offload)
        # Arrays that are kept for computing others, by the id of the first step that needs them.
        self._anchors: list[tuple[int, list[Any]]] = []

    def save(self, node: Node, y: Any, raws: Any, static: tuple) -> None:
        """Take over what a node saves, unless it is at a level: values of those are kept."""
        self.own(node)
        first = y[0] if y.__class__ is tuple else y
        if first.__class__ not in BOXED and not any([r.__class__ in BOXED for r in raws]):
            self._take_over(node, y, raws, static)

    def own(self, node: Node) -> None:
        """Take note of a node that was recorded under the strategy."""

    def _take_over(self, node: Node, y: Any, raws: Any, static: tuple) -> None:
        """What a node saves, if its operation can be run again or its arguments can."""
        op, values = node.op, self.values
        inputs = tuple([values.of(r) for r in raws])
        outs = y if y.__class__ is tuple else (y,)
        if is_repeatable(op):
            step = Step(op, inputs, static, (node.code, node.lasti))
            step.shapes = (
                *[r.shape for r in outs],
                *[r.shape if v.__class__ is Value else None for v, r in zip(inputs, raws)],  # noqa: B905
            )
            step.nbytes = sum([v.nbytes for v in inputs if v.__class__ is Value])
            step.nbytes += sum([BACKENDS[r.__class__].nbytes(r) for r in outs])
            values.made(step, outs)
            if getattr(op.rule, "keep", None) is not None:
                self._note_kept(step, node, outs)
        saved = self._pack(node.saved)
        if saved is not node.saved:
            node.saved = saved
            node.extra = node.extra or NodeExtra()
            node.extra.unpack = unpack

    def _note_kept(self, step: Step, node: Node, outs: tuple) -> None:
        """The step of what the row's rule keeps, where that is neither a result nor an argument."""
        keeping = Step(
            step.op, (*[self.values.of(r) for r in outs], *step.inputs), step.static, step.origin
        )
        keeping.keeps = True
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
            kept = Kept(value, saved, self)
            value.kept = ref(kept)
            if self.drops(value):
                self.drop([kept])
        return Packed(kept)

    def drop(self, group: list[Kept]) -> bool:
        """Let go of saved values that share their memory; False if they are to stay.

        They are moved out, if there is a place for that, or to be computed again: so are views of
        what no step made, which stays.
        """
        moved = None
        if self.place is not None and not self.values.is_source(group[0].array):
            moved = self.place.store([kept.array for kept in group])
        if moved is None and not all([self.values.firm(kept.value) for kept in group]):
            return False
        for kept, place in zip(group, moved or [None] * len(group), strict=True):
            kept.array, kept.moved = None, place
        return True

    def recall(self, kept: Kept) -> Any:
        """The array of a saved value."""
        array = kept.array
        self._leave_anchors(kept.value.step)
        if array is None and kept.moved is not None:
            return kept.moved.load()
        if array is None:
            array = kept.value.array
            if array is None:
                array = self.values.compute(kept.value, self)
            self.recalled(kept, array)
        return array

    def recalled(self, kept: Kept, array: Any) -> None:
        """Keep an array that was computed again, for other nodes that save it."""
        kept.array = array

    def reserve(self, nbytes: int) -> None:
        """Leave bytes of a budget to others."""

    def block(self) -> AbstractContextManager[Any]:
        """The block in which a program is recorded."""
        return nullcontext()

    def before_write(self, x: Any) -> None:
        """Take note that a tensor is about to be overwritten in place."""

    def drops(self, value: Value) -> bool:
        """Whether a value that a node saves now is computed again later."""
        return False

    fills = True

    def pauses(self, steps: int) -> Container[int]:
        """The steps, of those that are run again, before which `pause` is called."""
        return ()

    def pause(self, step: Step, arrays: list[Any]) -> None:
        """Keep the arrays that this step and later ones are computed from."""
        self._anchors.append((step.id, arrays))

    def _leave_anchors(self, step: Any) -> None:
        """Drop what was kept for steps later than this one: a sweep goes back."""
        while self._anchors and step is not None and self._anchors[-1][0] < step.id:
            self._anchors.pop()


class Selective(Saving):
    """Keeps what is expensive: values that take `min_compute_cost` operations for each element.

    Computing a value again includes the values before it that are not kept.
    """

    def __init__(self, config: CheckpointConfig):
        super().__init__(config)
        self._costs: WeakKeyDictionary[Step, int] = WeakKeyDictionary()

    def drops(self, value: Value) -> bool:
        elements = max(1, prod(value.array.shape))
        return self._flops_again(value.step) < self.config.min_compute_cost * elements

    def _flops_again(self, step: Any) -> int:
        """The operations that compute a step's values from sources and from what is kept."""
        waiting = [step]
        while waiting:
            s = waiting[-1]
            before = [v.step for v in s.values if v.step is not None and not is_filled(v)]
            todo = [b for b in before if b not in self._costs]
            if todo and s not in self._costs:
                waiting += todo
                continue
            self._costs[s] = s.flops + sum([self._costs[b] for b in before])
            waiting.pop()
        return self._costs[step]


class Block(Saving):
    """Keeps what goes from one block to the next; after every n-th saved value a block begins."""

    def __init__(self, config: CheckpointConfig):
        super().__init__(config)
        self._count = self._began = 0

    def _take_over(self, node: Node, y: Any, raws: Any, static: tuple) -> None:
        for v in [self.values.of(r) for r in raws] if self._began and self.place is None else ():
            # An argument from before this block is kept: later values are computed from it.
            if v.__class__ is Value and v.step is not None and v.step.id > self._began:
                if v.array is not None and v.nbytes >= LEAST:
                    self._anchors.append((self._began, [v.array]))
        super()._take_over(node, y, raws, static)

    def drops(self, value: Value) -> bool:
        self._count += 1
        if self._count % self.config.checkpoint_every_n == 0:
            self._began = next(ids)
        return True


# So few steps are run again as a whole.
_FEW = 12


class Full(Saving):
    """Keeps nothing that can be computed again; on the way back, halves of the way are kept."""

    fills = False

    def __init__(self, config: CheckpointConfig):
        super().__init__(config)
        self._recent: deque[Any] = deque(maxlen=4)

    def drops(self, value: Value) -> bool:
        return True

    def recalled(self, kept: Kept, array: Any) -> None:
        # Other nodes that save it come soon, if at all; a graph may be swept again.
        self._recent.append(array)

    def pauses(self, steps: int) -> Container[int]:
        found, start = set(), 0
        while steps - start > _FEW:
            start += (steps - start) // 2
            found.add(start)
        return found
