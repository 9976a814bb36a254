"""The precision of a run: autocast around the forward pass, and the scale of the loss."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ..amp import AmpConfig, GradScaler, PrecisionMode, autocast
from ..arrays.make import ones
from ..core.backends import BACKENDS
from ..optim import global_norm

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..optim.groups import AnyOptimizer


class Precision:
    """Mixed precision in a step: autocast and loss scaling.

    precision  None, "bfloat16" or "float16", or an `AmpConfig`
    scaler     a `GradScaler`; without one, float16 gets one and a config says which
    """

    def __init__(self, precision: Any = None, scaler: GradScaler | None = None):
        if precision is None or isinstance(precision, AmpConfig):
            self.mode: Any = precision
        else:
            self.mode = PrecisionMode.read("Trainer: precision", precision)
        scaler = self._own_scaler() if scaler is None else scaler
        enabled = scaler is not None and scaler.is_enabled()
        self.scaler: GradScaler | None = scaler if enabled else None

    def _own_scaler(self) -> GradScaler | None:
        if isinstance(self.mode, AmpConfig):
            return GradScaler.from_config(self.mode)
        return GradScaler() if self.mode is PrecisionMode.FLOAT16 else None

    def __str__(self) -> str:
        return self.mode.value if isinstance(self.mode, PrecisionMode) else repr(self.mode)

    def autocast(self) -> AbstractContextManager[Any]:
        """A block whose operations run in the chosen precision."""
        mode = PrecisionMode.FLOAT32 if self.mode is None else self.mode
        return autocast(mode, enabled=self.mode is not None)

    def scale_loss(self, loss: "Tensor") -> "Tensor":
        """The loss to begin the backward pass with."""
        if self.scaler is None:
            return loss
        with BACKENDS[type(loss._data)].quiet():  # the scaler handles an overflow
            return self.scaler.scale(loss)

    def factor(self) -> float:
        """What the loss is scaled by."""
        return 1.0 if self.scaler is None else self.scaler.scale(ones(())).item()

    def norm(self, optimizer: "AnyOptimizer", pairs: "list[tuple[str, Tensor]]") -> float:
        """Unscale the gradients in place if there is a scaler; returns their norm."""
        if self.scaler is None:
            return global_norm([p.grad for _, p in pairs])
        return self.scaler.unscale(optimizer)

    def step(self, optimizer: "AnyOptimizer") -> None:
        """The optimizer's step with gradients that are finite."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()

    def count_step(self) -> None:
        """Update the scale after a step that the compiled program has taken."""
        if self.scaler is not None:
            self.scaler.note_step(taken=True)
            self.scaler.update()

    def back_off(self) -> bool:
        """Whether the loss scale may have caused nonfinite gradients; then lowers it."""
        if self.scaler is not None:
            self.scaler.update()
        return self.scaler is not None
