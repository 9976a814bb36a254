"""Control flow on tensors: `scan`, `while_loop`, `cond` and `map`."""

from collections.abc import Callable
from contextlib import nullcontext
from inspect import unwrap
from math import isqrt

from numpy import ndarray

from .. import errors
from ..array.make import asarray, zeros
from ..core import dtypes
from ..core.aval import integer_in
from ..core.backends import BACKENDS, PYTHON_SCALARS
from ..core.box import BOXES, ground
from ..core.dispatch import inexact
from ..core.node import ids
from ..core.origin import line_of
from ..core.settings import current
from ..core.value import TENSORS
from ..ops.elementwise import where
from ..ops.logic import logical_and, not_equal
from ..ops.structural import concat, narrow, stack, unstack
from . import trees
from .batch import Batch
from .checkpoint import checkpoint
from .lineage import saved_since
from .vmap import vmap

# A scan is divided by default where so many steps save so many bytes. A step that is run twice
# takes 1.4 times as long with carries of 128×512 numbers, 1.8 times with 64×64 and 2.4 times with
# a few: too much for a few megabytes. With few steps, the carries are as much as the rest.
MANY, LARGE = 16, 1 << 26
_FEW = 8  # pieces that are cut out of a whole one by one


def scan(
    f: Callable,
    init,
    xs=None,
    length: int | None = None,
    reverse: bool = False,
    segments: int | str | None = None,
):
    """carry, y = f(carry, x) for each x of xs in turn: the last carry, and the ys stacked.

    init      the first carry: tensors, alone or in containers; f must return one like it
    xs        tensors, alone or in containers, whose slices along the first axis are the x
    length    the number of steps; needed where xs is None, when x is None too
    reverse   go from the last x to the first; the ys are in the order of xs all the same
    segments  how many stretches the steps are divided into, of which a backward pass keeps the
              first carry only, to run the stretch again when it comes to it. None: √T of them
              where T steps would save 64 MiB or more, so that what is saved grows as √T;
              "none": everything is saved. The gradients are the same, bit for bit

    >>> import weft as wf
    >>> total, sums = wf.scan(lambda c, x: (c + x, c + x), wf.tensor(0), wf.tensor([1, 2, 3]))
    >>> total.item(), sums.tolist()
    (6, [1, 3, 6])
    """
    return _scan("scan", f, init, xs, length, reverse, segments)


def _scan(what: str, f: Callable, init, xs, length, reverse: bool, segments):
    carry, rebuild_carry = trees.tensors(what, init)
    elements, rebuild = trees.tensors(what, xs)
    steps = _length(what, elements, length)
    body = _Body(what, f, _Form(carry, init), rebuild_carry, rebuild)
    if steps:
        carry, ys = _divided(body, carry, elements, steps, reverse, segments)
        ys = [stack(list(y), 0) for y in zip(*ys, strict=True)]
    else:  # a batch of none has the results' shapes
        ys = vmap(lambda _, *x: body(carry, x)[1])(zeros(0), *elements)
    return rebuild_carry(carry), body.results(ys)


def _length(what: str, elements: list, length: int | None) -> int:
    """The number of steps, on which all agree."""
    if length is not None and integer_in(what, "length", length) < 0:
        raise errors.ArgumentError(f"{what}: length={length}, expected 0 or more steps")
    if any(not x.shape for x in elements):
        raise errors.AxisError(f"{what}: xs holds a 0-d tensor, which has no axis to go along")
    lengths = {x.shape[0] for x in elements} | ({length} - {None})
    if len(lengths) != 1:
        shapes = ", ".join(str(x.shape) for x in elements)
        raise errors.ShapeError(
            f"{what}: length={length} and xs of shapes {shapes or '(none)'}: expected one number "
            "of steps, given by one of them or by all alike"
        )
    return lengths.pop()


class _Form:
    """The structure of a tree, and the shapes and dtypes of its tensors."""

    def __init__(self, leaves: list, tree):
        self.structure = _structure(tree)
        self.kinds = [_kind(x) for x in leaves]

    def difference(self, leaves: list, tree, name: str) -> str:
        """How another tree differs, in words; nothing where it does not."""
        if (structure := _structure(tree)) != self.structure:
            return f"{name} was {_spelled(self.structure)} and became {_spelled(structure)}"
        for k, (had, x) in enumerate(zip(self.kinds, leaves, strict=True)):
            if (got := _kind(x)) != had:
                path = "".join(f"[{key!r}]" for key in self.structure.paths()[k])
                was, became = (f"{dtype} of shape {shape}" for shape, dtype in (had, got))
                return f"{name}{path} was {was} and became {became}"
        return ""


def _structure(tree):
    import optree  # at first use, as in trees

    return optree.tree_structure(tree)


def _spelled(structure) -> str:
    """`PyTreeSpec((*, *))` as (tensor, tensor)."""
    return str(structure)[len("PyTreeSpec(") : -1].replace("*", "tensor")


def _kind(x) -> tuple:
    return x.shape, x.dtype


def _named(f: Callable) -> str:
    """A function and the line it starts on, for messages."""
    code = getattr(unwrap(f), "__code__", None)
    name = getattr(f, "__name__", type(f).__name__)
    return name if code is None else f"{name} ({line_of(code, -1)})"


class _Body:
    """A step as a function of flat carries and elements, whose results are checked."""

    def __init__(self, what: str, f: Callable, form: _Form, rebuild_carry, rebuild):
        self._what, self._f, self._form = what, f, form
        self._rebuild_carry, self._rebuild = rebuild_carry, rebuild
        self._form_of_y, self.results = None, None

    def __call__(self, carry: list, x) -> tuple[list, list]:
        out = self._f(self._rebuild_carry(carry), self._rebuild(list(x)))
        if not isinstance(out, tuple | list) or len(out) != 2:
            raise errors.ArgumentError(
                f"{self._what}: {_named(self._f)} must return (carry, y), it returned "
                f"{type(out).__name__}"
            )
        carry, _ = trees.tensors(self._what, out[0])
        ys, rebuild = trees.tensors(self._what, out[1])
        self._check(self._form, carry, out[0], "carry")
        if self._form_of_y is None:
            self._form_of_y, self.results = _Form(ys, out[1]), rebuild
        self._check(self._form_of_y, ys, out[1], "y")
        return carry, ys

    def _check(self, form: _Form, leaves: list, tree, name: str) -> None:
        difference = form.difference(leaves, tree, name)
        if difference:
            raise _changed(self._what, self._f, difference)


def _changed(what: str, f: Callable, difference: str) -> errors.ShapeError:
    return errors.ShapeError(
        f"{what}: in {_named(f)} {difference}; every step must give the same structure, shapes "
        "and dtypes (cast with .to(), or start with what the steps make)"
    )


def _divided(body: _Body, carry: list, xs: list, steps: int, reverse: bool, segments):
    """All steps, in checkpointed stretches where that is asked for, or worth its while."""
    if segments is None and steps >= MANY and current.get().grad:
        return _divided_if_large(body, carry, xs, steps, reverse)
    if segments is None or segments == "none":
        return _stretch(body, carry, xs, steps, reverse)
    if not isinstance(segments, int) or segments < 1:
        raise errors.ArgumentError(
            f"scan: segments={segments!r}, expected a positive integer, 'none' or None"
        )
    segments = min(segments, steps)
    ends = [(k + 1) * steps // segments for k in range(segments)]
    cut = [_pieces(x, ends) for x in xs]
    ys: list = [None] * segments
    for k in _order(segments, reverse):
        count = ends[k] - (ends[k - 1] if k else 0)
        part = [pieces[k] for pieces in cut]
        carry, ys[k] = checkpoint(_stretch, body, carry, part, count, reverse)
    return carry, [y for part in ys for y in part]


def _divided_if_large(body: _Body, carry: list, xs: list, steps: int, reverse: bool):
    """The steps in stretches if all of them would save much, as the third one shows.

    What the second has saved too is the same for all; the first may begin with constants.
    """
    ends = [steps - 3, steps - 2, steps - 1, steps] if reverse else [1, 2, 3, steps]
    cut = [_pieces(x, ends) for x in xs]
    *probes, rest = ([pieces[k] for pieces in cut] for k in _order(4, reverse))
    ys, before, anew = [], {}, 0
    for part in probes:
        start = next(ids)
        carry, y = _stretch(body, carry, part, 1, reverse)
        saved = saved_since((carry, y), start)
        anew = sum(size for owner, size in saved.items() if owner not in before)
        ys, before = ys + y, saved
    others = isqrt(steps) if anew * steps >= LARGE else "none"
    carry, more = _divided(body, carry, rest, steps - 3, reverse, others)
    return carry, more + ys[::-1] if reverse else ys + more


def _stretch(body: _Body, carry: list, xs: list, steps: int, reverse: bool):
    """Steps one after another: the last carry, and every step's results in the order of xs."""
    cut = [_elements(x, steps) for x in xs]
    ys: list = [None] * steps
    for k in _order(steps, reverse):
        carry, ys[k] = body(carry, [elements[k] for elements in cut])
    return carry, ys


def _order(n: int, reverse: bool) -> range:
    return range(n - 1, -1, -1) if reverse else range(n)


def _pieces(x, ends: list[int]) -> list:
    """x cut at these positions, by halves.

    The cotangent of a piece is padded to the size of what it was cut out of: n pieces out of the
    whole would take n times its size, by halves it is log n times.
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


def map_(f: Callable, xs, batch_size: int | None = None):
    """f of each slice of xs along the first axis, one after the other, the results stacked.

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


def while_loop(cond: Callable, body: Callable, init, max_steps: int | None = None):
    """carry = body(carry) as long as cond(carry) holds; returns the last carry.

    init       the first carry: tensors, alone or in containers; body must return one like it
    max_steps  raise `weft.errors.LoopLimit` where the loop would go on after so many steps

    Every step is recorded, so both modes differentiate through however many there were; wrap the
    body in `wf.checkpoint` to save the carries only. Inside `vmap`, where the elements of a
    batch need different numbers of steps, those that are done keep their carry until all are.

    >>> import weft as wf
    >>> x = wf.tensor(3.0, requires_grad=True)
    >>> y = wf.while_loop(lambda y: y < 100, lambda y: y * x, wf.tensor(1.0))
    >>> y.item(), y.backward()[x].item()
    (243.0, 405.0)
    """
    carry, rebuild = trees.tensors("while_loop", init)
    form, going, steps = _Form(carry, init), True, 0
    while _any(going := _both(going, _predicate("while_loop", cond(rebuild(carry))))):
        if steps == max_steps:
            raise errors.LoopLimit(
                f"while_loop: {_named(cond)} still holds after max_steps={max_steps} steps"
            )
        with nullcontext() if going is True else _quiet():
            out = body(rebuild(_where_taken(going, carry)))
        found, _ = trees.tensors("while_loop", out)
        difference = form.difference(found, out, "carry")
        if difference:
            raise _changed("while_loop", body, difference)
        carry = found if going is True else _chosen(going, found, carry)
        steps += 1
    return rebuild(carry)


def cond(pred, true_fn: Callable, false_fn: Callable, *operands):
    """true_fn(*operands) if pred holds, else false_fn(*operands); only the one that is taken runs.

    Inside `vmap`, where pred differs over the batch, both run on all of it, and each element
    gets the result of its own branch. No derivative, not even a NaN, comes to the operands out of
    a branch that was not taken.

    >>> import weft as wf
    >>> f = lambda x: wf.cond(x > 0, lambda x: wf.log(x), lambda x: -x, x)
    >>> wf.vmap(wf.grad(f))(wf.tensor([-1.0, 0.0, 2.0])).tolist()
    [-1.0, -1.0, 0.5]
    """
    taken = _predicate("cond", pred)
    if taken is True or taken is False:
        return (true_fn if taken else false_fn)(*operands)
    leaves, rebuild = trees.flatten(operands)
    with _quiet():
        yes = true_fn(*rebuild(_where_taken(taken, leaves)))
        no = false_fn(*rebuild(_where_taken(~taken, leaves)))
    found, put = trees.tensors("cond", yes)
    others, _ = trees.tensors("cond", no)
    difference = _Form(found, yes).difference(others, no, "the result")
    if difference:
        raise errors.ShapeError(
            f"cond: {difference} between {_named(true_fn)} and {_named(false_fn)}; where the "
            "predicate is batched, both must give the same structure, shapes and dtypes"
        )
    return put(_chosen(taken, found, others))


def _predicate(what: str, p):
    """A truth value: a bool, or a tensor where it differs over a batch."""
    if type(p) in PYTHON_SCALARS:
        return bool(p)
    p = asarray(p)
    if p.shape:
        raise errors.ShapeError(
            f"{what}: a predicate of shape {p.shape}, expected one truth value: reduce it with "
            ".any() or .all(), or choose elementwise with wf.where"
        )
    if not _is_batched(p):
        return bool(p)
    return p if p.dtype == dtypes.bool_ else not_equal(p, 0)


def _is_batched(x) -> bool:
    """Whether a value differs over a batch at some level."""
    while x.__class__ in TENSORS or x.__class__ in BOXES:
        if x.__class__ is Batch and x.mapped:
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
    """A block without floating-point warnings, which may be about what is not taken."""
    return BACKENDS[ndarray].quiet()


def _where_taken(taken, leaves: list) -> list:
    """The same values; only where they are `taken` does a cotangent come back through them.

    A branch that is not taken gets zero cotangents, but products in it may make NaN of them.
    """
    if taken is True:
        return leaves
    return [
        where(taken, x, x.detach()) if x.__class__ in TENSORS and inexact(x) else x for x in leaves
    ]


def _chosen(taken, found: list, others: list) -> list:
    return [where(taken, x, y) for x, y in zip(found, others, strict=True)]
