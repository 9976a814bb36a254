"""Random numbers inside vmap: every element draws its own, and a batch is one draw."""

import numpy as np
import pytest

import weft as wf

DEVICES = ["cpu", "torch"]


def drawn(make, seed=3):
    wf.random.seed(seed)
    return make().to("cpu").numpy()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "draw",
    [
        lambda shape, device: wf.rand(shape, device=device),
        lambda shape, device: wf.randn(shape, device=device, dtype="float64"),
        lambda shape, device: wf.random.uniform(-2.0, 3.0, shape, device=device),
        lambda shape, device: wf.randint(0, 100, shape, device=device),
        lambda shape, device: wf.random.bernoulli(0.3, shape, device=device),
    ],
)
def test_a_batch_is_one_draw(draw, device):
    zeros = wf.zeros((4,), device=device)
    got = drawn(lambda: wf.vmap(lambda _: draw((12,), device))(zeros))
    np.testing.assert_array_equal(got, drawn(lambda: draw((4, 12), device)))
    assert len({tuple(row) for row in got.tolist()}) == 4


def test_nested_batches():
    got = drawn(lambda: wf.vmap(wf.vmap(lambda x: x + wf.rand((2,))))(wf.zeros((3, 4))))
    np.testing.assert_array_equal(got, drawn(lambda: wf.rand((3, 4, 2))))


def test_probabilities_that_differ():
    got = wf.vmap(lambda p: wf.random.bernoulli(p, (50,)))(wf.tensor([0.0, 1.0]))
    assert got.tolist() == [[False] * 50, [True] * 50]


def test_every_element_has_its_own_order():
    found = wf.vmap(lambda x: wf.permutation(30) + 0 * x)(wf.arange(4))
    rows = found.tolist()
    assert all(sorted(row) == list(range(30)) for row in rows)
    assert len({tuple(row) for row in rows}) == 4


def test_gradients_through_random_numbers():
    x = wf.tensor([1.0, 2.0, 3.0])
    wf.random.seed(7)
    slopes = wf.vmap(wf.grad(lambda v: v * wf.rand(())))(x)
    wf.random.seed(7)
    np.testing.assert_array_equal(slopes.numpy(), wf.rand((3,)).numpy())


def test_tangents_see_the_same_numbers():
    """A seed of a Jacobian is no element of a batch: all columns have one draw."""
    wf.random.seed(7)
    found = wf.jacfwd(lambda v: v * wf.rand((3,)))(wf.ones(3))
    wf.random.seed(7)
    np.testing.assert_array_equal(np.diag(found.numpy()), wf.rand((3,)).numpy())


# Forward mode by hand, in and around other transformations.


def test_a_context_inside_another_calculation():
    one, three = wf.tensor(1.0), wf.tensor(3.0)
    ctx = wf.ForwardADContext()
    slope = lambda x: (ctx.dual(x, one) * x * x).tangent  # noqa: E731
    value, second = wf.jvp(slope, (three,), (one,))
    assert (value.item(), second.item()) == (9.0, 6.0)


def test_a_dual_from_outside_is_refused_by_grad():
    d = wf.DualTensor(wf.tensor(2.0), wf.tensor(1.0))
    with pytest.raises(wf.errors.ArgumentError, match="DualTensor that was made outside"):
        wf.grad(lambda u: u * d)(wf.tensor(3.0))
    assert wf.grad(lambda u: (u * d).tangent)(wf.tensor(3.0)).item() == 1.0
