"""Tensors from outside, wherever they enter a compiled function: what they hold then counts.

Each way in gets a tensor that is changed in place between calls; a program in which it were a
constant would go on with what it held at first.
"""

import numpy as np
import pytest

import weft as wf

DEVICES = ("cpu", "torch")


def tape(p, g, x, by_argument):
    with wf.GradientTape() as t:
        if by_argument:
            t.watch(x)
        y = x * x * p
    return t.gradient(y, x if by_argument else p, output_gradients=g)


def hooked(p, g, x):
    y = p * x
    y.register_hook(lambda c: g)
    (y * 2).sum().backward()


def retained(p, g, x):
    y = p * x
    y.retain_grad()
    (y * 2).backward(g)
    return y.grad


def own_pull(p, g, x):
    f = wf.custom_op(lambda x: x * 2.0, vjp=lambda c, inputs: g)
    return wf.grad(lambda v: f(v).sum())(x)


def own_push(p, g, x):
    f = wf.custom_op(lambda x: x * 2.0, jvp=lambda t, inputs: g)
    return wf.jvp(f, (x,), (x,))[1]


def own_value(p, g, x):
    return wf.custom_op(lambda x: g, vjp=lambda c, inputs: c)(x) * x


def dual(p, g, x):
    y = wf.DualTensor(x, g) ** 3
    return y.tangent


def forward_context(p, g, x):
    context = wf.ForwardADContext()
    return context.mul(context.dual(x, g), context.dual(g, x)).tangent


def seeded(p, g, x):
    (p * x).backward(g)


def seeded_and_recorded(p, g, x):
    (p * p * x).backward(g, create_graph=True)


def assigned(p, g, x):
    p.grad = g
    (p * x).sum().backward()


WAYS = {
    "backward": seeded,
    "backward, recorded": seeded_and_recorded,
    "backward of several": lambda p, g, x: wf.stack([p * x, p]).backward(wf.stack([g, g])) and None,
    "backward of a cast": lambda p, g, x: (p * x).to("float32").backward(g) and None,
    "retained": retained,
    "tape, of an argument": lambda p, g, x: tape(p, g, x, True),
    "tape, of a parameter": lambda p, g, x: tape(p, g, x, False),
    "hook": hooked,
    "p.grad": assigned,
    "vjp": lambda p, g, x: wf.vjp(lambda v: v * v * p, x)[1](g),
    "jvp": lambda p, g, x: wf.jvp(lambda v: v * v * p, (x,), (g,)),
    "hvp": lambda p, g, x: wf.hvp(lambda v: (v**3 * p).sum(), (x,), (g,)),
    "linearize": lambda p, g, x: wf.linearize(lambda v: v * v * p, x)[1](g),
    "grad by it": lambda p, g, x: wf.grad(lambda a, b: (a * b * b).sum(), argnums=1)(x, g),
    "jacobian": lambda p, g, x: wf.jacobian(lambda v: v * v * g)(x),
    "hessian": lambda p, g, x: wf.hessian(lambda v: (v**3 * g).sum())(x),
    "DualTensor": dual,
    "ForwardADContext": forward_context,
    "custom_op's vjp": own_pull,
    "custom_op's jvp": own_push,
    "custom_op's result": own_value,
    "vmap": lambda p, g, x: wf.vmap(lambda a, b: a * b)(x, g),
    "vmap around it": lambda p, g, x: wf.vmap(lambda a: a * g)(x),
    "vmap, not mapped": lambda p, g, x: wf.vmap(lambda a, b: a * b, in_axes=(0, None))(x, g),
    "scan": lambda p, g, x: wf.scan(lambda c, _: (c * g + x, None), x, None, length=3)[0],
    "scan over it": lambda p, g, x: wf.scan(lambda c, v: (c + v, c * v), x, g)[1],
    "while": lambda p, g, x: wf.while_loop(lambda s: s.sum() < 99.0, lambda s: s * g + 1.0, x),
    "cond": lambda p, g, x: wf.cond(x.sum() > 0, lambda a: a * g, lambda a: a - g, x),
    "cond on it": lambda p, g, x: wf.cond(g.sum() > 5, lambda a: a * 2, lambda a: a, x),
    "checkpoint": lambda p, g, x: wf.checkpoint(lambda a: a * g * p, x),
    "implicit": lambda p, g, x: wf.implicit.root(lambda y, k: y**3 + y - k, g * 0 + 0.5, x * g),
    "index": lambda p, g, x: x.at[1].set(g[0]) + x[(g > 2).to("int64")],
    "copy_": lambda p, g, x: (x * 1).copy_(g),
    "NumPy's functions": lambda p, g, x: np.sin(g) + x,
    "returned": lambda p, g, x: (g, x * 2),
}


def runs(way, device, compiled):
    """What three calls give, with the tensor changed in between."""
    dtype = "float64"
    x, g = (wf.tensor(v, dtype=dtype, device=device) for v in ([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]))
    if way == "backward of a cast":
        g = g.to("float32")
    p = wf.Parameter(wf.tensor([2.0, 3.0, 4.0], dtype=dtype, device=device))

    def f(x):
        return WAYS[way](p, g, x)

    called, found = wf.compile(f) if compiled else f, []
    for _ in range(3):
        p.grad = None
        y = called(x)
        results = [] if y is None else list(y) if isinstance(y, tuple) else [y]
        results += [] if p.grad is None else [p.grad]
        assert results
        found += [r.detach().numpy().copy() for r in results]
        with wf.no_grad():
            g.copy_(g * 3.0 + 0.5)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", WAYS)
def test_what_they_hold_at_each_call_counts(way, device):
    want, got = (runs(way, device, compiled) for compiled in (False, True))
    assert len({a.tobytes() for a in want}) > 1  # it matters what the tensor holds
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)
