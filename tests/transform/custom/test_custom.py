"""Custom operations: every transformation of one equals that of the same code without rules."""

import numpy as np
import pytest
from scipy import special

import weft as wf
from weft import errors

DEVICES = ("cpu", "torch")
EPS = np.finfo(np.float64).eps


def plain(a, b):
    """The mathematics of the operations below: two inputs, two outputs."""
    return a * wf.sin(b), wf.exp(a) + b * b


def pull(g, inputs, output):
    (a, b), (p, q) = inputs, g
    return p * wf.sin(b) + q * wf.exp(a), p * a * wf.cos(b) + 2.0 * q * b


def push(tangents, inputs):
    (a, b), (s, t) = inputs, tangents
    s = wf.zeros_like(a) if s is None else s
    t = wf.zeros_like(b) if t is None else t
    return s * wf.sin(b) + t * a * wf.cos(b), s * wf.exp(a) + 2.0 * t * b


class Wave(wf.CustomOp):
    """The class form, with a pull-back."""

    def forward(self, inputs):
        return plain(*inputs)

    def backward(self, grad_output, inputs):
        return list(pull(grad_output, inputs, None))


class PushedWave(wf.CustomOp):
    """The class form, with a push-forward."""

    def forward(self, inputs):
        return plain(*inputs)

    def jvp(self, tangents, inputs):
        return push(tangents, inputs)


FORMS = {
    "vjp": wf.custom_op(plain, vjp=pull),
    "jvp": wf.custom_op(plain, jvp=push),
    "both": wf.custom_op(plain, vjp=pull, jvp=push),
    "loop": wf.custom_op(plain, vjp=pull, jvp=push, batch="loop"),
    "class with backward": Wave(),
    "class with jvp": PushedWave(),
}


def total(f):
    """A number of f that sees both outputs, unevenly."""
    return lambda a, b: (f(a, b)[0] * f(a, b)[1]).sum() + (f(a, b)[1] ** 2).sum()


def one(f):
    """f as a function of its first argument."""
    return lambda a: f(a, a * 0.5 + 1.0)


def along(f):
    """The derivative of f along a direction that depends on the point."""
    return lambda a, b: wf.jvp(f, (a, b), (b, a + b))[1]


TRANSFORMATIONS = {
    "value": lambda f: f,
    "grad": lambda f: wf.grad(total(f), (0, 1)),
    "grad by one": lambda f: wf.grad(total(f), 1),
    "jvp": along,
    "jvp by one": lambda f: lambda a, b: wf.jvp(lambda a: f(a, b), (a,), (b,))[1],
    "grad of jvp": lambda f: wf.grad(total(along(f)), (0, 1)),
    "jvp of grad": lambda f: along(wf.grad(total(f), (0, 1))),
    "jvp of jvp": lambda f: along(along(f)),
    "grad of grad": lambda f: wf.grad(total(wf.grad(total(f), (0, 1))), (0, 1)),
    "third order": lambda f: along(wf.grad(total(along(f)), (0, 1))),
    "hessian": lambda f: wf.hessian(total(f)),
    "jacobian": lambda f: lambda a, b: wf.jacobian(one(f))(a),
    "linearize": lambda f: lambda a, b: wf.linearize(lambda a: f(a, b), a)[1](b),
    "vmap": lambda f: wf.vmap(f),
    "vmap over one": lambda f: lambda a, b: wf.vmap(f, in_axes=(0, None))(a, b[0]),
    "vmap of vmap": lambda f: lambda a, b: wf.vmap(wf.vmap(f, (None, 0)), (0, None))(a, b),
    "vmap of grad": lambda f: wf.vmap(wf.grad(total(f), (0, 1))),
    "vmap of jvp": lambda f: wf.vmap(along(f)),
    "grad of vmap": lambda f: wf.grad(total(wf.vmap(f)), (0, 1)),
    "grad of vmap over one": lambda f: (
        lambda a, b: wf.grad(lambda a, b: total(wf.vmap(f, in_axes=(None, 0)))(a, b), (0, 1))(
            a[0], b
        )
    ),
    "jvp of vmap": lambda f: along(wf.vmap(f)),
    "vmap of jvp of grad": lambda f: wf.vmap(along(wf.grad(total(f), (0, 1)))),
    "grad of vmap of jvp": lambda f: wf.grad(total(wf.vmap(along(f))), (0, 1)),
    "checkpoint": lambda f: wf.grad(lambda a, b: total(lambda *x: wf.checkpoint(f, *x))(a, b)),
}


def leaves(out) -> list:
    return [x for o in out for x in leaves(o)] if isinstance(out, list | tuple) else [out]


def agree(found, expected):
    for x, y in zip(leaves(found), leaves(expected), strict=True):
        assert x.dtype == y.dtype and x.device == y.device
        x, y = x.to("cpu").numpy(), y.to("cpu").numpy()
        np.testing.assert_allclose(x, y, rtol=0, atol=64 * EPS * np.abs(y).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("form", FORMS)
def test_transformations(form, name, device):
    rng = np.random.default_rng(3)
    a, b = (wf.tensor(rng.normal(size=3), device=device) for _ in range(2))
    transformed = TRANSFORMATIONS[name]
    agree(transformed(FORMS[form])(a, b), transformed(plain)(a, b))


@pytest.mark.parametrize("form", FORMS)
def test_create_graph_and_backward(form):
    def curvature(f):
        a, b = (wf.tensor([0.5, 1.5], dtype="float64", requires_grad=True) for _ in range(2))
        first = total(f)(a, b).backward(create_graph=True)
        second = (first[a] * first[b]).sum().backward()
        return [second[a], second[b]]

    agree(curvature(FORMS[form]), curvature(plain))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64", "complex128"])
def test_dtypes(dtype):
    def square(x):
        return x * x

    forms = [
        wf.custom_op(square, vjp=lambda g, inputs: 2.0 * inputs[0].conj() * g),
        wf.custom_op(square, jvp=lambda t, inputs: 2.0 * inputs[0] * t[0]),
    ]
    x = wf.tensor([0.5, 2.0, -1.25]).to(dtype)
    x = x * (1 + 2j) if "complex" in dtype else x
    for op in forms:
        y, dy = wf.jvp(op, (x,), (x,))
        assert y.dtype == dy.dtype == x.dtype and dy.tolist() == (2.0 * x * x).tolist()
        g = wf.vjp(op, x)[1](x)[0]
        assert g.dtype == x.dtype and g.tolist() == (2.0 * x.conj() * x).tolist()


# Opaque functions


@wf.custom_op
def zeta_like(x):
    """A function of SciPy's, whose derivative wf knows."""
    return special.expit(x.to("cpu").numpy())


@zeta_like.def_vjp
def _(g, _inputs, output):
    return g * output * (1.0 - output)


@pytest.mark.parametrize("device", DEVICES)
def test_opaque_forward_with_a_rule_in_wf(device):
    x = wf.tensor(np.array([-1.0, 0.5]), device=device)
    for name in ("grad", "jvp", "jvp of grad", "grad of grad", "third order"):
        transformed = TRANSFORMATIONS[name]
        agree(
            transformed(lambda a, b: (zeta_like(a), zeta_like(b)))(x, x + 1.0),
            transformed(lambda a, b: (wf.sigmoid(a), wf.sigmoid(b)))(x, x + 1.0),
        )


def test_opaque_forward_in_vmap_says_what_to_give():
    with pytest.raises(errors.BatchingError, match=r"zeta_like: its forward.*batch='loop'"):
        wf.vmap(zeta_like)(wf.ones((2, 3)))


def opaque_sine(**options):
    @wf.custom_op(vjp=lambda g, inputs: g * np.cos(inputs[0].numpy()), **options)
    def sine(x):
        return np.sin(x.numpy())

    return sine


def test_looping_over_an_opaque_operation():
    sine, x = opaque_sine(batch="loop"), wf.tensor(np.linspace(0.0, 1.0, 12).reshape(2, 2, 3))
    agree(wf.vmap(wf.vmap(sine))(x), wf.sin(x))
    agree(wf.vmap(wf.grad(lambda x: sine(x).sum()))(x), wf.cos(x))
    agree(wf.grad(lambda x: wf.vmap(sine)(x).sum())(x), wf.cos(x))
    agree(wf.vmap(lambda x: wf.jvp(sine, (x,), (x,))[1])(x), wf.cos(x) * x)
    shared = wf.vmap(lambda k, x: k * wf.grad(lambda x: sine(x).sum())(x), in_axes=(0, None))
    agree(shared(wf.tensor(np.arange(2.0)), x[0]), wf.stack([0.0 * x[0], wf.cos(x[0])]))
    with pytest.raises(errors.BatchingError, match="sine: a batch of no elements"):
        wf.vmap(sine)(wf.zeros((0, 3)))


def test_opaque_rules_have_no_higher_order():
    sine, x = opaque_sine(), wf.tensor(1.0)
    for second in (wf.grad(wf.grad(sine)), lambda x: wf.jvp(wf.grad(sine), (x,), (x,))):
        with pytest.raises(errors.NotDifferentiable, match=r"sine: its vjp \(test_custom.py:\d+"):
            second(x)
    sine.def_batch(lambda inputs, mapped: np.sin(inputs[0].numpy()))
    with pytest.raises(errors.BatchingError, match=r"sine: its vjp.*batch='loop'"):
        wf.vmap(wf.grad(sine))(wf.ones(2))


def test_opaque_vjp_gives_no_forward_mode():
    op = wf.custom_op(lambda x: 2.0 * x, vjp=lambda g: 2.0 * g.numpy())
    assert wf.grad(op)(wf.tensor(1.0)).item() == 2.0
    with pytest.raises(errors.NotDifferentiable, match=r"leaves wf's functions.*jvp=…"):
        wf.jvp(op, (wf.tensor(1.0),), (wf.tensor(1.0),))


def batched_norm():
    """‖x − c‖ for NumPy, and for a batch of x, of c or of both."""
    op = wf.custom_op(lambda x, c: np.linalg.norm(x.numpy() - c.numpy()))
    seen = []

    @op.def_vjp
    def _(g, inputs, output):
        d = (inputs[0] - inputs[1]) * (g / output)
        return d, -d

    @op.def_batch
    def _(inputs, mapped):
        seen.append(mapped)
        x, c = (v.numpy() for v in inputs)
        return np.linalg.norm(x - c, axis=-1)

    return op, seen


def test_batch_rule():
    op, seen = batched_norm()
    rng = np.random.default_rng(0)
    x, c = (wf.tensor(rng.normal(size=(4, 2, 3))) for _ in range(2))

    def norm(x, c):
        return ((x - c) ** 2).sum() ** 0.5

    nested = {
        "both": lambda f: wf.vmap(wf.vmap(f))(x, c),
        "one": lambda f: wf.vmap(wf.vmap(f, (0, None)), (0, None))(x, c[0, 0]),
        "crossed": lambda f: wf.vmap(wf.vmap(f, (None, 0)), (0, None))(x[:, 0], c[0]),
        "gradient": lambda f: wf.grad(lambda x: wf.vmap(wf.vmap(f))(x, c).sum())(x),
        "gradients": lambda f: wf.vmap(wf.vmap(wf.grad(f)))(x, c),
        "along": lambda f: wf.jvp(lambda x: wf.vmap(wf.vmap(f))(x, c), (x,), (c,))[1],
    }
    for mapped in nested.values():
        agree(mapped(op), mapped(norm))
    assert [True, False] in seen and [True, True] in seen


def test_wrong_batch_rule():
    op = wf.custom_op(lambda x: x * 2.0, vjp=lambda g: g * 2.0)
    op.def_batch(lambda inputs, mapped: inputs[0].sum(axis=0))
    with pytest.raises(errors.ShapeError, match=r"batch rule returned the shape \(2,\).*axis of 3"):
        wf.vmap(op)(wf.ones((3, 2)))


def test_forward_and_rule_may_differentiate():
    """A transformation inside the operation does not see those that run outside of it."""

    @wf.custom_op(vjp=lambda g, inputs: g * wf.grad(wf.grad(lambda x: x**4))(inputs[0]))
    def slope(x):
        return wf.grad(lambda x: x**4)(x)

    def same(x):
        return 4.0 * x**3

    x = wf.tensor(np.array([1.0, 2.0]))
    for transformed in (
        wf.vmap,
        lambda f: wf.vmap(wf.grad(f)),
        lambda f: wf.vmap(wf.grad(wf.grad(f))),
        lambda f: wf.vmap(lambda x: wf.jvp(f, (x,), (x,))[1]),
        lambda f: wf.vmap(lambda x: wf.jvp(wf.grad(f), (x,), (x,))[1]),
        lambda f: wf.grad(lambda x: wf.vmap(f)(x).sum()),
    ):
        agree(transformed(slope)(x), transformed(same)(x))


# The missing mode


class ClipGradient(wf.CustomOp):
    def __init__(self, limit):
        self.limit = limit

    def forward(self, inputs):
        return inputs[0]

    def backward(self, grad_output, _inputs):
        return [grad_output.clamp(-self.limit, self.limit)]


@pytest.mark.parametrize("limit", [1e-3, 1.0, 1e3])
def test_a_rule_that_is_not_linear_gives_one_mode_only(limit):
    x = wf.tensor([3.0], dtype="float64", requires_grad=True)
    clip = ClipGradient(limit)
    assert (clip(x) * 5e4).sum().backward()[x].tolist() == [limit]
    with pytest.raises(errors.NotDifferentiable, match=r"ClipGradient: forward mode.*not linear"):
        wf.jvp(clip, (wf.ones(1),), (wf.ones(1),))


@pytest.mark.parametrize(
    "rule",
    [
        lambda g: abs(g),
        lambda g: g + 1.0,
        lambda g: g * (g > 0),
        lambda g: g / (1.0 + g * g) ** 0.5,
    ],
    ids=["abs", "shifted", "relu", "normalised"],
)
def test_other_rules_that_are_not_linear(rule):
    with pytest.raises(errors.NotDifferentiable, match="not linear in its cotangent"):
        wf.jvp(wf.custom_op(lambda x: x, vjp=rule), (wf.ones(4),), (wf.ones(4),))
    op = wf.custom_op(lambda x: x, jvp=lambda tangents: rule(tangents[0]))
    with pytest.raises(errors.NotDifferentiable, match="not linear in its tangents"):
        wf.grad(lambda x: op(x).sum())(wf.ones(4))


def test_a_rule_that_cuts_its_own_derivative():
    op = wf.custom_op(lambda x: x, vjp=lambda g: g.detach())
    with pytest.raises(errors.NotDifferentiable, match="cuts its own derivative"):
        wf.jvp(op, (wf.ones(2),), (wf.ones(2),))


def test_linearity_is_tested_once_for_each_kind_of_values():
    calls = []

    @wf.custom_op
    def double(x):
        return 2.0 * x

    @double.def_vjp
    def _(g):
        calls.append(g.shape)
        return 2.0 * g

    counts = []
    for x in (wf.ones(3), wf.zeros(3), wf.ones(3), wf.ones(2), wf.ones(3, dtype="float64")):
        before = len(calls)
        wf.jvp(double, (x,), (x,))
        counts.append(len(calls) - before)
    assert counts[1] == counts[2] == 1
    assert min(counts[0], counts[3], counts[4]) > 1


def test_both_rules_are_used_as_they_are():
    op = wf.custom_op(lambda x: x, vjp=lambda g: 3.0 * g, jvp=lambda tangents: 5.0 * tangents[0])
    x = wf.tensor(1.0)
    assert wf.grad(op)(x).item() == 3.0
    assert wf.jvp(op, (x,), (x,))[1].item() == 5.0


def test_no_rule():
    twice = wf.custom_op(lambda x: 2.0 * x)
    x = wf.tensor(1.0)
    assert twice(x).item() == 2.0 and wf.vmap(twice)(wf.ones(2)).tolist() == [2.0, 2.0]
    for derivative in (wf.grad(twice), lambda x: wf.jvp(twice, (x,), (x,))):
        with pytest.raises(errors.NotDifferentiable, match=r"<lambda>.*has no derivative"):
            derivative(x)
