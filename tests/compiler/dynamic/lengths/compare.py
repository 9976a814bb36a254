"""Compiled calls of many lengths against eager ones of the same function."""

from contextlib import contextmanager
from typing import ClassVar

import numpy as np
import optree

import weft as wf
from weft import errors
from weft.compiler.dynamic import share
from weft.compiler.frontend import variant

from ...equations import interpret

LENGTHS = (5, 9, 16, 2, 12, 1, 17)
MODES = ("forward", "gradient", "outside", "step")


class Interpreted:
    """Stands in for native code: equation by equation on NumPy's kernels, without compiling."""

    copies: ClassVar[dict] = {}
    library = fresh = ()

    def __init__(self, graph, donated, target, checkpoint=None, capture=True):
        self.graph, self.donated = graph, donated

    def run(self, values, room=None, ending=None):
        made = interpret(self.graph, list(values))
        for position, k in self.donated.items():
            values[k][...] = made[position]
            made[position] = values[k]
        return made if ending is None else ending.finish(made)

    def written_last(self, position: int):
        return None


@contextmanager
def interpreted(patch):
    """Run programs without native code: the same graphs, in a hundredth of the time."""
    with patch.context() as p:
        p.setattr(share, "build", Interpreted)
        p.setattr(variant, "build", Interpreted)
        yield


def _total(out):
    """One number of all results."""
    found = [wf.tanh(y).sum() for y in out if y.dtype == wf.float64]
    return sum(found, start=wf.zeros((), dtype="float64"))


def used_in(function, mode: str, weights):
    """The function as it is called in a mode."""
    if mode == "forward":
        return lambda x, k, valid: function(x, k, valid)
    if mode == "gradient":
        return lambda x, k, valid: wf.value_and_grad(lambda x: _total(function(x, k, valid)))(x)
    if mode == "outside":
        return lambda x, k, valid: _total(function(x, k, valid))

    def step(x, k, valid):
        for w in weights:
            w.grad = None
        loss = _total(function(x, k, valid))
        if loss.requires_grad:
            loss.backward()
        for w in weights:
            if w.grad is not None:
                w.copy_(w.detach() - 0.01 * w.grad)
        return loss

    return step


def _seen(out, mode: str, weights) -> list:
    """All that a call has made: its results, and gradients or new values of the weights."""
    leaves = [np.array(y.detach()) for y in optree.tree_leaves(out)]
    if mode == "step":
        return leaves + [np.array(w.detach()) for w in weights]
    if mode == "outside" and out.requires_grad:
        for w in weights:
            w.grad = None
        out.backward()
        leaves += [np.array(0.0 if w.grad is None else w.grad) for w in weights]
    return leaves


def _called(f, args, mode: str, weights, before: list, seed: int):
    """What a call makes, or the error it raises, from the same state."""
    for w, old in zip(weights, before, strict=True):
        w.grad = None
        with wf.no_grad():
            w.copy_(wf.tensor(old))
    wf.random.seed(seed)
    try:
        with np.errstate(all="ignore"):  # a random function may divide by zero
            return _seen(f(*args), mode, weights)
    except errors.WeftError as e:
        return e


def compared(function, mode: str, seed: int, lengths=LENGTHS) -> str:
    """ "equal" or "refused" for a function at these lengths; an `AssertionError` for others."""
    weights = list(function.weights.values())
    before = [np.array(w.detach()) for w in weights]
    f = used_in(function, mode, weights)
    axis, rng = function.axes.index("n"), np.random.default_rng(seed)
    compiled = wf.compile(f, dynamic={"x": axis, "k": axis}, max_variants=len(lengths) + 1)
    for n in lengths:
        x = wf.tensor(rng.uniform(0.5, 2.0, [n if a == "n" else a for a in function.axes]))
        k = wf.tensor(rng.integers(0, 5, x.shape[: axis + 1]))
        valid = wf.ones(n, dtype=bool)
        expected = _called(f, (x, k, valid), mode, weights, before, n)
        found = _called(compiled, (x, k), mode, weights, before, n)
        if isinstance(found, errors.PaddingError):
            return "refused"
        if isinstance(expected, Exception):
            assert isinstance(found, Exception), f"length {n}: eager raises {expected}\n{function}"
            continue
        assert not isinstance(found, Exception), f"length {n}, {mode}: {found!r}\n{function}"
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            what = f"length {n}, {mode}:\n{function}"
            assert (a.shape, a.dtype) == (b.shape, b.dtype), what
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9, err_msg=what)
    return "equal"
