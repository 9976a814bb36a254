"""A step of training as compiled programs."""

from collections.abc import Callable
from functools import partial
from typing import Any

from ..arrays.manipulation import stack
from ..compiler.jit import compile
from ..core import dtypes
from ..core.checkpointing import CheckpointConfig
from ..core.record import field, record
from ..optim import clip_grad_value
from ..transform.modes.backward import no_grad
from .objective import Means
from .step import Pairs, Stepper

# The largest number of batch shapes, hence of variants.
VARIANTS = 32


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

    _programs: dict[str, Callable] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("gradient", "norm", "unscaled", "update"):
            part = getattr(self, f"_compute_{name}")
            config = self.checkpoint if name == "gradient" else None
            self._programs[name] = compile_part(f"Trainer.{name}", part, config)

    def _add_gradient(self, batch, share: float, means: Means) -> float:
        loss, metrics = self._programs["gradient"](batch, share * self.precision.factor())
        value = loss.item()
        means.add({"loss": value, **metrics}, share)
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
