"""Mixed precision on a tape: `AmpConfig`, what is computed in which dtype and how losses scale."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .. import errors
from ..core import dtypes
from ..core.autocast import FUNCTIONS, HALF, SINGLE, Autocast
from ..core.kinds import demand_iterable
from ..nn import functional  # noqa: F401  (enters its functions in FUNCTIONS)
from ..ops.table import whole
from .loss_scale import Dynamic, LossScale, LossScaler

if TYPE_CHECKING:
    from ..arrays.types import DTypeLike


class PrecisionMode(Enum):
    """What matrix products and their like are computed in.

    FLOAT32, FLOAT16, BFLOAT16; a config takes a member, its lower-case name or a dtype.

    >>> import weft as wf
    >>> wf.AmpConfig(precision_mode="bfloat16").precision_mode
    <PrecisionMode.BFLOAT16: 'bfloat16'>
    """

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    Float32 = FLOAT32
    Float16 = FLOAT16
    BFloat16 = BFLOAT16

    @classmethod
    def read(cls, what: str, given: "PrecisionMode | DTypeLike") -> "PrecisionMode":
        """A member, from its lower-case name or from a dtype."""
        if isinstance(given, cls):
            return given
        try:
            return cls(given if isinstance(given, str) else dtypes.canonical(given).name)
        except (ValueError, errors.DTypeError):
            names = ", ".join(repr(mode.value) for mode in cls)
            raise errors.ArgumentError(f"{what}: {given!r}, expected one of {names}") from None

    def autocast(self, columns: tuple[tuple[str, str], ...] = ()) -> Autocast | None:
        """The autocast setting of this mode; None in single precision."""
        if self is PrecisionMode.FLOAT32:
            return None
        return Autocast(dtypes.canonical(self.value), columns)


_CONVOLUTIONS = ("convolution", "convolution_biased")
_NORM = ("standardise", "scale_shift", "native_norm")
# The rows that public functions of other names are made of.
MADE_OF: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _CONVOLUTIONS),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), ("convolution_transposed",)
    ),
    "linear": ("linear", "matmul"),
    "layer_norm": ("layer_norm", *_NORM),
    **dict.fromkeys(("group_norm", "instance_norm"), _NORM),
    "rms_norm": ("root_mean_square", "native_rms_norm"),
    "scaled_dot_product_attention": ("attention",),
    "lstm": ("lstm_cell",),
    "gru": ("gru_cell",),
}


def rows_named(what: str, names: Sequence[str]) -> list[str]:
    """The rows, and functions that autocast treats as rows, that public names stand for."""
    demand_iterable(what, names, "a list of names")
    known: dict[str, tuple[str, ...]] = {
        name: (op.name,) for op in whole().values() for name in (*op.spell, op.name)
    }
    known |= {name: (name,) for name in FUNCTIONS} | MADE_OF
    found: list[str] = []
    for name in names:
        if name not in known:
            near = ", ".join(map(repr, get_close_matches(str(name), known, 3, 0.5)))
            raise errors.ArgumentError(
                f"{what}: there is no operation {name!r}" + (f"; is it {near}?" if near else "")
            )
        found += known[name]
    return found


@dataclass(frozen=True)
class AmpConfig:
    """Mixed precision for a `GradientTape`.

    enabled         whether anything of this is done
    precision_mode  a `PrecisionMode` or its lower-case name: what the operations that gain from
                    it are computed in while the tape's block runs
    loss_scaler     `Dynamic(…)`, `Static(…)` or None: what `gradient()` multiplies its targets
                    by, and divides the gradients by in the end
    autocast_ops    operations to be computed in that mode, whatever the table says of them
    keep_fp32_ops   operations to be computed in float32, whatever the table says of them

    Operations are named as in the table or in `wf` and `wf.nn.functional`; a function that is made
    of several rows stands for all of them.

    All tapes with one config share its `scale`, so that a loop can make a new tape for every step.

    >>> import weft as wf
    >>> config = wf.AmpConfig(precision_mode="bfloat16", loss_scaler=None, keep_fp32_ops=["einsum"])
    >>> x = wf.ones((2, 2))
    >>> with wf.GradientTape(amp=config) as tape:
    ...     (x @ x).dtype.name, wf.einsum("ij,jk->ik", x, x).dtype.name
    ('bfloat16', 'float32')
    """

    enabled: bool = True
    precision_mode: PrecisionMode | str = PrecisionMode.FLOAT16
    loss_scaler: Any = field(default_factory=Dynamic)
    autocast_ops: Sequence[str] = ()
    keep_fp32_ops: Sequence[str] = ()

    def __post_init__(self) -> None:
        mode = PrecisionMode.read("AmpConfig: precision_mode", self.precision_mode)
        object.__setattr__(self, "precision_mode", mode)
        if self.loss_scaler is not None and not isinstance(self.loss_scaler, LossScaler):
            raise errors.ArgumentError(
                f"AmpConfig: loss_scaler={self.loss_scaler!r:.40}, expected wf.amp.Dynamic(…), "
                "wf.amp.Static(…) or None"
            )
        half = rows_named("AmpConfig: autocast_ops", self.autocast_ops)
        single = rows_named("AmpConfig: keep_fp32_ops", self.keep_fp32_ops)
        if both := sorted(set(half) & set(single)):
            raise errors.ArgumentError(
                f"AmpConfig: {', '.join(both)} named in autocast_ops and in keep_fp32_ops; leave "
                "it in one of them"
            )
        object.__setattr__(self, "autocast_ops", tuple(self.autocast_ops))
        object.__setattr__(self, "keep_fp32_ops", tuple(self.keep_fp32_ops))

    @cached_property
    def autocast(self) -> Autocast | None:
        """The autocast setting in the tape's block."""
        if not self.enabled:
            return None
        columns = [(name, HALF) for name in rows_named("autocast_ops", self.autocast_ops)]
        columns += [(name, SINGLE) for name in rows_named("keep_fp32_ops", self.keep_fp32_ops)]
        mode: Any = self.precision_mode  # a name was replaced by its mode
        return mode.autocast(tuple(columns))

    @cached_property
    def scale(self) -> LossScale | None:
        """The running loss scale of all tapes with this config."""
        scaler = self.loss_scaler if self.enabled else None
        return None if scaler is None else LossScale(scaler)
