"""Calls of custom operations: what goes in and out, what is kept, and what is refused."""

import gc
import weakref

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.transform.custom.rows import row


@wf.custom_op
def product(x, y):
    """Two results of two inputs."""
    return x * y, x + y


@product.def_vjp
def _(g, inputs):
    (x, y), (p, q) = inputs, g
    return p * y + q, p * x + q


class Clip(wf.CustomOp):
    """The identity, whose gradient is clipped."""

    def forward(self, inputs):
        return inputs[0]

    def backward(self, grad_output, _inputs):
        return [grad_output.clamp(-1.0, 1.0)]


def test_results_of_other_kinds():
    calls = []

    def forward(x):
        calls.append(x)
        return x.numpy() ** 2, int(x.numpy().argmax()), 1.5, np.float32(2.0)

    op = wf.custom_op(forward, vjp=lambda g, inputs: 2.0 * g[0] * inputs[0])
    x = wf.tensor(np.array([1.0, 3.0]), requires_grad=True)
    squares, place, number, scalar = op(x)
    assert len(calls) == 1, "the number of results was not known, and yet it ran once"
    assert [t.dtype for t in (squares, place, number, scalar)] == [
        wf.float64,
        wf.int64,
        wf.float64,
        wf.float32,
    ]
    assert [t.requires_grad for t in (squares, place, number, scalar)] == [True, False, True, True]
    assert (squares.sum() + number).backward()[x].tolist() == [2.0, 6.0]
    (single,) = wf.custom_op(lambda x: (x * 2.0,), vjp=lambda g: g[0] * 2.0)(x)
    assert single.sum().backward()[x].tolist() == [2.0, 2.0]


def test_a_returned_array_is_the_operations_own():
    buffer = np.zeros(2)

    @wf.custom_op
    def into_buffer(x):
        return np.multiply(x.numpy(), 2.0, out=buffer)

    y = into_buffer(wf.ones(2))
    buffer[:] = 7.0
    assert y.tolist() == [2.0, 2.0]


def test_inputs_are_read_only():
    x = wf.ones(2)

    @wf.custom_op
    def writes(x):
        return x.copy_(wf.zeros(2))

    assert writes(x).tolist() == [0.0, 0.0] and x.tolist() == [1.0, 1.0]


def test_integers_and_numbers_among_the_inputs():
    @wf.custom_op
    def pick(x, i, k):
        return x[i] * k

    @pick.def_vjp
    def _(g, inputs):
        x, i, k = inputs
        return wf.zeros_like(x).at[i].add(g * k), None, (g * x[i]).sum()

    x, i = wf.tensor(np.array([1.0, 2.0, 4.0])), wf.tensor([0, 2, 2])
    assert wf.grad(lambda x: pick(x, i, 0.1).sum())(x).tolist() == [0.1, 0.0, 0.2]
    tangents = wf.jvp(lambda x: pick(x, i, 2), (x,), (x,))[1]
    assert tangents.tolist() == [2.0, 8.0, 8.0] and tangents.dtype == wf.float64


def test_keywords_are_constants_that_every_function_gets():
    @wf.custom_op(vjp=lambda g, inputs, *, n, bias: n * inputs[0] ** (n - 1) * g)
    def power(x, n=2, *, bias=1.0):
        return x**n + bias

    x = wf.tensor(3.0)
    assert power(x).item() == 10.0 and wf.grad(power)(x).item() == 6.0
    assert wf.grad(lambda x: power(x, n=3, bias=0.0))(x).item() == 27.0
    assert wf.vmap(lambda x: power(x, n=3))(wf.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(errors.ArgumentError, match="power: n= is a tensor"):
        power(x, n=wf.tensor(2.0, requires_grad=True))
    with pytest.raises(errors.DTypeError, match=r"input 1 is a str.*by keyword"):
        power(x, "two")
    with pytest.raises(errors.ArgumentError, match="power: called without an input"):
        power(n=3)


def test_a_closure_over_something_differentiated_is_refused():
    def times(w):
        return wf.custom_op(lambda x: x * w, vjp=lambda g: g * w)(wf.tensor(2.0))

    with pytest.raises(errors.NotDifferentiable, match=r"no input.*make it an input"):
        times(wf.tensor(3.0, requires_grad=True))
    for derivative in (
        wf.grad(times),
        lambda w: wf.jvp(times, (w,), (w,)),
        lambda w: wf.vmap(times)(wf.ones(2)),
    ):
        with pytest.raises(errors.NotDifferentiable, match="make it an input"):
            derivative(wf.tensor(3.0))
    assert wf.grad(lambda w: times(w.detach()) + w)(wf.tensor(3.0)).item() == 1.0


def test_rules_may_read_other_tensors():
    scale = wf.tensor(3.0, requires_grad=True)
    op = wf.custom_op(lambda x: x, vjp=lambda g: g * scale, jvp=lambda t: t[0] * scale)
    x = wf.tensor(1.0, requires_grad=True)
    assert op(x).backward()[x].item() == 3.0
    first = op(x).backward(create_graph=True)[x]
    assert (first**2).backward()[scale].item() == 6.0


WRONG = {
    "number": (lambda g: (g, g), errors.ArgumentError, "2 cotangents for 1 input;"),
    "shape": (lambda g: g.sum(), errors.ShapeError, r"shape \(\) for input 0.*shape \(2,\)"),
    "dtype": (lambda g: g.to("float64"), errors.DTypeError, r"float64 for input 0.*float32.*\.to"),
    "device": (lambda g: g.to("torch"), errors.DeviceError, r"on 'torch' for input 0"),
    "kind": (lambda g: "zero", errors.DTypeError, "returned str"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_cotangents(name):
    rule, error, told = WRONG[name]
    op = wf.custom_op(lambda x: 2.0 * x, vjp=rule)
    with pytest.raises(
        error, match=rf"<lambda>: its vjp \(test_custom_calls.py:\d+\).*{told}"
    ) as raised:
        wf.grad(lambda x: op(x).sum())(wf.ones(2))
    assert "(at test_custom_calls.py:" in str(raised.value)


def test_wrong_tangents():
    op = wf.custom_op(lambda x: 2.0 * x, jvp=lambda tangents: tangents[0][:1])
    two = wf.custom_op(lambda x: (x, x), jvp=lambda tangents: tangents[0])
    x = wf.ones(2)
    for derivative in (lambda: wf.jvp(op, (x,), (x,)), lambda: wf.grad(lambda x: op(x).sum())(x)):
        with pytest.raises(errors.ShapeError, match=r"tangent of shape \(1,\) for result 0"):
            derivative()
    with pytest.raises(errors.ArgumentError, match="1 tangent for 2 results"):
        wf.jvp(two, (x,), (x,))


def test_what_a_function_raises_arrives_as_it_is():
    class Mine(ValueError):
        pass

    def fail(*_):
        try:
            raise KeyError("cause")
        except KeyError as e:
            raise Mine("message") from e

    x = wf.ones(2)
    right = wf.custom_op(lambda x: x, vjp=fail, jvp=fail)
    for call in (
        lambda: wf.custom_op(fail)(x),
        lambda: wf.vmap(wf.custom_op(fail))(x),
        lambda: wf.jvp(wf.custom_op(fail), (x,), (x,)),
        lambda: wf.jvp(right, (x,), (x,)),
        lambda: wf.grad(lambda x: right(x).sum())(x),
    ):
        with pytest.raises(Mine, match=r"^message$") as raised:
            call()
        assert isinstance(raised.value.__cause__, KeyError)


def test_definitions_that_make_no_sense():
    with pytest.raises(errors.ArgumentError, match="4 positional parameters"):
        wf.custom_op(lambda x: x, vjp=lambda g, x, y, n: g)
    with pytest.raises(errors.ArgumentError, match="batch='each'"):
        wf.custom_op(batch="each")(lambda x: x)
    with pytest.raises(errors.ArgumentError, match="expected a function"):
        wf.custom_op(3.0)
    with pytest.raises(errors.ArgumentError, match="returned no value"):
        wf.custom_op(lambda x: ())(wf.ones(1))
    with pytest.raises(errors.DTypeError, match="returned NoneType"):
        wf.custom_op(lambda x: None)(wf.ones(1))
    with pytest.raises(TypeError, match="abstract"):
        wf.CustomOp()


def test_it_is_one_step_under_its_own_name():
    x = wf.tensor(2.0, requires_grad=True)
    y, _ = product(x, x)
    assert {e.op for e in wf.graph_of(y)} == {"product"}
    y.backward()
    with pytest.raises(errors.GraphFreed, match=r"product \(at test_custom_calls.py"):
        y.backward()

    @wf.custom_op
    def undefined(x):
        return np.array(np.nan)

    with wf.detect_anomaly(), pytest.raises(errors.AnomalyError, match=r"^undefined made the"):
        undefined(x)


@pytest.mark.usefixtures("no_graphs")
def test_only_what_the_rule_names_is_kept():
    x = wf.tensor(np.ones(1000), requires_grad=True)
    wf.clear_tape()  # of what the tracebacks of other tests still hold
    kept = {
        lambda g, inputs, output: g: 16000,
        lambda g, inputs: g: 8000,
        lambda g, _inputs, output: g: 8000,
        lambda g, _inputs, _output: g: 0,
        lambda g: g: 0,
    }
    for rule, expected in kept.items():
        y = wf.custom_op(lambda x: 2.0 * x, vjp=rule)(x)
        assert wf.memory_stats().bytes == expected
        assert y.sum().backward()[x].sum().item() == 1000.0
        del y


def test_it_is_freed_without_the_collector():
    x = wf.tensor(np.ones(3), requires_grad=True)
    gc.disable()
    try:
        for op in (product, wf.custom_op(product, jvp=lambda t, x: (t[0] * x[1], t[0] + t[1]))):
            y, z = op(x, x)
            node, value = weakref.ref(y._node), weakref.ref(z)
            (y * z).sum().backward()
            del y, z
            assert node() is None and value() is None
    finally:
        gc.enable()


def test_rows_are_not_made_for_every_definition():
    def define():
        return wf.custom_op(lambda x: 2.0 * x, vjp=lambda g: 2.0 * g)(wf.ones(2))

    define()
    before = row.cache_info().currsize
    for _ in range(5):
        define()
    assert row.cache_info().currsize == before


def test_on_a_tape():
    tape = wf.GradientTape(persistent=True)
    x = tape.watch(wf.tensor([1.0, 2.0]))
    y = tape.custom_op(Clip(), [x])
    assert tape.gradient((y * wf.tensor([0.5, 9.0])).sum(), x).tolist() == [0.5, 1.0]
    for op, inputs in ((Clip, [x]), (lambda x: x, [x]), (Clip(), x)):
        with pytest.raises(errors.ArgumentError, match="an instance of a"):
            tape.custom_op(op, inputs)


def test_it_looks_like_its_function():
    assert product.__name__ == "product" and product.__doc__ == "Two results of two inputs."
    assert repr(product) == "<custom_op product: vjp>"
    assert repr(wf.custom_op(abs)) == "<custom_op abs: no derivative>"
