"""Custom operations in a function that is being compiled: inlined, or called as host functions."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ... import errors
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.aval import Aval
from ...core.box import level_of
from ...core.op import Op
from ...core.recording import inexact
from ...core.settings import current, override_settings
from ...core.types import Raw
from ...core.value import TENSORS, as_seen_by_trace, aval_of, wrap
from ..modes.dual import to_tensor
from .application import Application, Batched, Values

# The errors of a function that reads values while it is traced.
LOOKS = (errors.InterchangeError, errors.StagingError)


def inline_forward(app: Application | Batched, operands: list[Raw]) -> list[Any] | None:
    """The results of tracing `forward`; None if it reads values, and so has to be called."""
    reads = getattr(current.get().staging, "reads", None)
    before = None if reads is None else reads.position()
    try:
        with override_settings(grad=False):
            return [as_seen_by_trace(y) for y in app.values([to_tensor(x) for x in operands])]
    except LOOKS:
        if reads is not None:
            reads.return_to(before)  # `forward` runs at each call, and reads then
        return None


def call_forward(
    op: Op, operands: list[Raw], app: Application | Batched, compute: Callable[..., Any]
) -> tuple[Any, ...]:
    """An equation that calls `forward`; a trial run on some numbers gives the results' shapes."""
    staging, level = _program(operands)
    tried = [_some(aval_of(x)) for x in operands]
    name = app.root.functions.name
    try:
        with override_settings(staging=None, levels=(), grad=False):
            compute(tried)
    except errors.WeftError:
        raise
    except Exception as e:
        raise errors.StagingError(
            f"{name}: its forward leaves wf's functions, so that a compiled function has to call "
            f"it, and to learn the shapes of its results tried it on arrays of 0.5, on which it "
            f"failed: {type(e).__name__}: {e}; compute with wf's functions in it"
        ) from e
    inputs = tuple([staging.index_of(x) for x in operands])
    indices = staging.emit(op, inputs, (app,), app.avals)
    return tuple([staging.value(level, i) for i in indices])


def _some(a: Aval) -> np.ndarray:
    return np.full(a.shape, 0.5 if dtypes.is_inexact(a.dtype) else 1, a.dtype)


def _program(operands: list):
    """The program that is being traced, and its level."""
    box = max([x for x in operands if getattr(x, "staged", False)], key=level_of)
    return box.staging, box.level


def call_rule(
    app: Application | Batched, kind: str, moved: Values, inputs: Values, outputs: Values
) -> Values:
    """An equation that calls a rule (`jvp` or `vjp`) of a custom operation."""
    given = [moved, inputs, outputs]
    flat = [x for xs in given for x in xs]
    known = [_is_known(x) for x in flat]
    operands = [as_seen_by_trace(x)._data for x, here in zip(flat, known, strict=True) if here]
    staging, level = _program(operands)
    # A cotangent for each input in floating point, or a tangent for each such output.
    wanted = inputs if kind == "vjp" else outputs
    found = [k for k, x in enumerate(wanted) if x is not None and inexact_like(x)]
    avals = tuple([_aval(wanted[k]) for k in found])
    plan = _RuleCall(
        app, kind, tuple(map(len, given)), tuple(known), tuple(found), avals, tuple(flat)
    )
    op = _row(app.root.functions.name, kind, len(operands), len(found))
    indices = staging.emit(op, tuple([staging.index_of(x) for x in operands]), (plan,), avals)
    made: Values = [None] * len(wanted)
    for k, i in zip(found, indices, strict=True):
        made[k] = wrap(staging.value(level, i))
    return made


def _is_known(x) -> bool:
    return type(x) in TENSORS


def inexact_like(x: Tensor | Aval) -> bool:
    """Whether a tensor or an aval is in floating point."""
    return dtypes.is_inexact(x.dtype) if isinstance(x, Aval) else inexact(x)


def _aval(x) -> Aval:
    return x if isinstance(x, Aval) else aval_of(x)


class _RuleCall:
    """How the arguments of a rule are assembled from operands, and which results are wanted."""

    def __init__(self, app, kind, lengths, known, found, avals, flat):
        self.app, self.kind, self.lengths, self.known = app, kind, lengths, known
        self.found, self.avals = found, avals
        self.rest = [None if here else x for x, here in zip(flat, known, strict=True)]

    def __call__(self, raws: tuple) -> list[np.ndarray]:
        values = iter([wrap(r) for r in raws])
        flat = [next(values) if k else x for k, x in zip(self.known, self.rest, strict=True)]
        a, b, _ = self.lengths
        with override_settings(grad=False):
            out = getattr(self.app, self.kind)(flat[:a], flat[a : a + b], flat[a + b :])
        return [self._result(out[k], a) for k, a in zip(self.found, self.avals, strict=True)]

    @staticmethod
    def _result(value, a: Aval) -> np.ndarray:
        if value is None:
            return np.zeros(a.shape, a.dtype)
        return np.asarray(to_tensor(value)._data).astype(a.dtype, copy=False)

    def __repr__(self) -> str:
        return f"<{self.kind}>"


@lru_cache(maxsize=None)
def _row(name: str, kind: str, arity: int, outputs: int) -> Op:
    """The row of calls of a rule; `plan` is its static parameter."""

    def compute(xp, *args):
        made = args[-1](args[:-1])
        return made[0] if outputs == 1 else tuple(made)

    def shape(*args):
        return args[-1].avals[0] if outputs == 1 else args[-1].avals

    return Op(f"{name}.{kind}", compute, shape, None, arity, outputs=outputs, foreign=True)
