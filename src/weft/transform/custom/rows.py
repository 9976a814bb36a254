"""The rows of custom operations: their values, and both modes, one of which may be derived."""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any

from ... import errors
from ...arrays.make import asarray, zeros
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.aval import Aval
from ...core.backends import BACKENDS, PYTHON_SCALARS
from ...core.box import BOXED, Box, level_of
from ...core.dispatch import apply
from ...core.exact import exact
from ...core.node import Leaf, Node
from ...core.op import Jvp, Op
from ...core.record import record
from ...core.recording import inexact
from ...core.settings import current, override_settings, traced
from ...core.value import HIGHER, TENSORS, aval_of, wrap
from ...ops.batching import spread
from ..modes.batch import Batch
from ..modes.dual import to_tensor, unwrap_if_plain
from .application import Application, Batched, Values, aval, differentiable
from .linear_map import LinearMap, describe_disagreement, describe_nonlinearity, transpose_map
from .signature import CustomFunctions
from .staged_calls import LOOKS, call_forward, call_rule, inline_forward


@record
class ResultForm:
    """The number of results, and which of them carry a derivative."""

    outputs: int = 1
    tracked: tuple[int, ...] = (0,)


class OtherForm(errors.ArgumentError):
    """`forward` returned another number of results than before, or others in floating point."""

    def __init__(self, name: str, form: ResultForm):
        self.form = form
        super().__init__(f"{name}: its forward now returns {form.outputs} results of other kinds")


@lru_cache(maxsize=None)
def row(name: str, arity: int, form: ResultForm, reads: tuple[bool, bool] | None) -> Op:
    """The row of all custom operations with a name, a number of inputs and a form.

    reads  whether the pull-back reads the inputs and the output; None: no derivative

    Rows are never freed: there is one for each name in the user's code, not for each call.
    """
    return Op(
        name=name,
        compute=lambda xp, *args: _compute(form, args[:-1], args[-1]),
        shape=lambda *args: _infer_avals(form, args[-1]),
        rule=None if reads is None else _rule(form, *reads),
        arity=arity,
        static=True,
        recast=True,
        outputs=form.outputs,
        tracked=form.tracked,
        batch=lambda call, size, mapped, args, static: call(
            *args, Batched(static[0], size, tuple(mapped))
        ),
        foreign=True,
        stage=lambda operands, static: _stage(name, arity, form, reads, operands, static[0]),
    )


def _stage(name: str, arity: int, form: ResultForm, reads, operands: list, app):
    """Trace the operation: inline `forward`, or append an equation that calls it."""
    # A body that is differentiated by replay needs the equation, which has the rules.
    again = any([x.staging.replayed for x in operands if getattr(x, "staged", False)])
    outs = None if again else inline_forward(app, operands)
    if outs is None:
        op = row(name, arity, form, reads)
        made = call_forward(op, operands, app, lambda raws: _compute(form, raws, app))
    else:
        found = ResultForm(len(outs), tuple(k for k, r in enumerate(outs) if inexact(r)))
        if found != form:
            raise OtherForm(name, found)
        made = tuple([_constant(app.root, y, staged=True) for y in outs])
    return made[0] if form.outputs == 1 else made


def _infer_avals(form: ResultForm, app):
    """The avals of the results, which are known only after the user's function has run."""
    if not app.avals:
        return None
    return app.avals[0] if form.outputs == 1 else app.avals


def _rule(form: ResultForm, reads_inputs: bool, reads_output: bool) -> Jvp:
    """The rule of a row, whose pull-back may read its inputs, its output, or neither."""
    # The zero cotangent of an unused result needs its shape.
    several = form.outputs > 1
    return Jvp(
        push=lambda tangents, y, *args: _push(form, tangents, y, args),
        pull=lambda g, y, *args: _pull(form, g, y, args),
        reads=(reads_output or several, reads_inputs),
    )


def _compute(form: ResultForm, raws: tuple, app):
    root = app.root
    memo, root.memo = root.memo, None
    if memo is not None and all(a is b for a, b in zip(memo[0], raws, strict=True)):
        outs = memo[1]
    else:
        inputs = [wrap(BACKENDS[type(r)].frozen_view(r)) for r in raws]
        with _up_to(0):
            outs = [_constant(root, y) for y in app.values(inputs)]
    found = ResultForm(len(outs), tuple(k for k, r in enumerate(outs) if inexact(r)))
    if found != form:
        root.memo = raws, outs
        raise OtherForm(root.functions.name, found)
    app.avals = tuple(aval_of(r) for r in outs)
    return outs[0] if form.outputs == 1 else tuple(outs)


def _constant(root: Application, y: Tensor, staged: bool = False):
    """The raw value of a result, in which no tensor but the inputs may have a derivative."""
    above = y.__class__ in BOXED and not (staged and y._data.staged)
    if above or y._node.__class__ in (Leaf, Node):
        raise errors.NotDifferentiable(
            f"{root.functions.name}: its forward reads a tensor that is being differentiated (or "
            "mapped) and is no input: what comes from it would have no gradient; make it an "
            "input, or use its .detach()"
        )
    return traced(y)._data


def _push(form: ResultForm, tangents: tuple, y, args: tuple):
    *inputs, app = args
    outputs = [y] if form.outputs == 1 else list(y)
    ts = [None if t is None else to_tensor(t) for t in tangents]
    found = _move_derivative(
        app, form, "jvp", ts, list(map(to_tensor, inputs)), list(map(to_tensor, outputs))
    )
    found = _as_given(found, (*tangents, *outputs, *inputs))
    return found[0] if form.outputs == 1 else tuple(found)


def _pull(form: ResultForm, g, y, args: tuple) -> list:
    *saved, app = args
    gs = [g] if form.outputs == 1 else g
    outputs = [y] if form.outputs == 1 else list(y)
    device = aval_of(next(c for c in gs if c is not None)).device
    xs = [_saved_tensor(v, device) for v in saved]
    # An output that was not saved has its cotangent's shape; of several, all are saved.
    ys = [aval_of(c) if v is None else to_tensor(v) for v, c in zip(outputs, gs, strict=True)]
    cs = [
        to_tensor(c) if c is not None else _zero(ys[k]) if k in form.tracked else None
        for k, c in enumerate(gs)
    ]
    found = _move_derivative(app, form, "vjp", cs, xs, ys)
    given = (*gs, *outputs, *saved)
    if any([v.__class__ in HIGHER for v in given]):
        return _as_given(found, given)
    # In a plain pass, what a rule reads besides its arguments is a constant.
    return [None if c is None else traced(to_tensor(c))._data for c in found]


def _as_given(found: list, given: tuple) -> list:
    """The tensors `found`, or their raw values if there was no tensor among `given`."""
    if any([type(v) in TENSORS for v in given]):
        return [None if t is None else to_tensor(t) for t in found]
    return [None if t is None else unwrap_if_plain(to_tensor(t)) for t in found]


def _saved_tensor(value, device):
    """A saved value as a tensor; its aval, if it was not saved."""
    if isinstance(value, Leaf | Node):
        return Aval(tuple(value.shape), dtypes.canonical(value.dtype), device)
    return None if value is None else to_tensor(value)


def _zero(y) -> Tensor:
    a = aval(y)
    return zeros(a.shape, dtype=a.dtype, device=a.device)


def _move_derivative(
    app, form: ResultForm, kind: str, moved: list, inputs: list, outputs: list
) -> list:
    """Carry (co)tangents by the rule of this kind, or by the transpose of the other one."""
    met = [v for v in (*moved, *inputs, *outputs) if type(v) in TENSORS]
    top = max(met, key=level_of)
    if isinstance(top._data, Batch) and app.root.functions.batch == "loop":
        if not any([v._node is not None for v in met if level_of(v) == level_of(top)]):
            return _one_by_one(app, form, kind, top._data, (moved, inputs, outputs))
    with _up_to(level_of(top)):
        if getattr(app.root.functions, kind) is not None:
            return _call_rule(app, kind, moved, inputs, outputs, top)
        derived = _derived_push if kind == "jvp" else _derived_pull
        return derived(app, form, moved, inputs, outputs, met)


def _up_to(tag: float):
    """A block without the transformations that started after `tag`, which its values predate."""
    running = current.get().levels
    levels = tuple([level for level in running if level.tag <= tag])
    return nullcontext() if levels == running else override_settings(levels=levels)


def _one_by_one(app, form: ResultForm, kind: str, batch: Batch, values: tuple) -> list:
    """The rule on one element of the batch after the other."""

    def opened(v):
        if type(v) not in TENSORS:
            return v.like(shape=(batch.size, *v.shape)) if isinstance(v, Aval) else v
        raw = v._data
        at_level = isinstance(raw, Batch) and raw.level == batch.level
        if at_level and raw.mapped:
            return to_tensor(raw.data)
        return to_tensor(spread(raw.data if at_level else unwrap_if_plain(v), batch.size))

    moved, inputs, outputs = ([opened(v) for v in vs] for vs in values)
    whole = Batched(app, batch.size, (True,) * len(inputs))
    found = _move_derivative(whole, form, kind, moved, inputs, outputs)
    return [
        None if r is None else wrap(Batch(batch.level, unwrap_if_plain(to_tensor(r)), batch.size))
        for r in found
    ]


def _call_rule(app, kind: str, moved: list, inputs: list, outputs: list, top: Tensor) -> list:
    """Call the user's rule; explains its error if it cannot read values of a transformation."""
    try:
        return getattr(app, kind)(moved, inputs, outputs)
    except LOOKS as e:
        if isinstance(top._data, Box) and top._data.staged:
            return call_rule(app, kind, moved, inputs, outputs)
        if not isinstance(e, errors.InterchangeError):
            raise
        values = (*moved, *inputs, *outputs)
        plain = not any([type(v) in TENSORS and v.requires_grad for v in values])
        if level_of(top) == 0 and plain:
            raise
        raise _close_over(app.root, kind, isinstance(top._data, Batch), e) from e


def _close_over(root: Application, kind: str, in_batch: bool, e: errors.InterchangeError):
    told = f"{root.functions.name}: its {getattr(root.functions, kind)} leaves wf's functions"
    if in_batch:
        return errors.BatchingError(
            f"{told}, which it cannot inside vmap ({e.message}); give the operation batch='loop' "
            "(one element after the other), or take the derivative outside of vmap"
        )
    return errors.NotDifferentiable(
        f"{told}, so that its own derivative, which a higher order needs, is not known; compute it "
        "with wf's functions, or with another custom operation"
    )


def pull_map(
    app: Application | Batched,
    tracked: Sequence[int],
    moving: Sequence[int],
    inputs: Values,
    outputs: Values,
) -> LinearMap:
    """The linear map from the cotangents of inexact outputs to those of inexact inputs."""

    def pulled(us):
        found = app.vjp(_place_values(us, tracked, len(outputs)), inputs, outputs)
        return [found[i] for i in moving]

    return pulled


def push_map(
    app: Application | Batched,
    tracked: Sequence[int],
    moving: Sequence[int],
    inputs: Values,
    outputs: Values,
) -> LinearMap:
    """The linear map from the tangents of inexact inputs to those of inexact outputs."""

    def pushed(ts):
        found = app.jvp(_place_values(ts, moving, len(inputs)), inputs, outputs)
        return [found[k] for k in tracked]

    return pushed


def _place_values(values: Values, positions: Iterable[int], length: int) -> Values:
    """A list with the values at their positions, None elsewhere."""
    full: Values = [None] * length
    for i, v in zip(positions, values, strict=True):
        full[i] = v
    return full


def _derived_push(app, form: ResultForm, tangents, inputs, outputs, met) -> list:
    """The push-forward as the transpose of the pull-back."""
    moving = [i for i, t in enumerate(tangents) if t is not None]
    pulled = pull_map(app, form.tracked, moving, inputs, outputs)
    domain = [aval(outputs[k]) for k in form.tracked]
    moved = _through(app, "vjp", pulled, domain, [tangents[i] for i in moving], met)
    return _place_values(moved, form.tracked, len(outputs))


def _derived_pull(app, form: ResultForm, cotangents, inputs, outputs, met) -> list:
    """The pull-back as the transpose of the push-forward."""
    moving = [i for i, x in enumerate(inputs) if x is not None and differentiable(x)]
    pushed = push_map(app, form.tracked, moving, inputs, outputs)
    domain = [aval(inputs[i]) for i in moving]
    pulled = _through(app, "jvp", pushed, domain, [cotangents[k] for k in form.tracked], met)
    return _place_values(pulled, moving, len(inputs))


def _through(app, given: str, linear: LinearMap, domain: list, cotangents: list, met: list) -> list:
    """The transpose of a rule, whose linearity is tested once for each kind of values."""
    root = app.root
    key = (
        given,
        app.depth,
        tuple(domain),
        tuple(_kind(c) for c in cotangents),
        _fixed_keywords(root),
    )
    try:
        if key not in root.verified:
            _verify(root, given, linear, domain, met)
            root.verified.add(key)
        return transpose_map(linear, domain, cotangents, met)
    except errors.InterchangeError as e:
        raise _underivable(root, given, f"leaves wf's functions ({e.message})") from e


def _kind(c):
    return None if c is None else aval(c)


def _fixed_keywords(root: Application) -> tuple:
    """The keywords of a call as a key: they may decide whether a rule is linear."""
    plain = (*PYTHON_SCALARS, str)
    given = sorted(root.params.items())
    return tuple((k, exact(v) if _is_made_of(plain, v) else type(v)) for k, v in given)


def _is_made_of(plain: tuple[type, ...], v) -> bool:
    return all([_is_made_of(plain, x) for x in v]) if type(v) is tuple else type(v) in plain


def _verify(root: Application, given: str, linear: LinearMap, domain: list, met: list) -> None:
    why = describe_nonlinearity(linear, domain)
    if why is not None:
        moved = "cotangent" if given == "vjp" else "tangents"
        raise _underivable(root, given, f"is not linear in its {moved}: {why}")
    why = describe_disagreement(linear, lambda w: transpose_map(linear, domain, w, met), domain)
    if why is not None:
        raise _underivable(root, given, f"cuts its own derivative (detach, no_grad): {why}")


def _underivable(root: Application, given: str, why: str) -> errors.NotDifferentiable:
    missing = "forward mode" if given == "vjp" else "reverse mode"
    rule = root.functions.vjp if given == "vjp" else root.functions.jvp
    other = root.functions.spelling("jvp" if given == "vjp" else "vjp")
    return errors.NotDifferentiable(
        f"{root.functions.name}: {missing} cannot be derived from its {rule}, which {why}; give "
        f"the operation a rule of its own for it ({other})"
    )


def apply_custom(
    functions: CustomFunctions,
    state: dict[str, Any],
    inputs: tuple[Any, ...],
    params: dict[str, Any],
) -> Any:
    """Apply the operation, recorded as one node; `state` is the cache that its calls share."""
    tensors = _inputs(functions, inputs)
    app = Application(functions, _constants(functions, params), state.setdefault("verified", set()))
    form = state.get("form", ResultForm())
    try:
        out = apply(row(functions.name, len(tensors), form, functions.reads), tensors, (app,))
    except OtherForm as other:
        form = state["form"] = other.form
        out = None
    if out is None:
        out = apply(row(functions.name, len(tensors), form, functions.reads), tensors, (app,))
    return (out,) if app.several and form.outputs == 1 else out


def _constants(functions: CustomFunctions, params: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a call, which are constants to it."""
    for k, v in params.items():
        if type(v) in TENSORS and (v.requires_grad or v.__class__ in BOXED):
            raise errors.ArgumentError(
                f"{functions.name}: {k}= is a tensor that is being differentiated (or mapped); "
                "pass it by position: keywords are constants"
            )
    return params


def _inputs(functions: CustomFunctions, inputs: tuple) -> list[Tensor]:
    if not inputs:
        raise errors.ArgumentError(f"{functions.name}: called without an input")
    near = next((x for x in inputs if type(x) in TENSORS), None)
    out = []
    for i, x in enumerate(inputs):
        if type(x) in TENSORS:
            out.append(x)
        elif type(x) in PYTHON_SCALARS and near is not None:
            own = dtypes.with_scalar(near.dtype, x)
            out.append(asarray(x, dtype=own, device=near.device))
        else:
            out.append(_adopt(functions, i, x))
    return out


def _adopt(functions: CustomFunctions, i: int, x) -> Tensor:
    try:
        return asarray(x)
    except errors.DTypeError:
        raise errors.DTypeError(
            f"{functions.name}: input {i} is a {type(x).__name__}, expected a tensor or a number; "
            "other values go by keyword"
        ) from None
