"""Every row's derivatives, first to third order, by every way of saving: the bits without it."""

import functools
import operator
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
from tests.table.probe import raw
from tests.table.rows import cases, load

import weft as wf
from weft import errors
from weft.core.call import caller
from weft.core.call_several import several_caller
from weft.core.dtypes import is_inexact
from weft.core.op import Op
from weft.core.value import wrap
from weft.transform.checkpoint import auto, offload, strategies

SOAK = bool(os.environ.get("WEFT_SOAK"))
MOST = 8 if SOAK else 2  # cases of a row
# Rows that are taken to third order: of several results, of one, of every kind of rule.
THIRD = ("attention", "batch_norm", "layer_norm", "matmul", "max_pool", "multiply", "std", "tanh")


def _hooks() -> AbstractContextManager:
    return wf.saved_tensors_hooks(lambda t: ("a copy", t.detach().clone()), lambda kept: kept[1])


def _nested(f, *xs):
    return wf.checkpoint(lambda *ys: wf.checkpoint(f, *[y * 1.0 for y in ys]), *xs)


@dataclass(frozen=True)
class Way:
    """How a function is called, within which blocks, and under which strategy of the tape.

    during  the block of the call
    around  the block of the call and of all sweeps
    """

    call: Callable = lambda f, *xs: f(*xs)
    during: Callable[[], AbstractContextManager] = nullcontext
    around: Callable[[], AbstractContextManager] = nullcontext
    strategy: wf.CheckpointConfig | None = None


PLAIN = Way()
WAYS = {
    "checkpoint": Way(wf.checkpoint),
    "nested checkpoints": Way(_nested),
    "hooks": Way(during=_hooks),
    "hooks around": Way(around=_hooks),
    "host": Way(during=wf.save_on_cpu),
    "disk": Way(during=wf.save_on_disk),
    "disk around": Way(around=wf.save_on_disk),
    "checkpoint in hooks": Way(wf.checkpoint, during=_hooks),
    "checkpoint on disk": Way(wf.checkpoint, around=wf.save_on_disk),
    "selective": Way(strategy=wf.CheckpointConfig("selective", min_compute_cost=1e9)),
    "block": Way(strategy=wf.CheckpointConfig("block", checkpoint_every_n=2)),
    "full": Way(strategy=wf.CheckpointConfig("full", verify=True)),
    "full, on disk": Way(strategy=wf.CheckpointConfig("full", offload="disk")),
    "auto": Way(strategy=wf.CheckpointConfig("auto", memory_budget_mb=4096)),
    "checkpoint under full": Way(wf.checkpoint, strategy=wf.CheckpointConfig("full")),
}


@pytest.fixture(autouse=True)
def everything(monkeypatch):
    """Small values are moved and dropped, too."""
    for module in (strategies, auto, offload):
        monkeypatch.setattr(module, "LEAST", 0)


def _weighted_sum(tensors):
    terms = [(t / (1 + t.detach().abs())).real.sum() for t in tensors]
    return functools.reduce(operator.add, terms) if terms else wf.tensor(0.0)


def _bits(tensors) -> list[bytes | None]:
    return [None if t is None else t.detach().to("cpu").numpy().tobytes() for t in tensors]


def _taped(f, xs, order: int, way: Way = PLAIN) -> list[list[bytes | None]]:
    """The gradients of a weighted sum of f's results, and of those of their sum, …"""
    found = []
    with wf.GradientTape(persistent=True, checkpoint=way.strategy) as tape, way.around():
        for x in xs:
            tape.watch(x)
        with way.during():
            results = way.call(f, *xs)
        total = _weighted_sum([y for y in results if y.requires_grad])
        for _ in range(order - 1):
            made = tape.gradient(total, xs)
            found.append(_bits(made))
            made = [g for g in made if g is not None and g.requires_grad]
            if not made:
                return found
            total = _weighted_sum(made)
        found.append(_bits(tape.gradient(total, xs)))
    return found


def _nested_grad(f, xs, order: int, way: Way = PLAIN) -> list[bytes | None]:
    """The same, as gradients inside of gradients: what is saved is at a level."""
    every = tuple(range(len(xs)))

    def total(*xs):
        with way.during():
            results = way.call(f, *xs)
        return _weighted_sum(results)

    for _ in range(order - 1):
        total = functools.partial(lambda g, *xs: _weighted_sum(g(*xs)), wf.grad(total, every))
    with way.around():
        return _bits(wf.grad(total, every)(*xs))


def _callers(op: Op) -> dict[str, Callable]:
    """What records a row: with all results; with the first one alone; casting its arguments."""
    found = {"": caller(op, public=True)}
    if op.outputs > 1 and op.tracked[:1] == (0,):
        several = several_caller(op, False, 1)
        found["first result"] = lambda *args: several(*args)[0]
    if op.precision == "half":
        found["cast"] = _under_autocast(found[""])
    return found


def _under_autocast(run: Callable) -> Callable:
    def call(*args):
        with wf.amp.autocast("bfloat16"):
            return run(*args)

    return call


def _placed(a, backend: str, narrow: bool):
    if not isinstance(a, np.ndarray):
        return a
    return wrap(raw(a.astype("float32" if narrow and a.dtype == "float64" else a.dtype), backend))


def _moves(a) -> bool:
    return isinstance(a, wf.Tensor) and is_inexact(a.dtype)


def _functions(op: Op, backend: str, most: int) -> Iterator[tuple[str, Callable, list]]:
    """`most` cases of a row that have a derivative: labels, functions and arguments.

    A row before it and one after it make its argument and its result something to drop.
    """
    for how, run in _callers(op).items():
        count = 0
        for case in cases(op):
            args = [_placed(a, backend, how == "cast") for a in case.args]
            places = [i for i, a in enumerate(args) if _moves(a)]
            if not any(args[i].size for i in places):
                continue

            def f(*xs, args=args, places=places, static=case.static, run=run):
                given = list(args)
                for i, x in zip(places, xs, strict=True):
                    given[i] = x * 1.0
                out = run(given, *static) if op.arity is None else run(*given, *static)
                outs = out if isinstance(out, tuple) else (out,)
                return tuple([y * 1.5 for y in outs if is_inexact(y.dtype)])

            yield f"{case.label} {how}", f, [args[i] for i in places]
            count += 1
            if count == most:
                break


ROWS = sorted(n for n, op in load().items() if op.rule is not None and op.sample is not None)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name, backend):
    op, compared = load()[name], 0
    order = 3 if SOAK or name in THIRD else 2
    for label, f, xs in _functions(op, backend, MOST):
        try:
            expected = _taped(f, xs, order)
        except errors.WeftError:
            continue  # a case that is refused
        for way, how in WAYS.items():
            assert _taped(f, xs, order, how) == expected, (label, way)
        compared += 1
    if not compared:
        pytest.skip("no case with a gradient")


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("name", ROWS)
def test_rows_in_nested_gradients(name, backend):
    for label, f, xs in _functions(load()[name], backend, MOST // 2):
        try:
            expected = _nested_grad(f, xs, 2)
        except errors.WeftError:
            continue
        for way in ("nested checkpoints", "hooks"):
            assert _nested_grad(f, xs, 2, WAYS[way]) == expected, (label, way)
