"""What a row says that its rule reads is what the rule reads, no less and no more.

For each argument that is differentiated by, a pull-back runs on what was saved for it: what the row
does not name is not there. Then one saved value at a time is taken away, and it must be missed.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from weft.core.call import caller
from weft.core.op import LinearRule, Op, Partials
from weft.core.value import wrap
from weft.errors import ArgumentError
from weft.ops.rows import elementwise, general, linear
from weft.transform.modes.reverse import sweep

from .probe import attach_leaf, inexact
from .rows import cases, load

TABLE = load()
# What is saved and not missed in the cases, with the reason.
NOT_MISSED = {
    "attention_gradient": {(0, 9)},  # seeds, which only count with dropout
    "linear_gradient": {(0, 1), (0, 2), (0, 3)},  # it leaves out terms with None
    "zeta": {(1, 2)},  # without q it is Riemann's
}


def states_each(op: Op) -> bool:
    """Whether a rule has a function for each argument; else one reads for all of them."""
    return isinstance(op.rule, Partials | LinearRule) and op.arity is not None


def has_derivative(op: Op, i: int) -> bool:
    each = op.rule.d if isinstance(op.rule, Partials) else getattr(op.rule, "transpose", ())
    return not states_each(op) or each[i] is not None


def recorded(op: Op, case, i: int):
    """The outputs of a case whose argument i alone is differentiated by."""
    args = [wrap(a) if isinstance(a, np.ndarray) else a for a in case.args]
    attach_leaf(args[i])
    out = caller(op)(args, *case.static) if op.arity is None else caller(op)(*args, *case.static)
    return [t for t in (out if isinstance(out, tuple) else (out,)) if t._node is not None]


def pulled(outs, without: int | None = None) -> None:
    """Run the pull-back on ones, after a saved value was taken away."""
    node = outs[0]._node
    whole = node.parents[0] if node.op.rule is None else node
    if without is not None:
        whole.saved = tuple([None if k == without else s for k, s in enumerate(whole.saved)])
    sweep({t._node: np.ones_like(t._data) for t in outs}, record=False, retain=True)


def saved_by(outs) -> list[int]:
    node = outs[0]._node
    whole = node.parents[0] if node.op.rule is None else node
    return [k for k, s in enumerate(whole.saved) if s is not None]


def unread(op: Op) -> set[tuple[int, int]]:
    """(argument, what of (y, *args) is saved for it) that no case of the row reads."""
    kept, read = set(), set()
    for case in cases(op):
        for i, a in enumerate(case.args):
            if not inexact(a) or not a.size or not has_derivative(op, i):
                continue
            outs = recorded(op, case, i)
            if not outs:
                continue
            pulled(outs)
            for k in saved_by(outs):
                what = (i, k) if states_each(op) else (0, k)
                kept.add(what)
                try:
                    pulled(recorded(op, case, i), without=k)
                except Exception:
                    read.add(what)
    return kept - read


@pytest.mark.parametrize("name", [n for n in sorted(TABLE) if TABLE[n].rule is not None])
def test_what_is_saved_is_read(name):
    op = TABLE[name]
    if getattr(op.rule, "keep", None) is not None:
        return  # which says itself what it keeps
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        assert unread(op) == NOT_MISSED.get(name, set())


@pytest.mark.parametrize(
    "name, reads",
    [("multiply", ((False, True, False), (False, False, True))), ("sin", ((True, False),))],
)
def test_a_rule_cannot_read_what_its_row_does_not_name(name, reads):
    op = replace(TABLE[name], rule=replace(TABLE[name].rule, reads=reads))
    with pytest.raises((TypeError, ArgumentError)):
        pulled(recorded(op, cases(op)[0], 0))


def test_a_transpose_gets_a_stand_in_that_has_no_values():
    op = TABLE["matmul"]
    op = replace(op, rule=replace(op.rule, reads=((False,), (False,))))
    with pytest.raises(Exception, match=r"Leaf|NoneType"):
        pulled(recorded(op, cases(op)[0], 0))


def test_names_that_no_rule_has_are_refused():
    with pytest.raises(ValueError, match=r"bad: reads='z', but the rule's function takes"):
        elementwise("bad", [lambda y, x: x], reads="z")
    with pytest.raises(ValueError, match="bad: reads='y'"):
        linear("bad", shape=None, transpose=[lambda g, x: g], reads="y")
    with pytest.raises(ValueError, match="bad: reads='x z'"):
        general("bad", shape=None, push=lambda t, y, x: t, arity=1, reads="x z")
