"""`grad`, `value_and_grad`, `vjp`, `jvp`, `hvp`: trees, argnums, aux, and PyTorch beside them."""

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import torch

import weft as wf

DEVICES = ["cpu", "torch"]
# Results of the same few operations in another order: some units of the last place.
CLOSE = {"rtol": 1e-13, "atol": 1e-13}


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture
def make(device):
    """Numbers as a float64 tensor on the device."""
    return lambda values: wf.tensor(np.asarray(values, np.float64), device=device)


def array(x) -> np.ndarray:
    return x.detach().to("cpu").numpy()


def assert_close(got, expected):
    np.testing.assert_allclose(array(got), expected, **CLOSE)


class Layer(NamedTuple):
    weight: object
    bias: object


# One function of three arrays w (2×3), b (2), s (); the containers it is called with differ.
W = np.linspace(-1.0, 1.0, 6).reshape(2, 3)
B, S = np.array([0.3, -0.2]), np.array(1.5)
X = np.array([0.5, -1.0, 2.0])
ARRAYS = (W, B, S)


def loss(w, b, s, x):
    return ((w @ x + b) ** 2).sum() * s


def closed_form():
    """∂loss by w, b and s."""
    r = W @ X + B
    return 2 * S * np.outer(r, X), 2 * S * r, (r**2).sum()


BUILD = {
    "tuple": lambda w, b, s: (w, b, s),
    "list": lambda w, b, s: [w, b, s],
    "dict": lambda w, b, s: {"w": w, "b": b, "s": s},
    "ordered dict": lambda w, b, s: OrderedDict(w=w, s=s, b=b),
    "named tuple": lambda w, b, s: (Layer(w, b), s),
    "nested": lambda w, b, s: {"layers": [Layer(w, b), ()], "rest": ({"s": s}, None)},
}
READ = {
    "tuple": tuple,
    "list": tuple,
    "dict": lambda t: (t["w"], t["b"], t["s"]),
    "ordered dict": lambda t: (t["w"], t["b"], t["s"]),
    "named tuple": lambda t: (t[0].weight, t[0].bias, t[1]),
    "nested": lambda t: (t["layers"][0].weight, t["layers"][0].bias, t["rest"][0]["s"]),
}


@pytest.fixture(params=BUILD)
def tree(request, make):
    """(the parameters as a tree, the function that takes one apart)."""
    return BUILD[request.param](*map(make, ARRAYS)), READ[request.param]


def test_grad_of_a_tree_is_a_tree_like_it(tree, make):
    parameters, read = tree
    gradient = wf.grad(lambda p, x: loss(*read(p), x))(parameters, make(X))
    assert type(gradient) is type(parameters)
    for got, expected in zip(read(gradient), closed_form(), strict=True):
        assert_close(got, expected)


def test_value_and_grad_of_a_tree(tree, make):
    parameters, read = tree
    value, gradient = wf.value_and_grad(lambda p: loss(*read(p), make(X)))(parameters)
    assert_close(value, ((W @ X + B) ** 2).sum() * S)
    assert_close(read(gradient)[0], closed_form()[0])


def test_vjp_and_jvp_of_a_tree_are_adjoint(tree, make):
    """Both results are trees like the function's, here of the arguments' structure."""
    parameters, read = tree
    rng = np.random.default_rng(0)
    rebuild = BUILD[next(k for k in READ if READ[k] is read and _is_like(k, parameters))]

    def f(p):
        w, b, s = read(p)
        return rebuild(wf.sin(w) * s, b * b * s, (w @ make(X)).sum() * s)

    u, v = (rebuild(*(make(rng.normal(size=a.shape)) for a in ARRAYS)) for _ in range(2))
    y, dy = wf.jvp(f, (parameters,), (v,))
    same, pull = wf.vjp(f, parameters)
    (g,) = pull(u)
    assert type(y) is type(dy) is type(g) is type(parameters)
    for a, b in zip(read(y), read(same), strict=True):
        assert_close(a, array(b))
    forward = sum((a * b).sum() for a, b in zip(read(u), read(dy), strict=True))
    backward = sum((a * b).sum() for a, b in zip(read(g), read(v), strict=True))
    assert_close(forward, array(backward))


def _is_like(name: str, parameters) -> bool:
    return type(BUILD[name](0, 0, 0)) is type(parameters)


def test_the_derivative_along_a_tree(tree, make):
    parameters, read = tree
    same = wf.jvp(lambda p: loss(*read(p), make(X)), (parameters,), (parameters,))[1]
    expected = sum((a * g).sum() for a, g in zip(ARRAYS, closed_form(), strict=True))
    assert_close(same, expected)


def test_hvp_of_a_tree(tree, make):
    """The Hessian by s, w times itself: along s only, ∂loss/∂w / s and nothing for s."""
    parameters, read = tree
    zero = {k: wf.zeros_like(make(a)) for k, a in zip("wbs", ARRAYS, strict=True)}
    name = next(k for k in READ if READ[k] is read and _is_like(k, parameters))
    direction = BUILD[name](zero["w"], zero["b"], make(1.0))
    product = read(wf.hvp(lambda p: loss(*read(p), make(X)), (parameters,), (direction,)))
    by_w, by_b, _ = closed_form()
    for got, expected in zip(product, (by_w / S, by_b / S, 0.0), strict=True):
        assert_close(got, expected)


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [
        (0, 0),
        (2, 2),
        (-1, 2),
        (-3, 0),
        ((0,), (0,)),
        ((0, 2), (0, 2)),
        ((2, 0), (2, 0)),
        ((-1, 0), (2, 0)),
        ([1], (1,)),
    ],
)
def test_argnums(argnums, expected, make):
    def f(a, b, c):
        return a**2 * b**3 * c

    a, b, c = 2.0, 3.0, 5.0
    slopes = (2 * a * b**3 * c, 3 * a**2 * b**2 * c, a**2 * b**3)
    got = wf.grad(f, argnums=argnums)(make(a), make(b), make(c))
    if isinstance(expected, int):
        return assert_close(got, slopes[expected])
    assert isinstance(got, tuple) and len(got) == len(expected)
    for g, i in zip(got, expected, strict=True):
        assert_close(g, slopes[i])
    return None


def test_arguments_outside_argnums_may_be_anything(make):
    gradient = wf.grad(lambda n, x, mode: x**n if mode == "power" else x, argnums=1)
    assert_close(gradient(3, make(2.0), "power"), 12.0)


def test_keywords_are_constants(make):
    def f(x, *, scale, power=2):
        return scale * x**power

    assert_close(wf.grad(f)(make(3.0), scale=make(2.0)), 12.0)
    assert_close(wf.value_and_grad(f)(make(3.0), scale=2.0, power=3)[1], 54.0)


def test_aux_of_grad(make):
    def f(x):
        y = x * x
        return y.sum(), {"y": y, "name": "squares"}

    x = make([1.0, 2.0])
    gradient, aux = wf.grad(f, has_aux=True)(x)
    (value, same), again = wf.value_and_grad(f, has_aux=True)(x)
    assert gradient.tolist() == again.tolist() == [2.0, 4.0]
    assert aux["name"] == same["name"] == "squares"
    assert aux["y"].tolist() == same["y"].tolist() == [1.0, 4.0]
    assert value.item() == 5.0
    assert not aux["y"].requires_grad and not value.requires_grad


def test_aux_of_vjp_and_jvp(make):
    def f(x):
        return x**3, (x**2, "aux")

    y, pull, (square, name) = wf.vjp(f, make(2.0), has_aux=True)
    assert (y.item(), pull(make(1.0))[0].item(), square.item(), name) == (8.0, 12.0, 4.0, "aux")
    y, dy, (square, name) = wf.jvp(f, (make(2.0),), (make(1.0),), has_aux=True)
    assert (y.item(), dy.item(), square.item(), name) == (8.0, 12.0, 4.0, "aux")
    assert type(square) is wf.Tensor and not square.requires_grad


def test_aux_keeps_its_way_to_an_outer_parameter(make):
    w = wf.Parameter(make(3.0))
    _, aux = wf.grad(lambda x: ((x**2).sum(), (x**2 * w).sum()), has_aux=True)(make([1.0, 2.0]))
    aux.backward()
    assert w.grad.item() == 5.0


def test_results_are_plain(make):
    """What comes out has left its levels, and carries no graph of the inputs."""
    x = make([1.0, 2.0])
    outs = [
        *wf.value_and_grad(lambda x: (x**3).sum())(x),
        *wf.jvp(lambda x: x**3, (x,), (x,)),
        wf.hvp(lambda x: (x**3).sum(), (x,), (x,)),
        wf.vjp(lambda x: x**3, x)[0],
        *wf.vjp(lambda x: x**3, x)[1](x),
        wf.vmap(lambda x: x**3)(x),
    ]
    assert all(type(y) is wf.Tensor and not y.requires_grad for y in outs)


def test_the_pull_back_can_be_used_again(make):
    _, pull = wf.vjp(lambda x: wf.exp(x), make([0.0, 1.0]))
    first, second = pull(make([1.0, 1.0]))[0], pull(make([2.0, 0.0]))[0]
    assert_close(first, np.exp([0.0, 1.0]))
    assert_close(second, [2.0, 0.0])


def test_a_result_that_is_its_argument(make):
    x = make([1.0, 2.0])
    assert wf.vjp(lambda x: x, x)[1](x)[0].tolist() == [1.0, 2.0]
    assert wf.jvp(lambda x: x, (x,), (x,))[1].tolist() == [1.0, 2.0]
    assert wf.vjp(lambda x: (x, x), x)[1]((x, x))[0].tolist() == [2.0, 4.0]


def test_a_result_that_does_not_depend_on_its_argument(make):
    c = make([5.0])
    assert wf.grad(lambda x: c.sum())(make([1.0, 2.0])).tolist() == [0.0, 0.0]
    assert wf.grad(lambda x: 3.0)(make(1.0)).item() == 0.0
    y, dy = wf.jvp(lambda x: c, (make(1.0),), (make(1.0),))
    assert (y.tolist(), dy.tolist()) == ([5.0], [0.0])
    assert wf.vjp(lambda x, y: x, make(1.0), make(2.0))[1](make(1.0))[1].item() == 0.0
    assert wf.vmap(lambda x: c)(make([1.0, 2.0])).tolist() == [[5.0], [5.0]]


def test_an_integer_result_has_no_tangent(make):
    y, dy = wf.jvp(lambda x: (wf.argmax(x), x > 1.5), (make([1.0, 2.0]),), (make([1.0, 1.0]),))
    assert (y[0].item(), y[1].tolist()) == (1, [False, True])
    assert not any(np.any(array(t)) for t in dy)


def test_numbers_and_arrays_are_arguments():
    assert wf.grad(lambda x: x**3)(2.0).item() == 12.0
    gradient = wf.grad(lambda x: (x**3).sum())(np.array([1.0, 2.0]))
    assert gradient.tolist() == [3.0, 12.0] and gradient.dtype == wf.float64
    assert wf.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))[1].item() == 3.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_derivatives_have_the_dtype_of_what_they_are_derivatives_of(dtype, device):
    x = wf.ones(3, dtype=dtype, device=device)

    def f(x):
        return (x.to("complex128") if "complex" in dtype else x.to("float64")) * 2.0

    y, dy = wf.jvp(f, (x,), (x,))
    _, pull = wf.vjp(f, x)
    (g,) = pull(y)
    assert (dy.dtype, dy.device) == (y.dtype, y.device)
    assert (g.dtype, g.device) == (x.dtype, x.device)


def test_a_derivative_through_another_device():
    other = {"cpu": "torch", "torch": "cpu"}
    for device in DEVICES:
        x = wf.tensor(2.0, device=device)

        def f(x, device=device):
            return (x.to(other[device]) ** 3).to(device)

        assert wf.grad(wf.grad(f))(x).item() == 12.0
        y, dy = wf.jvp(f, (x,), (x,))
        assert (y.item(), dy.item(), dy.device) == (8.0, 24.0, device)


@pytest.mark.parametrize("name", ["sin", "add", "sum", "where"])
def test_numpy_functions_inside(name, make):
    call = {
        "sin": lambda x: np.sin(x),
        "add": lambda x: np.add(x, np.ones(2)) if x.device == "cpu" else x + 1,
        "sum": lambda x: np.sum(x * x),
        "where": lambda x: np.where(x > 1.5, x * x, x),
    }[name]
    closed = {"sin": np.cos, "add": np.ones_like, "where": lambda x: np.where(x > 1.5, 2 * x, 1)}
    x = np.array([1.0, 2.0])
    dy = wf.jvp(call, (make(x),), (make([1.0, 1.0]),))[1]
    assert_close(dy, 6.0 if name == "sum" else closed[name](x))


def test_complex_derivatives_are_conjugate(make):
    """f = |z|² has the gradient 2z, and the derivative 2Re(z̄v) along v."""
    z, v = np.array([1.0 + 2.0j, -0.5j]), np.array([0.3 - 1.0j, 2.0])
    tensor = wf.tensor(z, device=make(0.0).device)

    def f(z):
        return wf.real(wf.conj(z) * z).sum()

    assert_close(wf.grad(f)(tensor), 2 * z)
    along = wf.jvp(f, (tensor,), (wf.tensor(v, device=tensor.device),))[1]
    assert_close(along, 2 * (z.conj() * v).real.sum())


# PyTorch's own function transforms, in float64. Its forward mode is loaded at first use.
SCRIPTED = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def network(m, w1, b1, w2, x):
    """The same text for both libraries; m is wf or torch."""
    h = m.tanh(w1 @ x + b1)
    return m.sum(m.exp(-((w2 @ h) ** 2)))


PARTS = [
    np.random.default_rng(k).normal(size=s) for k, s in enumerate([(4, 3), (4,), (2, 4), (3,)])
]
ALONG = [np.random.default_rng(9 + k).normal(size=a.shape) for k, a in enumerate(PARTS)]


def ours(make):
    return [make(a) for a in PARTS], tuple(make(a) for a in ALONG)


def theirs():
    return [torch.tensor(a) for a in PARTS], tuple(torch.tensor(a) for a in ALONG)


def test_grad_is_pytorchs(make):
    (parts, _), (tparts, _) = ours(make), theirs()
    got = wf.grad(lambda *a: network(wf, *a), (0, 1, 2, 3))(*parts)
    expected = torch.func.grad(lambda *a: network(torch, *a), (0, 1, 2, 3))(*tparts)
    for g, e in zip(got, expected, strict=True):
        assert_close(g, e.numpy())


@SCRIPTED
def test_jvp_is_pytorchs(make):
    (parts, along), (tparts, talong) = ours(make), theirs()
    got = wf.jvp(lambda *a: network(wf, *a), tuple(parts), along)
    expected = torch.func.jvp(lambda *a: network(torch, *a), tuple(tparts), talong)
    for g, e in zip(got, expected, strict=True):
        assert_close(g, e.numpy())


def test_vjp_is_pytorchs(make):
    (parts, _), (tparts, _) = ours(make), theirs()
    u = np.random.default_rng(5).normal(size=4)
    got = wf.vjp(lambda w, b, x: wf.tanh(w @ x + b), parts[0], parts[1], parts[3])[1](make(u))
    pull = torch.func.vjp(lambda w, b, x: torch.tanh(w @ x + b), tparts[0], tparts[1], tparts[3])[1]
    for g, e in zip(got, pull(torch.tensor(u)), strict=True):
        assert_close(g, e.numpy())


@SCRIPTED
def test_hvp_is_pytorchs(make):
    (parts, along), (tparts, talong) = ours(make), theirs()
    got = wf.hvp(lambda *a: network(wf, *a), tuple(parts), along)
    gradient = torch.func.grad(lambda *a: network(torch, *a), (0, 1, 2, 3))
    expected = torch.func.jvp(gradient, tuple(tparts), talong)[1]
    for g, e in zip(got, expected, strict=True):
        assert_close(g, e.numpy())


def test_gradients_of_samples_are_pytorchs(make):
    (parts, _), (tparts, _) = ours(make), theirs()
    x = np.random.default_rng(6).normal(size=(5, 3))
    got = wf.vmap(wf.grad(lambda *a: network(wf, *a), (0, 1, 2)), in_axes=(None,) * 3 + (0,))(
        *parts[:3], make(x)
    )
    expected = torch.func.vmap(
        torch.func.grad(lambda *a: network(torch, *a), (0, 1, 2)), in_dims=(None,) * 3 + (0,)
    )(*tparts[:3], torch.tensor(x))
    for g, e in zip(got, expected, strict=True):
        assert_close(g, e.numpy())
