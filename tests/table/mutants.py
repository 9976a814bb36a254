"""Rows with a wrong derivative planted in a copy: what the checks must be able to find.

All that a rule could look at is saved for the edited ones.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

from weft.core.call import caller
from weft.core.op import TABLE, Jvp, LinearRule, Op, Partials, states_product
from weft.core.value import GROUND, wrap
from weft.ops.complex_ import conj


def _edited(op: Op, i: int, edit: Callable) -> Op:
    """The row with the contribution of argument i edited, in every statement of its rule."""
    rule = op.rule
    if isinstance(rule, Partials):
        d = [*rule.d]
        d[i] = _after(_as_function(d[i]), edit)
        return replace(op, rule=replace(rule, reads=None, d=tuple(d)))
    if isinstance(rule, LinearRule):
        t = [*rule.transpose]
        if op.arity is None:
            t[0] = _variadic_after(t[0], i, edit)
        else:
            t[i] = _after(t[i], edit)
        return replace(op, rule=replace(rule, reads=None, transpose=tuple(t)))
    assert isinstance(rule, Jvp)
    push = _tangent_edited(rule.push, i, edit)
    pull = None if rule.pull is None else _item_edited(rule.pull, i, edit)
    return replace(op, rule=replace(rule, reads=None, push=push, pull=pull))


def _as_function(d) -> Callable:
    """A constant partial as a function, so that it can be edited like the others."""
    if callable(d):
        return d

    def constant(*_all):
        return d

    return constant


def _after(fn: Callable, edit: Callable) -> Callable:
    @wraps(fn)
    def edited(*args):
        return edit(fn(*args))

    return edited


def _variadic_after(fn: Callable, i: int, edit: Callable) -> Callable:
    @wraps(fn)
    def edited(g, k, *rest):
        out = fn(g, k, *rest)
        return edit(out) if k == i else out

    return edited


def _tangent_edited(push: Callable, i: int, edit: Callable) -> Callable:
    @wraps(push)
    def edited(tangents, *rest):
        moved = [edit(t) if k == i and t is not None else t for k, t in enumerate(tangents)]
        return push(tuple(moved), *rest)

    return edited


def _item_edited(pull: Callable, i: int, edit: Callable) -> Callable:
    def item(stated):
        out = list(stated)
        c = out[i]
        if c is not None:  # some are computed only where they are wanted
            out[i] = (lambda: edit(c())) if callable(c) else edit(c)
        return tuple(out)

    @wraps(pull)
    def edited(*args):
        stated = pull(*args)
        return (lambda asked: item(stated(asked))) if callable(stated) else item(stated)

    return edited


def scaled(factor: float) -> Callable[[Op, int], Op]:
    """The derivative by argument i times a number."""
    return lambda op, i: _edited(op, i, lambda v: v * factor)


negated, doubled, slightly_off = scaled(-1.0), scaled(2.0), scaled(1 + 1e-3)


def nought(op: Op, i: int) -> Op:
    """Zero in place of the derivative by argument i."""
    if isinstance(op.rule, Partials):
        d = [*op.rule.d]
        d[i] = 0
        return replace(op, rule=replace(op.rule, reads=None, d=tuple(d)))
    return scaled(0.0)(op, i)


def one_for_nought(op: Op, i: int) -> Op:
    """One in place of a derivative that is constantly zero."""
    assert isinstance(op.rule, Partials)
    d = [*op.rule.d]
    d[i] = 1
    return replace(op, rule=replace(op.rule, reads=None, d=tuple(d)))


def tangent_itself(op: Op, i: int) -> Op:
    """One in place of a push-forward that is constantly zero."""
    return repushed(lambda tangents, *_rest: tangents[i])(op, i)


def conjugated(op: Op, i: int) -> Op:
    """A conjugation too many, which is one missing."""
    if isinstance(op.rule, LinearRule):
        t = [*op.rule.transpose]
        plain = t[i]
        t[i] = wraps(plain)(lambda g, *rest: conj(plain(conj(g), *rest)))
        return replace(op, rule=replace(op.rule, reads=None, transpose=tuple(t)))
    return _edited(op, i, conj)


def swapped(op: Op, _i: int = 0) -> Op:
    """The derivatives by the first two arguments exchanged."""
    field = "d" if isinstance(op.rule, Partials) else "transpose"
    a, b, *rest = getattr(op.rule, field)
    return replace(op, rule=replace(op.rule, reads=None, **{field: (b, a, *rest)}))


def weak(op: Op, _i: int = 0) -> Op:
    """The marks of unbounded partials removed."""
    assert isinstance(op.rule, Partials)
    return replace(op, rule=replace(op.rule, reads=None, strong=(False,) * len(op.rule.strong)))


def _cut(value):
    if type(value) is tuple or type(value) is list:
        return type(value)(_cut(v) for v in value)
    return wrap(value._data) if type(value) in GROUND else value


def _with_cut_arguments(fn: Callable, skip: int) -> Callable:
    @wraps(fn)
    def edited(*args):
        return fn(*args[:skip], *(_cut(a) for a in args[skip:]))

    return edited


def detached(op: Op, i: int) -> Op:
    """Right to first order, but the rule is a constant when it is differentiated again."""
    rule = op.rule
    if isinstance(rule, Partials):
        d = [*rule.d]
        d[i] = _with_cut_arguments(d[i], int(states_product(d[i])))
        return replace(op, rule=replace(rule, reads=None, d=tuple(d)))
    if isinstance(rule, LinearRule):
        t = [*rule.transpose]
        t[i] = _with_cut_arguments(t[i], 1)
        return replace(op, rule=replace(rule, reads=None, transpose=tuple(t)))
    push = _with_cut_arguments(rule.push, 1)
    pull = None if rule.pull is None else _with_cut_arguments(rule.pull, 1)
    return replace(op, rule=replace(rule, reads=None, push=push, pull=pull))


def cotangent_detached(op: Op, i: int) -> Op:
    """Right to first order, but the dependence on the cotangent is lost to second order."""
    rule = op.rule
    if isinstance(rule, LinearRule):
        t = [*rule.transpose]
        plain = t[i]
        t[i] = wraps(plain)(lambda g, *rest: plain(_cut(g), *rest))
        return replace(op, rule=replace(rule, reads=None, transpose=tuple(t)))
    assert isinstance(rule, Jvp) and rule.pull is not None
    pull = rule.pull
    edited = wraps(pull)(lambda g, *rest: pull(_cut(g), *rest))
    return replace(op, rule=replace(rule, reads=None, pull=edited))


def misrouted(op: Op, i: int) -> Op:
    """The right numbers in the wrong places: reversed along the first axis."""
    flip = caller(TABLE["flip"])
    return _edited(op, i, lambda v: flip(v, (0,)) if len(v.shape) else v)


def restated(*derivatives: Callable) -> Callable[[Op, int], Op]:
    """Other derivatives altogether, as partials or as transposes."""

    def mutate(op: Op, _i: int) -> Op:
        field = "d" if isinstance(op.rule, Partials) else "transpose"
        return replace(op, rule=replace(op.rule, reads=None, **{field: derivatives}))

    return mutate


def repulled(pull: Callable) -> Callable[[Op, int], Op]:
    """Another pull-back altogether."""
    return lambda op, _i: replace(op, rule=replace(op.rule, reads=None, pull=pull))


def repushed(push: Callable) -> Callable[[Op, int], Op]:
    """Another push-forward altogether, from which the pull-back is derived too."""
    return lambda op, _i: replace(
        op, rule=replace(op.rule, reads=None, push=push, pull=None, keep=None)
    )


def pull_only(edit: Callable) -> Callable[[Op, int], Op]:
    """An error in the stated pull-back alone: the push-forward contradicts it."""

    def mutate(op: Op, i: int) -> Op:
        pull = _item_edited(op.rule.pull, i, edit)
        return replace(op, rule=replace(op.rule, reads=None, pull=pull))

    return mutate


def push_only(edit: Callable) -> Callable[[Op, int], Op]:
    """An error in the push-forward alone, where the pull-back is stated."""

    def mutate(op: Op, i: int) -> Op:
        push = _tangent_edited(op.rule.push, i, edit)
        return replace(op, rule=replace(op.rule, reads=None, push=push))

    return mutate
