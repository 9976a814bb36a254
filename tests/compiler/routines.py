"""Compiled functions for tests of routines: what they became, and eager mode beside them."""

import numpy as np

import weft as wf
from weft.compiler.ir.schedule import LibraryStep, NativeStep


def steps_of(g) -> tuple:
    """The steps of the latest program of a compiled function."""
    return g._last().executable.schedule.steps


def routines_of(g) -> list[str]:
    """The names of its routines."""
    return [type(s.routine).__name__ for s in steps_of(g) if isinstance(s, NativeStep)]


def compared(f, *arrays, routines=None, units: float = 0, calls: int = 1):
    """f compiled gives what it gives in eager mode, to so many units of rounding; no library call.

    `routines`: the names of those that compute it.
    """
    tensors = [wf.tensor(a) for a in arrays]
    wf.random.seed(11)
    want = [_arrays(f(*tensors)) for _ in range(calls)]
    g = wf.compile(f)
    wf.random.seed(11)
    got = [_arrays(g(*tensors)) for _ in range(calls)]
    library = [(s.op.name, s.reason) for s in steps_of(g) if isinstance(s, LibraryStep)]
    assert not library, library
    if routines is not None:
        assert sorted(routines_of(g)) == sorted(routines)
    for a, b in zip([x for y in got for x in y], [x for y in want for x in y], strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if a.dtype.kind in "fc" and units:
            bound = units * np.finfo(a.dtype).eps
            size = np.abs(b[np.isfinite(b)]).max(initial=0)
            np.testing.assert_allclose(a, b, rtol=bound, atol=bound * size)
        else:
            np.testing.assert_array_equal(a, b)
    return g


def _arrays(out) -> list[np.ndarray]:
    return [x.detach().numpy() for x in (out if isinstance(out, tuple) else (out,))]
