"""Control flow on tensors: `scan`, `while_loop`, `cond` and `map`."""

from collections.abc import Callable
from contextlib import nullcontext
from math import isqrt, prod
from typing import Any

from numpy import ndarray

from ... import errors
from ...arrays.make import asarray, zeros
from ...core import dtypes
from ...core.aval import Aval, integer_in
from ...core.backends import BACKENDS, PYTHON_SCALARS
from ...core.box import BOXES, ground
from ...core.call import caller
from ...core.node import ids
from ...core.settings import current
from ...core.value import TENSORS, as_seen_by_trace
from ...graph.guard import GUARD
from ...ops.elementwise import where
from ...ops.logic import logical_and, not_equal
from ...ops.structural import concat, narrow, stack, unstack
from ..checkpoint.lineage import saved_since
from ..checkpoint.replayed import checkpoint
from ..modes import trees
from ..modes.batch import Batch
from ..modes.vmap import vmap
from . import staged_cond, staged_scan, staged_while
from .forms import LoopBody, TreeForm, changed_form, describe_function
from .staged_cond import where_taken

# By default a scan of at least this many steps that would save at least this many bytes is divided
# into segments. A step that runs twice takes 1.4 times as long with carries of 128×512 numbers, 1.8
# times with 64×64 and 2.4 times with a few: too much for a few megabytes. With few steps, the
# carries take as much memory as the rest.
MANY, LARGE = 16, 1 << 26
_FEW = 8  # up to this many pieces are cut one by one, not by halves


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    segments: int | str | None = None,
) -> tuple[Any, Any]:
    """carry, y = f(carry, x) for each x of xs in turn: the last carry, and the ys stacked.

    f         (carry, x) -> (carry, y)
    init      the first carry: tensors, alone or in containers; f must return one like it
    xs        tensors, alone or in containers, whose slices along the first axis are the x
    length    the number of steps; needed where xs is None, when x is None too
    reverse   go from the last x to the first; the ys are in the order of xs all the same
    segments  the number of segments that the steps are divided into. Of each only the first carry
              is saved; the backward pass runs the segment again. None: √T segments if T steps
              would save 64 MiB or more, so that memory grows as √T; "none": everything is saved.
              The gradients are the same, bit for bit

    >>> import weft as wf
    >>> total, sums = wf.scan(lambda c, x: (c + x, c + x), wf.tensor(0), wf.tensor([1, 2, 3]))
    >>> total.item(), sums.tolist()
    (6, [1, 3, 6])
    """
    return _scan("scan", f, init, xs, length, reverse, segments)


def _scan(what: str, f: Callable[..., Any], init, xs, length, reverse: bool, segments):
    rebuild_carry: Any
    carry, rebuild_carry = trees.tensors(what, init)
    elements, rebuild = trees.tensors(what, xs)
    steps = _length(what, elements, length)
    body = LoopBody(what, f, TreeForm(carry, init), rebuild_carry, rebuild)
    if current.get().staging is not None:
        carry, ys = _stage_loop(body, carry, elements, steps, reverse, segments)
    elif steps:
        carry, ys = _run_in_segments(body, carry, elements, steps, reverse, segments)
        ys = [stack(list(y), 0) for y in zip(*ys, strict=True)]
    else:  # a batch of none has the results' shapes
        run: Callable[..., Any] = vmap(lambda _, *x: body(carry, x)[1])
        ys = run(zeros(0), *elements)
    return rebuild_carry(carry), body.results(ys)


def _length(what: str, elements: list, length: int | None) -> int:
    """The number of steps; all xs and `length` must agree on it."""
    if length is not None and integer_in(what, "length", length) < 0:
        raise errors.ArgumentError(f"{what}: length={length}, expected 0 or more steps")
    if any(not x.shape for x in elements):
        raise errors.AxisError(
            f"{what}: xs holds a 0-d tensor; every tensor in xs needs a leading axis to loop over"
        )
    lengths: set[int] = {x.shape[0] for x in elements} | (set() if length is None else {length})
    if len(lengths) != 1:
        shapes = ", ".join(str(x.shape) for x in elements)
        raise errors.ShapeError(
            f"{what}: length={length} and xs of shapes {shapes or '(none)'}: expected one number "
            "of steps, given by one of them or by all alike"
        )
    return lengths.pop()


def _run_in_segments(body: LoopBody, carry: list, xs: list, steps: int, reverse: bool, segments):
    """All steps, in checkpointed segments if the caller says so, or if they would save much."""
    if segments is None and steps >= MANY and current.get().grad:
        return _divide_if_large(body, carry, xs, steps, reverse)
    if segments is None or segments == "none":
        return _run_segment(body, carry, xs, steps, reverse)
    segments = min(_check_segments(segments), steps)
    ends = [(k + 1) * steps // segments for k in range(segments)]
    cut = [_pieces(x, ends) for x in xs]
    ys: list = [None] * segments
    for k in _order(segments, reverse):
        count = ends[k] - (ends[k - 1] if k else 0)
        part = [pieces[k] for pieces in cut]
        carry, ys[k] = checkpoint(_run_segment, body, carry, part, count, reverse)
    return carry, [y for part in ys for y in part]


def _divide_if_large(body: LoopBody, carry: list, xs: list, steps: int, reverse: bool):
    """The steps, divided into segments if all would save much, estimated from the third step.

    What the second step saved too is shared by all steps; the first may begin with constants.
    """
    ends = [steps - 3, steps - 2, steps - 1, steps] if reverse else [1, 2, 3, steps]
    cut = [_pieces(x, ends) for x in xs]
    *probes, rest = ([pieces[k] for pieces in cut] for k in _order(4, reverse))
    ys, before, anew = [], {}, 0
    for part in probes:
        start = next(ids)
        carry, y = _run_segment(body, carry, part, 1, reverse)
        saved = saved_since((carry, y), start)
        anew = sum(size for owner, size in saved.items() if owner not in before)
        ys, before = ys + y, saved
    others = isqrt(steps) if anew * steps >= LARGE else "none"
    carry, more = _run_in_segments(body, carry, rest, steps - 3, reverse, others)
    return carry, more + ys[::-1] if reverse else ys + more


def _run_segment(body: LoopBody, carry: list, xs: list, steps: int, reverse: bool):
    """Steps one after another: the last carry, and every step's results in the order of xs."""
    cut = [_elements(x, steps) for x in xs]
    ys: list = [None] * steps
    for k in _order(steps, reverse):
        carry, ys[k] = body(carry, [elements[k] for elements in cut])
    return carry, ys


def _stage_loop(body: LoopBody, carry: list, xs: list, steps: int, reverse: bool, segments):
    """All steps as one equation of the program that is being traced.

    With segments it is a loop of loops: the backward pass keeps the carries that the steps of the
    outer loop begin with, and each of those is a segment.
    """
    count = _segments(carry, steps, segments)
    if count == 1:
        return staged_scan.scan(body, carry, xs, steps, reverse)
    size, rest = divmod(steps, count)
    ends = [count * size, steps]
    whole, left = zip(*[_pieces(x, ends) for x in xs], strict=True) if xs else ((), ())
    folded = [x.reshape(count, size, *x.shape[1:]) for x in whole]

    def stretch(carry: list, xs: list) -> tuple[list, list]:
        return staged_scan.scan(body, carry, xs, size, reverse)

    def beginning(carry: list) -> tuple[list, list]:
        carry, ys = staged_scan.scan(stretch, carry, folded, count, reverse)
        return carry, [y.reshape(count * size, *y.shape[2:]) for y in ys]

    if not rest:
        return beginning(carry)
    if reverse:
        carry, last = staged_scan.scan(body, carry, list(left), rest, reverse)
        carry, first = beginning(carry)
    else:
        carry, first = beginning(carry)
        carry, last = staged_scan.scan(body, carry, list(left), rest, reverse)
    return carry, [concat([a, b], 0) for a, b in zip(first, last, strict=True)]


def _segments(carry: list, steps: int, segments) -> int:
    """The number of segments of a compiled loop."""
    if segments == "none" or not steps:
        return 1
    if segments is None:
        saved = steps * sum([prod(c.shape) * c.dtype.itemsize for c in carry])
        return isqrt(steps) if steps >= MANY and saved >= LARGE else 1
    return min(_check_segments(segments), steps)


def _check_segments(segments) -> int:
    if not isinstance(segments, int) or segments < 1:
        raise errors.ArgumentError(
            f"scan: segments={segments!r}, expected a positive integer, 'none' or None"
        )
    return segments


def _order(n: int, reverse: bool) -> range:
    return range(n - 1, -1, -1) if reverse else range(n)


def _pieces(x, ends: list[int]) -> list:
    """x cut at these positions, by halves.

    The cotangent of a piece is padded to the size of what it was cut from: n pieces cut from the
    whole would take n times its size; by halves it is log n times.
    """
    if len(ends) <= _FEW:
        return [narrow(x, 0, a, b) for a, b in zip([0, *ends], ends, strict=False)]
    half = len(ends) // 2
    middle = ends[half - 1]
    left, right = narrow(x, 0, 0, middle), narrow(x, 0, middle, ends[-1])
    return _pieces(left, ends[:half]) + _pieces(right, [e - middle for e in ends[half:]])


def _elements(x, n: int) -> list:
    blocks = _pieces(x, [*range(_FEW, n, _FEW), n])
    return [e for block in blocks for e in unstack(block, 0)]


def map_(f: Callable[[Any], Any], xs: Any, batch_size: int | None = None) -> Any:
    """f of each slice of xs along the first axis, one after the other, the results stacked.

    f           a function of one slice
    xs          a tensor, or a tree of tensors with first axes of one length
    batch_size  so many at a time, by `vmap`: quicker, and they need memory together

    >>> import weft as wf
    >>> wf.map(lambda x: x**2, wf.tensor([1.0, 2.0, 3.0])).tolist()
    [1.0, 4.0, 9.0]
    """
    elements, rebuild = trees.tensors("map", xs)
    n = _length("map", elements, None)
    if batch_size is None:
        return _scan("map", lambda carry, x: (carry, f(x)), (), xs, n, False, "none")[1]
    if not isinstance(batch_size, int) or batch_size < 1:
        raise errors.ArgumentError(f"map: batch_size={batch_size!r}, expected a positive integer")
    ends = [*range(batch_size, n, batch_size), n]
    parts = zip(*[_pieces(x, ends) for x in elements], strict=True)
    results = [trees.flatten(vmap(f)(rebuild(list(part)))) for part in parts]
    joined = [concat(list(y), 0) for y in zip(*[ys for ys, _ in results], strict=True)]
    return results[0][1](joined)


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Any,
    max_steps: int | None = None,
) -> Any:
    """carry = body(carry) as long as cond(carry) holds; returns the last carry.

    cond       carry -> one boolean
    body       carry -> carry, of the same structure, shapes and dtypes
    init       the first carry: tensors, alone or in containers; body must return one like it
    max_steps  raise `weft.errors.LoopLimit` where the loop would go on after so many steps

    Every step is recorded, so both modes differentiate through however many there were; wrap the
    body in `wf.checkpoint` to save the carries only. Inside `vmap`, where the elements of a
    batch need different numbers of steps, those that are done keep their carry until all are. In
    a compiled function the loop is native code, and a backward pass needs `max_steps`: it takes
    time and memory for that many.

    >>> import weft as wf
    >>> x = wf.tensor(3.0, requires_grad=True)
    >>> y = wf.while_loop(lambda y: y < 100, lambda y: y * x, wf.tensor(1.0))
    >>> y.item(), y.backward()[x].item()
    (243.0, 405.0)
    """
    carry, rebuild = trees.tensors("while_loop", init)
    form, going, steps = TreeForm(carry, init), True, 0
    if current.get().staging is not None:
        first = _predicate("while_loop", cond(rebuild(carry)))
        if first.__class__ is not bool:
            return rebuild(_staged_while(cond, body, carry, rebuild, form, max_steps))
    while _any(going := _both(going, _predicate("while_loop", cond(rebuild(carry))))):
        if steps == max_steps:
            raise errors.LoopLimit(
                f"while_loop: {describe_function(cond)} still holds after "
                f"max_steps={max_steps} steps"
            )
        with nullcontext() if going is True else _quiet():
            out = body(rebuild(carry if going is True else where_taken(going, carry)))
        found, _ = trees.tensors("while_loop", out)
        difference = form.difference(found, out, "carry")
        if difference:
            raise changed_form("while_loop", body, difference)
        carry = found if going is True else _choose(going, found, carry)
        steps += 1
    return rebuild(carry)


def _staged_while(
    cond: Callable[..., Any], body: Callable[..., Any], carry: list, rebuild, form: TreeForm, most
) -> list:
    """The loop as one equation of the program that is being traced."""

    def step(carry: list) -> list:
        out = body(rebuild(carry))
        found, _ = trees.tensors("while_loop", out)
        difference = form.difference(found, out, "carry")
        if difference:
            raise changed_form("while_loop", body, difference)
        return found

    def test(carry: list):
        going = _predicate("while_loop", cond(rebuild(carry)))
        return asarray(going) if going.__class__ is bool else going

    carry, ended = staged_while.while_loop(test, step, carry, most)
    if most is None:
        return carry
    message = f"while_loop: {describe_function(cond)} still holds after max_steps={most} steps"
    return [caller(GUARD)(x, ended, message, errors.LoopLimit) for x in carry]


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], *operands: Any
) -> Any:
    """true_fn(*operands) if pred holds, else false_fn(*operands); only the one that is taken runs.

    pred               a Python bool, or a tensor with one boolean
    true_fn, false_fn  functions of the operands
    operands           what they are called with

    Inside `vmap`, where pred differs over the batch, both run on all of it, and each element
    gets the result of its own branch. No derivative, not even a NaN, comes to the operands out of
    a branch that was not taken. In a compiled function pred may depend on values: both branches are
    traced, must return the same structure, shapes and dtypes, and the one that is taken runs.

    >>> import weft as wf
    >>> f = lambda x: wf.cond(x > 0, lambda x: wf.log(x), lambda x: -x, x)
    >>> wf.vmap(wf.grad(f))(wf.tensor([-1.0, 0.0, 2.0])).tolist()
    [-1.0, -1.0, 0.5]
    """
    taken = _predicate("cond", pred)
    if taken is True or taken is False:
        return (true_fn if taken else false_fn)(*operands)
    if _is_staged(taken):
        return _staged_cond(taken, true_fn, false_fn, operands)
    leaves, rebuild = trees.flatten(operands)
    with _quiet():
        yes = true_fn(*rebuild(where_taken(taken, leaves)))
        no = false_fn(*rebuild(where_taken(~taken, leaves)))
    found, put = trees.tensors("cond", yes)
    others, _ = trees.tensors("cond", no)
    _check_alike(true_fn, false_fn, TreeForm(found, yes).difference(others, no, "the result"))
    return put(_choose(taken, found, others))


def _staged_cond(taken, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: tuple):
    """Both branches, traced, as one equation of the program."""
    forms: list[tuple] = []

    def branch(f: Callable[..., Any]) -> list:
        out = f(*operands)
        leaves, put = trees.tensors("cond", out)
        forms.append((TreeForm(leaves, out), put))
        if len(forms) == 2:
            difference = forms[0][0].difference(leaves, out, "the result")
            _check_alike(true_fn, false_fn, difference)
        return leaves

    made = staged_cond.cond(taken, lambda: branch(true_fn), lambda: branch(false_fn))
    return forms[0][1](made)


def _check_alike(
    true_fn: Callable[..., Any], false_fn: Callable[..., Any], difference: str
) -> None:
    if difference:
        raise errors.ShapeError(
            f"cond: {difference} between {describe_function(true_fn)} and "
            f"{describe_function(false_fn)}; where the predicate is batched or not known yet, both "
            "must give the same structure, shapes and dtypes"
        )


def _predicate(what: str, p):
    """A predicate: a bool, or a tensor if it differs over a batch or is not computed yet."""
    if type(p) in PYTHON_SCALARS:
        return bool(p)
    p = as_seen_by_trace(asarray(p))
    if p.shape:
        raise errors.ShapeError(
            f"{what}: a predicate of shape {p.shape}, expected one truth value: reduce it with "
            ".any() or .all(), or choose elementwise with wf.where"
        )
    if not _is_open(p):
        return bool(p)
    return p if p.dtype == dtypes.bool_ else not_equal(p, 0)


def _is_staged(x) -> bool:
    """Whether a value is computed later, by a program that is being traced."""
    return ground(x).__class__ is Aval


def _is_open(x) -> bool:
    """Whether a value differs over a batch at some level, or is computed later."""
    while x.__class__ in TENSORS or x.__class__ in BOXES:
        if x.__class__ in BOXES and (x.staged or (x.__class__ is Batch and x.mapped)):
            return True
        x = x.inner if x.__class__ in BOXES else x._data
    return False


def _both(a, b):
    if a is True or b is False:
        return b
    return a if b is True else logical_and(a, b)


def _any(p) -> bool:
    return p if p.__class__ is bool else bool(ground(p).any())


def _quiet():
    """A block without floating-point warnings, which may come from a branch that is not taken."""
    return BACKENDS[ndarray].quiet()


def _choose(taken, found: list, others: list) -> list:
    return [where(taken, x, y) for x, y in zip(found, others, strict=True)]
