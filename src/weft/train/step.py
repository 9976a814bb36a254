"""One optimizer step: the gradients of a few batches, checked before they are applied."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.inplace import copy_
from ..core.backends import BACKENDS
from ..core.record import field, record
from ..nn.state import changing_buffers
from ..optim import EMA, clip_grad_value, clip_grads_with_norm, global_norm
from ..transform.checkpoint.choose import checkpointing
from ..transform.modes.backward import no_grad
from . import joint
from .objective import Counts, Means, Objective
from .precision import Precision
from .ranks import ALONE, Ranks

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..core.checkpointing import CheckpointConfig
    from ..dist.reducer import GradientReducer
    from ..nn.module import Module
    from ..optim.groups import AnyOptimizer


Pairs = list[tuple[str, "Tensor"]]  # parameters by their names


@record
class Outcome:
    """The result of a step.

    values    the means over its batches: loss and metrics
    norm      of the gradient before clipping; NaN if it was not computed
    count     how many samples (or whatever is counted) took part, on all ranks
    problem   why the step was not applied; None if it was
    overflow  whether the loss scale was too large
    """

    values: dict[str, float]
    norm: float
    count: float
    problem: str | None = None
    overflow: bool = False


class Launched:
    """A step that was launched; `result()` waits for it, if need be."""

    def __init__(self, result: Callable[[], Outcome]):
        self.result = result


@record
class Clip:
    """How gradients are limited before a step: by their common norm, or each element."""

    norm: float | None = None
    value: float | None = None

    def __call__(self, pairs: Pairs, total: float) -> None:
        """Clip gradients whose common norm is known."""
        if self.norm is not None:
            clip_grads_with_norm(pairs, self.norm, total)
        if self.value is not None:
            clip_grad_value(pairs, self.value)


@record
class Stepper:
    """The parts of a step; `take` computes it and, unless something is not finite, applies it."""

    model: "Module"
    optimizer: "AnyOptimizer"
    trained: Callable[[], Pairs]  # (name, parameter) pairs of the optimizer
    objective: Objective
    precision: Precision
    clip: Clip
    ema: EMA | None
    checkpoint: "CheckpointConfig | None" = None
    on_gradients: Callable[[dict[str, Any]], None] | None = None
    ranks: Ranks = ALONE
    # One, or none: takes part in all backward passes, as long as it is here.
    reducing: "list[GradientReducer]" = field(default_factory=list)

    @property
    def reducer(self) -> "GradientReducer | None":
        """What averages gradients over ranks while the backward pass runs."""
        return self.reducing[0] if self.reducing else None

    @property
    def runs_ahead(self) -> bool:
        """Whether a step's result is there only some time after its launch."""
        return False

    def launch(
        self, batches: list[Any], lr: float | None, counts: Counts | None = None
    ) -> Launched:
        """Begin what `take` does; a step that is not finite withholds those launched after it."""
        outcome = self.take(batches, lr, counts)
        return Launched(lambda: outcome)

    def release(self) -> None:
        """Free what is kept from one step to the next."""

    def take(self, batches: list[Any], lr: float | None, counts: Counts | None = None) -> Outcome:
        """A step on the batches as if they were one, with this learning rate if one is given.

        counts  of the batches; None: they are all of the step

        Their losses are means: each counts by its share of all samples. If the loss or the
        gradient is not finite, parameters, buffers, moments and averages are as they were. All
        ranks take the same step, or none.
        """
        buffers = [b.detach().clone() for b in changing_buffers(self.model)]
        counts = self.objective.count_all(batches) if counts is None else counts
        means, total = Means(), counts.total
        self._forget_gradients()
        problem = self._compute(batches, counts, means, buffers)
        if problem is not None:
            return self._refuse(buffers, means, nan, total, problem)
        pairs = self._pairs()
        norm = self._norm(pairs)
        if not isfinite(norm):
            return self._refuse(buffers, means, norm, total, _culprits(pairs, norm), True)
        if self.on_gradients is not None:
            try:
                self.on_gradients({name: p.grad for name, p in pairs})
            except BaseException:
                self._put_back(buffers)
                raise
        if lr is not None:
            self.optimizer.set_lr(lr)
        self._apply(pairs, norm)
        return Outcome(means.result(), norm, total)

    def _compute(
        self, batches: list[Any], counts: Counts, means: Means, buffers: list[Any]
    ) -> str | None:
        """The gradients, of all ranks together; returns why the step is withheld, if it is.

        buffers  as they were before the step
        """
        if self.ranks.alone:
            return self._add_gradients(batches, counts.shares, means)
        trained = self.trained()

        def compute() -> dict[str, Any]:
            with self.ranks.own_streams():
                problem = self._add_gradients(batches, counts.shares, means)
            missing = [i for i, (_, p) in enumerate(trained) if p.grad is None]
            changed = joint.changed(changing_buffers(self.model), buffers)
            found = {"problem": problem, "sums": means.sums()}
            return found | {"missing": missing, "changed": changed}

        # Where the backward pass itself waits for other ranks, it tells them if it fails.
        facts = None if self.reducer is None else compute()
        found = self.ranks.together("a step", compute if facts is None else lambda: facts)
        means.replace([facts["sums"] for facts in found])
        problem = joint.first_problem(found)
        if problem is None:
            if self.reducer is not None:
                joint.multiply_gradients(trained, self.ranks.size)  # sums in the place of means
            else:
                missing = [set(facts["missing"]) for facts in found]
                joint.fill_gradients(trained, set.intersection(*missing))
                joint.sum_gradients(self.ranks, [(n, p) for n, p in trained if p.grad is not None])
            changed = {k for facts in found for k in facts["changed"]}
            after = changing_buffers(self.model)
            joint.take_first_ranks(self.ranks, [after[k] for k in sorted(changed)])
        return problem

    def _add_gradients(self, batches: list[Any], shares: list[float], means: Means) -> str | None:
        """Add the gradients of batches, up to one whose loss is not finite; returns the problem."""
        problem = None
        for i, (batch, share) in enumerate(zip(batches, shares, strict=True)):
            # The first batch leaves room for the gradients that are there beside the next ones.
            reserve = self._gradient_bytes() if i == 0 and len(batches) > 1 else 0
            with self._summing(last=i == len(batches) - 1):
                loss = self._add_gradient(batch, share, means, reserve)
            if not isfinite(loss) and problem is None:
                which = f"batch {i + 1} of {len(batches)}: " if len(batches) > 1 else ""
                problem = f"{which}the loss is {loss}"
            if problem is not None and self.reducer is None:
                break
        return problem

    def _summing(self, last: bool) -> AbstractContextManager[Any]:
        """A block whose backward pass sums gradients over ranks, if it is the last of a step."""
        return nullcontext() if last or self.reducer is None else self.reducer.no_sync()

    def _forget_gradients(self) -> None:
        if self.reducer is not None:
            self.reducer.drop()  # of a step that has failed
        for p in self.model.parameters():
            if p.requires_grad:
                p.grad = None

    def _gradient_bytes(self) -> int:
        return sum([p.nbytes for p in self.model.parameters() if p.requires_grad])

    def _add_gradient(self, batch, share: float, means: Means, reserve: int) -> float:
        """Add a batch's part to the gradients, if its loss is finite; returns the loss.

        reserve  bytes of a budget that the next batch will need
        """
        with checkpointing(self.checkpoint, reserve):
            with self.precision.autocast():
                loss, metrics = self.objective(self.model, batch)
            value = self._read(loss)
            means.add({"loss": value, **metrics}, share)
            waiting = self.reducer is not None  # other ranks wait for this one's backward pass
            if waiting or isfinite(value):
                with nullcontext() if isfinite(value) else BACKENDS[type(loss._data)].quiet():
                    self.precision.scale_loss(loss if share == 1 else loss * share).backward()
            return value

    def _read(self, loss: "Tensor") -> float:
        return loss.item()

    def _norm(self, pairs: Pairs) -> float:
        return float(self.precision.norm(self.optimizer, pairs))

    def _pairs(self) -> Pairs:
        pairs = [(name, p) for name, p in self.trained() if p.grad is not None]
        if not pairs:
            raise errors.ArgumentError(
                "Trainer: no parameter of the optimizer has a gradient: the loss does not depend "
                "on them; see wf.explain_grad(loss, parameter)"
            )
        return pairs

    def _apply(self, pairs: Pairs, norm: float) -> None:
        self.clip(pairs, norm)
        self.precision.step(self.optimizer)
        if self.ema is not None:
            self.ema.update()

    def _refuse(self, buffers, means, norm, count, problem, gradient=False) -> Outcome:
        self._put_back(buffers)
        overflow = gradient and self.precision.back_off()
        return Outcome(means.result(), norm, count, problem, overflow)

    def _put_back(self, buffers: list[Any]) -> None:
        """Make a step undone that was not applied."""
        with no_grad():
            for buffer, before in zip(changing_buffers(self.model), buffers, strict=True):
                copy_(buffer, before)
        self._forget_gradients()


def _culprits(pairs: Pairs, norm: float) -> str:
    return describe_norm(norm, [n for n, p in pairs if not isfinite(global_norm([p.grad]))])


def describe_norm(norm: float, bad: list[str]) -> str:
    """The problem of a norm that is not finite, with the parameters to blame."""
    listed = ", ".join(bad[:10]) + (f" and {len(bad) - 10} more" if len(bad) > 10 else "")
    return f"the gradient's norm is {norm}; not finite: {listed or 'only the sum of squares'}"
