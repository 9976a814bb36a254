"""Checks of derivatives: right ones pass, every planted error is found, in every mode and order."""

import numpy as np
import pytest

import weft as wf
from weft import errors

DEVICES = ("cpu", "torch")
X = np.array([[0.3, -1.2, 0.8], [1.9, 0.4, -0.7]])
MODES = (("fwd",), ("rev",), ("fwd", "rev"))


def scaled(at: int) -> wf.Tensor:
    """Ones, with 1.01 in one place: the planted error."""
    factors = np.ones(X.size)
    factors[at] = 1.01
    return wf.tensor(factors.reshape(X.shape))


# Right derivatives

RIGHT = {
    "elementwise": (lambda x: wf.sin(x) * wf.exp(x), X),
    "reduction": (lambda x: wf.logsumexp(x) * x.sum(), X),
    "matrix": (lambda x: x @ wf.tanh(x).T, X),
    "singular values": (wf.linalg.svdvals, X),
    "steep": (lambda x: wf.log(x), np.array([1e-5, 1.0, 1e4])),
    "wavy": (lambda x: wf.sin(40.0 * x), np.array([0.3, 2.0])),
    "complex": (lambda z: wf.exp(z) * z.conj(), np.array([1.0 + 0.5j, -0.3j])),
    "constant": (lambda x: x * 0.0 + 1.0, X),
    "large": (lambda x: 1e12 * wf.cos(x), X),
    "one number": (lambda x: x**3, np.array(2.0)),
    "nothing": (lambda x: x**2, np.zeros((0, 3))),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", RIGHT)
def test_right_derivatives_pass(name, device):
    f, x = RIGHT[name]
    wf.check_grads(f, (wf.tensor(x, device=device),))


def test_third_order():
    wf.check_grads(lambda x: wf.exp(wf.sin(x)), (wf.tensor([0.3, 1.0]),), order=3)


def test_trees_of_arguments_and_results():
    def f(p, n, scale):
        return {"y": wf.tanh(p["w"] @ p["v"][0]) * scale, "count": wf.arange(n)}

    arguments = {"w": wf.tensor(X), "v": [np.array([1.0, 2.0, 3.0])]}
    wf.check_grads(f, (arguments, 3, 0.5))

    def wrong(p, n, scale):
        return f({"w": p["w"], "v": [p["v"][0].detach() * 2.0 - p["v"][0]]}, n, scale)

    with pytest.raises(errors.GradientCheckError) as raised:
        wf.check_grads(wrong, (arguments, 3, 0.5))
    assert raised.value.argument == "argument 0['v'][0]"
    assert raised.value.analytical == pytest.approx(-raised.value.numerical)


def test_single_precision_is_taken_in_double():
    seen = set()

    def f(x):
        seen.add(x.dtype)
        return x**2

    wf.check_grads(f, wf.ones(3))
    assert seen == {wf.float64}
    with pytest.raises(errors.DTypeError, match=r"returned float32.*cast"):
        wf.check_grads(lambda x: (x**2).to("float32"), wf.ones(3))


# Planted errors

RULES = {
    "vjp": {"vjp": lambda g, x: g * wf.cos(x[0]) * scaled(4)},
    "jvp": {"jvp": lambda t, x: t[0] * wf.cos(x[0]) * scaled(4)},
    "both": {
        "vjp": lambda g, x: g * wf.cos(x[0]) * scaled(4),
        "jvp": lambda t, x: t[0] * wf.cos(x[0]) * scaled(4),
    },
}


def sine(x):
    return wf.sin(x)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("modes", MODES, ids="-".join)
@pytest.mark.parametrize("given", RULES)
def test_a_wrong_element_is_found(given, modes, order):
    with pytest.raises(errors.GradientCheckError) as raised:
        wf.check_grads(wf.custom_op(sine, **RULES[given]), (X,), order, modes)
    error = raised.value
    assert error.argument == "argument 0" and error.index == (1, 1)
    np.testing.assert_allclose(error.numerical, np.cos(X[1, 1]), rtol=1e-9)
    np.testing.assert_allclose(error.analytical, 1.01 * np.cos(X[1, 1]), rtol=1e-9)
    np.testing.assert_allclose(error.error, 0.01 * np.cos(X[1, 1]), rtol=1e-6)
    for told in ("argument 0[1, 1] → result 0[1, 1]", "1 of 36", "(at test_check.py"):
        assert told in str(error)


@pytest.mark.parametrize("modes", MODES, ids="-".join)
@pytest.mark.parametrize("inner", ["vjp", "jvp"])
@pytest.mark.parametrize("outer", ["vjp", "jvp"])
def test_a_wrong_element_of_the_second_derivative_is_found(outer, inner, modes):
    rules = {
        "vjp": lambda g, x: -g * wf.sin(x[0]) * scaled(2),
        "jvp": lambda t, x: -t[0] * wf.sin(x[0]) * scaled(2),
    }
    cosine = wf.custom_op(lambda x: wf.cos(x), **{inner: rules[inner]})
    rules = {"vjp": lambda g, x: g * cosine(x[0]), "jvp": lambda t, x: t[0] * cosine(x[0])}
    op = wf.custom_op(sine, **{outer: rules[outer]})
    wf.check_grads(op, (X,), 1, modes)
    with pytest.raises(errors.GradientCheckError, match=r"over .* mode: argument 0\[0, 2\]"):
        wf.check_grads(op, (X,), 2, modes)


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_a_rule_that_forgets_its_cotangent_is_found(mode):
    op = wf.custom_op(
        sine,
        vjp=lambda g, x: g.detach() * wf.cos(x[0]),
        jvp=lambda t, x: t[0].detach() * wf.cos(x[0]),
    )
    wf.check_grads(op, (X,), 1, mode)
    with pytest.raises(errors.GradientCheckError, match=r"over .* mode: .* \(6 of 36"):
        wf.check_grads(op, (X,), 2, mode)


@pytest.mark.parametrize("factor", [1e-9, 1e9])
def test_a_wrong_element_beside_others_of_another_size_is_found(factor):
    sizes = np.array([1.0, factor, 1.0])
    f = wf.custom_op(
        lambda x: x * wf.tensor(sizes), vjp=lambda g: g * wf.tensor(sizes * [1.0, 1.0, 1.01])
    )
    with pytest.raises(errors.GradientCheckError, match=r"argument 0\[2\] → result 0\[2\]"):
        wf.check_grads(f, (np.array([0.5, 1.5, 2.5]),), 1)


def test_the_wrong_part_of_a_complex_argument_is_named():
    op = wf.custom_op(lambda z: z * z, vjp=lambda g, z: g * z[0].conj() * (2.0 + 0.02j))
    with pytest.raises(errors.GradientCheckError, match=r"argument 0\[0\]\.(real|imag) → result"):
        wf.check_grads(op, (np.array([1.0 + 2.0j]),), 1)


def test_at_a_kink_or_a_pole_nothing_is_confirmed():
    for f in (wf.relu, lambda x: wf.where(x > 0, x * x, -x), lambda x: wf.abs(x) ** 0.5):
        with pytest.raises(errors.GradientCheckError, match=r"argument 0\[0\] → result 0\[0\]"):
            wf.check_grads(f, (np.array([0.0, 1.0]),), 1)
    with pytest.raises(errors.GradientCheckError, match="too vague to tell"):
        wf.check_grads(wf.log, (np.array([0.0, 1.0]),), 1)


def test_nan_is_wrong():
    op = wf.custom_op(sine, vjp=lambda g: g * np.nan)
    with pytest.raises(errors.GradientCheckError, match="analytical nan"):
        wf.check_grads(op, (X,), 1, "rev")


def test_what_cannot_be_checked():
    with pytest.raises(errors.ArgumentError, match="no argument in floating point"):
        wf.check_grads(lambda n: wf.ones(2), (3,))
    with pytest.raises(errors.ArgumentError, match="modes among 'fwd' and 'rev'"):
        wf.check_grads(wf.sin, (X,), modes=("forward",))
    with pytest.raises(errors.ArgumentError, match="order=0"):
        wf.check_grads(wf.sin, (X,), order=0)
    with pytest.raises(errors.DTypeError, match="returned float, expected tensors"):
        wf.check_grads(lambda x: 1.0, (X,))
    with pytest.raises(errors.DTypeError, match="nothing in floating point"):
        wf.check_grads(lambda x: x > 0, (X,))


# NumericalChecker


@pytest.mark.parametrize("kind", ["central", "forward"])
def test_numerical_checker(kind):
    check = getattr(wf.NumericalChecker(), f"check_gradient_{kind}")
    right = check(lambda x: (x**3).sum(), wf.tensor([1.0, 2.0]))
    assert right.is_valid and right and right.is_resolved
    assert right.analytical.tolist() == [3.0, 12.0] and right.analytical.dtype == wf.float64
    assert right.mean_error <= right.max_error <= right.tolerance.max().item() < 1e-6
    np.testing.assert_allclose(right.numerical.numpy(), [3.0, 12.0], rtol=1e-9)

    wrong = check(wf.custom_op(sine, **RULES["vjp"]), X)
    assert not wrong.is_valid and not wrong and wrong.is_resolved
    assert wrong.analytical.shape == (2, 3, 2, 3) and wrong.worst_index == (1, 1, 1, 1)
    np.testing.assert_allclose(wrong.max_error, 0.01 * np.cos(X[1, 1]), rtol=1e-6)
    np.testing.assert_allclose(wrong.mean_error, wrong.max_error / 36, rtol=1e-6)
    assert "is_valid=False" in repr(wrong) and "tensor" not in repr(wrong)


def test_one_sided_differences_stay_on_their_side():
    def f(x):
        return wf.where(x >= 1.0, x * x, wf.zeros_like(x)).sum()

    checker, x = wf.NumericalChecker(), wf.tensor([1.0, 2.0])
    assert checker.check_gradient_forward(f, x).is_valid
    assert not checker.check_gradient_central(f, x).is_valid


def test_complex_argument():
    result = wf.NumericalChecker().check_gradient_central(
        lambda z: wf.abs(z).sum(), np.array([3.0 + 4.0j])
    )
    assert result.is_valid
    np.testing.assert_allclose(result.analytical.numpy(), [0.6 + 0.8j], rtol=1e-15)


def test_one_tensor_to_one_tensor():
    with pytest.raises(errors.ArgumentError, match="one tensor to one tensor"):
        wf.NumericalChecker().check_gradient_central(lambda x: (x, x), wf.ones(2))
    with pytest.raises(errors.DTypeError, match="complex"):
        wf.NumericalChecker().check_gradient_central(lambda x: x * 1j, wf.ones(2))


# check_op


def cosine_scaled(x, factor=1.0):
    return wf.cos(x) * factor


def test_check_op():
    op = wf.custom_op(cosine_scaled)
    op.def_vjp(lambda g, inputs, *, factor: -g * wf.sin(inputs[0]) * factor)
    report = wf.check_op(op, wf.tensor([0.3, 2.0]))
    assert report.name == "cosine_scaled"
    assert list(report.findings) == ["vjp", "reverse mode", "forward mode"]
    assert "derived from vjp" in report.findings["forward mode"]
    assert repr(report).startswith("cosine_scaled: its derivative is right\n  vjp ")
    op.def_jvp(lambda t, inputs, *, factor: -t[0] * wf.sin(inputs[0]) * factor)
    report = wf.check_op(op, wf.tensor([0.3, 2.0]), factor=3.0)
    assert report.findings["vjp and jvp"] == "adjoint"


@pytest.mark.parametrize("given", RULES)
def test_check_op_finds_a_wrong_element(given):
    with pytest.raises(errors.GradientCheckError, match=r"^check_op: sine: .*argument 0\[1, 1\]"):
        wf.check_op(wf.custom_op(sine, **RULES[given]), X)


def test_check_op_finds_rules_that_disagree():
    op = wf.custom_op(sine, vjp=RULES["vjp"]["vjp"], jvp=lambda t, x: t[0] * wf.cos(x[0]))
    with pytest.raises(errors.GradientCheckError, match="vjp is not the transpose of its jvp"):
        wf.check_op(op, X)


def test_check_op_finds_rules_that_are_not_linear():
    for rules in ({"vjp": lambda g: g.clamp(-1.0, 1.0)}, {"jvp": lambda t: t[0].clamp(-1.0, 1.0)}):
        op = wf.custom_op(lambda x: x * 1.0, **rules)
        with pytest.raises(errors.GradientCheckError, match="is not linear in its"):
            wf.check_op(op, X)


def test_check_op_says_which_mode_is_not_there():
    op = wf.custom_op(lambda x: 2.0 * x, vjp=lambda g: 2.0 * g.numpy())
    report = wf.check_op(op, X)
    assert report.findings["forward mode"].startswith("not there: <lambda>: forward mode cannot")


def test_check_op_with_integers_several_results_and_a_batch_rule():
    @wf.custom_op
    def squares_and_columns(x, i):
        return x.numpy() ** 2, x.numpy()[:, i.numpy()], i

    @squares_and_columns.def_vjp
    def _(g, inputs):
        x, i = inputs
        return 2.0 * x * g[0] + wf.zeros_like(x).at[:, i].add(g[1]), None

    @squares_and_columns.def_batch
    def right(inputs, mapped):
        x, i = (v.numpy() for v in inputs)
        return x**2, np.stack([a[:, k] for a, k in zip(x, i, strict=True)]), i

    i = wf.tensor([0, 2, 0])
    report = wf.check_op(squares_and_columns, X, i)
    assert report.findings["batch"] == "as forward"
    squares_and_columns.def_batch(
        lambda inputs, mapped: (right(inputs, mapped)[0] + 1.0, *right(inputs, mapped)[1:])
    )
    with pytest.raises(errors.GradientCheckError, match="its batch rule gives"):
        wf.check_op(squares_and_columns, X, i)


def test_check_op_of_something_else():
    with pytest.raises(errors.ArgumentError, match=r"expected a wf\.CustomOp"):
        wf.check_op(sine, X)
    with pytest.raises(errors.NotDifferentiable, match="neither vjp nor jvp"):
        wf.check_op(wf.custom_op(sine), X)
