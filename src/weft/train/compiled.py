"""A step of training as compiled programs."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import ceil
from typing import Any

from .. import errors
from ..arrays.manipulation import stack
from ..compiler.jit import compile
from ..core import dtypes
from ..core.checkpointing import MIB, CheckpointConfig
from ..core.record import field, record
from ..core.value import TENSORS
from ..nn.state import changing_buffers
from ..optim import clip_grad_value
from ..optim.norms import is_asynchronous
from ..optim.optimizer import average_bytes, state_bytes
from ..transform.modes.backward import no_grad
from ..transform.modes.trees import flatten
from .arguments import device_of
from .objective import Means
from .step import Pairs, Stepper

# The largest number of batch shapes, hence of variants.
VARIANTS = 32
# Bytes of values in between that a program keeps while others run. More are allocated anew at each
# turn: with the tables of addresses that is some microseconds for each step of the program.
KEPT = 1 << 20
# A program's name, whether gradients are there already, and the shapes and dtypes of its batch.
Kind = tuple[str, bool, tuple[tuple[Any, Any], ...]]


def compile_part(
    name: str, f: Callable[..., Any], checkpoint: CheckpointConfig | None = None
) -> Callable[..., Any]:
    """A compiled part of training, under a name of its own in messages."""
    part = partial(f)
    part.__name__ = name  # type: ignore[attr-defined]
    return compile(part, max_variants=VARIANTS, checkpoint=checkpoint)


@record
class CompiledStepper(Stepper):
    """A step as programs: the gradient of a batch, the norm, and the update.

    Between them Python checks that all is finite. With a loss scale, gradients are unscaled by the
    program that computes their norm.
    """

    _programs: dict[str, Any] = field(init=False, default_factory=dict)
    _latest: list[Kind] = field(init=False, default_factory=list)  # the last that has run
    _arenas: dict[Kind, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("gradient", "norm", "unscaled", "update"):
            part = getattr(self, f"_compute_{name}")
            config = self._gradient_config() if name == "gradient" else None
            self._programs[name] = compile_part(f"Trainer.{name}", part, config)

    def release(self) -> None:
        """Free the memory of the programs."""
        for program in self._programs.values():
            program.release()

    @property
    def runs_ahead(self) -> bool:
        """Whether a step's result is there only some time after its launch."""
        return is_asynchronous(device_of(self.model) or "cpu")

    def _enter(self, name: str, batch: Any, first: bool) -> None:
        """Free the memory of the program that has run last, if another one runs now.

        With a budget that is always so. Without one it is if much would be kept twice, but not
        where programs are captured graphs, which would have to be captured again.

        first  whether there are no gradients yet
        """
        shapes = [(x.shape, x.dtype) for x in flatten(batch)[0] if type(x) in TENSORS]
        kind: Kind = name, first, tuple(shapes)
        if self._latest and self._latest[0] != kind:
            limited = self.checkpoint is not None and self.checkpoint.budget is not None
            if limited or (not self.runs_ahead and self._arena(self._latest[0]) > KEPT):
                self.release()
        self._latest[:] = [kind]

    def _arena(self, kind: Kind) -> int:
        """The bytes of values in between of the program that has run last."""
        if kind not in self._arenas:
            self._arenas[kind] = self._programs[kind[0]].memory.arena
        return self._arenas[kind]

    def _other_bytes(self) -> int:
        """What a step holds beside the gradient's program: moments, averages, buffers' copies."""
        optimizer: Any = getattr(self.optimizer, "optimizer", self.optimizer)  # that is averaged
        averages = average_bytes(self.ema) + average_bytes(getattr(self.optimizer, "ema", None))
        return (
            state_bytes(optimizer)
            + averages
            + sum([b.nbytes for b in changing_buffers(self.model)])
        )

    def _gradient_config(self) -> CheckpointConfig | None:
        """The budget of the gradient's program: what the rest of the step leaves."""
        config = self.checkpoint
        if config is None or config.budget is None:
            return config
        left = max(config.budget - self._other_bytes(), 1)
        return replace(config, memory_budget_mb=left / MIB)

    def _refusal(self, e: errors.BudgetExceeded) -> errors.BudgetExceeded:
        """A refusal of the gradient's program, for the whole step."""
        if self.checkpoint is None or e.smallest is None:
            return e
        others = self._other_bytes()
        least = ceil((e.smallest + others) / MIB * 100) / 100
        failure = errors.BudgetExceeded(
            f"Trainer: a budget of {self.checkpoint.memory_budget_mb:g} MiB is too small: moments, "
            f"averages and copies of buffers take {others / MIB:.4g} MiB, and the program that "
            f"computes gradients {e.smallest / MIB:.4g} MiB at least, with parameters and data; "
            f"memory_budget_mb={least:g} works, or a smaller batch"
        )
        failure.smallest = round(least * MIB)
        return failure

    def _add_gradient(self, batch, share: float, means: Means, reserve: int) -> float:
        self._enter("gradient", batch, reserve > 0 or share == 1)
        try:
            loss, metrics = self._programs["gradient"](batch, share * self.precision.factor())
        except errors.BudgetExceeded as e:
            raise self._refusal(e) from None
        value = loss.item()
        means.add({"loss": value, **metrics}, share)
        if share < 1 and self.checkpoint is not None and self.checkpoint.budget is not None:
            # The first batch and the others have programs of their own, with an arena each.
            self._programs["gradient"].release()
        return value

    def _compute_gradient(self, batch, share: float) -> tuple[Any, dict[str, Any]]:
        with self.precision.autocast():
            loss, metrics = self.objective(self.model, batch)
        (loss * share).backward()
        return loss.detach(), metrics

    def _norm(self, pairs: Pairs) -> float:
        if self.precision.scaler is not None:
            return self._programs["unscaled"]().item()
        return self._programs["norm"]([p.grad.detach() for _, p in pairs]).item()

    @staticmethod
    def _compute_norm(gradients: list[Any]):
        """The global norm of the gradients, in double precision."""
        wide = [abs(g).to(dtypes.float64) for g in gradients]
        return stack([(g * g).sum() for g in wide]).sum().sqrt()

    def _compute_unscaled(self):
        """Unscale the gradients in place; returns their norm."""
        return self.precision.norm(self.optimizer, self._pairs())

    def _apply(self, pairs: Pairs, norm: float) -> None:
        limit = self.clip.norm
        self._programs["update"](1.0 if limit is None or norm <= limit else limit / norm)
        self.precision.count_step()

    def _compute_update(self, factor: float) -> None:
        pairs = self._pairs()
        if self.clip.norm is not None:
            with no_grad():
                for _, p in pairs:
                    p.grad = p.grad * factor
        if self.clip.value is not None:
            clip_grad_value(pairs, self.clip.value)
        self.optimizer.step()
        if self.ema is not None:
            self.ema.update()
