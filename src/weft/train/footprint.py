"""How much memory the steps and evaluations of a `Trainer` take, before the first of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

from ..arrays.make import zeros
from ..core import dtypes
from ..core.backends import BACKENDS
from ..errors import BudgetExceeded
from ..optim.optimizer import average_bytes, state_bytes
from ..profile.programs import ProgramBytes, program_bytes
from ..profile.stood_in import AVERAGE, STATE, EagerBytes, eager_bytes
from ..transform.modes.backward import no_grad
from . import arguments
from .step import Outcome, Stepper

if TYPE_CHECKING:
    from .trainer import Trainer

BASE, ADAPTERS, GRADIENTS, BATCH = "base", "trained parameters", "gradients", "batch"


def fixed_bytes(trainer: Trainer) -> dict[str, int]:
    """What is there from the first step to the last, by name.

    trainer  whose model need not have values

    >>> import weft as wf
    >>> from weft.train.footprint import fixed_bytes
    >>> model = wf.nn.Linear(4, 2)
    >>> parts = model, wf.optim.SGD(model), wf.nn.MSELoss()
    >>> fixed_bytes(wf.train.Trainer(*parts, ema=0.5, progress=False))
    {'base': 0, 'trained parameters': 40, 'optimizer': 0, 'averages': 40}
    """
    tensors = _tensors(trainer)
    base = arguments.base_of(trainer.optimizer)
    device = arguments.device_of(trainer.model) or "cpu"
    return {
        BASE: _nbytes(tensors[BASE]),
        ADAPTERS: _nbytes(tensors[ADAPTERS]),
        "optimizer": state_bytes(base, device),
        "averages": average_bytes(trainer.ema),
    }


def _tensors(trainer: Trainer) -> dict[str, list[Any]]:
    """The tensors of a model: those that are trained, and the others."""
    parameters = list(trainer.model.parameters())
    trained = [p for p in parameters if p.requires_grad]
    others = [p for p in parameters if not p.requires_grad]
    return {BASE: [*others, *trainer.model.buffers()], ADAPTERS: trained}


def _nbytes(tensors: Iterable[Any]) -> int:
    """The bytes of tensors, each once."""
    once = {id(t): t for t in tensors}.values()
    return sum([BACKENDS[type(t._data)].nbytes(t._data) for t in once])


# -- compiled --------------------------------------------------------------------------------------


def step_programs(trainer: Trainer, batch: Any, parts: int) -> dict[str, ProgramBytes]:
    """The programs of a step on batches like this one, by name, in the order of their first calls.

    trainer  one that compiles its steps; its model need not have values
    batch    tensors where the model is
    parts    how many batches a step has

    Raises `BudgetExceeded`, with the smallest budget of the whole step, where the trainer's is too
    small.
    """
    stepper: Any = trainer._make_stepper()
    found: dict[str, ProgramBytes] = {}
    refused: list[BudgetExceeded] = []
    trained = _tensors(trainer)[ADAPTERS]
    trainer.model.train()
    try:
        for name, part, args in _calls(trainer, batch, parts):
            for p in trained if name != "first part" and parts > 1 else ():
                p.grad = p.detach()
            try:
                with stepper.refusals(part):
                    found[name] = program_bytes(stepper._programs[part], *args)
            except BudgetExceeded as e:
                refused.append(e)
    finally:
        for p in trained:
            p.grad = None
    if refused:
        raise max(refused, key=lambda e: e.smallest or 0)
    return found


def _calls(trainer: Trainer, batch: Any, parts: int) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """The calls of programs in a step: a name, the program, and its arguments."""
    share = 1 / parts
    if parts > 1:
        yield "first part", "part", (batch, share)
    if parts > 2:
        yield "part", "part", (batch, share)
    loss = zeros((), dtype=dtypes.float32, device=arguments.device_of(trainer.model))
    before = [loss] * (parts - 1), [[] for _ in range(parts - 1)], {}
    yield "step", "step", (batch, share, *before)


def evaluation_program(trainer: Trainer, batch: Any) -> ProgramBytes:
    """The program of an evaluation on batches like this one.

    trainer  one that compiles its steps; its model need not have values
    batch    tensors where the model is
    """
    training = trainer.model.training
    trainer.model.eval()
    try:
        with no_grad():
            return program_bytes(trainer._evaluated, batch)  # type: ignore[arg-type]
    finally:
        trainer.model.train(training)


# -- eager -----------------------------------------------------------------------------------------


class _UnreadStepper(Stepper):
    """A step whose values nobody reads: there are none."""

    def _read(self, loss: Any) -> float:
        return 0.0

    def _norm(self, pairs: list[tuple[str, Any]]) -> float:
        limit = self.clip.norm
        return 1.0 if limit is None else 2 * limit + 1  # so that gradients are clipped


def eager_step(trainer: Trainer, batch: Mapping[str, Any], parts: int) -> EagerBytes:
    """What a step takes in eager mode, without a budget.

    trainer  one that does not compile; its model need not have values
    batch    tensors
    parts    how many batches a step has
    """
    whole = trainer._make_stepper()
    stepper = _UnreadStepper(
        whole.model,
        whole.optimizer,
        whole.trained,
        whole.objective,
        whole.precision,
        whole.clip,
        whole.ema,
    )

    def step() -> Outcome:
        return stepper.take([dict(batch)] * parts, None)

    trainer.model.train()
    return measure_eager(trainer, step, batch, 1)


def measure_eager(
    trainer: Trainer, run: Callable[[], Any], batch: Mapping[str, Any], before: int = 0
) -> EagerBytes:
    """What a function of a trainer's model takes in eager mode.

    trainer  whose model need not have values
    run      the function
    batch    further tensors that it reads
    before   so often it runs before it is measured
    """
    tensors = {**_tensors(trainer), BATCH: [*batch.values()]}
    base = arguments.base_of(trainer.optimizer)
    return eager_bytes(run, tensors, base, trainer.ema, before)


def eager_evaluation(trainer: Trainer, batch: Mapping[str, Any]) -> EagerBytes:
    """What an evaluation takes in eager mode.

    trainer  one that does not compile; its model need not have values
    batch    tensors
    """
    training = trainer.model.training
    trainer.model.eval()

    def evaluate() -> Any:
        with no_grad(), nullcontext() if trainer.ema is None else trainer.ema.swapped():
            return trainer._evaluated(dict(batch))

    try:
        return measure_eager(trainer, evaluate, batch)
    finally:
        trainer.model.train(training)


def batch_bytes(batch: Mapping[str, Any]) -> int:
    """The bytes of the arrays of a batch.

    batch  tensors or arrays by name

    >>> import weft as wf
    >>> from weft.train.footprint import batch_bytes
    >>> batch_bytes({"x": wf.ones((3, 2), dtype="float32")})
    24
    """
    return sum([prod(x.shape) * x.dtype.itemsize for x in batch.values()])


__all__ = ["AVERAGE", "STATE", "batch_bytes", "fixed_bytes", "step_programs"]
