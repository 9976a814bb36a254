"""A step of training as one compiled program, whose update a flag of the device may withhold."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil, isfinite, nan
from typing import Any

import numpy as np

from .. import errors
from ..arrays import random
from ..arrays.inplace import copy_
from ..arrays.manipulation import stack
from ..backend.device import namespace_for
from ..core import dtypes
from ..core.aval import Aval
from ..core.backends import BACKENDS
from ..core.checkpointing import MIB
from ..core.record import field, record
from ..core.settings import current
from ..core.value import TENSORS, wrap
from ..nn.state import changing_buffers
from ..ops import logic
from ..ops.elementwise import where
from ..optim import clip_grad_value, clip_grads_with_norm
from ..optim.conditional import Condition, taken_if
from ..transform.modes.backward import no_grad
from . import joint
from .arguments import device_of
from .compiled import CompiledStepper, compile_part
from .objective import Counts, Means
from .ranks import Ranks
from .step import Launched, Outcome, describe_norm

# Of a batch of a step: its loss, its metrics, and what buffers were, by position, that it changed.
BatchResult = tuple[Any, dict[str, Any], dict[int, Any]]


def begin_read(x: Any) -> Callable[[], np.ndarray]:
    """Begin to bring a tensor to the host; the function waits for it."""
    raw = x._data
    if isinstance(raw, np.ndarray):
        there = raw.copy()
        return lambda: there
    from ..backend.torch import transfers  # loads PyTorch

    return transfers.begin_read(raw)


@record
class _StepNumbers:
    """Reads the numbers that a step's program returns, in one vector.

    shares    of each batch
    earlier   what batches before the last have returned
    last      the last batch's metrics that are numbers of the host's
    names     of its other metrics
    trained   the names of parameters with a gradient
    """

    shares: list[float]
    earlier: list[BatchResult]
    last: dict[str, Any]
    names: tuple[str, ...]
    trained: tuple[str, ...]

    def split(self, numbers: np.ndarray) -> tuple[bool, float, list[dict[str, Any]], list[float]]:
        """Whether the step fits, its norm, each batch's values, and each parameter's squares."""
        fits, norm, *rest = numbers.tolist()
        count = len(self.shares)
        losses, rest = rest[:count], iter(rest[count:])
        values: list[dict[str, Any]] = []
        for loss, (_, metrics, _) in zip(losses, self.earlier, strict=False):
            given = {n: next(rest) if type(v) in TENSORS else v for n, v in metrics.items()}
            values.append({"loss": loss, **given})
        computed = {name: next(rest) for name in self.names}
        values.append({"loss": losses[-1], **self.last, **computed})
        return bool(fits), norm, values, list(rest)


@record
class WholeStepper(CompiledStepper):
    """A step as one program: gradient, norm, clipping, update and averages.

    The program withholds the update, and the changes of buffers, unless the loss and the gradient
    are finite; then it withholds all later ones until `take` or a new stepper begins anew. With
    several batches, those before the last have a program each. Gradients are not kept.
    """

    _flag: "WithholdingFlag" = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "_flag", WithholdingFlag(device_of(self.model) or "cpu"))
        for name, config in (("part", self._gradient_config()), ("step", self.checkpoint)):
            part = getattr(self, f"_compute_{name}")
            self._programs[name] = compile_part(f"Trainer.{name}", part, config)

    # Launching

    def take(self, batches: list[Any], lr: float | None, counts: Counts | None = None) -> Outcome:
        """A step that is settled at once; later ones are not withheld."""
        outcome = self.launch(batches, lr, counts).result()
        if outcome.problem is not None:
            self._flag.reset()
        return outcome

    def launch(
        self, batches: list[Any], lr: float | None, counts: Counts | None = None
    ) -> Launched:
        """Begin a step on the batches as if they were one; the result is read later."""
        counts = self.objective.count_all(batches) if counts is None else counts
        shares, total = counts.shares, counts.total
        self._forget_gradients()
        if lr is not None:
            self.optimizer.set_lr(lr)
        earlier, drawn, kept = [], [], {}
        for batch, share in zip(batches[:-1], shares[:-1], strict=True):
            earlier.append(self._run("part", not earlier, batch, share))
            kept = earlier[-1][2] | kept
            drawn.append(random.get_state())
        computed = [[v for v in m.values() if type(v) in TENSORS] for _, m, _ in earlier]
        given = [loss for loss, _, _ in earlier], computed, kept
        vector, *layout = self._run("step", not earlier, batches[-1], shares[-1], *given)
        read, numbers = begin_read(vector), _StepNumbers(shares, earlier, *layout)
        return Launched(lambda: self._outcome(read(), numbers, total, drawn))

    def _run(self, name: str, first: bool, *args: Any) -> Any:
        """Run a program.

        first  whether it is that of a step's first batch
        """
        self._enter(name, args[0], first)
        limited = self.checkpoint is not None and self.checkpoint.budget is not None
        with self.refusals(name), self.ranks.own_streams():
            found = self._programs[name](*args)
        if args[1] < 1 and limited:
            begin_read(found[0])()
            self._programs[name].release()
        return found

    @contextmanager
    def refusals(self, name: str) -> Iterator[None]:
        """A block in which a program is refused as the whole step."""
        try:
            yield
        except errors.BudgetExceeded as e:
            raise (self._refusal(e) if name == "part" else self._step_refusal(e)) from None

    def _step_refusal(self, e: errors.BudgetExceeded) -> errors.BudgetExceeded:
        if self.checkpoint is None or e.smallest is None:
            return e
        least = ceil(e.smallest / MIB * 100) / 100
        failure = errors.BudgetExceeded(
            f"Trainer: a budget of {self.checkpoint.memory_budget_mb:g} MiB is too small: a step, "
            f"with parameters, data, moments, averages and what it computes, takes "
            f"{e.smallest / MIB:.4g} MiB at least; memory_budget_mb={least:g} works, or a smaller "
            "batch"
        )
        failure.smallest = round(least * MIB)
        return failure

    def _outcome(
        self, vector: np.ndarray, numbers: _StepNumbers, total: float, drawn: list[Any]
    ) -> Outcome:
        """The result of a step, from the numbers that its program has returned."""
        fits, norm, values, squares = numbers.split(vector)
        means = Means()
        problem = joint.meet(self.ranks, means, self._add_values(values, numbers, means, drawn))
        if problem is not None:
            return Outcome(means.result(), nan, total, problem)
        if not isfinite(norm):
            bad = [n for n, s in zip(numbers.trained, squares, strict=True) if not isfinite(s)]
            return Outcome(means.result(), norm, total, describe_norm(norm, bad))
        problem = None if fits else "an earlier step was not finite"
        return Outcome(means.result(), norm, total, problem)

    def _add_values(
        self,
        values: list[dict[str, Any]],
        numbers: _StepNumbers,
        means: Means,
        drawn: list[Any],
    ) -> str | None:
        """Add the batches' values to the means, up to a loss that is not finite: the problem."""
        count = len(values)
        for i, (found, share) in enumerate(zip(values, numbers.shares, strict=True)):
            means.add(found, share)
            if not isfinite(found["loss"]):
                if i < count - 1 and self.ranks.alone:  # as if later batches were not computed
                    random.set_state(drawn[i])
                which = f"batch {i + 1} of {count}: " if count > 1 else ""
                return f"{which}the loss is {found['loss']}"
        return None

    # What is compiled

    def _compute_part(self, batch, share: float) -> BatchResult:
        """Add a batch's part to the gradients."""
        changes = BufferChanges(self.model)
        loss, metrics = self._compute_gradient(batch, share)
        there = {n: v.to(loss.device) if type(v) in TENSORS else v for n, v in metrics.items()}
        return loss, there, changes.find()

    def _compute_step(self, batch, share: float, losses: list, metrics: list, kept: dict):
        """The whole step, with the last of its batches.

        losses, metrics  of the batches before
        kept             buffers that those have changed, as they were, by position
        """
        changes = BufferChanges(self.model)
        loss, own = self._compute_gradient(batch, share)
        pairs, staging = self._pairs(), current.get().staging
        joint.sum_gradients(self.ranks, pairs)
        with no_grad():
            squares = self._squares([p.grad for _, p in pairs])
            norm = stack(squares).sum().sqrt()
            halted = self._flag.enter(staging)
            fits = logic.isfinite(norm)
            for one in (*losses, loss):
                fits = fits & logic.isfinite(one)
            fits = joint.on_all_ranks(self.ranks, fits)
            fits = fits & logic.logical_not(wrap(halted.staged))
            halted.staged = logic.logical_not(fits)._data
            self._clip(pairs, norm)
            changes.take_first_ranks(self.ranks, kept)
        with taken_if(staging, Condition(fits, self._flag.is_down)):
            self.optimizer.step()
            if self.ema is not None:
                self.ema.update()
        with no_grad():
            changes.keep_if(fits, kept)
        self._forget_gradients()
        computed = {n: v for n, v in own.items() if type(v) in TENSORS}
        listed = [v for found in (*metrics, computed.values()) for v in found]
        numbers = [fits, norm, *losses, loss, *listed, *squares]
        vector = stack([x.detach().to(norm.device).to(dtypes.float64) for x in numbers])
        constants = {n: v for n, v in own.items() if n not in computed}
        return vector, constants, tuple(computed), tuple([name for name, _ in pairs])

    @staticmethod
    def _squares(gradients: list[Any]) -> list[Any]:
        """The sum of squares of each gradient, in double precision."""
        wide = [abs(g).to(dtypes.float64) for g in gradients]
        return [(g * g).sum() for g in wide]

    def _clip(self, pairs: list[tuple[str, Any]], norm: Any) -> None:
        if self.clip.norm is not None:
            clip_grads_with_norm(pairs, self.clip.norm, norm)
        if self.clip.value is not None:
            clip_grad_value(pairs, self.clip.value)


class WithholdingFlag:
    """Whether steps are withheld: memory of a device, which programs read and write."""

    _guarded = ("memory",)  # no guard: a slot reads it at each call

    def __init__(self, device: str):
        self.device = device
        self.memory: Any = namespace_for(device).full((), False, dtypes.bool_, device)

    def reset(self) -> None:
        """Withhold no more."""
        xp = BACKENDS[type(self.memory)]
        xp.overwrite(self.memory, xp.full((), False, dtypes.bool_, self.device))

    def enter(self, staging: Any) -> Any:
        """The flag as an array of the program that is being traced."""
        kind = Aval((), dtypes.bool_, self.device)
        return staging.slot("whether steps are withheld", kind, lambda: self.memory)

    def is_down(self) -> bool:
        """Whether the last step was taken; waits for it."""
        return not bool(self.memory)


class BufferChanges:
    """The buffers of a model in a traced function: which change, and what they were."""

    def __init__(self, model: Any):
        self._staging = current.get().staging
        self._places = [(m._buffers, name) for m in model.modules() for name in m._buffers]
        self._held = [store[name] for store, name in self._places]
        self._buffers = changing_buffers(model)
        self._before = [(self._index(b), b.detach().clone()) for b in self._buffers]

    def _index(self, buffer: Any) -> int:
        return self._staging.index_of(self._staging.of(buffer)._data)

    def _write_replaced(self) -> None:
        """Write tensors that were assigned to attributes into the buffers that were there."""
        for (store, name), held in zip(self._places, self._held, strict=True):
            new = store[name]
            if held is not None and new is not held and _kind(new) == _kind(held):
                copy_(held, new.detach())
                store[name] = held

    def find(self) -> dict[int, Any]:
        """What the buffers were that have changed since, by position."""
        self._write_replaced()
        pairs = zip(self._buffers, self._before, strict=True)
        found = enumerate([(self._index(b) != index, value) for b, (index, value) in pairs])
        return {k: value for k, (changed, value) in found if changed}

    def take_first_ranks(self, ranks: Ranks, kept: dict[int, Any]) -> None:
        """Put what rank 0 has into the buffers that have changed here and in batches before."""
        if not ranks.alone:
            joint.take_first_ranks(ranks, [self._buffers[k] for k in sorted(self.find() | kept)])

    def keep_if(self, fits: Any, kept: dict[int, Any]) -> None:
        """Undo the changes where a flag is false, and those of batches before."""
        for k, before in (self.find() | kept).items():
            b = self._buffers[k]
            copy_(b, where(fits, b.detach(), before))


def _kind(x: Any) -> tuple[Any, ...] | None:
    return (x.shape, x.dtype, x.device) if type(x) in TENSORS else None
