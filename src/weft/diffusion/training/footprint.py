"""What a run takes of its device's memory at most, and for what: plans and phantoms, no values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING, Any

import weft as wf
from weft.profile.valueless import device_of_plan, planned_on
from weft.train import footprint
from weft.train.compiled import KEPT

from .build import make_trainer, run_length
from .pictures import Sampling, denoise
from .throwaway import BatchKind, BatchMaker, make_model

if TYPE_CHECKING:
    from weft.profile.programs import ProgramBytes

    from ..config import FluxConfig
    from .config import TrainConfig
    from .kinds import RunKinds

Progress = Callable[[str, int, int], None]
# What cuBLAS takes for itself in bytes, on each of the two streams that programs run on.
_LIBRARY = 32 << 20


@dataclass(frozen=True)
class RunBytes:
    """The most memory of a run, and what it is for.

    parts     bytes by name; together they are the peak
    kinds     the peak of a step on each kind of batch, if there were no other
    largest   the kind with the largest of these
    smallest  the smallest budget, in bytes, where the one that was given is refused
    """

    parts: dict[str, int]
    kinds: dict[BatchKind, int]
    largest: BatchKind
    smallest: int | None = None

    @property
    def peak(self) -> int:
        """All of it."""
        return sum(self.parts.values())


class Footprint:
    """Predicts what a run takes: its model is there without values.

    config  the configuration
    sizes   of the model
    data    the batches of the run
    """

    def __init__(self, config: TrainConfig, sizes: FluxConfig, data: RunKinds):
        self.config, self.sizes, self.data = config, sizes, data
        self.device = config.train.device
        if self.device != "cpu" and not config.train.compile:
            raise wf.errors.ConfigError(
                f"train.compile = false on {self.device!r}: what steps of eager mode take there is "
                "not known before they run; estimate them with compile = true, which is also how "
                "they take less"
            )
        self.at = device_of_plan(self.device)
        model = make_model(config, sizes, self.at)
        self.maker = BatchMaker(
            data.channels, data.factor, config.encoders.tokens, sizes, data.masks[0], self.at
        )
        self.reserve = reserved_bytes(config, sizes, data)
        steps = run_length(config, data.batches)
        self.trainer: Any = make_trainer(config, model, steps, reserve=self.reserve)

    def find(self, progress: Progress | None = None) -> RunBytes:
        """The most memory, over all kinds of batches, validation and previews."""
        with planned_on(self.device):
            fixed = footprint.fixed_bytes(self.trainer) | {AHEAD: self.reserve}
            return (self._compiled if self.config.train.compile else self._eager)(fixed, progress)

    # -- compiled ------------------------------------------------------------------------------

    def _compiled(self, fixed: dict[str, int], progress: Progress | None) -> RunBytes:
        data = self.data
        steps = run_length(self.config, data.batches)
        programs, own = _Programs(fixed, self.config, steps), dict[BatchKind, int]()
        work = [*data.trained]
        smallest: list[int] = []
        for n, kind in enumerate(work):
            if progress is not None:
                progress("plan", n, len(work))
            try:
                found, batch = self._programs(kind)
            except wf.errors.BudgetExceeded as e:
                smallest.append((e.smallest or 0) + self.reserve)
                own[kind] = smallest[-1]
                continue
            own[kind] = programs.add(found, batch)
        if progress is not None:
            progress("plan", len(work), len(work))
        largest = max(own, key=lambda k: (own[k], k))
        for kind in data.validated:
            batch = self._validation_batch(kind)
            made = footprint.evaluation_program(self.trainer, batch)
            programs.add_evaluation(made, footprint.batch_bytes(batch))
        if smallest:
            least = {**fixed, "what a step computes, at least": max(own.values()) - _sum(fixed)}
            parts = max(least, programs.parts(), key=_sum)
            parts = self._with_previews(self._with_saving(parts, fixed), fixed)
            return RunBytes(_ordered(parts), own, largest, max(max(smallest), _sum(parts)))
        parts = self._with_previews(self._with_saving(programs.parts(), fixed), fixed)
        if self.device != "cpu":
            parts["libraries' own"] = 2 * _LIBRARY
        return RunBytes(_ordered(parts), own, largest)

    def _programs(self, kind: BatchKind) -> tuple[dict[str, ProgramBytes], int]:
        """The programs of a step on batches of a kind, and the bytes of these batches."""
        accumulate = self.config.train.accumulate
        batch = self.maker.make(kind)
        found: dict[str, ProgramBytes] = {}
        for parts in {min(accumulate, self.data.batches), self.data.batches % accumulate} - {0}:
            programs = footprint.step_programs(self.trainer, batch, parts)
            found |= {n if "part" in n else f"{n} of {parts}": p for n, p in programs.items()}
        return found, footprint.batch_bytes(batch)

    def _validation_batch(self, kind: BatchKind) -> dict[str, Any]:
        return replace(self.maker, masks=self.data.masks[1]).make_validation(kind)

    # -- eager ---------------------------------------------------------------------------------

    def _eager(self, fixed: dict[str, int], progress: Progress | None) -> RunBytes:
        accumulate = min(self.config.train.accumulate, self.data.batches)
        found: dict[BatchKind, dict[str, int]] = {}
        work = [*self.data.trained]
        for n, kind in enumerate(work):
            if progress is not None:
                progress("plan", n, len(work))
            batch = self.maker.make(kind)
            whole = footprint.eager_step(self.trainer, batch, accumulate)
            found[kind] = _split(fixed, whole.peak, whole.given, accumulate)
        if progress is not None:
            progress("plan", len(work), len(work))
        own = {kind: _sum(parts) for kind, parts in found.items()}
        largest = max(own, key=lambda k: (own[k], k))
        parts = found[largest]
        for kind in self.data.validated:
            made = footprint.eager_evaluation(self.trainer, self._validation_batch(kind))
            parts = max(parts, _split(fixed, made.peak, made.given, 1), key=_sum)
        parts = max(parts, self._with_previews(self._with_saving(fixed, fixed), fixed), key=_sum)
        budget = self.trainer.checkpoint
        if budget is not None and PREVIEWS not in parts and _sum(parts) > budget.budget:
            rest = max(budget.budget - _sum(fixed) + self.reserve, 0)
            parts = {**fixed, "what the budget leaves for steps": rest}
        return RunBytes(_ordered(parts), own, largest)

    # -- previews ------------------------------------------------------------------------------

    def _with_previews(self, parts: dict[str, int], fixed: dict[str, int]) -> dict[str, int]:
        """The parts while a preview is drawn, if it takes more; it runs in eager mode."""
        section, factor = self.config.preview, self.data.factor
        if not section.prompts or self.device != "cpu":
            return parts
        model = self.trainer.model
        kind = BatchKind(1, section.width // factor * factor, section.height // factor * factor)
        batch = self.maker.make(kind)
        size = kind.width // factor, kind.height // factor
        how = Sampling(min(section.steps, 2), section.guidance, section.seed, *size)

        def draw() -> Any:
            text, pooled = batch["prompt_embeds"], batch["pooled"]
            with wf.no_grad(), self.trainer.averaged():
                return denoise(model, text, pooled, batch["latents"], how)

        training = model.training
        model.eval()
        try:
            made = footprint.measure_eager(self.trainer, draw, batch)
        finally:
            model.train(training)
        given, pixels = sum(made.given.values()), kind.width * kind.height
        sampled = made.peak - given + footprint.batch_bytes(batch)
        # Parameters are kept beside those that a file would have; programs give their memory back.
        latents = batch["latents"].size * 4 * len(section.prompts)
        pictures = max(sampled, pixels * _DECODED) + latents + fixed[footprint.ADAPTERS]
        return max(parts, self._staying(parts, fixed) | {PREVIEWS: pictures}, key=_sum)

    def _staying(self, parts: dict[str, int], fixed: dict[str, int]) -> dict[str, int]:
        """What is there between steps; programs give their memory back where there is a budget."""
        if self.trainer.checkpoint is not None or PROGRAMS not in parts:
            return fixed
        return fixed | {PROGRAMS: parts[PROGRAMS]}

    def _with_saving(self, parts: dict[str, int], fixed: dict[str, int]) -> dict[str, int]:
        """The parts while a checkpoint or an adapter file is written, if it takes more."""
        adapters = fixed[footprint.ADAPTERS]
        if self.device != "cpu":  # the copies are the host's
            return parts
        copies = _KOHYA_COPIES if "kohya" in self.config.output.layouts else _PEFT_COPIES
        saving = max(fixed["optimizer"], int(copies * adapters)) + fixed["averages"]
        return max(parts, self._staying(parts, fixed) | {SAVING: saving}, key=_sum)


def reserved_bytes(config: TrainConfig, sizes: FluxConfig, data: RunKinds) -> int:
    """What a run takes beside its steps all the time: batches that are prepared, mostly.

    config  the configuration
    sizes   of the model
    data    the batches of the run

    On a GPU these are the host's, and do not count.
    """
    if config.train.device != "cpu":
        return 0
    maker = BatchMaker(
        data.channels, data.factor, config.encoders.tokens, sizes, data.masks[0], "cpu"
    )
    ahead = _PREFETCH * config.train.workers + 1
    return _REST + ahead * max([maker.nbytes(kind) for kind in data.trained])


PREVIEWS, SAVING, AHEAD = "previews", "what saving takes", "batches ahead"
_REST = 1 << 18  # the history, plots, texts
_PREFETCH = 2  # batches that a worker is ahead
# What writing an adapter file takes, as multiples of the adapters.
_PEFT_COPIES, _KOHYA_COPIES = 1.1, 3.0
_DECODED = 3 * (3 * 4 + 3 * 8)  # bytes of a pixel: float32 from the encoder, float64 until rounded
PROGRAMS = "values of programs in between"


class _Programs:
    """Adds up programs: which of them are there at once, and the most at a call.

    fixed    what is there all the time
    config   the configuration
    steps    of the run: it sees no more kinds of batches

    With a budget one arena is there. Without one, on the CPU, so is one that is larger than `KEPT`,
    beside all that are not; on a GPU each program keeps its own.
    """

    def __init__(self, fixed: dict[str, int], config: TrainConfig, steps: int):
        self._fixed, self._accumulate = fixed, config.train.accumulate
        self._kinds = steps * config.train.accumulate
        limited = config.train.memory_budget_mb is not None
        self._limited, self._shared = limited, limited or config.train.device == "cpu"
        self._kept = 0 if limited else KEPT
        self._steps: list[tuple[int, dict[str, int]]] = []  # an arena, and what a call adds
        self._evaluations: list[tuple[int, dict[str, int]]] = []

    def add(self, programs: dict[str, ProgramBytes], batch: int) -> int:
        """Add those of steps; returns the peak of a step if there were no other kind."""
        found = [(p.arena, self._call(name, p, batch)) for name, p in programs.items()]
        self._steps += found
        return _sum(self._fixed) + _sum(self._most(found, []))

    def _call(self, name: str, p: ProgramBytes, batch: int) -> dict[str, int]:
        found = {footprint.BATCH: batch * self._accumulate} | _beside(p)
        if self._accumulate > 1 and name != "first part":  # whose results they are
            found[footprint.GRADIENTS] = self._fixed[footprint.ADAPTERS]
        return found

    def add_evaluation(self, p: ProgramBytes, batch: int) -> None:
        """Add that of an evaluation, during which parameters are kept beside their averages."""
        call = {footprint.BATCH: batch} | _beside(p)
        self._evaluations.append((p.arena, call | {"parameters kept": self._fixed["averages"]}))

    def _most(self, steps: list[Any], evaluations: list[Any]) -> dict[str, int]:
        """Arenas stay; with a budget those of one step, or of one evaluation, are there."""
        most = self._kinds * (1 if self._accumulate == 1 else 4)  # programs that run
        arenas = sorted([a for a, _ in steps], reverse=True)[:most]
        evaluated = sum([a for a, _ in evaluations])
        beside = 0 if self._limited else evaluated
        found = [{PROGRAMS: self._there(arenas, a) + beside} | call for a, call in steps]
        last = 0 if self._limited else self._there(arenas, max(arenas, default=0))
        found += [{PROGRAMS: last + evaluated} | call for _, call in evaluations]
        return max(found, key=_sum, default={})

    def _there(self, arenas: list[int], own: int) -> int:
        """The arenas of steps that are there while a program runs, its own among them."""
        if not self._shared:
            return sum(arenas)
        kept = sum([a for a in arenas if a <= self._kept])
        return kept + (own if own > self._kept else 0)

    def parts(self) -> dict[str, int]:
        """The parts of the peak."""
        return self._fixed | self._most(self._steps, self._evaluations)


def _beside(p: ProgramBytes) -> dict[str, int]:
    """What a call of a program takes beside its arena."""
    return {"calls of libraries": p.library, "results": p.results, "constants": p.constants}


def _split(
    fixed: dict[str, int], peak: int, given: dict[str, int], accumulate: int
) -> dict[str, int]:
    """The parts of what an eager step takes."""
    batch = given.get(footprint.BATCH, 0) * accumulate
    rest = peak - sum(given.values())
    return {**fixed, footprint.BATCH: batch, "what operations make": rest}


def _sum(parts: dict[str, int]) -> int:
    return sum(parts.values())


def _ordered(parts: dict[str, int]) -> dict[str, int]:
    """The parts that there are, the largest first."""
    return dict(sorted([(n, b) for n, b in parts.items() if b], key=lambda p: -p[1]))


def budget_text(nbytes: int) -> str:
    """A budget in MiB that is enough for so many bytes."""
    return f"{ceil(nbytes / (1 << 20) * 100) / 100:g}"
