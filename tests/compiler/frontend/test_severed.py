"""Gradients made without their graph inside a compiled function, differentiated outside of it.

Where eager mode refuses a derivative that would lack a path, compiled functions refuse it too;
where it gives one, they give the same: (how the gradient is made) × (what becomes of it) × (how the
argument is made) × (how derivatives are taken).
"""

import numpy as np
import pytest

import weft as wf

B = wf.tensor([0.3, 0.4])
W = wf.Parameter([0.5, 0.7])


def by_another_leaf(x):
    t = B.detach().requires_grad_()
    return (wf.sin(t) * x.sum()).sum().backward()[t]


def by_the_argument(x):
    return (wf.sin(x) * x).sum().backward(retain_graph=True).get(x, wf.ones(2))


def by_a_parameter(x):
    W.grad = None
    (W * W * x).sum().backward()
    return W.grad


def by_a_tape(x):
    with wf.GradientTape() as tape:
        t = tape.watch(B.detach())
        y = (t * t * x).sum()
    return tape.gradient(y, t)


def with_its_graph(x):
    t = B.detach().requires_grad_()
    return (wf.sin(t) * x.sum()).sum().backward(create_graph=True)[t]


MADE = (by_another_leaf, by_the_argument, by_a_parameter, by_a_tape, with_its_graph)
USED = {
    "returned": (lambda x, g: g, lambda x, y: (y * y).sum()),
    "returned beside the argument": (lambda x, g: g, lambda x, y: (y * x).sum()),
    "mixed inside": (lambda x, g: (g * x).sum() + x.sum(), lambda x, y: y * 2),
    "added inside": (lambda x, g: wf.sin(g).sum() + x.sum(), lambda x, y: y * y),
    "two results": (lambda x, g: (g.sum(), x * 2), lambda x, y: y[1].sum() + x.sum()),
    "both of two": (lambda x, g: (g.sum() * x, x * 2), lambda x, y: (y[0] * y[1]).sum()),
    "as a constant": (lambda x, g: (g.detach() * x).sum(), lambda x, y: y * y),
    "left in .grad": (lambda x, g: x.sum() * 2, lambda x, y: y + (W.grad * x).sum()),
}
GIVEN = {"a leaf": lambda x: x, "a computed value": lambda x: x * 3.0}


def by_grad(f, x):
    return wf.grad(f)(x)


def by_backward(f, x):
    leaf = x.detach().requires_grad_()
    return f(leaf).backward()[leaf]


def by_vjp(f, x):
    (found,) = wf.vjp(f, x)[1](wf.tensor(1.0))
    return found


TAKEN = (by_grad, by_backward, by_vjp)


def outcome(jit, made, used, given, taken) -> list:
    """What three calls give, or the kind of the error that ends them."""
    W.grad = wf.tensor([1.0, 2.0])
    inside, outside = USED[used]
    program = jit(lambda x: inside(x, made(x)))

    def loss(x):
        x = GIVEN[given](x)
        return outside(x, program(x))

    found = []
    for k in range(3):
        try:
            found.append(np.asarray(taken(loss, wf.tensor([1.0, 2.0]) + 0.1 * k)[...].tolist()))
        except wf.errors.WeftError as e:
            found.append(type(e))
    return found


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("made", MADE)
def test_compiled_functions_refuse_what_eager_mode_refuses(made, used, given, taken):
    expected = outcome(lambda f: f, made, used, given, taken)
    found = outcome(wf.compile, made, used, given, taken)
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, type):
            assert a is b or a is wf.errors.StagingError
        elif a is not wf.errors.StagingError:
            np.testing.assert_allclose(a, b, rtol=1e-6)
