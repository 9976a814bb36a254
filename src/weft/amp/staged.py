"""A loss scale in a traced function: its numbers are values of the program."""

from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.make import asarray
from ..backend.device import namespace_for
from ..core import dtypes
from ..core.aval import Aval
from ..core.value import wrap
from ..ops.logic import isfinite, logical_and
from ..optim.conditional import Condition, taken_if
from ..optim.staged import stage_rescale
from .loss_scale import Dynamic, grow_or_shrink

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..optim.clip import HeldGradient
    from ..optim.groups import AnyOptimizer
    from .scaler import GradScaler


class StagedUnscaled:
    """Gradients unscaled in the program: their norm, and whether it is finite.

    device  where their values of the last call are
    """

    def __init__(self, whose: Any, norm: "Tensor", device: str):
        self.whose = whose
        self.norm = norm
        self.fits: Tensor = isfinite(norm)
        self.stepped: bool = False
        self.updated: bool = False
        # The values of the last call.
        xp = namespace_for(device)
        self.norm_then: Any = xp.full((), 0, dtypes.float64, device)
        self.fitted_then: Any = xp.full((), False, dtypes.bool_, device)


class StagedScale:
    """A scaler's state in a program: scale, step count and unscaled gradients."""

    def __init__(self, scaler: "GradScaler", staging: Any):
        self.scaler = scaler
        self.staging = staging
        self.name: str = staging.name_of(scaler, "GradScaler")
        self._unscaled: dict[int, StagedUnscaled] = {}
        if staging.depends(f"whether {self.name} waits for update()", scaler.is_waiting):
            raise errors.StagingError(
                "GradScaler: gradients were unscaled before this function, which is being "
                "compiled; unscale and step in one place, or call update() before"
            )
        staging.depends(f"{self.name}'s settings", lambda: scaler._running.settings)
        self._late = staging.late_device is not None
        self._device: str = staging.late_device or "cpu"
        self._value = self._slot("scale", dtypes.float32, lambda: self._memory()[0])
        self._steps = self._slot("steps", dtypes.int64, lambda: self._memory()[1])

    def _memory(self) -> tuple[Any, Any]:
        return self.scaler._running.memory_on(self._device)

    def _slot(self, label: str, dtype, get):
        return self.staging.slot(f"{self.name}: {label}", Aval((), dtype, self._device), get)

    @property
    def scale(self) -> "Tensor":
        """The scale at this point of the program."""
        return wrap(self._value.staged)

    def find_unscaled(self, whose: Any) -> StagedUnscaled | None:
        """Gradients that were unscaled since the last update."""
        return self._unscaled.get(id(whose))

    def unscale(self, whose: Any, held: "list[HeldGradient]") -> "Tensor":
        """Trace the division of gradients by the scale; returns their norm as a tensor."""
        norm = stage_rescale(held, 1.0 / self.scale.to(dtypes.float64))
        found = self._unscaled[id(whose)] = StagedUnscaled(whose, norm, self._device)
        self._write_at_each_call("norm", found.norm, found.norm_then)
        self._write_at_each_call("whether gradients are finite", found.fits, found.fitted_then)

        def wait() -> None:
            if not found.updated:
                norm = found.norm_then if self._late else float(found.norm_then)
                self.scaler.wait(whose, norm, found.stepped)

        self.staging.after.append(wait)
        return found.norm

    def _write_at_each_call(self, label: str, value, memory: Any) -> None:
        """Add an output of the program that is written into memory at each call."""
        self._slot(label, value.dtype, lambda: memory).staged = value._data

    def step(self, optimizer: "AnyOptimizer", grads: Any, found: StagedUnscaled) -> None:
        """Trace a step that is taken if the gradients are finite."""
        found.stepped = True

        def held() -> bool:
            return bool(found.fitted_then)

        with taken_if(self.staging, Condition(found.fits, held)):
            optimizer.step(grads)
        self.staging.after.append(
            lambda: self.scaler.note_step(found.fitted_then if self._late else held())
        )

    def update(self, new_scale: float | None) -> None:
        """Trace the update of the scale."""
        if new_scale is not None:
            self._value.staged = self.staging.of(asarray(new_scale, dtype=dtypes.float32))._data
        elif isinstance(self.scaler._running.scaler, Dynamic):
            self._grow_or_shrink(self.scaler._running.scaler)
        for found in self._unscaled.values():
            found.updated = True
        self._unscaled.clear()

    def waits(self) -> bool:
        """Whether gradients were unscaled since the last update."""
        return bool(self._unscaled)

    def _grow_or_shrink(self, how: Dynamic) -> None:
        fits = None
        for found in self._unscaled.values():
            fits = found.fits if fits is None else logical_and(fits, found.fits)
        assert fits is not None
        value, steps = grow_or_shrink(how, self.scale, wrap(self._steps.staged), fits)
        self._value.staged, self._steps.staged = value._data, steps._data
