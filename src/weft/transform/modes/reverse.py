"""The reverse sweep: cotangents carried from results back to the leaves of a graph."""

from collections.abc import Callable, Container
from heapq import heappop, heappush, heappushpop
from typing import Any, Protocol

from ... import errors
from ...core import dtypes, versions
from ...core.backends import BACKENDS, PYTHON_SCALARS
from ...core.box import BOXED, raise_to_level
from ...core.derived import cast_at, uncast, whole_of, with_all_outputs
from ...core.dispatch import above
from ...core.dtypes import bfloat16
from ...core.node import Leaf, Node
from ...core.op import ByRow, Jvp, LinearRule, Op, Partials
from ...core.recording import Packed, is_pick, pick
from ...core.settings import current, override_settings
from ...core.types import Array
from ...core.value import HIGHER, TENSORS, wrap
from ...ops.elementwise import where
from ...ops.slicing import slice_
from . import limited, rules
from .masks import BLANK, Masked, join_mask, masked_pull, pull_where
from .paths import Vertex, freed_error, nodes_reaching
from .rules import Patch, Picked, zero_cotangent
from .watch import NEVER, Watches

# The classes of cotangents that are not arrays.
_PARTS = frozenset((Patch, Picked, Masked))


def _pull_for(op: Op):
    whole = whole_of(op)
    if whole is not None:
        return _pull_first(PULLS[whole], whole.outputs)
    cast = uncast(op)
    if cast is not None:
        return _casting_back(PULLS[cast])
    return _pull_by(op) if op.outputs == 1 else _narrowing(_pull_by(op))


def _casting_back(pull: rules.Pull) -> rules.Pull:
    """A pull-back from a node that has cast its arguments: cotangents are cast to their dtypes."""

    def cast_back(parents, node, g, saved):
        found = zip(pull(parents, node, g, saved), parents)  # noqa: B905  (equal lengths, one for each argument)
        return [c if c is None or p is None else _cast_like(c, node, p) for c, p in found]

    return cast_back


def _cast_like(c, node, p):
    """A cotangent in the dtype of its parent, after that of the node, which NumPy may widen."""
    if c.__class__ in HIGHER:
        own = (c._data if c.__class__ in TENSORS else c).dtype
        return c if own is p.dtype else above.cast(c, dtypes.canonical(p.dtype))
    for v in (node, p):
        if c.dtype is not v.dtype:
            c = BACKENDS[c.__class__].cast(c, v.dtype)
    return c


def _pull_first(pull: rules.Pull, outputs: int) -> rules.Pull:
    """The pull-back of the first one of several outputs."""
    others = (None,) * (outputs - 1)

    def pulled(parents, node, g, saved):
        return pull(parents, node, [g, *others], saved)

    return pulled


def _narrowing(pull):
    """A pull-back from several outputs whose cotangents are cast to their parents' dtypes."""

    def narrowed(parents, node, g, saved):
        found = zip(pull(parents, node, g, saved), parents)  # noqa: B905  (equal lengths, one for each argument)
        return [
            c
            if c is None or p is None or c.__class__ in HIGHER or c.dtype is p.dtype
            else _narrow(c, p)
            for c, p in found
        ]

    return narrowed


def _pull_by(op: Op):
    rule = op.rule
    if is_pick(op):
        return rules.pull_pick
    if op is slice_.op:
        return rules.pull_slice
    if op is where.op:
        return pull_where
    if isinstance(rule, Partials):
        return rules.pull_partials(rule)
    if isinstance(rule, LinearRule):
        return rules.pull_variadic(rule) if op.arity is None else rules.pull_linear(rule)
    if isinstance(rule, Jvp):
        return rules.pull_stated(rule) if rule.pull is not None else _pull_by_transpose
    return rules.refuse


# `PULLS[op](parents, node, g, saved)`: one cotangent or None for each parent. `parents` has None
# where no cotangent is wanted; `saved` is (y, *args) with None for what the rule does not read: raw
# arrays in a plain backward pass, tensors in a recorded one.
PULLS: ByRow[rules.Pull] = ByRow(_pull_for)


def _masked_pull_for(op: Op):
    return masked_pull(op, PULLS[op])


# `MASKED_PULLS[op](parents, node, g, saved, open)`: the same for g that is zero outside of `open`.
MASKED_PULLS: ByRow[rules.Pull] = ByRow(_masked_pull_for)


# Called at the begin of every sweep: how profilers count iterations.
BEFORE_SWEEP: list[Callable[[], None]] = []


class SweepObserver(Protocol):
    """Who is told of the nodes of every sweep: how profilers measure them."""

    def begin_sweep(self) -> None: ...
    def begin_node(self, node: Node, g: Any) -> None:
        """The sweep goes on to a node, with its cotangent."""

    def end_sweep(self) -> None: ...


OBSERVERS: list[SweepObserver] = []


def sweep(
    seeds: dict[Vertex, Array],
    *,
    record: bool,
    retain: bool,
    useful: Container[Vertex] | None = None,
    goals: Container[Vertex] = (),
    on_node: Callable[[Vertex, Array], Array] | None = None,
    beyond: bool = True,
    watch: Watches | None = None,
) -> dict[Any, Array]:
    """Carry the cotangents `seeds` (by node) back; returns those that reached a leaf or a goal.

    record   the sweep itself is recorded: cotangents are tensors, rules are differentiable
    retain   keep the graph for another sweep
    useful   the nodes on a path to a goal; None: all nodes
    goals    nodes whose cotangent is wanted although they are no leaves
    on_node  called as (node, g) -> g where a node has hooks or retains its gradient
    beyond   whether cotangents are carried on from goals; if not, goals are independent variables
    watch    what takes leaves' cotangents while the sweep is running, and delivers others for them
    """
    if not seeds:
        return {}
    for note in BEFORE_SWEEP:
        note()
    asked = record, retain, useful, goals, on_node, beyond, watch
    if OBSERVERS:
        return _observed(seeds, asked, tuple(OBSERVERS))
    return _limited(seeds, asked) if limited.alive else _sweep(seeds, *asked)


def _limited(seeds, asked) -> dict[Any, Array]:
    with limited.around_sweep(seeds) as keep:
        return keep(_sweep(seeds, *asked))  # no name holds it if the budget is refused


def _observed(seeds, asked, observers: tuple[SweepObserver, ...]) -> dict[Any, Array]:
    for observer in observers:
        observer.begin_sweep()
    try:
        return _limited(seeds, asked) if limited.alive else _sweep(seeds, *asked)
    finally:
        for observer in reversed(observers):
            observer.end_sweep()


def _sweep(seeds, record: bool, *asked) -> dict[Any, Array]:
    first = next(iter(seeds.values()))
    xp = BACKENDS[(first._data if record else first).__class__]
    if not record and current.get().autocast is None:
        return xp.quietly(_carry, seeds.copy(), False, *asked)
    with override_settings(autocast=None, **({"grad": True} if record else {})):
        return xp.quietly(_carry, seeds.copy(), record, *asked)


def _carry(  # noqa: C901
    pending: dict, record, retain, useful, goals, on_node, beyond, watch
) -> dict:
    """The loop: newest node first, so that each node comes after all nodes that used its value."""
    anomaly = current.get().anomaly
    plain = not (record or anomaly or goals or useful is not None or OBSERVERS)
    asked = record, useful, goals, on_node, beyond, anomaly
    reached: dict = {}
    owned: set = set()  # nodes whose cotangent is in memory that the sweep may write to
    heap: list = []
    following = masks = None  # masks by node, once there are any
    if watch is not None:
        _wait_for(watch, heap)
    for node in pending:
        if node.__class__ is Leaf:
            continue  # leaves stay pending: at the end, nothing else is
        if following is None:
            following = node
        else:
            heappush(heap, (node.id, node))
    while following is not None or heap:
        # In a chain the next node is `following`; the heap is not touched.
        if following is None:
            node = heappop(heap)[1]
        elif heap and heap[0][0] < following.id:
            node = heappushpop(heap, (following.id, following))[1]
        else:
            node = following
        following = None
        if node is watch:
            _advance(node, pending, heap)
            continue
        g = pending.pop(node)
        parents = node.parents
        if parents is None:
            raise freed_error(node)
        if not node.saved and plain and masks is None and node.extra is None and is_pick(node.op):
            whole, c = parents[0], Picked(node.static[0], g)
            have = pending.get(whole)
            if have is not None:
                pending[whole] = _sum(have, c)
            else:
                pending[whole], following = _start_slices(whole, c, owned), whole
            if not retain:
                node.parents = node.saved = None
            continue
        open = None if masks is None else masks.pop(node, None)
        try:
            if plain and open is None and node.extra is None:
                if versions.latest < node.id:
                    versions.check(node, node.saved)
                cotangents = PULLS[node.op](parents, node, g, node.saved)
            else:
                parents, cotangents = _pull(node, g, open, reached, *asked)
        except errors.NotDeterministic as e:
            e.add_note(f"in the backward pass of {node.name} (at {node.line})")
            raise
        if node.dtype is bfloat16 and not record:
            cotangents = [_narrow(c, p) for c, p in zip(cotangents, parents, strict=True)]
        for p, c in zip(parents, cotangents):  # noqa: B905  (equal lengths; strict= would double the time)
            if p is None:
                continue
            have = pending.get(p)
            if have is not None:
                if c is not None:
                    pending[p] = _add(p, have, c, record, owned, masks)
                continue
            if c is None:  # connected, with derivative zero
                if node.op.several:
                    continue
                c = Masked(zero_cotangent(p, g), BLANK)
            if c.__class__ in _PARTS:
                if c.__class__ is Masked:
                    masks = {} if masks is None else masks
                    masks[p], c = c.open, c.g
                else:
                    c = _start_slices(p, c, owned)
            pending[p] = c
            if p.__class__ is not Leaf:
                if following is None:
                    following = p
                elif p.id < following.id:
                    heappush(heap, (following.id, following))
                    following = p
                else:
                    heappush(heap, (p.id, p))
        if not retain:
            node.parents = node.saved = None
    if watch is not None:
        watch.advance(NEVER, pending)
    reached.update(pending)
    if on_node is not None:
        _visit_leaves(reached, on_node)
    if watch is not None:
        reached.update(watch.finish())
    return reached


def _wait_for(watch: Watches, heap: list) -> None:
    """Let the sweep come to a watch after the node `due`, as if it were a node."""
    if watch.due != NEVER:
        heappush(heap, (watch.due + 0.5, watch))


def _advance(watch: Watches, pending: dict, heap: list) -> None:
    """All nodes up to the one that a watch has waited for are done."""
    watch.advance(watch.due + 1, pending)
    _wait_for(watch, heap)


def _pull(node: Node, g, open, reached, record, useful, goals, on_node, beyond, anomaly):
    """A node's parents and their cotangents, in general: with hooks, goals, masks and checks.

    open  the mask of where g may differ from zero
    """
    for observer in OBSERVERS:
        observer.begin_node(node, g)
    if node.extra is not None and on_node is not None:
        had, g = g, on_node(node, g)
        open = open if g is had else None  # a hook's result is not masked
    if node in goals:
        reached[node] = g
        if not beyond:
            return (), ()
    parents = node.parents
    if useful is not None:
        parents = tuple([p if p in useful else None for p in parents])
    saved = _values(node, record)
    if open is None or open is BLANK:
        cotangents = PULLS[node.op](parents, node, g, saved)
    else:
        cotangents = MASKED_PULLS[node.op](parents, node, g, saved, open)
    if anomaly:
        _check_finite(node, cotangents)
    return parents, cotangents


def _add(p, have, c, record: bool, owned: set, masks: dict | None):
    """The sum of the cotangent that p has and one more."""
    if masks is not None or c.__class__ is Masked:
        c = join_mask(masks or {}, p, c)
    if record or c.__class__ is Picked:
        return _sum(have, c)
    if c.__class__ is Patch:
        return _patch_slice(p, have, c, owned)
    if p in owned and c.__class__ is have.__class__:
        have += c
        return have
    owned.add(p)  # the sum is in new memory, which the sweep may write to
    return have + c


def _visit_leaves(reached: dict, on_node) -> None:
    """Run the hooks of the leaves' cotangents."""
    for leaf in reached:
        if leaf.extra is not None and leaf.__class__ is Leaf:
            reached[leaf] = on_node(leaf, reached[leaf])


def _check_finite(node: Node, cotangents) -> None:
    for c in cotangents:
        c = c.g if c.__class__ in (Patch, Masked) else c
        raw = c._data if type(c) in TENSORS else c
        if raw is not None and raw.__class__ is not Picked:
            if not BACKENDS[type(raw)].all_finite(raw):
                raise errors.AnomalyError(
                    f"the first NaN or infinity of the backward pass came out of {node.name} "
                    f"(at {node.line})"
                )


def _sum(have, c):
    """have + c for tensors, and for the cotangents of several outputs."""
    if c.__class__ is not Picked:
        return have + c
    slot = have[c.k]
    have[c.k] = c.g if slot is None else slot + c.g
    return have


def _narrow(c, p):
    """c in the dtype of its parent: NumPy widens bfloat16 beside a Python scalar in a rule."""
    if c.__class__ is Masked:
        return Masked(_narrow(c.g, p), c.open)
    if c is None or p is None or c.__class__ in _PARTS or c.dtype == p.dtype:
        return c
    if c.__class__ in BOXED:
        return above.cast(c, p.dtype)
    return BACKENDS[c.__class__].cast(c, p.dtype)


def _patch_slice(node: Node, have, c: Patch, owned: set):
    """`have` with a slice's cotangent added, in memory that the sweep may write to."""
    if have.__class__ in HIGHER or not node.shape:  # NumPy's scalars cannot be written to
        return have + c.whole(node.shape)
    if node not in owned:
        owned.add(node)
        have = BACKENDS[have.__class__].copy(have)
    c.add_to(have)
    return have


def _start_slices(node: Node, c: Any, owned: set[Vertex]) -> Any:
    """The first cotangent of a slice, or of one of several outputs."""
    if c.__class__ is Patch:
        owned.add(node)
        return c.whole(node.shape)
    slots: list[Any] = [None] * len(node.shape)
    slots[c.k] = c.g
    return slots


def _values(node: Node, record: bool) -> tuple[Any, ...]:
    """The node's saved values, unpacked and checked; as tensors on the graph if recording."""
    saved = node.saved
    unpack = None if node.extra is None else node.extra.unpack
    if unpack is not None:
        saved = tuple(_unpack(unpack, s) for s in saved)
    # Replayed values are younger than their nodes: the checkpoint checks them.
    if versions.latest < node.id and not getattr(unpack, "replays", False):
        versions.check(node, saved)
    return _box_saved(node, saved) if record else saved


def _unpack(unpack, value):
    if type(value) is tuple:
        return tuple(_unpack(unpack, v) for v in value)
    if value.__class__ is not Packed:
        return value
    return unpack(value.handle)._data


def _box_saved(node: Node, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """The saved raw arrays as tensors connected to the graph, for a recorded sweep."""
    if getattr(node.op.rule, "keep", None) is not None:
        return tuple(_box(s, None) for s in saved)
    if not saved:  # a pick
        return saved
    y, *args = saved
    if type(y) is tuple:
        whole = whole_of(node.op)
        if whole is not None:
            node = with_all_outputs(node, whole, saved)
        y = tuple(_box(v, pick(node, k) if k in node.op.tracked else None) for k, v in enumerate(y))
    else:
        y = _box(y, node)
    parents = node.parents
    if uncast(node.op) is not None:
        parents = [_cast_parent(node, a, p) for a, p in zip(args, parents, strict=True)]
    return (y, *(_box(a, p) for a, p in zip(args, parents, strict=True)))


def _cast_parent(node: Node, value, parent):
    """The node of an argument that `node` has cast and saved."""
    if value is None or parent is None or value.dtype is parent.dtype:
        return parent
    return cast_at(node, above.cast.op, value, parent)


def _box(value, node):
    if value is None or type(value) in PYTHON_SCALARS or type(value) in TENSORS:
        return value  # a tensor from below the node's level is a constant here
    return wrap(value, node)


def _pull_by_transpose(
    parents: rules.Parents, node: Any, g: Array, saved: tuple[Any, ...]
) -> list[Array | None]:
    """The pull-back as the transpose of the push-forward, by a reverse sweep through that.

    The push-forward is linear in the tangents, so its pull-back is the same at all of them: it is
    taken at zero.
    """
    given = [t for t in (g if isinstance(g, list) else [g]) if t is not None]
    recorded = type(given[0]) in TENSORS
    like = given[0]._data if recorded else given[0]
    xp = BACKENDS[type(like)]
    y, *args = saved
    met = [*given, *(y if type(y) is tuple else (y,)), *args]
    with override_settings(grad=True, anomaly=False, saved_hooks=None, saving=None):
        primal = [p if v is None else _primal(v) for v, p in zip(args, node.parents, strict=True)]
        tangents, leaves = [], []
        for p in parents:
            t = leaf = None
            if p is not None:
                zeros = xp.full(tuple(p.shape), 0, p.dtype, xp.device_of(like))
                # The push-forward is recorded on the level where it is computed.
                t = wrap(raise_to_level(zeros, met))
                t._node = leaf = Leaf(p.shape, p.dtype, None, False)
            tangents.append(t)
            leaves.append(leaf)
        ys = tuple(map(_primal, y)) if type(y) is tuple else _primal(y)
        out = node.op.rule.push(tuple(tangents), ys, *primal, *node.static)
        seeds = _seeds(node, out, g, recorded)
        useful, _ = nodes_reaching(seeds, {leaf for leaf in leaves if leaf is not None})
        reached = sweep(seeds, record=recorded, retain=recorded, useful=useful)
    return [None if leaf is None else reached.get(leaf) for leaf in leaves]


def _primal(v):
    return v if type(v) in TENSORS else _box(v, None)


def _seeds(node: Node, out, g, recorded: bool) -> dict:
    outs = out if isinstance(out, tuple) else (out,)
    gs = g if isinstance(g, list) else [g]
    seeds = {}
    for t, h in zip(outs, gs, strict=True):
        if h is not None and t is not None and t._node is not None:
            seeds[t._node] = h if t._node not in seeds else seeds[t._node] + h
    return seeds


above.sweep = sweep
