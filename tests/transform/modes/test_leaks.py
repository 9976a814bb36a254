"""What a transformed function leaves behind outside of itself is right, or its use is refused."""

import numpy as np
import pytest

import weft as wf
from weft import errors


class Holder:
    pass


def item(x):
    kept = wf.zeros(3)

    def keep(v):
        kept[0] = v.sum()

    return keep, lambda: kept, lambda v: [v.sum(), 0.0, 0.0]


def augmented(x):
    holder = Holder()
    holder.total = wf.zeros(())

    def keep(v):
        holder.total += v.sum()

    return keep, lambda: holder.total, np.sum


def attribute(x):
    holder = Holder()
    return lambda v: setattr(holder, "v", v), lambda: holder.v, lambda v: v


def element(x):
    kept = []
    return kept.append, lambda: kept[-1], lambda v: v


def parameter(x):
    kept = wf.Parameter(wf.zeros(3))

    def keep(v):
        with wf.no_grad():
            kept[0] = v.sum()

    return keep, lambda: kept, lambda v: [v.sum(), 0.0, 0.0]


def gradient(x):
    kept = wf.Parameter(wf.ones(2))

    def keep(v):
        (kept * v).sum().backward()

    return keep, lambda: kept.grad, lambda v: v


def run_vmap(f, x):
    wf.vmap(f)(wf.stack([x, x]))


def run_scan(f, x):
    wf.scan(lambda c, v: (c, f(v)), wf.zeros(()), wf.stack([x]))


TRANSFORMS = {
    "vmap": run_vmap,
    "jvp": lambda f, x: wf.jvp(f, (x,), (x,)),
    "grad": lambda f, x: wf.grad(f)(x),
    "vjp": lambda f, x: wf.vjp(f, x)[1](wf.tensor(1.0)),
    "jacobian": lambda f, x: wf.jacobian(f)(x),
    "hessian": lambda f, x: wf.hessian(f)(x),
    "linearize": lambda f, x: wf.linearize(f, x),
    "compile": lambda f, x: wf.compile(f)(x),
    "checkpoint": lambda f, x: wf.checkpoint(f, x),
    "scan": run_scan,
    "cond": lambda f, x: wf.cond(wf.tensor(True), f, f, x),
    "vmap of jvp": lambda f, x: run_vmap(lambda v: wf.jvp(f, (v,), (v,))[1], x),
    "jvp of vmap": lambda f, x: wf.jvp(lambda v: wf.vmap(f)(wf.stack([v, v])), (x,), (x,)),
    "compiled vmap": lambda f, x: wf.compile(wf.vmap(f))(wf.stack([x, x])),
}
THINGS = [item, augmented, attribute, element, parameter, gradient]


@pytest.mark.parametrize("thing", THINGS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_what_is_left_behind(name, thing):
    x = wf.tensor([1.0, 2.0])
    keep, kept, expected = thing(x)

    def f(v):
        keep(v)
        return (v * v).sum()

    try:
        TRANSFORMS[name](f, x)
        if kept() is None:
            return  # a gradient that was not taken with respect to the parameter
        used = kept() * 1.0
    except (errors.WeftError, errors.SideEffectWarning) as e:
        said = str(e)
        assert any(w in said for w in ("return", "outside", "jvp", "vmap", "compile")), said
        return
    assert type(used) is wf.Tensor
    found = used.detach().numpy()
    np.testing.assert_allclose(found, expected(x.numpy()), rtol=1e-6)
