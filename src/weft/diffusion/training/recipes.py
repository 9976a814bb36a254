"""Optimizers and schedules by name, with the options that each of them has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, get_type_hints

import weft as wf
from weft.io.toml_lines import Path as Place
from weft.io.typed_toml import (
    Misfits,
    Problems,
    misfits,
    nearest_name,
    read_table,
    read_value,
    unknown_key,
)
from weft.optim import schedulers

if TYPE_CHECKING:
    from weft.optim.optimizer import Optimizer


def _optimizers() -> dict[str, tuple[Any, Any]]:
    """Optimizers and their configs by name; those that compute the loss themselves are left out."""
    found = {}
    for name in wf.optim.__all__:
        if name.endswith("Config") and name != "LBFGSConfig":
            kind = name.removesuffix("Config")
            found[kind.lower()] = getattr(wf.optim, kind), getattr(wf.optim, name)
    return found


OPTIMIZERS = _optimizers()


def _named(data: dict[str, Any], place: Place, problems: Problems, known: Any, default: str) -> str:
    """The name in a table, if it is one that is known."""
    name = data.get("name", default)
    if not isinstance(name, str) or name.lower() not in known:
        problems.add(
            (*place, "name"), f"{name!r:.60} is not known; {nearest_name(str(name), known)}"
        )
        return ""
    return name.lower()


@dataclass(frozen=True)
class OptimizerRecipe:
    """[optimizer]: a name, in lower case, and the fields of that optimizer's config.

    name    "adamw", "adamw8bit", "adafactor", "lion", "muon", "prodigy", …
    config  the optimizer's config

    >>> from weft.diffusion.training.recipes import OptimizerRecipe
    >>> OptimizerRecipe().config.lr
    0.0001
    """

    name: str = "adamw"
    config: Any = field(default_factory=lambda: wf.optim.AdamWConfig(lr=1e-4))

    @classmethod
    def from_toml(cls, data: dict[str, Any], place: Place, problems: Problems) -> Any:
        """The recipe of a table."""
        name = _named(data, place, problems, OPTIMIZERS, "adamw")
        if not name:
            return None
        rest = {key: value for key, value in data.items() if key != "name"}
        if name == "adafactor" and "lr" in rest and rest.get("relative_step") is True:
            text = "true beside lr, which is the largest step by itself; leave one of them out"
            problems.add((*place, "relative_step"), text)
        config = read_table(OPTIMIZERS[name][1], rest, place, problems)
        return None if config is None else cls(name, config)

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            text = f"{self.name!r:.60} is not known; {nearest_name(str(self.name), OPTIMIZERS)}"
            raise Misfits([(("name",), text)])
        kind = OPTIMIZERS[self.name][1]
        if not isinstance(self.config, kind):
            what = f"{self.config!r:.60}, expected the {kind.__name__} of {self.name!r}"
            raise Misfits([(("config",), what)])

    @property
    def averages(self) -> bool:
        """Whether the optimizer averages the parameters by itself."""
        return self.name == "schedulefreeadamw"

    @property
    def lr(self) -> float | None:
        """The learning rate; None if the optimizer finds its own."""
        return self.config.lr

    def make(self, parameters: Any) -> Optimizer:
        """The optimizer of these parameters."""
        return OPTIMIZERS[self.name][0](parameters, self.config)


def _constant(lr: float, warmup_steps: int = 0) -> Any:
    return schedulers.LinearScheduler(0.0, lr, warmup_steps)


def _linear(lr: float, end_lr: float = 0.0, warmup_steps: int = 0, total_steps: int = 1) -> Any:
    return schedulers.PolynomialScheduler(lr, end_lr, total_steps, 1.0, warmup_steps)


@dataclass(frozen=True)
class _Constant:
    warmup_steps: int = 0


@dataclass(frozen=True)
class _Linear:
    end_lr: float = 0.0
    warmup_steps: int = 0
    total_steps: int = 1


# By name: what makes the schedule of a rate and options, and whose fields the options are.
SCHEDULES: dict[str, tuple[Any, type]] = {
    "constant": (_constant, _Constant),
    "linear": (_linear, _Linear),
    "cosine": (schedulers.CosineScheduler, schedulers.CosineScheduler),
    "polynomial": (schedulers.PolynomialScheduler, schedulers.PolynomialScheduler),
    "exponential": (schedulers.ExponentialScheduler, schedulers.ExponentialScheduler),
    "step": (schedulers.StepScheduler, schedulers.StepScheduler),
    "one_cycle": (schedulers.OneCycleScheduler, schedulers.OneCycleScheduler),
    "wsd": (schedulers.WSDScheduler, schedulers.WSDScheduler),
}
RATES = ("initial_lr", "max_lr", "peak_lr")


@dataclass(frozen=True)
class ScheduleRecipe:
    """[schedule]: a name, and options; the optimizer's rate is the highest.

    name     "constant", "linear", "cosine", "polynomial", "exponential", "step", "one_cycle", "wsd"
    options  fields of the schedule; `total_steps` is the run's length if it is not given

    >>> from weft.diffusion.training.recipes import ScheduleRecipe
    >>> ScheduleRecipe("cosine", {"warmup_steps": 2}).make(1.0, 4).get_lr(2)
    1.0
    """

    name: str = "constant"
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_toml(cls, data: dict[str, Any], place: Place, problems: Problems) -> Any:
        """The recipe of a table."""
        name = _named(data, place, problems, SCHEDULES, "constant")
        if not name:
            return None
        before = len(problems.found)
        kind = SCHEDULES[name][1]
        hints = get_type_hints(kind)
        known = {f.name: f for f in fields(kind) if f.name not in RATES}
        options = {}
        for key, value in data.items():
            if key in known:
                options[key] = read_value(hints[key], value, (*place, key), problems)
            elif key != "name":
                problems.add((*place, key), unknown_key(key, known))
        for key, f in known.items():
            if f.default is MISSING and key not in options and key != "total_steps":
                problems.add(place, f"{key} is missing, which {name!r} needs")
        return None if len(problems.found) > before else cls(name, options)

    def __post_init__(self) -> None:
        if self.name not in SCHEDULES:
            text = f"{self.name!r:.60} is not known; {nearest_name(str(self.name), SCHEDULES)}"
            raise Misfits([(("name",), text)])
        names = {f.name: f for f in fields(self.kind) if f.name not in RATES}
        wrong: list[tuple[Place, str]] = []
        wrong += [((n,), unknown_key(n, names)) for n in self.options if n not in names]
        hints = get_type_hints(self.kind)
        for name in self.options.keys() & names:
            wrong += misfits(hints[name], self.options[name], (name,))
        if wrong:
            raise Misfits(wrong)

    @property
    def kind(self) -> type:
        """The dataclass whose fields the options are."""
        return SCHEDULES[self.name][1]

    @property
    def follows_length(self) -> bool:
        """Whether the run's length is one of the schedule's numbers."""
        has = "total_steps" in {f.name for f in fields(self.kind)}
        return has and "total_steps" not in self.options

    def make(self, lr: float, steps: int) -> Any:
        """The schedule of a run of so many steps.

        lr     the highest rate
        steps  of the run
        """
        build, _ = SCHEDULES[self.name]
        options = dict(self.options)
        if self.follows_length:
            options["total_steps"] = steps
        return build(lr, **options)
