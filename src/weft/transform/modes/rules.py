"""Reading a row's rule: push-forward and pull-back, written once for each kind of rule."""

from collections.abc import Callable, Sequence
from typing import Any

from ... import errors
from ...core.aval import Shape
from ...core.backends import BACKENDS, PYTHON_SCALARS
from ...core.call import caller
from ...core.dtypes import RAW_COMPLEX as COMPLEX
from ...core.node import Leaf, Node
from ...core.op import Jvp, LinearRule, Op, Partials, states_product
from ...core.types import Array, Raw, Static
from ...core.value import HIGHER, TENSORS, wrap
from ...ops.complex_ import conj, real
from ...ops.elementwise import multiply, strong_product
from ...ops.rows import joins_gradients
from ...ops.slicing import unslice
from ...ops.structural import broadcast_to, unbroadcast

Parents = tuple[Leaf | Node | None, ...]  # None where no cotangent is wanted
Pull = Callable[..., Any]  # (parents, node, g, saved) to a cotangent for each parent


class Picked:
    """A cotangent for one of several outputs."""

    __slots__ = ("g", "k")
    g: Array
    k: int

    def __init__(self, k: int, g: Array):
        self.k, self.g = k, g


class Patch:
    """A cotangent that is zero outside of a slice: raw arrays only.

    The cotangents of many slices of one array are added up in one array, in place.
    """

    __slots__ = ("g", "index")
    g: Raw
    index: Any

    def __init__(self, g: Raw, index: Any):
        self.g, self.index = g, index

    def whole(self, shape: Shape) -> Raw:
        return unslice(self.g, self.index, shape)

    def add_to(self, x: Raw) -> None:
        BACKENDS[self.g.__class__].add_slice(x, self.g, self.index)


def pull_slice(parents: Parents, node: Node, g: Array, saved: tuple[Any, ...]) -> Any:
    if g.__class__ in HIGHER:
        return (unslice(g, node.static[0], node.parents[0].shape),)
    return (Patch(g, node.static[0]),)


def refuse(parents: Parents, node: Node, g: Array, saved: tuple[Any, ...]) -> Any:
    """The pull-back of an operation without a derivative."""
    raise errors.NotDifferentiable(
        f"{node.name} (at {node.line}) has no derivative; use .detach() or wf.stop_gradient() "
        "on its argument to treat the result as a constant"
    )


def pull_pick(parents: Parents, node: Node, g: Array, saved: tuple[Any, ...]) -> Any:
    return (Picked(node.static[0], g),)


def _term(d, strong: bool):
    """(node, g, saved) -> g times one partial."""
    if d is None:
        return lambda node, g, saved: refuse((), node, g, saved)
    if d.__class__ is int:
        return {
            1: lambda node, g, saved: g,
            -1: lambda node, g, saved: -g,
            0: lambda node, g, saved: None,
        }.get(d, lambda node, g, saved: g * d)

    if states_product(d):
        return _product_term(d, strong)

    def times(node, g, saved):
        p = d(*saved, *node.static) if node.static else d(*saved)
        if node.dtype in COMPLEX:
            p = conj(p)
        return strong_product(g, p) if strong else g * p

    return times


def _zeros(g):
    """An exact zero cotangent like g, even where g is not finite."""
    raw = g._data if type(g) in TENSORS else g
    zeros = BACKENDS[type(raw)].zeros_like(raw)
    return zeros if raw is g else wrap(zeros)


def zero_cotangent(p: Leaf | Node, g: Array) -> Array:
    """The zero cotangent of a parent, of the same class as g."""
    given = next(h for h in g if h is not None) if isinstance(g, list) else g
    raw = given._data if type(given) in TENSORS else given
    xp = BACKENDS[type(raw)]
    zeros = xp.full(tuple(p.shape), 0, p.dtype, xp.device_of(raw))
    return zeros if raw is given else wrap(zeros)


def _product_term(product, strong: bool):
    """(node, g, saved) -> g times a partial that is stated as a product.

    In a recorded sweep a strong product needs its two factors apart, to stay differentiable
    where g is zero: the partial itself is its product with one.
    """

    def times(node, g, saved):
        rest = (*saved, *node.static) if node.static else saved
        if node.dtype in COMPLEX:
            return conj(_times_now(product, strong, conj(g), rest))
        return _times_now(product, strong, g, rest)

    return times


def _times_now(product, strong: bool, t, rest):
    if not strong:
        return product(t, *rest)
    if t.__class__ not in HIGHER:
        c = product(t, *rest)
        if c.__class__ not in HIGHER:
            return BACKENDS[t.__class__].zero_where_zero(c, t)
    return strong_product(t, product(1.0, *rest))


def partial_terms(rule: Partials) -> list[Callable[..., Array]]:
    """For each argument, (node, g, saved) -> g times the partial, before sums over axes."""
    return [_term(d, s) for d, s in zip(rule.d, rule.strong, strict=True)]


def pull_partials(rule: Partials) -> Pull:
    """The pull-back of an elementwise row; one and two arguments are unrolled for speed."""
    if len(rule.d) == 1:
        return _pull_one(rule.d[0], rule.strong[0])
    terms = partial_terms(rule)
    if len(terms) == 2:
        simple = not any(rule.strong) and not any(map(states_product, rule.d))
        if simple and all(map(callable, rule.d)):
            return _pull_pair(*rule.d)
        return _pull_two(*terms)

    def pull(parents, node, g, saved):
        return [
            None if p is None else _unbroadcast(t(node, g, saved), p)
            for t, p in zip(terms, parents, strict=True)
        ]

    return pull


def _pull_one(d, strong: bool):
    """The pull-back of one partial; the kinds that occur most are written out."""
    if callable(d) and not states_product(d) and not strong:

        def pull(parents, node, g, saved) -> Any:
            p = d(*saved, *node.static) if node.static else d(*saved)
            return (g * (conj(p) if node.dtype in COMPLEX else p),)

    elif states_product(d) and not strong:

        def pull(parents, node, g, saved) -> Any:
            rest = (*saved, *node.static) if node.static else saved
            return (conj(d(conj(g), *rest)) if node.dtype in COMPLEX else d(g, *rest),)

    elif d == -1:

        def pull(parents, node, g, saved) -> Any:
            return (-g,)

    else:
        term = _term(d, strong)

        def pull(parents, node, g, saved) -> Any:
            return (term(node, g, saved),)

    return pull


def _pull_two(left, right):
    def pull(parents, node, g, saved):
        p, q = parents
        c = d = None
        shape = node.shape
        if p is not None:
            c = left(node, g, saved)
            if c is not None and shape != p.shape:
                c = unbroadcast(c, p.shape)
        if q is not None:
            d = right(node, g, saved)
            if d is not None and shape != q.shape:
                d = unbroadcast(d, q.shape)
        return c, d

    return pull


def _pull_pair(left, right):
    """`_pull_two` of two plain partials, written out: multiplication goes this way."""

    def pull(parents, node, g, saved):
        p, q = parents
        rest = (*saved, *node.static) if node.static else saved
        shape, turned = node.shape, node.dtype in COMPLEX
        c = d = partial = None
        if p is not None:
            partial = left(*rest)
            c = g * (conj(partial) if turned else partial)
            if shape != p.shape:
                c = unbroadcast(c, p.shape)
        if q is not None:
            d = right(*rest)
            if d is partial and p is q:  # x·x
                return c, c
            d = g * (conj(d) if turned else d)
            if shape != q.shape:
                d = unbroadcast(d, q.shape)
        return c, d

    return pull


def _unbroadcast(c, parent):
    """A cotangent summed over the axes along which its argument was broadcast."""
    return c if c is None or c.shape == parent.shape else unbroadcast(c, parent.shape)


def _stand_ins(node: Any, values):
    """The arguments, with the parent node (it has a shape and a dtype) for those not saved."""
    return [p if v is None else v for v, p in zip(values, node.parents)]  # noqa: B905


def _adjoint(transpose, node: Node, parent, g, *rest):
    """The pull-back of a linear map: its transpose, for complex ones conj ∘ transpose ∘ conj."""
    if node.dtype not in COMPLEX and parent.dtype not in COMPLEX:
        return transpose(g, *rest)
    c = conj(transpose(conj(g), *rest))
    return real(c) if parent.dtype not in COMPLEX and _is_complex(c) else c


def _is_complex(x) -> bool:
    raw = x._data if type(x) in TENSORS else x
    return raw.dtype in COMPLEX


def pull_linear(rule: LinearRule) -> Pull:
    """The pull-back of a row with a transpose for each argument."""
    if len(rule.transpose) == 1 and rule.transpose[0] is not None:
        return _pull_one_linear(rule.transpose[0])

    transposes, at_once = rule.transpose, rule.at_once

    def pull(parents, node, g, saved):
        rest = (*_stand_ins(node, saved[1:]), *node.static)
        if at_once is not None and None not in parents and joins_gradients(g):
            return at_once(g, *rest)
        turned = node.dtype in COMPLEX
        cotangents = []
        for t, p in zip(transposes, parents):  # noqa: B905
            if p is None:
                cotangents.append(None)
            elif t is None:
                refuse((), node, g, saved)
            elif turned or p.dtype in COMPLEX:
                cotangents.append(_adjoint(t, node, p, g, *rest))
            else:
                cotangents.append(t(g, *rest))
        return cotangents

    return pull if len(transposes) != 2 or None in transposes else _pull_pair_linear(rule, pull)


def _pull_pair_linear(rule: LinearRule, general: Pull) -> Pull:
    """`pull_linear` of two arguments, written out for real numbers: products go this way."""
    (left, right), at_once = rule.transpose, rule.at_once

    def pull(parents, node, g, saved):
        p, q = parents
        if at_once is not None or node.dtype in COMPLEX:
            return general(parents, node, g, saved)
        _, a, b = saved
        if a is None or b is None:
            a, b = _stand_ins(node, (a, b))
        c = d = None
        if p is not None:
            if p.dtype in COMPLEX:
                return general(parents, node, g, saved)
            c = left(g, a, b, *node.static)  # pyright: ignore[reportOptionalCall]
        if q is not None:
            if q.dtype in COMPLEX:
                return general(parents, node, g, saved)
            d = right(g, a, b, *node.static)  # pyright: ignore[reportOptionalCall]
        return c, d

    return pull


def _pull_one_linear(transpose):
    def pull(parents, node, g, saved):
        (parent,) = node.parents
        x = saved[1]
        if x is None:
            x = parent
        if node.dtype in COMPLEX or parent.dtype in COMPLEX:
            return (_adjoint(transpose, node, parent, g, x, *node.static),)
        return (transpose(g, x, *node.static),)

    return pull


def pull_variadic(rule: LinearRule) -> Pull:
    """The pull-back of a row with any number of arguments."""
    transpose: Callable[..., Any] = rule.transpose[0]  # type: ignore[assignment]

    def pull(parents, node, g, saved):
        args, static = _stand_ins(node, saved[1:]), node.static
        if node.dtype in COMPLEX or any([p is not None and p.dtype in COMPLEX for p in parents]):
            return [
                None if p is None else _adjoint(transpose, node, p, g, i, args, *static)
                for i, p in enumerate(parents)
            ]
        return [
            None if p is None else transpose(g, i, args, *static) for i, p in enumerate(parents)
        ]

    return pull


def pull_stated(rule: Jvp) -> Pull:
    stated: Callable[..., Any] = rule.pull  # type: ignore[assignment]
    keeps = rule.keep is not None

    def pull(parents, node, g, saved):
        if keeps:
            return stated(g, *saved, *node.static)
        if len(saved) == 2:
            y, x = saved
            return stated(g, y, node.parents[0] if x is None else x, *node.static)
        y, *args = saved
        return stated(g, y, *_stand_ins(node, args), *node.static)

    return _only_wanted(pull) if getattr(stated, "on_demand", False) else pull


def _only_wanted(pull: Pull) -> Pull:
    """A pull-back that computes cotangents on demand: those given as functions, if wanted.

    The rule's result may also be one function of the flags that say which are wanted.
    """

    def chosen(parents, node, g, saved):
        stated: Any = pull(parents, node, g, saved)
        if callable(stated):
            stated = stated([p is not None for p in parents])
        each: Any = stated
        found = zip(each, parents, strict=True)
        return [None if p is None else c() if callable(c) else c for c, p in found]

    return chosen


def push(
    op: Op, y: Any, args: Sequence[Array], tangents: Sequence[Array | None], static: Static
) -> Any:
    """The tangent of y: the row's rule read forwards. Absent tangents are None."""
    rule = op.rule
    if isinstance(rule, Jvp):
        return rule.push(tangents, y, *args, *static)
    if isinstance(rule, Partials):
        _refuse_left_out(op, rule.d, tangents)
        kept = (*(rule.keep(y, *args, *static) if rule.keep else (y, *args)), *static)
        terms = [
            _forward_term(d, strong, t, kept)
            for d, strong, t in zip(rule.d, rule.strong, tangents, strict=True)
            if t is not None
        ]
        return _total([t for t in terms if t is not None], y)
    if isinstance(rule, LinearRule):
        call = caller(op)
        _refuse_left_out(op, rule.transpose, tangents)
        if rule.joint:
            moved = _joint_tangents(rule, args, tangents)
            return op.call(call, moved, static)
        terms = []
        for i, t in enumerate(tangents):
            if t is not None:
                moved = [*args[:i], t, *args[i + 1 :]]
                terms.append(op.call(call, moved, static))
        return _total(terms, y)
    raise _underivable(op.name)


def _underivable(what: str) -> errors.NotDifferentiable:
    return errors.NotDifferentiable(
        f"{what} has no derivative; use .detach() or wf.stop_gradient() on its argument to treat "
        "the result as a constant"
    )


def _refuse_left_out(op: Op, derivatives, tangents) -> None:
    """Refuse a tangent of an argument for which the rule states no derivative."""
    if None in derivatives:
        for i, (d, t) in enumerate(zip(derivatives, tangents, strict=True)):
            if d is None and t is not None:
                raise _underivable(f"{op.name} by argument {i}")


def _joint_tangents(rule: LinearRule, args, tangents) -> list:
    """The tangents, zeros for the absent ones, and index arguments unchanged."""
    given = rule.transpose if len(rule.transpose) == len(args) else rule.transpose * len(args)
    return [
        a if transpose is None else _zeros_like(a) if t is None else t
        for transpose, a, t in zip(given, args, tangents, strict=True)
    ]


def _zeros_like(a):
    if type(a) in PYTHON_SCALARS:
        return 0
    raw = a._data if type(a) in TENSORS else a
    zeros = BACKENDS[type(raw)].zeros_like(raw)
    return wrap(zeros) if type(a) in TENSORS else zeros


def _forward_term(d, strong: bool, t, kept):
    if d.__class__ is int:
        return t if d == 1 else _zeros(t) if d == 0 else t * d
    if states_product(d):
        return _times_now(d, strong, t, kept)
    p = d(*kept)
    return strong_product(t, p) if strong else t * p


def _total(terms, y):
    if not terms:
        return multiply(y, 0)
    total = terms[0]
    for t in terms[1:]:
        total = total + t
    return broadcast_to(total, y.shape) if total.shape != y.shape else total
