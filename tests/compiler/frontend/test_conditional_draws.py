"""Random numbers in branches and while_loops of compiled functions: eager mode's, one by one."""

from threading import Thread

import numpy as np
import pytest

import weft as wf
from weft import errors

OTHER = wf.random.Generator(11)


def _branches(x):
    first = wf.rand(3)
    chosen = wf.cond(
        x.sum() > 0,
        lambda x: x * wf.rand(5)[:3] + wf.rand(3),
        lambda x: x - wf.randint(0, 9, (3,)).to("float32"),
        x,
    )
    return first, chosen, wf.rand(2), wf.permutation(5)


def _one_branch(x):
    return wf.cond(x.sum() > 0, lambda: wf.rand(3), lambda: x), wf.rand(9)


def _nested(x):
    def inner():
        return wf.cond(x[0] > 1, lambda: wf.rand(2), lambda: wf.rand(2) + wf.rand(9)[:2])

    return wf.cond(x.sum() > 0, inner, lambda: x[:2]) + wf.rand(2)


def _walk(x):
    def body(c):
        return c[0] + wf.rand(()) + 0.1, c[1] + wf.rand(7)[0]

    far, total = wf.while_loop(lambda c: c[0] < x.sum(), body, (wf.tensor(0.0), wf.tensor(0.0)))
    return far, total, wf.rand(())


def _branch_in_a_loop(x):
    def body(c):
        step = wf.cond(c[1] > 0.2, lambda: wf.rand(5)[0], lambda: wf.rand(()) * 0.5)
        return c[0] + 1, c[1] + step

    count, total = wf.while_loop(lambda c: c[0] < 6, body, (wf.tensor(0), x[0] * 0))
    return count, total + wf.rand(())


def _two_generators(x):
    def yes():
        return wf.rand(3, generator=OTHER) + wf.rand(3)

    return wf.cond(x[0] > 1, yes, lambda: wf.rand(3, generator=OTHER)), wf.rand(2, generator=OTHER)


def _dropped(x):
    return wf.cond(x.sum() > 0, lambda x: wf.nn.functional.dropout(x, 0.5), lambda x: x, x)


def _loop_before(x):
    total, _ = wf.scan(lambda c, _: (c + wf.rand(3), None), x, length=3)
    return wf.cond(x.sum() > 0, lambda: total + wf.rand(3), lambda: total), wf.rand(())


PROGRAMS = (
    *(_branches, _one_branch, _nested, _walk, _branch_in_a_loop, _two_generators, _dropped),
    _loop_before,
)


def _inputs(count: int) -> list:
    return [
        wf.tensor(np.array([1.0 + k % 2, 1, 1], "float32") * (1 if k % 3 else -1))
        for k in range(count)
    ]


def _run(f, count=6) -> tuple[list, list]:
    """The results of some calls, and how far the streams are after each."""
    wf.random.seed(5)
    OTHER.seed(11)
    results, states = [], []
    for x in _inputs(count):
        out = f(x)
        results += [y.numpy() for y in (out if isinstance(out, tuple) else (out,))]
        states.append((wf.random.get_state(), OTHER.state_dict()))
    return results, states


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__.strip("_"))
def test_numbers_and_streams_are_those_of_eager_mode(f, target):
    compiled = wf.compile(f)
    want, far = _run(f)
    got, here = _run(compiled)
    assert here == far
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert compiled.recompilations == []
    assert target is not None or "library call" not in compiled.explain()


def test_eager_and_compiled_calls_take_turns():
    compiled, turn = wf.compile(_branches), [0]

    def either(x):
        turn[0] += 1
        return (compiled if turn[0] % 2 else _branches)(x)

    want, far = _run(_branches)
    got, here = _run(either)
    assert here == far
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def _loss(x, w):
    h = wf.cond(w.sum() > 0, lambda: wf.nn.functional.dropout(x * w, 0.5), lambda: x * wf.rand(3))
    return (h * h * wf.rand(3)).sum()


def _long_loss(x, w):
    def body(c):
        return c[0] + 1, c[1] * wf.rand(3) + w

    count = (w.sum() > 0).to("int64") + 2
    _, h = wf.while_loop(lambda c: c[0] < count, body, (wf.tensor(0), x), max_steps=5)
    return (h * h).sum()


@pytest.mark.parametrize("loss", [_loss, _long_loss])
def test_gradients_see_the_same_numbers(loss):
    gradient = wf.value_and_grad(loss, argnums=(0, 1))
    compiled = wf.compile(gradient)
    x = wf.tensor(np.array([1.0, -2.0, 0.5]))
    made = []
    for f in (gradient, compiled):
        wf.random.seed(3)
        out = []
        for sign in (1.0, -1.0, 1.0):
            value, (gx, gw) = f(x, wf.tensor(np.array([0.5, 1.0, 2.0])) * sign)
            out += [value.numpy(), gx.numpy(), gw.numpy()]
        made.append((out, wf.random.get_state()))
    assert made[0][1] == made[1][1]
    for a, b in zip(made[0][0], made[1][0], strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-6)


def test_a_call_that_is_differentiated_from_outside():
    compiled = wf.compile(_loss)
    x = np.array([1.0, -2.0, 0.5])
    made = []
    for f in (_loss, compiled):
        wf.random.seed(3)
        out = []
        for sign in (1.0, -1.0):
            p = wf.tensor(x, requires_grad=True)
            f(p, wf.tensor(np.array([0.5, 1.0, 2.0])) * sign).backward()
            out.append(p.grad.numpy())
        made.append((out, wf.random.get_state()))
    assert made[0][1] == made[1][1]
    np.testing.assert_allclose(made[1][0], made[0][0], rtol=1e-6)


def test_tangents_see_the_same_numbers():
    x, w = wf.tensor(np.array([1.0, -2.0, 0.5])), wf.tensor(np.array([0.5, 1.0, 2.0]))

    def pushed(w):
        return wf.jvp(lambda x: _loss(x, w), (x,), (x,))

    compiled, made = wf.compile(pushed), []
    for f in (pushed, compiled):
        wf.random.seed(3)
        made.append([[y.item() for y in f(w * sign)] for sign in (1.0, -1.0)])
    np.testing.assert_allclose(made[1], made[0], rtol=1e-6)


def test_a_checkpoint_around_a_compiled_call():
    compiled, made = wf.compile(_loss), []
    for f in (_loss, compiled):
        wf.random.seed(3)
        p = wf.tensor(np.array([1.0, -2.0, 0.5]), requires_grad=True)
        w = wf.tensor(np.array([0.5, 1.0, 2.0]))
        wf.checkpoint(lambda p, w=w, f=f: f(p, w), p).backward()
        made.append((p.grad.numpy(), wf.random.get_state()))
    assert made[0][1] == made[1][1]
    np.testing.assert_allclose(made[1][0], made[0][0], rtol=1e-6)


def test_streams_of_operations_in_deterministic_mode():
    compiled, made = wf.compile(_dropped), []
    for f in (_dropped, compiled):
        with wf.deterministic(4):
            made.append([f(x).numpy() for x in _inputs(5)])
    np.testing.assert_array_equal(made[1], made[0])


def test_threads_never_get_the_same_numbers():
    """Somebody draws while a call is under way: what was reserved for it is not given back."""
    generator = wf.random.Generator(3)
    draw = generator.advance(1 << 42)
    between = generator.advance(4)
    generator.give_back(draw, 1 << 42, 5)
    assert generator.position == (1 << 40) + 1
    assert between.counter == 1 << 40

    def drawn(x, seen):
        for _ in range(50):
            seen.append(compiled(x).tolist()[0])

    compiled = wf.compile(lambda x: wf.cond(x > 0, lambda: wf.rand(1), lambda: wf.rand(1)))
    compiled(wf.tensor(1.0))
    seen: list[float] = []
    threads = [Thread(target=drawn, args=(wf.tensor(1.0), seen)) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(set(seen)) == 100


# -- what is refused -------------------------------------------------------------------------

REFUSED = {
    "the test of a while_loop": lambda x: wf.while_loop(
        lambda c: c.sum() < 9 * wf.rand(()), lambda c: c + 1, x
    ),
    "a scan inside of vmap": lambda x: wf.vmap(
        lambda c: wf.scan(lambda c, _: (c + wf.rand(()), None), c, length=2)[0]
    )(x),
    "a branch or a while_loop inside of vmap": lambda x: wf.vmap(
        lambda c: wf.cond(x.sum() > 0, lambda: c + wf.rand(()), lambda: c)
    )(x),
    "a branch or a while_loop inside of a scan or a checkpoint": lambda x: wf.scan(
        lambda c, _: (wf.cond(c.sum() > 0, lambda: c + wf.rand(3), lambda: c), None), x, length=2
    ),
    "a scan inside of a branch or of a while_loop": lambda x: wf.cond(
        x.sum() > 0,
        lambda: wf.scan(lambda c, _: (c + wf.rand(3), None), x, length=2)[0],
        lambda: x,
    ),
    "a scan, after a branch": lambda x: (
        wf.cond(x.sum() > 0, lambda: wf.rand(3), lambda: x),
        wf.scan(lambda c, _: (c + wf.rand(3), None), x, length=2)[0],
    ),
}


@pytest.mark.parametrize("where", REFUSED)
def test_where_numbers_cannot_be_those_of_eager_mode(where):
    said = rf"a random number is drawn in {where}.*draw what .*test_conditional_draws.py"
    with pytest.raises(errors.StagingError, match=said):
        wf.compile(REFUSED[where])(_inputs(2)[1])
