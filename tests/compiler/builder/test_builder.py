"""`wf.Graph`: what is built equals eager and PyTorch, and mistakes are told where they are made."""

import threading

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.arrays import elementwise
from weft.compiler.builder.names import functions
from weft.compiler.builder.values import GraphNumber, GraphTensor
from weft.graph.verify import verify

RNG = np.random.default_rng(0)
START = RNG.bit_generator.state
HERE = r"test_builder\.py:\d+"


@pytest.fixture(autouse=True)
def same_numbers():
    """The numbers of a test are the same whichever ran before it.

    Adam divides by the size of a gradient, so one that is zero but for rounding is another one for
    each order of a sum: of 60 seeds, 3 have such a gradient.
    """
    RNG.bit_generator.state = START


def array(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def close(found, expected, ulps=64):
    expected = np.asarray(expected)
    found = found.numpy()
    bound = ulps * np.finfo(found.dtype).eps * max(1.0, np.abs(expected).max(initial=0.0))
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


def classifier():
    g = wf.Graph("classifier")
    x = g.placeholder("x", (None, 6))
    labels = g.placeholder("labels", (None,), "int64")
    w1, b1 = g.variable("w1", array(6, 8)), g.variable("b1", np.zeros(8, np.float32))
    w2 = g.variable("w2", array(8, 3))
    logits = g.relu(x @ w1 + b1) @ w2
    return g, x, labels, (w1, b1, w2), g.softmax_cross_entropy(logits, labels)


def test_a_loss_and_its_gradients_equal_torch():
    torch = pytest.importorskip("torch")
    g, x, _, variables, loss = classifier()
    grads = g.gradients(loss, [*variables, x])
    run = g.compile([loss, *grads])
    assert [v.shape for v in (loss, *grads)] == [(), (6, 8), (8,), (8, 3), (None, 6)]
    for n in (4, 7, 1):
        data, classes = array(n, 6), RNG.integers(0, 3, n)
        leaves = [torch.tensor(v.value.numpy().copy(), requires_grad=True) for v in variables]
        t = torch.tensor(data, requires_grad=True)
        w1, b1, w2 = leaves
        want = torch.nn.functional.cross_entropy(
            torch.relu(t @ w1 + b1) @ w2, torch.tensor(classes)
        )
        want.backward()
        have = run(x=data, labels=classes)
        close(have[0], want.detach().numpy())
        for found, leaf in zip(have[1:], [*leaves, t], strict=True):
            close(found, leaf.grad.numpy())
    assert [why.split(":")[0] for why in run.recompilations] == ["argument 'x'"] * 2
    verify(run.graph)
    assert "program 2" in run.explain() and len(run.kernels) > 0


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "Lion", "RMSprop"])
def test_training_equals_the_eager_loop(optimizer):
    g, _, _, variables, loss = classifier()
    make = getattr(wf.optim, optimizer)
    opt = make(lr=0.05)
    pairs = list(zip(variables, g.gradients(loss, list(variables)), strict=True))
    run = g.compile((loss, opt.apply_gradients(pairs)))
    params = [wf.Parameter(v.value) for v in variables]
    eager = make(params, lr=0.05)
    for step in range(5):
        data, classes = array(4 + step % 2, 6), RNG.integers(0, 3, 4 + step % 2)
        w1, b1, w2 = params
        eager.zero_grad()
        logits = wf.relu(wf.asarray(data) @ w1 + b1) @ w2
        want = wf.nn.functional.cross_entropy(logits, wf.tensor(classes))
        want.backward()
        eager.step()
        found, nothing = run(x=data, labels=classes)
        assert nothing is None
        close(found, want.detach().numpy())
        for v, p in zip(variables, params, strict=True):
            close(v.value, p.detach().numpy())
    assert set(opt.state_dict()["state"]) == {"w1", "b1", "w2"}


def test_optimizers_take_variables_and_their_gradients_after_a_run():
    for given in ("variables", "the graph"):
        g, _, _, variables, loss = classifier()
        opt = wf.optim.SGD(list(variables) if given == "variables" else g, lr=0.1)
        run = g.compile(g.gradients(loss, list(variables)))
        before = [v.value for v in variables]
        grads = run(x=array(4, 6), labels=[0, 1, 2, 0])
        opt.apply_gradients(zip(variables, grads, strict=True))
        for v, was, d in zip(variables, before, grads, strict=True):
            close(v.value, was.numpy() - 0.1 * d.numpy())


def test_gradients_of_gradients():
    g = wf.Graph()
    x = g.placeholder("x", (None,), "float64")
    y = g.sum(g.sin(x) * x**3)
    first = g.gradients(y, x)
    second = g.gradients(first, x)
    penalty = g.gradients(g.sum(first**2), [x])[0]
    at = RNG.standard_normal(5)
    s, c = np.sin(at), np.cos(at)
    want = at**3 * c + 3 * at**2 * s
    curved = -(at**3) * s + 6 * at**2 * c + 6 * at * s
    for have, expected in zip(
        g.compile([first, second, penalty])(x=at), (want, curved, 2 * want * curved), strict=True
    ):
        close(have, expected)


def test_gradients_with_respect_to_intermediate_values_and_of_several_targets():
    g = wf.Graph()
    x = g.placeholder("x", (3,), "float64")
    h = g.exp(x)
    y = h * h
    found = g.gradients([y, h], [h, x], output_gradients=[2.0 * np.ones(3), np.ones(3)])
    at = RNG.standard_normal(3)
    run = g.compile(found)
    close(run(x=at)[0], 4 * np.exp(at) + 1)
    close(run(x=at)[1], (4 * np.exp(at) + 1) * np.exp(at))


def test_what_no_target_depends_on_has_no_gradient():
    g = wf.Graph()
    x, other = g.placeholder("x", (3,)), g.variable("other", [1.0])
    grads = g.gradients(g.sum(x), [x, other])
    assert isinstance(grads[0], GraphTensor) and grads[1] is None
    assert g.compile(grads)(x=[1.0, 2.0, 3.0])[1] is None


def test_a_value_is_fetched_in_several_functions_and_shapes():
    g = wf.Graph()
    x = g.placeholder("x", (None,))
    y = x * 2
    one, many = g.compile(y), g.compile({"y": y, "z": (y + 1, [x])})
    assert one(x=[1.0, 2.0]).tolist() == [2.0, 4.0]
    assert one({x: np.array([3.0])}).tolist() == [6.0]
    have = many({"x": [1.0]})
    assert have["y"].tolist() == [2.0] and have["z"][0].tolist() == [3.0]
    assert have["z"][1][0].tolist() == [1.0]


# Shapes


def test_shapes_are_known_as_far_as_they_are_the_same():
    g = wf.Graph()
    x = g.placeholder("x", (None, 4, None))
    assert (x.shape, x.dtype, x.ndim) == ((None, 4, None), wf.float32, 3)
    assert g.sum(x, axis=1).shape == (None, None)
    assert g.reshape(x, (-1, 4)).shape == (None, 4)
    assert x.mT.shape == (None, None, 4)
    assert (x > 0).dtype == bool
    assert x[:, 1:3].shape == (None, 2, None)
    assert g.einsum("abc,abd->acd", x, x).shape == (None, None, None)
    assert [p.shape for p in g.split(x, 2, axis=1)] == [(None, 2, None)] * 2
    assert len(x[0]) == 4 and len(list(x[0])) == 4


def test_an_unknown_size_as_a_number():
    g = wf.Graph()
    x = g.placeholder("x", (None, 4))
    n = x.length()
    assert isinstance(n, GraphNumber) and x.length(1) == 4
    flat = g.reshape(x, (n * 2, 2))
    assert flat.shape == (None, 2)
    mean = g.sum(x, axis=0) / n
    rows = g.arange(n, dtype="float32")
    run = g.compile([flat, mean, rows, n, x[: n - 1]])
    for size in (3, 5):
        data = array(size, 4)
        have = run(x=data)
        close(have[0], data.reshape(-1, 2))
        close(have[1], data.mean(0))
        assert have[2].tolist() == list(range(size)) and have[3] == size
        close(have[4], data[:-1])


def test_mistakes_are_told_where_they_are_made():
    g = wf.Graph()
    x, w = g.placeholder("x", (None, 4)), g.variable("w", array(5, 2))
    with pytest.raises(errors.ShapeError, match=rf"matmul.*4 ≠ 5 \(at {HERE}\)"):
        x @ w
    with pytest.raises(errors.ShapeError) as caught:
        x + np.ones((3, 4), np.float32)
    assert "None in a shape stands for any size" in caught.value.__notes__[0]
    calls = len(g.calls)
    with pytest.raises(errors.WeftError):
        g.reshape(x, (3, 3))
    assert len(g.calls) == calls
    with pytest.raises(errors.StagingError, match="how many results"):
        g.unstack(x)
    with pytest.raises(errors.StagingError, match=r"x\.length\(\) stands for it"):
        len(x)


def test_sizes_that_must_agree_are_checked_at_each_run():
    g = wf.Graph()
    x, y = g.placeholder("x", (None,)), g.placeholder("y", (None,))
    total = x + y
    line = rf"add.*\(2,\).*\(3,\).*\(at {total.line}\)"
    run = g.compile(total)
    with pytest.raises(errors.ShapeError, match=line):
        run(x=[1.0, 2.0], y=[1.0, 2.0, 3.0])
    assert run(x=[1.0], y=[2.0]).tolist() == [3.0]


# What runs are given


def test_what_runs_are_given():
    g = wf.Graph()
    x = g.placeholder("x", (None, 2))
    k = g.placeholder("k", (), "int32")
    unused = g.placeholder("unused", ())
    run = g.compile(x * k)
    at = rf"'x' at {HERE}"
    with pytest.raises(errors.ShapeError, match=rf"\(3,\) for the placeholder {at}, .*\(None, 2\)"):
        run(x=[1.0, 2.0, 3.0], k=1)
    with pytest.raises(errors.ShapeError, match=r"\(1, 3\) for the placeholder 'x'"):
        run(x=[[1.0, 2.0, 3.0]], k=1)
    with pytest.raises(errors.ArgumentError, match=rf"nothing was given for .*'x' .*at {HERE}"):
        run(k=1)
    with pytest.raises(errors.ArgumentError, match=r"'z', which is no placeholder .* x, k, unused"):
        run(x=[[1.0, 2.0]], k=1, z=3)
    with pytest.raises(errors.DTypeError, match=r"float32 for the placeholder 'k' .* int32"):
        run(x=[[1.0, 2.0]], k=1.5)
    with pytest.raises(errors.ArgumentError, match="numbers beyond int32"):
        run(x=[[1.0, 2.0]], k=1 << 40)
    assert run(x=np.array([[1, 2]]), k=3).tolist() == [[3.0, 6.0]]
    assert run({unused: 1.0, "k": 2, x: np.ones((1, 2))}).dtype == wf.float32
    with pytest.raises(errors.ArgumentError, match="'x' was given twice"):
        run({x: [[1.0, 2.0]]}, x=[[1.0, 2.0]], k=1)
    with pytest.raises(errors.DTypeError, match=r"expected run\(name=value\) or a dict"):
        run([[1.0, 2.0]])
    with pytest.raises(errors.ArgumentError, match="is no placeholder"):
        run({wf.Graph().placeholder("x", ()): 1.0})


def test_names_and_shapes_of_what_goes_in():
    g = wf.Graph()
    g.placeholder("x", ())
    with pytest.raises(errors.ArgumentError, match=rf"'x' is taken, by the placeholder .*{HERE}"):
        g.variable("x", 1.0)
    with pytest.raises(errors.ShapeError, match="needs a shape"):
        g.placeholder("y", None)
    with pytest.raises(errors.ShapeError, match="negative"):
        g.placeholder("y", (-1, 2))
    with pytest.raises(errors.DTypeError, match="expected a name first"):
        g.placeholder((None, 2), "y")
    with pytest.raises(errors.DTypeError, match="cannot begin with a value of a graph"):
        g.variable("w", g.placeholder("z", ()))


# Variables


def test_variables_keep_their_values_between_runs():
    g = wf.Graph()
    w, x = g.variable("w", [1.0, 2.0]), g.placeholder("x", (2,))
    add = w.assign(w + x)
    run = g.compile([add, w])
    assert [v.tolist() for v in run(x=[1.0, 1.0])] == [[2.0, 3.0], [1.0, 2.0]]
    assert [v.tolist() for v in run(x=[1.0, 1.0])] == [[3.0, 4.0], [2.0, 3.0]]
    assert w.value.tolist() == [3.0, 4.0] and w.initial_value.tolist() == [1.0, 2.0]
    w.value = [0.0, 0.0]
    assert run(x=[5.0, 5.0])[0].tolist() == [5.0, 5.0]
    w.reset()
    assert w.value.tolist() == [1.0, 2.0]
    assert g.compile(w.assign([7.0, 7.0]))().tolist() == w.value.tolist() == [7.0, 7.0]


def test_variables_are_read_first_and_changed_last():
    g = wf.Graph()
    a, b = g.variable("a", 1.0), g.variable("b", 10.0)
    swap = g.compile([a.assign(b), b.assign(a)])
    assert [v.item() for v in swap()] == [10.0, 1.0]
    assert (a.value.item(), b.value.item()) == (10.0, 1.0)


def test_what_is_changed_twice_is_refused():
    g = wf.Graph()
    w = g.variable("w", 1.0)
    with pytest.raises(errors.ArgumentError, match=r"'w' .* would be changed twice"):
        g.compile([w.assign(2.0), w.assign(3.0)])
    with pytest.raises(errors.ShapeError, match=r"a value of shape \(2,\)"):
        w.assign([1.0, 2.0])
    with pytest.raises(errors.DTypeError, match="expected a variable"):
        g.assign(w + 1, 2.0)
    with pytest.raises(errors.DTypeError, match=r"fetched, .* not computed with"):
        g.sin(w.assign(2.0))


def test_state_is_saved_and_loaded(tmp_path):
    g, _, _, variables, _ = classifier()
    state = g.state_dict()
    wf.save_checkpoint(tmp_path, wf.Checkpoint(state, step=1))
    for v in variables:
        v.value = v.value * 0
    g.load_state_dict(wf.load_checkpoint(tmp_path).model_state)
    for v in variables:
        assert v.value.tolist() == state[v.name].tolist()
    with pytest.raises(errors.StateMismatch, match=r"missing .*'b1'"):
        g.load_state_dict({"w1": state["w1"]})
    with pytest.raises(errors.StateMismatch, match="shape"):
        g.load_state_dict({**state, "b1": wf.zeros(3)})
    assert [n for n, _ in g.named_parameters()] == ["w1", "b1", "w2"]
    assert all(isinstance(p, wf.Parameter) for p in g.parameters())


def test_a_parameter_that_others_have_too():
    p = wf.Parameter(np.ones(2))
    g = wf.Graph()
    w = g.variable("w", p)
    run = g.compile(w * 2)
    with wf.no_grad():
        p.copy_(wf.tensor([3.0, 4.0]))
    assert w.parameter is p and run().tolist() == [6.0, 8.0]
    frozen = g.variable("frozen", [1.0], trainable=False)
    assert not frozen.parameter.requires_grad
    assert g.variable("count", 3).dtype == wf.int64


# Everything else


def test_every_public_function_is_there():
    g = wf.Graph()
    names = set(dir(g))
    assert set(wf.nn.functional.__all__) <= names
    assert set(wf.linalg.__all__) <= names
    assert {"matmul", "tanh", "where", "cond", "scan", "while_loop", "fft", "erf", "svd"} <= names
    assert len(functions()) > 350
    assert "solve" in dir(g.linalg) and "fft" in dir(g.fft) and "functional" in dir(g.nn)
    assert "relu" in dir(g.nn.functional) and "normal" in dir(g.random)
    with pytest.raises(AttributeError, match="has no 'sofmax'; did you mean softmax"):
        g.sofmax  # noqa: B018
    with pytest.raises(AttributeError, match=r"g\.linalg has no 'sove'"):
        g.linalg.sove  # noqa: B018
    assert "sine" in g.sin.__doc__.lower() or "sin" in g.sin.__doc__


def test_functions_of_all_sections():
    g = wf.Graph()
    a = g.placeholder("a", (None, 3, 3), "float64")
    made = {
        "solve": g.linalg.solve(a, g.ones((3, 1), dtype="float64")),
        "svd": g.linalg.svd(a),
        "fft": g.abs(g.fft.fft(a)),
        "erf": g.special.erf(a),
        "norm": g.nn.functional.layer_norm(a, (3,)),
        "topk": g.topk(a, 2),
        "where": g.where(a > 0, a, 0.0),
        "stack": g.stack([a, a * 2], axis=1),
        "operators": (1.0 - a) / (2 + abs(a)) ** 2 @ a.mT,
        "array left": np.ones((3, 3)) * a,
    }
    data = RNG.standard_normal((2, 3, 3)) + 3 * np.eye(3)
    have = g.compile(made)(a=data)
    u, s, vh = have["svd"]
    np.testing.assert_allclose(u.numpy() * s.numpy()[:, None] @ vh.numpy(), data, atol=1e-12)
    close(have["solve"], np.linalg.solve(data, np.ones((2, 3, 1))), 1e4)
    close(have["fft"], np.abs(np.fft.fft(data)))
    close(have["topk"][0], np.sort(data)[..., :0:-1])
    close(have["where"], np.where(data > 0, data, 0))
    close(have["stack"], np.stack([data, data * 2], 1))
    close(have["operators"], (1 - data) / (2 + abs(data)) ** 2 @ np.swapaxes(data, 1, 2))
    close(have["array left"], data)


def test_functions_that_are_given_functions():
    g = wf.Graph()
    x, w = g.placeholder("x", (None,), "float64"), g.variable("w", np.float64(2.0))
    scale = w * 3
    chosen = g.cond(g.sum(x) > 0, lambda v: v * scale, lambda v: -v, x)
    total, steps = g.scan(lambda c, v: (c + v * w, c), g.constant(0.0, "float64"), x)
    slope = g.gradients(g.sum(chosen) + total, w)
    run = g.compile([chosen, total, steps, slope])
    for data in (np.array([1.0, 2.0, 4.0]), np.array([-1.0, -2.0])):
        have = run(x=data)
        close(have[0], data * 6 if data.sum() > 0 else -data)
        assert have[1].item() == 2 * data.sum()
        close(have[2], 2 * (np.cumsum(data) - data))
        assert have[3].item() == data.sum() * (4 if data.sum() > 0 else 1)


def test_modules_and_functions_of_the_user():
    layer = wf.nn.Linear(4, 3)
    g = wf.Graph()
    x = g.placeholder("x", (None, 4))

    def cubed(v, bias=0.0):
        return v**3 + bias

    y = g.call(cubed, g.call(layer, x), bias=1.0)
    grads = g.gradients(g.sum(y), list(layer.parameters()))
    data = array(2, 4)
    value, *found = g.compile([y, *grads])(x=data)
    eager = cubed(layer(wf.asarray(data)), 1.0)
    close(value, eager.detach().numpy())
    expected = eager.sum().backward()
    for p, d in zip(layer.parameters(), found, strict=True):
        close(d, expected[p].numpy())


def test_random_numbers_are_drawn_at_each_run_as_in_eager():
    g = wf.Graph()
    x = g.placeholder("x", (None,))
    noise = g.random.normal(shape=(3,))
    y = g.dropout(x, 0.5)
    slope = g.gradients(g.sum(y), x)
    run = g.compile([noise, y, slope])
    wf.random.seed(5)
    found = [run(x=np.ones(64)) for _ in range(2)]
    wf.random.seed(5)
    for noise_, dropped, d in found:
        assert noise_.tolist() == wf.random.normal(shape=(3,)).tolist()
        kept = wf.nn.functional.dropout(wf.ones(64), 0.5)
        assert dropped.tolist() == kept.tolist() == d.tolist()


def test_graphs_are_not_mixed():
    g, other = wf.Graph("g"), wf.Graph("other")
    x, y = g.placeholder("x", ()), other.placeholder("y", ())
    with pytest.raises(errors.ArgumentError, match=rf"'y' at {HERE} is of another graph \('other"):
        x + y
    with pytest.raises(errors.ArgumentError, match="of another graph"):
        g.compile([y])
    with pytest.raises(errors.DTypeError, match="expected values of the graph"):
        g.compile([wf.ones(3)])


@pytest.mark.parametrize(
    "use",
    [
        *(bool, int, float, lambda x: x.item(), lambda x: x.numpy(), lambda x: 3.0 in x),
        *(np.asarray, wf.sin, lambda x: wf.ones(()) * x, lambda x: wf.softmax(x)),
    ],
)
def test_values_have_no_numbers_before_a_run(use):
    g = wf.Graph()
    x = g.placeholder("x", ())
    with pytest.raises(errors.WeftError, match=rf"the placeholder 'x' at {HERE}.*g\.compile"):
        use(x)


def test_values_do_not_change():
    g = wf.Graph()
    x = g.placeholder("x", (3,))
    with pytest.raises(errors.StagingError, match="values of a graph do not change"):
        x[0] = 1.0
    assert repr(x) == "<placeholder x: float32[3]>" and repr(x + 1) == "<add: float32[3]>"
    with pytest.raises(AttributeError, match="no 'copy_'"):
        x.copy_(x)


def test_arrays_are_kept_as_they_were():
    g = wf.Graph()
    data = np.ones(2, np.float32)
    x = g.placeholder("x", (2,))
    y = x + data
    data[:] = 5.0
    assert g.compile(y)(x=[1.0, 1.0]).tolist() == [2.0, 2.0]


def test_settings_around_a_run():
    g, _, _, variables, loss = classifier()
    grad = g.gradients(loss, variables[0])
    run = g.compile([loss, grad])
    data = {"x": array(3, 6), "labels": [0, 1, 2]}
    want = [v.tolist() for v in run(data)]
    with wf.no_grad():
        assert [v.tolist() for v in run(data)] == want
    assert not any(v.requires_grad for v in run(data))


def test_runs_take_no_part_in_differentiation():
    g = wf.Graph()
    run = g.compile(g.placeholder("x", (2,)) * 2)
    tracked = wf.tensor([1.0, 2.0], requires_grad=True)
    for use in (
        lambda: run(x=tracked),
        lambda: wf.grad(lambda x: run(x=x).sum())(tracked),
        lambda: wf.jvp(lambda x: run(x=x), (tracked.detach(),), (wf.ones(2),)),
        lambda: wf.vmap(lambda x: run(x=x))(wf.ones((3, 2))),
        lambda: wf.compile(lambda x: run(x=x))(wf.ones(2)),
    ):
        with pytest.raises(errors.InterchangeError, match=r"would end there; use g\.gradients"):
            use()
    with wf.no_grad():
        assert run(x=tracked).tolist() == [2.0, 4.0]


ALIKE = [n for n in dir(wf) if n in elementwise.FUNCTIONS]


def test_all_elementwise_functions_equal_eager():
    g = wf.Graph()
    x, y = (g.placeholder(n, (None,), "float64") for n in "xy")
    at = {"x": RNG.uniform(0.1, 0.9, 7), "y": RNG.uniform(0.1, 0.9, 7)}
    tensors = [wf.asarray(v) for v in at.values()]
    made, want = {}, {}
    for name in ALIKE:
        arity = elementwise.FUNCTIONS[name].op.arity
        if arity not in (1, 2):
            continue
        try:
            with np.errstate(all="ignore"):
                want[name] = getattr(wf, name)(*tensors[:arity])
        except errors.WeftError:  # of integers or booleans only
            continue
        made[name] = getattr(g, name)(*(x, y)[:arity])
        assert (made[name].shape, made[name].dtype) == ((None,), want[name].dtype)
    assert len(made) > 60
    for name, found in g.compile(made)(at).items():
        np.testing.assert_allclose(found.numpy(), want[name].numpy(), rtol=1e-12, err_msg=name)


def test_building_changes_nothing():
    wf.random.seed(1)
    state = wf.random.get_state()
    g = wf.Graph()
    w = g.variable("w", [1.0, 2.0])
    y = g.sum(g.dropout(w, 0.5) * g.random.normal(shape=(2,)))
    wf.optim.Adam(lr=1.0).apply_gradients([(w, g.gradients(y, w))])
    assert wf.random.get_state() == state
    assert w.value.tolist() == [1.0, 2.0] and w.parameter.grad is None


def test_runs_by_several_threads():
    g = wf.Graph()
    x = g.placeholder("x", (None, 16))
    run = g.compile(g.sum(g.tanh(x), axis=1))
    data = [array(n, 16) for n in (3, 5, 3, 5)]
    made: dict = {}

    def work(k):
        made[k] = [run(x=data[k]) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for k, results in made.items():
        for r in results:
            close(r, np.tanh(data[k]).sum(1))
    assert len(made) == 4


def test_variants_run_out():
    g = wf.Graph()
    x = g.placeholder("x", (None,))
    run = g.compile(x + 1, max_variants=1)
    run(x=[1.0])
    with pytest.raises(errors.VariantsExhausted, match=r"float32\[1\] became float32\[2\]"):
        run(x=[1.0, 2.0])
