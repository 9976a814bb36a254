"""GradScaler: losses scaled up for the backward pass, gradients scaled back for the step."""

from dataclasses import dataclass
from math import isfinite
from typing import Any

from .. import errors
from ..array.inplace import refuse_staging
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.value import TENSORS
from ..optim.clip import gathered, global_norm
from ..optim.rescale import rescale
from .config import AmpConfig
from .loss_scale import Dynamic, LossScale


@dataclass
class _Unscaled:
    """What was done with some gradients since the last update; kept, as its id is the key."""

    whose: Any
    norm: float
    stepped: bool = False

    @property
    def overflowed(self) -> bool:
        return not isfinite(self.norm)


class GradScaler:
    """Multiplies losses so that small gradients survive float16, and divides the gradients again.

    init_scale       the first scale
    growth_factor    what it is multiplied by after `growth_interval` steps without an overflow
    backoff_factor   what it is multiplied by after an overflow
    growth_interval  how many such steps in a row it takes to grow
    enabled          False: losses, gradients and steps pass as they are

    A step whose gradients are not finite is left out: parameters, the optimizer's state, averages
    and counts stay as they were, and `skipped` says so. Gradients come as the parameters' `.grad`
    or, like everywhere, as a `GradientMap` or a list.

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

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        self._scale = LossScale(Dynamic(init_scale, growth_factor, backoff_factor, growth_interval))
        self._enabled = enabled
        self._used = False  # whether a loss was ever scaled
        self._unscaled: dict[int, _Unscaled] = {}
        self.skipped = False  # whether the last step was left out

    @classmethod
    def from_config(cls, config: AmpConfig) -> "GradScaler":
        """A scaler that goes by a config's `loss_scaler`."""
        scaler = cls(enabled=config.enabled and config.loss_scaler is not None)
        if config.loss_scaler is not None:
            scaler._scale = LossScale(config.loss_scaler)
        return scaler

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def get_scale(self) -> float:
        """What losses are multiplied by now."""
        return self._scale.value if self._enabled else 1.0

    def scale(self, outputs):
        """A loss times the scale, or a list or tuple of losses."""
        if self._enabled:
            refuse_staging("GradScaler", "use bfloat16, which needs no scale, or keep it outside")
        if type(outputs) in TENSORS:
            self._used = True
            if not self._enabled:
                return outputs
            with BACKENDS[type(outputs._data)].quiet():  # an overflow is what it waits for
                return outputs * self._scale.value
        if isinstance(outputs, list | tuple):
            return type(outputs)([self.scale(y) for y in outputs])
        raise errors.DTypeError(
            f"GradScaler.scale: got a {type(outputs).__name__}, expected a tensor or a list of them"
        )

    def unscale(self, grads) -> float:
        """Divide gradients by the scale, to clip or to look at them; returns their norm.

        grads  an optimizer, whose parameters' `.grad` is meant, or a `GradientMap` or list of
               gradients

        The norm is infinite or NaN if a gradient is: the step will be left out. It comes from the
        same pass, and `wf.optim.clip_grads_with_norm` takes it.
        """
        what = "GradScaler.unscale"
        if not self._enabled:
            return global_norm([h.grad for h in gathered(what, _gradients(grads))])
        self._refuse_unused(what)
        seen = self._unscaled.get(id(grads))
        if seen is not None:
            done = "step() was taken with" if seen.stepped else "unscale() was called with"
            raise errors.ArgumentError(
                f"{what}: {done} these gradients since the last update(); call it once for each "
                "step, and update() after all of them"
            )
        held = gathered(what, _gradients(grads))
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
        norm = rescale(held, 1.0 / self._scale.value)
        self._unscaled[id(grads)] = _Unscaled(grads, norm)
        return norm

    unscale_ = unscale

    def step(self, optimizer, grads=None):
        """The optimizer's step, unless the gradients overflowed; they are unscaled if need be.

        grads  what the optimizer's step takes; by default the parameters' `.grad`
        """
        if callable(grads) and self._enabled:
            raise errors.ArgumentError(
                "GradScaler.step: a function that computes the loss anew cannot be scaled from "
                "outside; pass its gradients, or call optimizer.step(closure) without a scaler"
            )
        if not self._enabled:
            self.skipped = False
            return optimizer.step(grads)
        whose = optimizer if grads is None else grads
        self._refuse_unused("GradScaler.step")
        if id(whose) not in self._unscaled:
            self.unscale(whose)
        seen = self._unscaled[id(whose)]
        if seen.stepped:
            raise errors.ArgumentError(
                "GradScaler.step: step() was taken with these gradients since the last update(); "
                "call update() after every step"
            )
        seen.stepped = True
        self.skipped = seen.overflowed
        return None if seen.overflowed else optimizer.step(grads)

    def update(self, new_scale: float | None = None) -> None:
        """Go on to the next iteration: shrink the scale after an overflow, else maybe let it grow.

        new_scale  a scale to go on with instead
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._scale.value = LossScale(Dynamic(new_scale)).value
        elif not self._unscaled:
            raise errors.ArgumentError(
                "GradScaler.update: no gradients were unscaled since the last update(); call "
                "step() or unscale() before it"
            )
        else:
            self._scale.update(any(seen.overflowed for seen in self._unscaled.values()))
        self._unscaled.clear()

    def _refuse_unused(self, what: str) -> None:
        if not self._used:
            raise errors.ArgumentError(
                f"{what}: no loss was scaled, so that there is nothing to divide gradients by; "
                "call scaler.scale(loss).backward()"
            )

    def state_dict(self) -> dict[str, Any]:
        """The scale and what it goes by, under PyTorch's names; empty if not enabled."""
        return self._scale.state_dict() if self._enabled else {}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; an error lists what differs, and then nothing changes."""
        if not self._enabled:
            return
        if not saved:
            raise errors.StateMismatch(
                "GradScaler.load_state_dict: an empty state, of a scaler that was not enabled"
            )
        self._scale.load_state_dict(saved)

    def __repr__(self) -> str:
        return f"GradScaler(scale={self.get_scale()}, enabled={self._enabled})"


def _gradients(grads):
    """What holds gradients: of an optimizer, the parameters that can have one."""
    groups = getattr(grads, "param_groups", None)
    if groups is None:
        return grads
    return [p for group in groups for p in group["params"] if p.requires_grad]
