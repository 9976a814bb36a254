"""Random numbers in native code: every bit as in eager mode, whoever draws them."""

import numpy as np
import pytest

import weft as wf
from weft.compiler.cpu.routines.draws import Draw
from weft.compiler.emit.variates import Below, Integers, Normal, Uniform
from weft.core.counter import ReservedBlocks, block_words

from ..routines import compared, steps_of
from ..schedules import call_routine

SIZES = (1, 63, 64, 65, 1000)
DRAWS = {
    "normal": lambda n, d: wf.random.randn((n,), dtype=d),
    "normal, moved": lambda n, d: wf.random.randn((n,), mean=1.5, std=0.3, dtype=d),
    "uniform": lambda n, d: wf.random.rand((n,), dtype=d),
    "uniform, moved": lambda n, d: wf.random.uniform(-2.5, 0.7, (n,), dtype=d),
}


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [wf.float16, wf.bfloat16, wf.float32, wf.float64], ids=str)
@pytest.mark.parametrize("name", DRAWS)
def test_every_bit_is_eager_modes(name, dtype, n):
    g = compared(lambda: DRAWS[name](n, dtype), routines=["Draw"], calls=2)
    (step,) = steps_of(g)
    assert isinstance(step.routine.variates, Normal if name.startswith("normal") else Uniform)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
@pytest.mark.parametrize("bounds", [(0, 2), (3, 120), (0, 7)])
def test_integers(bounds, dtype):
    compared(lambda: wf.random.randint(*bounds, (77,), dtype=dtype), routines=["Draw"])


@pytest.mark.parametrize("bounds", [(0, 2**32), (-(2**62), 2**62), (0, 2**63), (5, 2**40 + 7)])
def test_integers_of_wide_ranges(bounds):
    compared(lambda: wf.random.randint(*bounds, (77,)), routines=["Draw"])


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_truth_values(p):
    g = compared(lambda: wf.random.bernoulli(p, (4, 33)), calls=2)
    share = np.mean([g().numpy().mean() for _ in range(20)])
    assert abs(share - p) < 0.1


def test_truth_values_of_many_probabilities():
    p = np.linspace(0, 1, 33)

    def drawn(p):
        return wf.random.bernoulli(p, (4, 33))

    g = compared(drawn, p, routines=["Draw"], calls=3)
    many = np.mean([g(wf.tensor(p)).numpy() for _ in range(50)], (0, 1))
    np.testing.assert_allclose(many, p, atol=0.2)


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_permutations(n):
    compared(lambda: wf.random.permutation(n), routines=["Draw", "Order"], calls=2)


def test_words_are_philoxs():
    """Across the carry from the low word of the position to the high one."""
    key, nonce, position = 0x0123456789ABCDEF, 0xFEDCBA9876543210, (1 << 32) - 5
    state, out = np.array([[key, position, nonce]], np.uint64), np.zeros((1, 40), np.float32)
    call_routine(Draw(Uniform(out.dtype, 0.0, 1.0, 1.0), 1, 40), [state, out])
    blocks = [block_words(ReservedBlocks(key, (nonce << 64) + position), 0, i) for i in range(10)]
    want = [(w >> 8) * 2.0**-24 for block in blocks for w in block]
    np.testing.assert_array_equal(out[0], np.array(want, np.float32))


@pytest.mark.parametrize("pieces", [1, 3])
def test_streams_and_pieces(pieces):
    states = np.array([[1, 2, 3], [4, 5, 6], [1, 2, 3]], np.uint64)
    for made in (
        Below(np.dtype(bool), 1 << 31),
        Normal(np.dtype(np.float32), 0.0, 1.0),
        Integers(np.dtype(np.int32), 5, 11),
    ):
        routine, whole = Draw(made, 3, 333), Draw(made, 1, 333)
        out = np.zeros((3, 333), made.dtype)
        call_routine(routine, [states, out], pieces)
        one = np.zeros((1, 333), made.dtype)
        call_routine(whole, [states[1:2], one])
        np.testing.assert_array_equal(out[1], one[0])
        np.testing.assert_array_equal(out[0], out[2])
        assert not np.array_equal(out[0], out[1])


def test_a_training_step_with_dropout():
    x = np.random.default_rng(0).standard_normal((40, 30)).astype(np.float32)

    def f(x):
        x = x.detach().requires_grad_()
        y = wf.nn.functional.dropout(x, 0.4) * x
        return y, (y * y).sum().backward()[x]

    g = compared(f, x, routines=["Draw"], units=4, calls=3)
    assert (g(wf.tensor(x))[0].detach().numpy() == 0).mean() == pytest.approx(0.4, abs=0.1)
