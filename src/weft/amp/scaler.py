"""GradScaler: losses scaled up for the backward pass, gradients scaled back for the step."""

from collections.abc import Callable
from functools import cached_property, reduce
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from .. import errors
from ..arrays.inplace import refuse_staging
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.reading import refuse_reading
from ..core.record import record
from ..core.settings import current, refuse_while_staging
from ..core.value import TENSORS, wrap
from ..ops.logic import isfinite as is_finite
from ..ops.logic import logical_and
from ..optim import norms
from ..optim.clip import gather_gradients
from ..optim.norms import global_norm
from ..optim.rescale import rescale
from ..optim.staged import norm_of
from .config import AmpConfig
from .loss_scale import Dynamic, LossScale
from .staged import StagedScale

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..optim.clip import Clipped, HeldGradient
    from ..optim.groups import AnyOptimizer
    from ..optim.parameters import Gradients

_Losses = TypeVar("_Losses", "list[Tensor]", "tuple[Tensor, ...]")


@record(frozen=False)
class _UnscaledGradients:
    """Gradients unscaled since the last update; holds their owner, whose id is the key."""

    whose: Any
    norm: Any
    stepped: bool = False

    @property
    def overflowed(self) -> bool:
        self.norm = float(self.norm)  # waits for a GPU, once
        return not isfinite(self.norm)

    @cached_property
    def fits(self) -> "Tensor":
        """Whether the norm is finite, as a value of its device."""
        return is_finite(self.norm)

    def is_late(self) -> bool:
        """Whether the host would have to wait for the norm."""
        return type(self.norm) in TENSORS


class GradScaler:
    """Multiplies losses so that small gradients survive float16, and divides the gradients again.

    init_scale       the first scale
    growth_factor    what it is multiplied by after `growth_interval` steps without an overflow
    backoff_factor   what it is multiplied by after an overflow
    growth_interval  how many such steps in a row it takes to grow
    enabled          False: losses, gradients and steps pass as they are

    A step whose gradients are not finite is left out: parameters, the optimizer's state, averages
    and counts stay as they were, and `skipped` says so. Gradients come as the parameters' `.grad`
    or, like everywhere, as a `GradientMap` or a list. In a function that is being compiled scales
    and norms are tensors; `skipped` is for after the call.

    Of gradients on a GPU nothing waits: scale, norm and the counts of steps are values of the GPU,
    which leaves a step out by itself. They are read where they are asked for: `get_scale()`,
    `skipped`, `state_dict()`, also that of the optimizer.

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> optimizer, scaler = wf.optim.SGD([p], lr=0.5), wf.amp.GradScaler(init_scale=4.0)
    >>> for slope in (1.0, float("inf")):
    ...     grads = scaler.scale((p * slope).sum()).backward()
    ...     scaler.step(optimizer, grads)
    ...     scaler.update()
    ...     p.tolist(), scaler.skipped, scaler.get_scale()
    ([0.5], False, 4.0)
    ([0.5], True, 2.0)
    """

    # The numbers that programs read or write, and what the trace guards.
    _guarded = ("_running", "_used", "_unscaled", "_taken")

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        how = Dynamic(init_scale, growth_factor, backoff_factor, growth_interval)
        self._running: LossScale = LossScale(how)
        self._enabled = enabled
        self._used = False  # whether a loss was ever scaled
        self._unscaled: dict[int, _UnscaledGradients] = {}
        self._taken: Any = True  # whether the last step was; on a GPU one of its values

    @classmethod
    def from_config(cls, config: AmpConfig) -> "GradScaler":
        """A scaler that goes by a config's `loss_scaler`.

        config  an `AmpConfig`

        >>> import weft as wf
        >>> wf.amp.GradScaler.from_config(wf.AmpConfig()).get_scale()
        65536.0
        """
        scaler = cls(enabled=config.enabled and config.loss_scaler is not None)
        if config.loss_scaler is not None:
            scaler._running = LossScale(config.loss_scaler)
        return scaler

    @property
    def running(self) -> LossScale:
        """The scale and what it goes by."""
        refuse_reading("the state of a GradScaler", "take get_scale(), or look at it outside")
        return self._running

    def is_enabled(self) -> bool:
        """Whether it does anything.

        >>> import weft as wf
        >>> wf.amp.GradScaler(enabled=False).is_enabled()
        False
        """
        return self._enabled

    @property
    def skipped(self) -> bool:
        """Whether the last step was left out."""
        if self._enabled:
            refuse_staging("GradScaler.skipped", "look at it after the call")
        return not self._taken

    def _staged_scale(self) -> StagedScale | None:
        """The scaler's state in the program that is being traced."""
        staging = current.get().staging
        return None if staging is None else staging.state(self, lambda: StagedScale(self, staging))

    def _done_with(self, whose) -> Any:
        """The record of gradients unscaled since the last update; None if there is none."""
        staged = self._staged_scale()
        return self._unscaled.get(id(whose)) if staged is None else staged.find_unscaled(whose)

    def is_waiting(self) -> bool:
        """Whether gradients were unscaled since the last `update()`."""
        return bool(self._unscaled)

    def wait(self, whose: Any, norm: Any, stepped: bool) -> None:
        """Record that a compiled function has unscaled gradients without calling `update()`."""
        self._unscaled[id(whose)] = _UnscaledGradients(whose, norm, stepped)

    def note_step(self, taken: Any) -> None:
        """Record that a compiled function has taken or skipped a step."""
        self._taken = taken

    def get_scale(self) -> "float | Any":
        """What losses are multiplied by now.

        >>> import weft as wf
        >>> wf.amp.GradScaler(init_scale=4.0).get_scale()
        4.0
        """
        if not self._enabled:
            return 1.0
        staged = self._staged_scale()
        return self._running.value if staged is None else staged.scale

    @overload
    def scale(self, outputs: "Tensor") -> "Tensor": ...
    @overload
    def scale(self, outputs: _Losses) -> _Losses: ...
    def scale(self, outputs: Any) -> Any:
        """A loss times the scale, or a list or tuple of losses.

        outputs  the loss, or a list or tuple of losses

        >>> import weft as wf
        >>> wf.amp.GradScaler(init_scale=4.0).scale(wf.tensor(3.0)).item()
        12.0
        """
        if type(outputs) in TENSORS:
            self._used = True
            if not self._enabled:
                return outputs
            staged = self._staged_scale()
            if staged is not None:
                return outputs * staged.scale.to(outputs.dtype)
            with BACKENDS[type(outputs._data)].quiet():  # an overflow is expected
                return self._multiply(outputs)
        if isinstance(outputs, list | tuple):
            return type(outputs)([self.scale(y) for y in outputs])
        raise errors.DTypeError(
            f"GradScaler.scale: got a {type(outputs).__name__}, expected a tensor or a list of them"
        )

    def _multiply(self, loss: "Tensor") -> "Tensor":
        if self._running.device != loss.device or loss.device == "cpu":
            return loss * self._running.value
        # As numbers do, the scale keeps its own precision beside half types.
        wide, scale = dtypes.accumulator(loss.dtype), wrap(self._running.memory[0])
        return (loss.to(wide) * scale.to(wide)).to(loss.dtype)

    def _factor(self, held: "list[HeldGradient]") -> Any:
        """What gradients are multiplied by: a number, or a value of a GPU that has them all."""
        devices = {h.grad.device for h in held}
        device = devices.pop()
        if devices or not norms.is_asynchronous(device):
            return 1.0 / self._running.value
        return (1.0 / wrap(self._running.memory_on(device)[0]).to(dtypes.float64))._data

    def unscale(self, grads: "AnyOptimizer | Clipped | Gradients") -> "float | Any":
        """Divide gradients by the scale, to clip or to look at them; returns their norm.

        grads  an optimizer, whose parameters' `.grad` is meant, or a `GradientMap` or list of
               gradients

        The norm is infinite or NaN if a gradient is: the step will be left out. It comes from the
        same pass, and `wf.optim.clip_grads_with_norm` takes it. On a GPU it is a tensor, for which
        nothing waits.

        >>> import weft as wf
        >>> p, scaler = wf.Parameter([1.0, 2.0]), wf.amp.GradScaler(init_scale=4.0)
        >>> grads = scaler.scale((p * wf.tensor([3.0, 4.0])).sum()).backward()
        >>> scaler.unscale(grads), grads[p].tolist()
        (5.0, [3.0, 4.0])
        """
        what = "GradScaler.unscale"
        if not self._enabled:
            plain = [h.grad for h in gather_gradients(what, _gradients(grads))]
            return global_norm(plain) if current.get().staging is None else norm_of(plain)
        self._refuse_unused(what)
        seen = self._done_with(grads)
        if seen is not None:
            done = "step() was taken with" if seen.stepped else "unscale() was called with"
            raise errors.ArgumentError(
                f"{what}: {done} these gradients since the last update(); call it once for each "
                "step, and update() after all of them"
            )
        held = gather_gradients(what, _gradients(grads))
        if not held:
            raise errors.MissingGradient(
                f"{what}: there are no gradients; call backward() on the scaled loss first"
            )
        for h in held:
            if h.grad.dtype == dtypes.float16:
                raise errors.DTypeError(
                    f"{what}: the gradient of {h.name} is float16, in which it would vanish; keep "
                    "the parameters in float32 and compute in float16 by wf.amp.autocast"
                )
        staged = self._staged_scale()
        if staged is not None:
            return staged.unscale(grads, held)
        norm = rescale(held, self._factor(held))
        self._unscaled[id(grads)] = _UnscaledGradients(grads, norm)
        return norm

    unscale_ = unscale

    def step(
        self, optimizer: "AnyOptimizer", grads: "Gradients | Callable[[], Any] | None" = None
    ) -> Any:
        """The optimizer's step, unless the gradients overflowed; they are unscaled if need be.

        optimizer  the optimizer whose step it is
        grads      what the optimizer's step takes; by default the parameters' `.grad`

        >>> import weft as wf
        >>> p, scaler = wf.Parameter([1.0]), wf.amp.GradScaler(init_scale=4.0)
        >>> scaler.step(wf.optim.SGD([p], lr=0.5), scaler.scale(p.sum()).backward())
        >>> p.tolist()
        [0.5]
        """
        if callable(grads) and self._enabled:
            raise errors.ArgumentError(
                "GradScaler.step: a function that computes the loss anew cannot be scaled from "
                "outside; pass its gradients, or call optimizer.step(closure) without a scaler"
            )
        if not self._enabled:
            self._taken = True
            return optimizer.step(grads)
        whose: Any = optimizer if grads is None else grads
        self._refuse_unused("GradScaler.step")
        if self._done_with(whose) is None:
            self.unscale(whose)
        seen = self._done_with(whose)
        if seen.stepped:
            raise errors.ArgumentError(
                "GradScaler.step: step() was taken with these gradients since the last update(); "
                "call update() after every step"
            )
        staged = self._staged_scale()
        if staged is not None:
            return staged.step(optimizer, grads, seen)
        seen.stepped = True
        skips: Any = getattr(optimizer, "skips_on", None)
        if seen.is_late() and skips is not None and skips(seen.norm.device):
            self._taken = seen.fits._data
            return cast(Any, optimizer).step_if(self._taken, grads)
        self._taken = not seen.overflowed
        return None if seen.overflowed else optimizer.step(grads)

    def update(self, new_scale: float | None = None) -> None:
        """Go on to the next iteration: shrink the scale after an overflow, else maybe let it grow.

        new_scale  a scale to go on with instead

        >>> import weft as wf
        >>> scaler = wf.amp.GradScaler(init_scale=4.0)
        >>> scaler.update(new_scale=8.0)
        >>> scaler.get_scale()
        8.0
        """
        if not self._enabled:
            return
        staged = self._staged_scale()
        new_scale = None if new_scale is None else LossScale(Dynamic(new_scale)).value
        if new_scale is None and not (self._unscaled if staged is None else staged.waits()):
            raise errors.ArgumentError(
                "GradScaler.update: no gradients were unscaled since the last update(); call "
                "step() or unscale() before it"
            )
        if staged is not None:
            staged.update(new_scale)
            return
        unscaled = list(self._unscaled.values())
        if new_scale is not None:
            self._running.value = new_scale
        elif all([u.is_late() and u.norm.device == self._running.device for u in unscaled]):
            self._running.update_late(reduce(logical_and, [u.fits for u in unscaled]))
        else:
            self._running.update(any([u.overflowed for u in unscaled]))
        self._unscaled.clear()

    def _refuse_unused(self, what: str) -> None:
        if not self._used:
            raise errors.ArgumentError(
                f"{what}: no loss was scaled, so that there is nothing to divide gradients by; "
                "call scaler.scale(loss).backward()"
            )

    def state_dict(self) -> dict[str, Any]:
        """The scale and what it goes by, under PyTorch's names; empty if not enabled.

        >>> import weft as wf
        >>> wf.amp.GradScaler(init_scale=4.0).state_dict()["scale"]
        4.0
        """
        refuse_while_staging("a loss scale is saved")
        return self._running.state_dict() if self._enabled else {}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; an error lists what differs, and then nothing changes.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> scaler = wf.amp.GradScaler()
        >>> scaler.load_state_dict(wf.amp.GradScaler(init_scale=4.0).state_dict())
        >>> scaler.get_scale()
        4.0
        """
        refuse_while_staging("a loss scale is loaded")
        if not self._enabled:
            return
        if not saved:
            raise errors.StateMismatch(
                "GradScaler.load_state_dict: an empty state, of a scaler that was not enabled"
            )
        self._running.load_state_dict(saved)

    def __repr__(self) -> str:
        return f"GradScaler(scale={self.get_scale()}, enabled={self._enabled})"


def _gradients(grads):
    """What holds gradients: of an optimizer, the parameters that can have one."""
    groups = getattr(grads, "param_groups", None)
    if groups is None:
        return grads
    return [p for group in groups for p in group["params"] if p.requires_grad]
