"""Loss scales: what losses are multiplied by so that their gradients fit a half type."""

from dataclasses import asdict, dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..backend.device import namespace_for
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.differences import differences
from ..core.kinds import demand
from ..core.value import wrap
from ..ops.elementwise import where
from ..ops.logic import isfinite as isfinite_
from ..ops.logic import logical_and
from ..transform.modes.backward import no_grad

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor


class LossScaler:
    """How a loss scale comes about: `Dynamic(…)` or `Static(…)`, also as `LossScaler.Dynamic`.

    >>> import weft as wf
    >>> isinstance(wf.amp.Dynamic(), wf.amp.LossScaler)
    True
    """

    Dynamic: type["Dynamic"]
    Static: type["Static"]
    start: float  # the first scale


def _positive(what: str, name: str, value) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise errors.ArgumentError(f"{what}: {name}={value!r:.40}, expected a number > 0")
    return float(value)


@dataclass(frozen=True)
class Dynamic(LossScaler):
    """A scale that grows until gradients overflow.

    init_scale       the first scale
    growth_factor    what it is multiplied by after `growth_interval` steps without an overflow
    backoff_factor   what it is multiplied by after an overflow
    growth_interval  how many such steps in a row it takes to grow

    >>> import weft as wf
    >>> wf.AmpConfig(loss_scaler=wf.amp.Dynamic(init_scale=1024.0)).loss_scaler.growth_factor
    2.0
    """

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def __post_init__(self) -> None:
        for name in ("init_scale", "growth_factor", "backoff_factor"):
            object.__setattr__(self, name, _positive("Dynamic", name, getattr(self, name)))
        if _positive("Dynamic", "growth_interval", self.growth_interval) % 1:
            raise errors.ArgumentError(
                f"Dynamic: growth_interval={self.growth_interval}, expected a whole number"
            )
        if not self.growth_factor > 1 or not self.backoff_factor < 1:
            raise errors.ArgumentError(
                f"Dynamic: growth_factor={self.growth_factor} and backoff_factor="
                f"{self.backoff_factor}, expected one above and one below 1"
            )

    @property
    def start(self) -> float:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """The first scale."""
        return self.init_scale


@dataclass(frozen=True)
class Static(LossScaler):
    """A scale that stays what it is.

    scale  the scale

    >>> import weft as wf
    >>> wf.AmpConfig(loss_scaler=wf.amp.Static(128.0)).loss_scaler.scale
    128.0
    """

    scale: float = 1024.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _positive("Static", "scale", self.scale))

    @property
    def start(self) -> float:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        """The first scale."""
        return self.scale


LossScaler.Dynamic, LossScaler.Static = Dynamic, Static


def _round_to_float32(value: float) -> float:
    """A number as float32 holds it, which is what a scale is kept in."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


class LossScale:
    """A running scale: its value, and how many steps it has gone without an overflow.

    scaler  what it goes by: `Dynamic(…)` or `Static(…)`

    Both are in `memory`, where compiled functions read and write them. For a GPU that is its own
    memory, and reading a number waits for it.

    >>> import weft as wf
    >>> scale = wf.amp.LossScale(wf.amp.Dynamic(init_scale=4.0))
    >>> scale.update(overflow=True)
    >>> scale.value
    2.0
    """

    def __init__(self, scaler: LossScaler):
        demand("LossScale: scaler", scaler, LossScaler, "wf.amp.Dynamic(…) or wf.amp.Static(…)")
        self.scaler: LossScaler = scaler
        self.memory: tuple[Any, Any] = (
            np.array(_round_to_float32(scaler.start), np.float32),
            np.array(0, np.int64),
        )

    def memory_on(self, device: str) -> tuple[Any, Any]:
        """The memory, from now on a device's."""
        if self.device != device:
            xp, kinds = namespace_for(device), (dtypes.float32, dtypes.int64)
            values = zip((self.value, self.steps), kinds, strict=True)
            scale, steps = (xp.full((), v, dtype, device) for v, dtype in values)
            self.memory = scale, steps
        return self.memory

    @property
    def device(self) -> str:
        """Where the memory is."""
        return BACKENDS[type(self.memory[0])].device_of(self.memory[0])

    @property
    def value(self) -> float:
        """What losses are multiplied by."""
        return float(self.memory[0])

    @value.setter
    def value(self, value: float) -> None:
        self.memory[0][...] = _round_to_float32(value)

    @property
    def steps(self) -> int:
        """How many steps there were since the last overflow, or since it grew."""
        return int(self.memory[1])

    @steps.setter
    def steps(self, steps: int) -> None:
        self.memory[1][...] = steps

    @property
    def settings(self) -> dict[str, Any]:
        """What it goes by, under PyTorch's names; a scale that stays has nothing."""
        how = asdict(self.scaler) if isinstance(self.scaler, Dynamic) else {}
        how.pop("init_scale", None)
        return how

    def update(self, overflow: bool) -> None:
        """Go on after a step: shrink after an overflow, grow after enough steps without one.

        overflow  whether a gradient was not finite

        >>> import weft as wf
        >>> scale = wf.amp.LossScale(wf.amp.Dynamic(init_scale=4.0, growth_interval=1))
        >>> scale.update(overflow=False)
        >>> scale.value
        8.0
        """
        how = self.scaler
        if not isinstance(how, Dynamic):
            return
        if overflow:
            self.value, self.steps = _round_to_float32(self.value * how.backoff_factor), 0
            return
        self.steps += 1
        if self.steps == how.growth_interval:
            grown, self.steps = _round_to_float32(self.value * how.growth_factor), 0
            if isfinite(grown):
                self.value = grown

    def update_late(self, fits: "Tensor") -> None:
        """`update` by a flag of a device's, which has the memory; nothing waits.

        fits  whether all gradients were finite
        """
        if isinstance(self.scaler, Dynamic):
            with no_grad():
                value, steps = map(wrap, self.memory)
                made = grow_or_shrink(self.scaler, value, steps, fits)
            for memory, new in zip(self.memory, made, strict=True):
                BACKENDS[type(memory)].overwrite(memory, new._data)

    def state_dict(self) -> dict[str, Any]:
        """The scale and what it goes by, under PyTorch's names.

        >>> import weft as wf
        >>> wf.amp.LossScale(wf.amp.Static(4.0)).state_dict()["scale"]
        4.0
        """
        return {"scale": self.value, **self.settings, "_growth_tracker": self.steps}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; an error lists what differs, and then nothing changes.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> first, second = (wf.amp.LossScale(wf.amp.Dynamic(init_scale=4.0)) for _ in range(2))
        >>> first.update(overflow=True)
        >>> second.load_state_dict(first.state_dict())
        >>> second.value
        2.0
        """
        differences(self.state_dict(), saved).refuse("loss scale")
        if isinstance(self.scaler, Dynamic):
            how = {k: v for k, v in saved.items() if k not in ("scale", "_growth_tracker")}
            self.scaler = Dynamic(saved["scale"], **how)
        self.value, self.steps = saved["scale"], saved["_growth_tracker"]


def grow_or_shrink(
    how: Dynamic, value: "Tensor", steps: "Tensor", fits: "Tensor"
) -> "tuple[Tensor, Tensor]":
    """A scale and its steps after one more, as tensors; `fits` is whether gradients were finite."""
    steps = steps + 1
    wide, full = value.to(dtypes.float64), steps == how.growth_interval
    grown = (wide * how.growth_factor).to(dtypes.float32)
    grown = where(logical_and(full, isfinite_(grown)), grown, value)
    shrunk = (wide * how.backoff_factor).to(dtypes.float32)
    return where(fits, grown, shrunk), where(logical_and(fits, ~full), steps, 0)
