"""Repeatable runs: `DeterministicConfig`, and the random streams of an active one."""

import warnings
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..errors import (
    ArgumentError,
    NotDeterministic,
    NotDeterministicWarning,
    StateMismatch,
)
from .counter import Generator
from .origin import here
from .record import record

# Every public function that draws random numbers by itself. Others (`wf.nn.init`) call these.
OPERATIONS = (
    *("rand", "uniform", "randn", "normal", "randint", "bernoulli", "permutation"),
    *("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"),
    "scaled_dot_product_attention",
)


class DeterministicMode(Enum):
    """What happens at an operation that cannot promise to repeat its result.

    STRICT raises, WARN warns once of each; a config takes a member or its lower-case name.

    >>> import weft as wf
    >>> wf.DeterministicMode("warn")
    <DeterministicMode.WARN: 'warn'>
    """

    STRICT = "strict"
    WARN = "warn"
    Strict = STRICT
    Warn = WARN


@dataclass(frozen=True)
class DeterministicConfig:
    """How repeatable a run is to be.

    mode                 a `DeterministicMode` or its lower-case name: "strict" refuses an operation
                         that cannot promise to repeat its result, "warn" warns once of each
    global_seed          of the default random stream; None: it goes on where it is
    operation_seeds      True: each random operation draws from a stream of its own, made of
                         global_seed and its name, and does not depend on how often others draw.
                         A dict of names and seeds gives these operations theirs; the others, or
                         with False all of them, share the default stream
    cudnn_deterministic  whether cuDNN is kept from choosing its algorithms by timing them

    >>> import weft as wf
    >>> wf.DeterministicConfig(operation_seeds={"dropout": 7}).mode
    <DeterministicMode.STRICT: 'strict'>
    """

    mode: DeterministicMode | str = DeterministicMode.STRICT
    global_seed: int | None = 42
    operation_seeds: bool | Mapping[str, int] = True
    cudnn_deterministic: bool = True

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "mode", DeterministicMode(self.mode))
        except ValueError:
            names = ", ".join(repr(m.value) for m in DeterministicMode)
            raise ArgumentError(
                f"DeterministicConfig: mode={self.mode!r}, expected one of {names}"
            ) from None
        if self.global_seed is not None:
            Generator(self.global_seed)  # refuses what is no seed
        if not isinstance(self.operation_seeds, bool):
            object.__setattr__(self, "operation_seeds", _check_seeds(self.operation_seeds))


def _check_seeds(seeds) -> dict[str, int]:
    if not isinstance(seeds, Mapping):
        raise ArgumentError(
            f"DeterministicConfig: operation_seeds of type {type(seeds).__name__}: expected True, "
            'False, or a dict such as {"dropout": 7}'
        )
    for name, seed in seeds.items():
        if name not in OPERATIONS:
            raise ArgumentError(
                f"DeterministicConfig: operation_seeds has {name!r}, which is no random "
                f"operation; expected some of {', '.join(OPERATIONS)}"
            )
        Generator(seed)
    return dict(seeds)


@record(frozen=False, eq=False)
class Determinism:
    """An active config: its random streams, and which warnings were given.

    default  the generator that is used if the config has no seed
    racing   whether several threads draw from the streams, in no fixed order
    """

    config: DeterministicConfig
    default: Generator
    streams: dict[str, Generator] = field(init=False)
    warned: set[str] = field(init=False, default_factory=set)
    racing: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        seed = self.config.global_seed
        self.generator: Generator = self.default if seed is None else Generator(seed)
        self._begin_streams()

    def _begin_streams(self) -> None:
        if self.config.operation_seeds is True:
            self.streams = {name: self.generator.fork(name) for name in OPERATIONS}
        else:
            # By name too: equal seeds of two operations are not to give equal numbers.
            seeds = self.seeded.items()
            self.streams = {name: Generator(seed).fork(name) for name, seed in seeds}

    @property
    def seeded(self) -> Mapping[str, int]:
        """The operations that have seeds of their own."""
        given = self.config.operation_seeds
        return given if isinstance(given, Mapping) else {}

    def seed(self, seed: int) -> None:
        """Begin the default stream anew from a seed, and with it the operations' own."""
        self.generator.seed(seed)
        self._begin_streams()

    def among_threads(self) -> "Determinism":
        """The same config for racing threads: what they draw from its streams may not repeat."""
        other = copy(self)
        other.racing = True
        return other

    def stream(self, op: str) -> Generator:
        """The generator an operation draws from."""
        return self.streams.get(op, self.generator)

    def state_dict(self) -> dict[str, int]:
        """Where all streams are: plain integers."""
        own = {
            f"{op}.{name}": value
            for op, stream in self.streams.items()
            for name, value in stream.state_dict().items()
        }
        return self.generator.state_dict() | own

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue from a `state_dict()`, which must have the same operations' streams."""
        parts: dict[str, dict[str, Any]] = {}
        for path, value in state.items():
            op, _, name = path.rpartition(".")
            parts.setdefault(op, {})[name] = value
        if set(parts) != {"", *self.streams}:
            mine, theirs = sorted(self.streams), sorted(set(parts) - {""})
            raise StateMismatch(
                f"set_state: the state has streams for {theirs}, this run for {mine}: continue it "
                "under wf.deterministic with the operation_seeds that it was saved under"
            )
        for op, part in parts.items():
            self.stream(op).load_state_dict(part)

    def refuse_or_warn(self, op: str, why: str) -> None:
        """Refuse, or warn of, an operation whose result may differ in another run."""
        if self.config.mode is DeterministicMode.STRICT:
            raise NotDeterministic(
                f"{op}: {why}; wf.deterministic(mode='warn') allows it with a warning"
            )
        if op not in self.warned:
            self.warned.add(op)
            warnings.warn(f"{op}: {why} (at {here()})", NotDeterministicWarning, stacklevel=2)
