"""The optimizers' settings: frozen, checked, and readable in PyTorch's spelling."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, ClassVar, Literal

from .. import errors
from ..arrays.keywords import unknown_keyword

# PyTorch's name of a field, or of a tuple of fields.
Spelling = Mapping[str, str | tuple[str, ...]]

BETAS: Spelling = {"betas": ("beta1", "beta2")}


def _not_negative(value) -> bool:
    return value >= 0


def _fraction(value) -> bool:
    return 0 <= value < 1


# What each number must be; a field that is not listed is checked by its config.
_RANGES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "lr": ("≥ 0", _not_negative),
    "lr_scale": ("≥ 0", _not_negative),
    "beta1": ("in [0, 1)", _fraction),
    "beta2": ("in [0, 1)", _fraction),
    "alpha": ("in [0, 1)", _fraction),
    "eps": ("≥ 0", _not_negative),
    "eps2": ("≥ 0", _not_negative),
    "weight_decay": ("≥ 0", _not_negative),
    "momentum": ("≥ 0", _not_negative),
    "momentum_decay": ("≥ 0", _not_negative),
    "lr_decay": ("≥ 0", _not_negative),
    "dampening": ("", lambda value: True),
    "initial_accumulator_value": ("≥ 0", _not_negative),
    "clip_threshold": ("> 0", lambda value: value > 0),
    "decay_rate": ("≤ 0", lambda value: value <= 0),
    "tolerance_grad": ("≥ 0", _not_negative),
    "tolerance_change": ("≥ 0", _not_negative),
    "max_iter": ("≥ 1", lambda value: value >= 1),
    "max_eval": ("≥ 1", lambda value: value >= 1),
    "history_size": ("≥ 1", lambda value: value >= 1),
    "ns_steps": ("from 1 to 99", lambda value: 1 <= value < 100),
    "block_size": ("from 16 to 4096", lambda value: 16 <= value <= 4096),
    "beta3": ("in [0, 1)", _fraction),
    "d0": ("> 0", lambda value: value > 0),
    "d_coef": ("> 0", lambda value: value > 0),
    "slice_p": ("≥ 1", lambda value: value >= 1),
    "warmup_steps": ("≥ 0", _not_negative),
    "r": ("", lambda value: True),
    "weight_lr_power": ("≥ 0", _not_negative),
}
_WHOLE = {"max_iter", "max_eval", "history_size", "ns_steps", "block_size"}
_WHOLE |= {"slice_p", "warmup_steps"}


def checked_number(what: str, name: str, value: Any) -> Any:
    """A finite number in the field's range; a tensor's only element counts as one."""
    if not isinstance(value, int | float) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise errors.DTypeError(f"{what}: {name} is {value!r:.40}, expected a number")
    text, fits = _RANGES[name]
    if (name in _WHOLE and value != int(value)) or not isfinite(value) or not fits(value):
        kind = "an integer" if name in _WHOLE else "a finite number"
        raise errors.ArgumentError(f"{what}: {name}={value}, expected {kind} {text}".rstrip())
    return int(value) if name in _WHOLE else value


def check_choice(what: str, name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    """Raise unless the value is one of the choices."""
    if value not in choices:
        names = ", ".join(repr(c) for c in choices)
        raise errors.ArgumentError(f"{what}: {name}={value!r:.40}, expected one of {names}")


@dataclass(frozen=True)
class Config:
    """What all settings share: checking, and PyTorch's spelling of the fields."""

    SPELLED: ClassVar[Spelling] = {}
    # Where PyTorch's default differs from the config's.
    KEYWORD_DEFAULTS: ClassVar[dict[str, Any]] = {}
    OPTIONAL: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        what = type(self).__name__
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _RANGES and not (value is None and field.name in self.OPTIONAL):
                value = checked_number(what, field.name, value)
                object.__setattr__(self, field.name, value)
        self.check(what)

    def check(self, what: str) -> None:
        """Raise if the fields do not go together."""

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options in either spelling as fields of this config."""
        found: dict[str, Any] = {}
        for name, value in options.items():
            target = cls.SPELLED.get(name, name)
            several = isinstance(target, tuple) and isinstance(value, tuple | list)
            if several and len(value) != len(target):
                raise errors.ArgumentError(
                    f"{cls.__name__}: {name}={value!r:.60}, expected {len(target)} values"
                )
            if isinstance(target, tuple):
                pairs = zip(target, value, strict=True) if several else [(name, value)]
            else:
                pairs = [(target, value)]
            found.update(pairs)
        return found

    @classmethod
    def keywords(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """`read` of keyword arguments; unknown ones are refused."""
        found, names = cls.read(options), [f.name for f in fields(cls)]
        for name in found:
            if name not in names:
                function = cls.__name__.removesuffix("Config")
                raise unknown_keyword(function, name, sorted({*names, *cls.SPELLED}))
        return found


@dataclass(frozen=True)
class SGDConfig(Config):
    """The settings of `SGD`.

    lr            the learning rate
    momentum      how much of the former steps is kept
    weight_decay  L2 penalty: weight_decay·p is added to the gradient
    nesterov      whether the step looks one momentum ahead
    dampening     the share of a gradient that does not enter the momentum
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.SGDConfig(momentum=0.9).lr
    0.001
    """

    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    dampening: float = 0.0
    maximize: bool = False

    def check(self, what: str) -> None:
        if self.nesterov and (self.momentum == 0 or self.dampening != 0):
            raise errors.ArgumentError(
                f"{what}: nesterov=True with momentum={self.momentum} and "
                f"dampening={self.dampening}, expected momentum > 0 and dampening=0"
            )


@dataclass(frozen=True)
class AdamConfig(Config):
    """The settings of `Adam`.

    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  L2 penalty: weight_decay·p is added to the gradient
    amsgrad       whether the largest v so far takes the place of v
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.AdamConfig(lr=0.01).beta2
    0.999
    """

    SPELLED: ClassVar[Spelling] = BETAS
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    amsgrad: bool = False
    maximize: bool = False


@dataclass(frozen=True)
class AdamWConfig(Config):
    """The settings of `AdamW`.

    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  decoupled: p ← p·(1 − lr·weight_decay) before the step
    correct_bias  whether m and v are divided by 1 − β₁ᵗ and 1 − β₂ᵗ, as they begin with 0
    amsgrad       whether the largest v so far takes the place of v
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.AdamWConfig().weight_decay
    0.01
    """

    SPELLED: ClassVar[Spelling] = BETAS
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    correct_bias: bool = True
    amsgrad: bool = False
    maximize: bool = False


@dataclass(frozen=True)
class Adam8bitConfig(Config):
    """The settings of `Adam8bit`.

    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  L2 penalty: weight_decay·p is added to the gradient
    block_size    how many elements share a scale
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.Adam8bitConfig().block_size
    256
    """

    SPELLED: ClassVar[Spelling] = BETAS
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    block_size: int = 256
    maximize: bool = False


@dataclass(frozen=True)
class AdamW8bitConfig(Adam8bitConfig):
    """The settings of `AdamW8bit`.

    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  decoupled: p ← p·(1 − lr·weight_decay) before the step
    block_size    how many elements share a scale
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.AdamW8bitConfig().weight_decay
    0.01
    """

    weight_decay: float = 1e-2


@dataclass(frozen=True)
class LionConfig(Config):
    """The settings of `Lion`.

    lr            the learning rate
    beta1         how much of m enters the step
    beta2         how much of the mean m of gradients is kept
    weight_decay  decoupled: p ← p·(1 − lr·weight_decay) before the step
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.LionConfig().beta2
    0.99
    """

    SPELLED: ClassVar[Spelling] = BETAS
    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    maximize: bool = False


@dataclass(frozen=True)
class RMSpropConfig(Config):
    """The settings of `RMSprop`.

    lr            the learning rate
    alpha         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  L2 penalty: weight_decay·p is added to the gradient
    momentum      how much of the former steps is kept
    centered      whether v is the variance: the squared mean gradient is taken off
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.RMSpropConfig().alpha
    0.99
    """

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    maximize: bool = False


@dataclass(frozen=True)
class AdagradConfig(Config):
    """The settings of `Adagrad`.

    lr                         the learning rate
    lr_decay                   the rate of step t is lr/(1 + (t − 1)·lr_decay)
    weight_decay               L2 penalty: weight_decay·p is added to the gradient
    initial_accumulator_value  what the sum of squares begins with
    eps                        what is added to the root, so that nothing is divided by 0
    maximize                   whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.AdagradConfig().lr
    0.01
    """

    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    maximize: bool = False


@dataclass(frozen=True)
class NAdamConfig(Config):
    """The settings of `NAdam`.

    lr                      the learning rate
    beta1                   how much of the mean m of gradients is kept
    beta2                   how much of the mean v of squared gradients is kept
    eps                     what is added to the root, so that nothing is divided by 0
    weight_decay            L2 penalty, unless it is decoupled
    momentum_decay          how fast the momentum comes up to beta1
    decoupled_weight_decay  whether the decay acts on the parameter, not through the gradient
    maximize                whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.NAdamConfig().momentum_decay
    0.004
    """

    SPELLED: ClassVar[Spelling] = BETAS
    lr: float = 2e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False
    maximize: bool = False


@dataclass(frozen=True)
class RAdamConfig(Config):
    """The settings of `RAdam`.

    lr                      the learning rate
    beta1                   how much of the mean m of gradients is kept
    beta2                   how much of the mean v of squared gradients is kept
    eps                     what is added to the root, so that nothing is divided by 0
    weight_decay            L2 penalty, unless it is decoupled
    decoupled_weight_decay  whether the decay acts on the parameter, not through the gradient
    maximize                whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.RAdamConfig().beta2
    0.999
    """

    SPELLED: ClassVar[Spelling] = BETAS
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled_weight_decay: bool = False
    maximize: bool = False


@dataclass(frozen=True)
class LAMBConfig(Config):
    """The settings of `LAMB`.

    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  how much of p is added to the direction r
    correct_bias  whether m and v are divided by 1 − β₁ᵗ and 1 − β₂ᵗ, as they begin with 0
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.LAMBConfig().eps
    1e-06
    """

    SPELLED: ClassVar[Spelling] = BETAS
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 1e-2
    correct_bias: bool = True
    maximize: bool = False


@dataclass(frozen=True)
class AdafactorConfig(Config):
    """The settings of `Adafactor`.

    lr               the largest relative step (None: 10⁻², or 10⁻⁶·t with `warmup_init`); the
                     step itself where `relative_step` is off
    eps              added to squared gradients; None: a floor of the dtype's precision instead
    clip_threshold   the largest root mean square of an update
    decay_rate       β₂ at step t is 1 − t^decay_rate
    weight_decay     decoupled: p ← p·(1 − rate·weight_decay) before the step
    scale_parameter  whether steps are relative to the parameter's root mean square
    relative_step    whether steps are at most t^−½
    eps2             the smallest scale of a parameter
    beta1            momentum of the updates; None: none
    warmup_init      whether the first steps are small
    maximize         whether the loss is to grow

    >>> import weft as wf
    >>> wf.optim.AdafactorConfig().decay_rate
    -0.8
    """

    SPELLED: ClassVar[Spelling] = {
        "eps": ("eps", "eps2"),
        "d": "clip_threshold",
        "beta2_decay": "decay_rate",
    }
    KEYWORD_DEFAULTS: ClassVar[dict[str, Any]] = {"lr": 1e-2, "eps": None}
    OPTIONAL: ClassVar[tuple[str, ...]] = ("lr", "eps", "beta1")
    lr: float | None = None
    eps: float | None = 1e-30
    clip_threshold: float = 1.0
    decay_rate: float = -0.8
    weight_decay: float = 0.0
    scale_parameter: bool = True
    relative_step: bool = True
    eps2: float = 1e-3
    beta1: float | None = None
    warmup_init: bool = False
    maximize: bool = False

    def check(self, what: str) -> None:
        if not self.relative_step and self.lr is None:
            raise errors.ArgumentError(f"{what}: relative_step=False needs a learning rate lr")
        if self.warmup_init and (not self.relative_step or self.lr is not None):
            raise errors.ArgumentError(
                f"{what}: warmup_init=True sets the step itself, expected relative_step=True and "
                "lr=None"
            )


@dataclass(frozen=True)
class MuonConfig(Config):
    """The settings of `Muon`.

    lr               the learning rate
    weight_decay     decoupled: p ← p·(1 − lr·weight_decay) before the step
    momentum         how much of the former steps is kept
    nesterov         whether the step looks one momentum ahead
    ns_coefficients  a, b and c of the iteration X ← a·X + (b·A + c·A²)·X, A = X·Xᵀ
    eps              the least that a norm counts as
    ns_steps         how many iterations
    adjust_lr_fn     what the rate is multiplied by: None or "original": √max(1, rows/columns);
                     "match_rms_adamw": 0.2·√max(rows, columns)

    >>> import weft as wf
    >>> wf.optim.MuonConfig().ns_steps
    5
    """

    lr: float = 1e-3
    weight_decay: float = 0.1
    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315)
    eps: float = 1e-7
    ns_steps: int = 5
    adjust_lr_fn: Literal["original", "match_rms_adamw"] | None = None

    def check(self, what: str) -> None:
        check_choice(what, "adjust_lr_fn", self.adjust_lr_fn, (None, "original", "match_rms_adamw"))
        if not isinstance(self.ns_coefficients, tuple | list) or len(self.ns_coefficients) != 3:
            raise errors.ArgumentError(
                f"{what}: ns_coefficients={self.ns_coefficients!r:.60}, expected three numbers"
            )
        object.__setattr__(self, "ns_coefficients", tuple(map(float, self.ns_coefficients)))


@dataclass(frozen=True)
class LBFGSConfig(Config):
    """The settings of `LBFGS`.

    lr                the length of a step, where there is no line search
    max_iter          how many steps a call of `step` makes at most
    max_eval          how often it calls the function at most; None: 1.25·max_iter
    tolerance_grad    it ends when no element of the gradient is larger
    tolerance_change  it ends when steps or losses change by less
    history_size      how many changes are remembered
    line_search_fn    None, or "strong_wolfe"

    >>> import weft as wf
    >>> wf.optim.LBFGSConfig().history_size
    100
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ("max_eval",)
    lr: float = 1.0
    max_iter: int = 20
    max_eval: int | None = None
    tolerance_grad: float = 1e-7
    tolerance_change: float = 1e-9
    history_size: int = 100
    line_search_fn: Literal["strong_wolfe"] | None = None

    def check(self, what: str) -> None:
        check_choice(what, "line_search_fn", self.line_search_fn, (None, "strong_wolfe"))
