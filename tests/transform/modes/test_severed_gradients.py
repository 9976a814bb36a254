"""A gradient made without its graph is differentiated rightly or refused, never dropped.

How the gradient was made × how it goes into the loss × how the outer gradient is asked for. The
loss is x·1 + a penalty on g = ∂(x⁴)/∂x = 4x³.
"""

import numpy as np
import pytest

import weft as wf

POINT = np.array([1.5, -0.5, 2.0])


def _by_backward(x):
    return (x**4).sum().backward()[x]


def _by_recorded_backward(x):
    return (x**4).sum().backward(create_graph=True)[x]


def _by_accumulation(x):
    (x**4).sum().backward()
    g, x.grad = x.grad, None
    return g


def _by_tape(x, persistent=False):
    with wf.GradientTape(persistent=persistent) as tape:
        tape.watch(x)
        y = (x**4).sum()
    return tape.gradient(y, [x])[0]


def _by_jacobian(x):
    with wf.GradientTape() as tape:
        tape.watch(x)
        y = (x**4).sum()
    return tape.jacobian(y, x)


def _by_retained(x):
    y = x * 1.0
    y.retain_grad()
    (y**4).sum().backward()
    return y.grad


def _by_hook(x):
    y, found = x * 1.0, []
    y.register_hook(lambda g: found.append(g))
    (y**4).sum().backward()
    return found[0]


MADE = {
    "backward": _by_backward,
    "create_graph": _by_recorded_backward,
    ".grad": _by_accumulation,
    "tape": _by_tape,
    "persistent tape": lambda x: _by_tape(x, persistent=True),
    "tape.jacobian": _by_jacobian,
    "retain_grad": _by_retained,
    "hook": _by_hook,
    "grad": lambda x: wf.grad(lambda z: (z**4).sum())(x),
    "vjp": lambda x: wf.vjp(lambda z: (z**4).sum(), x)[1](wf.tensor(1.0, dtype=x.dtype))[0],
}


RECORDED = ("create_graph", "persistent tape", "grad", "vjp")


def _assigned(x, g):
    y = x * 1.0
    y[1:] = g[1:] * g[1:]
    return y.sum() + (g[:1] * g[:1]).sum() + (x[1:] * 1.0).sum()


# The loss, x.sum() + (g·g).sum(), with the gradient going in another way each time.
COMBINED = {
    "sum": lambda x, g: x.sum() + (g * g).sum(),
    "turned": lambda x, g: (g * g).sum() + x.sum(),
    "product": lambda x, g: ((x + g * g) * 1.0).sum(),
    "three": lambda x, g: wf.where(wf.asarray([True] * 3), x + g * g, x * 0).sum(),
    "stack": lambda x, g: wf.stack([x, g * g]).sum(),
    "concat": lambda x, g: wf.concat([x, g**2]).sum(),
    "matmul": lambda x, g: x @ wf.ones_like(x) + g @ g,
    "norm": lambda x, g: x.sum() + wf.linalg.vector_norm(g) ** 2,
    "dtype": lambda x, g: x.sum() + (g.to("float64") ** 2).sum(),
    "assigned": _assigned,
    "deep": lambda x, g: wf.exp(wf.log(x * x + 1)).sum() * 0 + (x + (g + g) * g * 0.5).sum(),
}
CONSTANT = {
    "detach": lambda x, g: (x * g.detach()).sum(),
    "sign": lambda x, g: (x * wf.sign(g)).sum(),
    "floor": lambda x, g: (x * wf.floor(g)).sum(),
}


def _ask_tape(x, loss):
    with wf.GradientTape() as tape:
        tape.watch(x)
        total = loss(x)
    return tape.gradient(total, [x])[0]


def _ask_two(x, loss):
    with wf.GradientTape() as tape:
        tape.watch(x)
        total, other = loss(x), (x * 0).sum()
    return tape.gradient([other, total], [x])[0]


def _ask_tape_jacobian(x, loss):
    with wf.GradientTape() as tape:
        tape.watch(x)
        total = loss(x)
    return tape.jacobian(total, x)


def _ask_beside(x, loss):
    """The live part of the sum does not lead to x at all."""
    w = wf.tensor(2.0, requires_grad=True, dtype=x.dtype)
    with wf.GradientTape() as tape:
        tape.watch(x)
        total = w * 3.0 + loss(x) - x.detach().sum()
    return tape.gradient(total, [x])[0]


ASKED = {
    "backward": lambda x, loss: loss(x).backward()[x],
    "create_graph": lambda x, loss: loss(x).backward(create_graph=True)[x],
    "tape": _ask_tape,
    "two targets": _ask_two,
    "tape.jacobian": _ask_tape_jacobian,
    "beside": _ask_beside,
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("combined", COMBINED)
@pytest.mark.parametrize("made", MADE)
def test_a_gradient_in_a_loss_is_differentiated_or_refused(made, combined, asked):
    x = wf.tensor(POINT, requires_grad=True)
    whole = 1 + 2 * (4 * POINT**3) * (12 * POINT**2)
    try:
        found = ASKED[asked](x, lambda x: COMBINED[combined](x, MADE[made](x)))
    except wf.errors.GradientNotRecorded as e:
        assert made not in RECORDED
        assert ("create_graph=True" in str(e)) == ("tape" not in made)
        assert "persistent" in str(e) or "tape" not in made
    else:
        np.testing.assert_allclose(found.detach().numpy(), whole, rtol=1e-9)


@pytest.mark.parametrize("asked", ["backward", "create_graph", "tape", "tape.jacobian"])
@pytest.mark.parametrize("combined", CONSTANT)
@pytest.mark.parametrize("made", MADE)
def test_a_gradient_that_is_meant_as_a_constant_is_one(made, combined, asked):
    x = wf.tensor(POINT, requires_grad=True)
    g = 4 * POINT**3
    expected = {"detach": g, "sign": np.sign(g), "floor": np.floor(g)}[combined]
    found = ASKED[asked](x, lambda x: CONSTANT[combined](x, MADE[made](x)))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("made", MADE)
def test_a_gradient_from_outside_is_a_constant_of_a_function(made):
    x = wf.tensor(POINT, requires_grad=True)
    g = MADE[made](x)
    found = wf.grad(lambda z: (z * g).sum())(x.detach())
    np.testing.assert_allclose(found.detach().numpy(), 4 * POINT**3, rtol=1e-12)


def test_a_gradient_by_others_is_no_obstacle():
    x = wf.tensor(POINT, requires_grad=True)
    w = wf.tensor(2.0, requires_grad=True, dtype="float64")
    g = _by_backward(x)
    with wf.GradientTape() as tape:
        total = w * (g * g).sum()
    assert tape.gradient(total, [w])[0].item() == pytest.approx(float((16 * POINT**6).sum()))


# Where a part of the loss is computed by a compiled function: (x, g, combined) -> loss.
def _as_argument(compiled):
    return lambda x, g: compiled(lambda g: (g * g).sum())(g) + x.sum()


def _beside_x(compiled):
    return lambda x, g: compiled(lambda x, g: x.sum() + (g * g).sum())(x, g)


def _beside_captured(compiled):
    return lambda x, g: compiled(lambda g: x.sum() + (g * g).sum())(g)


def _captured(compiled):
    return lambda x, g: compiled(lambda: (g * g).sum())() + x.sum()


def _both_captured(compiled):
    return lambda x, g: compiled(lambda: x.sum() + (g * g).sum())()


def _in_a_list(compiled):
    return lambda x, g: (
        compiled(lambda gs: {"a": gs[0] * 2.0, "b": gs[0] * g})([g])["b"].sum() + (x.sum())
    )


def _without_recording(compiled):
    def loss(x, g):
        with wf.no_grad():
            square = compiled(lambda g: (g * g).sum())(g)
        return square + x.sum()

    return loss


def _assigned_inside(compiled):
    def assign(y, g):
        y[...] = g * g

    def loss(x, g):
        y = wf.zeros_like(x.detach())
        compiled(assign)(y, g)
        return y.sum() + x.sum()

    return loss


PLACES = {
    "argument": _as_argument,
    "argument beside x": _beside_x,
    "argument beside a captured x": _beside_captured,
    "captured": _captured,
    "captured with x": _both_captured,
    "in a list": _in_a_list,
    "under no_grad": _without_recording,
    "assigned": _assigned_inside,
}


class _Once:
    """Compiles each function once, so that later calls use its program."""

    def __init__(self):
        self.made = {}

    def __call__(self, f):
        return self.made.setdefault(f.__code__, wf.compile(f))


@pytest.mark.parametrize("asked", ["backward", "tape"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("made", ["backward", ".grad", "tape", "tape.jacobian", "hook"])
def test_a_gradient_in_a_compiled_function_is_refused_as_elsewhere(made, place, asked):
    fresh = "captured" in place or "assigned" in place
    once = wf.compile if fresh else _Once()
    whole = 1 + 2 * (4 * POINT**3) * (12 * POINT**2)
    if place == "under no_grad":  # a constant, by the user's own word
        whole = np.ones(3)
    for _ in range(3):
        x = wf.tensor(POINT, requires_grad=True)
        try:
            found = ASKED[asked](x, lambda x: PLACES[place](once)(x, MADE[made](x)))
        except (wf.errors.GradientNotRecorded, wf.errors.StagingError, wf.errors.NotDifferentiable):
            continue
        # A tape around another one records what that one gives.
        assert asked == "tape" and "tape" in made
        np.testing.assert_allclose(found.detach().numpy(), whole, rtol=1e-9)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("made", ["backward", ".grad", "hook"])
def test_the_error_names_the_gradient(made, place):
    x = wf.tensor(POINT, requires_grad=True)
    with pytest.raises(wf.errors.GradientNotRecorded, match="without its graph"):
        PLACES[place](wf.compile)(x, MADE[made](x)).backward()


@pytest.mark.parametrize("made", ["backward", ".grad", "tape", "hook"])
def test_a_gradient_inside_of_a_compiled_function_is_refused(made):
    x = wf.tensor(POINT, requires_grad=True)
    other = wf.tensor(POINT, requires_grad=True)

    @wf.compile
    def step(g):
        (x.sum() + (g * g).sum()).backward()

    @wf.compile
    def tape_step(g, y):
        with wf.GradientTape() as tape:
            tape.watch(y)
            loss = (x * y).sum() + (g * g).sum() + (y * g).sum()
        return tape.gradient(loss, y)

    for _ in range(2):
        with pytest.raises(wf.errors.GradientNotRecorded, match="without its graph"):
            step(MADE[made](x))
        # A gradient by something else is a constant here, in whatever order the calls come.
        g = MADE[made](other)
        if made == "tape":
            expected = 2 * POINT + g.numpy()  # y is x
            np.testing.assert_allclose(tape_step(g, x).numpy(), expected)
            with pytest.raises(wf.errors.GradientNotRecorded, match="without its graph"):
                tape_step(MADE[made](x), x)


@pytest.mark.parametrize("made", MADE)
def test_a_compiled_function_takes_gradients_that_nobody_differentiates(made):
    x = wf.tensor(POINT, requires_grad=True)
    moved = wf.compile(lambda x, g: x - 0.1 * g)
    for _ in range(3):
        found = moved(x, MADE[made](x))
        np.testing.assert_allclose(found.detach().numpy(), POINT - 0.4 * POINT**3, rtol=1e-12)
    g = MADE[made](x).detach() if made in RECORDED else MADE[made](x)
    captured = wf.compile(lambda: x - 0.1 * g)
    for _ in range(3):
        np.testing.assert_allclose(captured().detach().numpy(), POINT - 0.4 * POINT**3, rtol=1e-12)
