"""Assignments inside transformations inside compiled functions, into values made of anything."""

import numpy as np
import pytest

import weft as wf

P, Q = wf.Parameter(wf.tensor([2.0, 3.0, 4.0])), wf.tensor([2.0, 3.0, 4.0])
BASES = {
    "parameter": lambda x: P * 1,
    "clone": lambda x: P.clone(),
    "captured": lambda x: Q * 1,
    "constant": lambda x: wf.zeros(3),
    "both": lambda x: P * Q,
    "argument": lambda x: x * 1,
    "differentiated and not": lambda x: P * x,
}
MODES = {
    "jvp": lambda f: lambda x: wf.jvp(f, (x,), (x,)),
    "grad": lambda f: wf.grad(lambda x: f(x).sum()),
    "vmap": lambda f: lambda x: wf.vmap(lambda s: f(x * s))(x),
    "jacobian": wf.jacobian,
    "jvp of grad": lambda f: lambda x: wf.jvp(wf.grad(lambda x: f(x).sum()), (x,), (x,)),
    "vmap of jvp": lambda f: lambda x: wf.vmap(lambda s: wf.jvp(f, (x * s,), (x,))[1])(x),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("base", BASES)
def test_assignments_are_as_without_compile(base, mode):
    def program(x):
        v = BASES[base](x)
        v[1:] = x[1:] * x[:2]
        return v * x

    f, x = MODES[mode](program), wf.tensor([1.0, 2.0, 3.0])
    found = []
    for g in (f, wf.compile(f)):
        y = g(x)
        found.append([v.detach().numpy() for v in (y if isinstance(y, tuple) else (y,))])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5)
