"""Jacobians and Hessians in native code: compiled, of compiled functions, and planned ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.transform.jacobian import native

RNG = np.random.default_rng(11)
A, B = RNG.normal(size=(4, 20)) / 4, RNG.normal(size=(20, 4))
X, LABELS = RNG.normal(size=(60, 9)), (RNG.random(60) > 0.5).astype(float)
INDEX = RNG.integers(0, 12, 12)
K = RNG.normal(size=(9, 20))


@pytest.fixture(autouse=True)
def doubles():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture
def at_once(monkeypatch):
    """Plans are compiled at the second call."""
    monkeypatch.setattr(native, "_COMPILING", 0.0)
    monkeypatch.setattr(native, "_PER_EQUATION", 0.0)


def cat(xp, parts):
    return xp.concatenate(parts) if xp is jnp else xp.concat(parts)


def narrow(xp, x):
    return xp.tanh(xp.asarray(B) @ xp.sin(xp.asarray(A) @ x))


def banded(xp, x):
    inner = x[1:-1] * (x[:-2] - 2 * x[1:-1] + x[2:]) - xp.exp(x[1:-1])
    return cat(xp, [x[:1] ** 2, inner, x[-1:] ** 2])


def picked(xp, x):
    return x[xp.asarray(INDEX)] * xp.cos(x)


def wide(xp, x):
    return xp.asarray(K) @ xp.sin(x * x)


def logistic(xp, w):
    z = xp.asarray(X) @ w
    return xp.mean(xp.log1p(xp.exp(z)) - xp.asarray(LABELS) * z)


def chain(xp, x):
    return xp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


FUNCTIONS = [(narrow, 20), (banded, 12), (picked, 12), (wide, 20)]
MODES = ["auto", "forward", "reverse"]


def check(found, want) -> None:
    np.testing.assert_allclose(found.numpy(), want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("f, n", FUNCTIONS)
def test_jacobians(f, n, mode):
    of, x = lambda x: f(wf, x), RNG.normal(size=n)
    want = jax.jacobian(lambda x: f(jnp, x))(x)
    check(wf.compile(wf.jacobian(of, mode=mode))(wf.asarray(x)), want)
    check(wf.jacobian(wf.compile(of), mode=mode)(wf.asarray(x)), want)


@pytest.mark.parametrize("f, n", [(logistic, 9), (chain, 14)])
def test_hessians(f, n):
    of, x = lambda x: f(wf, x), RNG.normal(size=n)
    want = jax.hessian(lambda x: f(jnp, x))(x)
    check(wf.compile(wf.hessian(of))(wf.asarray(x)), want)
    check(wf.hessian(wf.compile(of))(wf.asarray(x)), want)
    trace = wf.laplacian(wf.compile(of))
    check(trace(wf.asarray(x)), np.trace(want))
    check(wf.compile(wf.laplacian(of))(wf.asarray(x)), np.trace(want))


def test_a_derivative_of_a_compiled_function_is_native_code():
    x = wf.asarray(RNG.normal(size=9))
    found = wf.hessian(wf.compile(lambda w: logistic(wf, w)))
    found(x)
    assert "native call" in found.explain() and "library" not in found.explain()
    assert found.plan(x, measure=False).shape == (9, 9)


def test_static_arguments_stay_static():
    power = wf.compile(lambda x, n: (x**n).sum(), static_argnums=1)
    second, x = wf.hessian(power), wf.asarray([1.0, 2.0])
    np.testing.assert_allclose(second(x, 3).numpy(), [[6, 0], [0, 12]])
    np.testing.assert_allclose(second(x, 2).numpy(), [[2, 0], [0, 2]])


def test_a_bound_method_keeps_its_object():
    class Scaled:
        factor = 3.0

        @wf.compile
        def __call__(self, x):
            return wf.sin(x) * self.factor

        curve = wf.compile(lambda self, x: x**2 * self.factor)

    scaled, x = Scaled(), RNG.normal(size=3)
    check(wf.jacobian(scaled.curve)(wf.asarray(x)), np.diag(6 * x))
    check(wf.jacobian(scaled)(wf.asarray(x)), np.diag(3 * np.cos(x)))


def test_a_number_is_an_argument():
    of = wf.compile(lambda x: wf.stack([x**2, wf.sin(x)]))
    for x in (2.0, 3.0):
        np.testing.assert_allclose(wf.jacobian(of)(x).numpy(), [2 * x, np.cos(x)], rtol=1e-6)


def test_inside_other_transformations():
    cubes, x = wf.compile(lambda x: x**3), RNG.normal(size=(4, 3))
    want = np.array([np.diag(3 * row**2) for row in x])
    check(wf.vmap(wf.jacobian(cubes))(wf.asarray(x)), want)
    check(wf.compile(wf.vmap(wf.jacobian(lambda x: x**3)))(wf.asarray(x)), want)
    pushed = wf.jvp(wf.jacobian(cubes), (wf.asarray(x[0]),), (wf.asarray(np.ones(3)),))[1]
    check(pushed, np.diag(6 * x[0]))
    leaf = wf.tensor(x[0], requires_grad=True)
    wf.jacobian(cubes)(leaf).sum().backward()
    check(leaf.grad, 6 * x[0])
    third = wf.compile(wf.jacobian(wf.hessian(lambda x: (x**4).sum())))
    check(third(wf.asarray(x[0])), jax.jacobian(jax.hessian(lambda x: (x**4).sum()))(x[0]))


def test_trees_and_results_beside():
    def f(p, s):
        return {"a": wf.sin(p["u"]) * s, "b": p["v"].sum() * p["u"]}, p["v"] * 2

    p = {"u": wf.asarray(RNG.normal(size=3)), "v": wf.asarray(RNG.normal(size=2))}
    want, beside = wf.jacobian(f, has_aux=True)(p, 2.5)
    found, other = wf.compile(wf.jacobian(f, has_aux=True))(p, 2.5)
    for a in "ab":
        for u in "uv":
            check(found[a][u], want[a][u].numpy())
    check(other, beside.numpy())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"verify": True}, "verify=True compares numbers"),
        ({"format": "operator"}, "no result of a compiled function"),
        ({"format": "csr"}, "no part of a compiled function"),
    ],
)
def test_what_cannot_be_compiled_says_so(options, message):
    run = wf.compile(wf.jacobian(lambda x: banded(wf, x), **options))
    with pytest.raises(errors.WeftError, match=message):
        run(wf.asarray(RNG.normal(size=12)))


# -- plans that are compiled after some calls ------------------------------------------------


def programs(derivative, *args) -> str:
    """What the plan says about native code."""
    return str(derivative.plan(*args, measure=False)).splitlines()[-1].strip()


@pytest.mark.parametrize("f, n", FUNCTIONS)
def test_plans_become_native_code(f, n, at_once):
    planned = wf.jacobian(lambda x: f(wf, x))
    for k in range(4):
        x = RNG.normal(size=n)
        check(planned(wf.asarray(x)), jax.jacobian(lambda x: f(jnp, x))(x))
        assert programs(planned, wf.asarray(x)).startswith("compiled") or k == 0
    assert programs(planned, wf.asarray(x)) == "compiled: 1 programs"


def test_hessians_and_sparse_formats_become_native_code(at_once):
    second = wf.hessian(lambda x: chain(wf, x), format="csr")
    for _ in range(3):
        x = RNG.normal(size=14)
        np.testing.assert_allclose(
            second(wf.asarray(x)).toarray(), jax.hessian(lambda x: chain(jnp, x))(x), rtol=1e-12
        )
    assert programs(second, wf.asarray(x)) == "compiled: 1 programs"


def test_the_first_calls_are_not_compiled():
    planned, x = wf.jacobian(lambda x: narrow(wf, x)), wf.asarray(RNG.normal(size=20))
    for _ in range(3):
        planned(x)
    assert programs(planned, x).startswith("compiled after ")


def test_branches_are_taken_anew(at_once):
    planned = wf.jacobian(lambda x: x**2 if bool(x.sum() > 0) else x**3)
    for sign in (1, 1, 1, -1, -1, -1, 1, -1):
        x = sign * RNG.uniform(0.5, 1.5, 3)
        check(planned(wf.asarray(x)), np.diag(2 * x if sign > 0 else 3 * x**2))


def test_what_is_found_outside_is_read_anew(at_once):
    held, factor = wf.asarray(RNG.normal(size=3)), [2.0]
    planned = wf.jacobian(lambda x: wf.sin(x * held) * factor[0])
    x = RNG.normal(size=3)

    def test() -> None:
        h = held.numpy()
        check(planned(wf.asarray(x)), np.diag(np.cos(x * h) * h * factor[0]))

    for _ in range(3):
        test()
    for _ in range(3):
        held += 1.0
        test()
    for k in range(3):
        factor[0] = float(k)
        test()
        test()
    held = wf.asarray(RNG.normal(size=3).astype(np.float32))
    x = x.astype(np.float32)
    for _ in range(3):
        found = planned(wf.asarray(x))
        h = held.numpy()
        np.testing.assert_allclose(found.numpy(), np.diag(np.cos(x * h) * h * 2.0), rtol=1e-5)
    assert found.dtype == wf.float32


def test_index_arrays_are_read_anew(at_once):
    x, of = RNG.normal(size=12), {"index": wf.asarray(INDEX)}
    planned = wf.jacobian(lambda x: x[of["index"]] ** 2)
    for _ in range(6):
        index = RNG.permutation(12)
        of["index"] = wf.asarray(index)
        for _ in range(2):
            check(planned(wf.asarray(x)), 2 * x[index][:, None] * np.eye(12)[index])


def test_gradients_of_jacobians_are_not_lost(at_once):
    planned, x = wf.jacobian(lambda x: x**3), RNG.normal(size=3)
    for _ in range(3):
        planned(wf.asarray(x))
    leaf = wf.tensor(x, requires_grad=True)
    planned(leaf).sum().backward()
    check(leaf.grad, 6 * x)
    assert "a gradient of the Jacobian" in programs(planned, leaf)
    with wf.no_grad():
        assert programs(planned, leaf) == "compiled: 1 programs"
        check(planned(leaf), np.diag(3 * x**2))


def test_other_transformations_and_modes_run_as_before(at_once):
    planned, x = wf.jacobian(lambda x: x**3), RNG.normal(size=(4, 3))
    for _ in range(3):
        planned(wf.asarray(x[0]))
    check(wf.vmap(planned)(wf.asarray(x)), np.array([np.diag(3 * row**2) for row in x]))
    with wf.deterministic(0):
        assert "deterministic" in programs(planned, wf.asarray(x[0]))
        check(planned(wf.asarray(x[0])), np.diag(3 * x[0] ** 2))


def test_functions_of_the_users_are_not_compiled(at_once):
    power = [2]

    raised = wf.custom_op(
        lambda x: x ** power[0],
        vjp=lambda g, inputs, output: (g * power[0] * inputs[0] ** (power[0] - 1),),
    )
    planned, x = wf.jacobian(lambda x: raised(x), mode="reverse"), RNG.normal(size=3)
    for p in (2, 2, 2, 3, 3):
        power[0] = p
        check(planned(wf.asarray(x)), np.diag(p * x ** (p - 1)))
    assert "not compiled" in programs(planned, wf.asarray(x))


def test_a_compiler_that_fails_is_told_of(at_once, monkeypatch):
    def refuse(*args):
        raise errors.StagingError("no reason at all")

    monkeypatch.setattr(native, "compile_later", lambda f: refuse)
    planned, x = wf.jacobian(lambda x: x**3 + 1), RNG.normal(size=3)
    for _ in range(3):
        check(planned(wf.asarray(x)), np.diag(3 * x**2))
    assert programs(planned, wf.asarray(x)).startswith("not compiled: StagingError: no reason at")


def test_errors_are_the_same(at_once):
    planned = wf.jacobian(lambda x: x[wf.asarray([0, 5])] ** 2)
    for _ in range(3):
        planned(wf.asarray(RNG.normal(size=6)))
    with pytest.raises(errors.IndexingError):
        planned(wf.asarray(RNG.normal(size=4)))
    with pytest.raises(errors.NotDifferentiable):
        planned(wf.asarray([1, 2, 3, 4, 5, 6]))


def test_unit_vectors_give_the_matrix_itself():
    """A matrix times unit vectors is no product: what is infinite stays where it is."""
    matrix = np.array([[np.inf, 1.0], [2.0, 3.0], [4.0, 5.0]])
    for f in (lambda x: wf.asarray(matrix) @ x, lambda x: x @ wf.asarray(matrix.T)):
        for run in (wf.jacfwd(f), wf.compile(wf.jacfwd(f))):
            np.testing.assert_array_equal(run(wf.asarray(np.ones(2))).numpy(), matrix)
