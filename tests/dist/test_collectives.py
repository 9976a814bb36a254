"""Collectives of several ranks beside NumPy's functions of all ranks' arrays."""

import numpy as np
import pytest

import weft as wf
from weft import errors

from .threads import run

SIZES = (1, 2, 3, 4)
OPS = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


def draws(size, shape, seed=0):
    """One array for each rank, with ties between ranks."""
    return np.random.default_rng(seed).integers(-3, 4, (size, *shape)).astype(np.float64)


def collectives(size):
    """(name, of one rank's array, of all ranks' arrays and a rank), for an array (2·size, 3)."""
    rows = lambda every: every.reshape(size, size, 2, 3)  # noqa: E731
    yield from (
        (f"all_reduce {op}", lambda x, op=op: wf.dist.all_reduce(x, op), lambda v, r, f=f: f(v, 0))
        for op, f in OPS.items()
    )
    yield "all_gather", wf.dist.all_gather, lambda v, r: v
    for k in (0, 1):
        yield (
            f"all_gather along {k}",
            lambda x, k=k: wf.dist.all_gather(x, axis=k),
            lambda v, r, k=k: np.concatenate(list(v), axis=k),
        )
    yield (
        "reduce_scatter",
        lambda x: wf.dist.reduce_scatter(x.reshape(size, 2, 3)),
        lambda v, r: rows(v).sum(0)[r],
    )
    yield (
        "reduce_scatter mean along 0",
        lambda x: wf.dist.reduce_scatter(x, "mean", axis=0),
        lambda v, r: rows(v).mean(0)[r],
    )
    for root in {0, size - 1}:
        yield (
            f"broadcast {root}",
            lambda x, root=root: wf.dist.broadcast(x, root),
            lambda v, r, root=root: v[root],
        )


CASES = [(size, *case) for size in SIZES for case in collectives(size)]
NAMES = [f"{name} of {size}" for size, name, *_ in CASES]


@pytest.mark.parametrize(("size", "name", "call", "expected"), CASES, ids=NAMES)
@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_values_gradients_and_modes(size, name, call, expected, device):
    every = draws(size, (2 * size, 3))
    tangents, weights = draws(size, (2 * size, 3), 1), draws(size, (12, 12, 12), 2)

    def numpy_loss(v):
        """Σᵣ of the ranks' losses, each with weights of its own."""
        total = 0.0
        for r in range(size):
            y = expected(v, r)
            total += (y * weights[r].reshape(-1)[: y.size].reshape(y.shape)).sum()
        return total

    def program(r):
        kind = {"device": "torch"} if device == "torch" else {}
        x = wf.tensor(every[r], requires_grad=True, **kind)
        y = call(x)
        w = wf.tensor(weights[r].reshape(-1)[: y.size].reshape(y.shape), **kind)
        (y * w).sum().backward()
        t = wf.tensor(tangents[r], **kind)
        forward = wf.jvp(call, (x.detach(),), (t,))[1]
        batch = wf.vmap(call)(wf.stack([x.detach(), t]))
        compiled = wf.compile(call)(x.detach())
        return [np.asarray(v.numpy()) for v in (y.detach(), x.grad, forward, batch, compiled)]

    results = run(size, program)
    for r, (y, gradient, forward, batch, compiled) in enumerate(results):
        np.testing.assert_array_equal(y, expected(every, r))
        np.testing.assert_array_equal(compiled, expected(every, r))
        np.testing.assert_array_equal(batch, [expected(every, r), expected(tangents, r)])
        if "max" not in name and "min" not in name:
            np.testing.assert_allclose(forward, expected(tangents, r), rtol=1e-15)
            step = numpy_loss(every + 0.5 * tangents) - numpy_loss(every - 0.5 * tangents)
            mine = sum((g[1] * t).sum() for g, t in zip(results, tangents, strict=True))
            np.testing.assert_allclose(mine, step, rtol=1e-13)
        else:
            best = expected(every, r)
            attains = every == best
            share = attains / attains.sum(0)
            np.testing.assert_allclose(forward, (share * tangents).sum(0), atol=1e-13)
            total = sum(w.reshape(-1)[: best.size].reshape(best.shape) for w in weights)
            np.testing.assert_allclose(gradient, share[r] * total, atol=1e-13)


def test_a_call_before_init_says_what_to_do():
    with pytest.raises(errors.DistributedError, match=r"wf\.dist\.init\(\)"):
        wf.dist.all_reduce([1.0])


def test_ranks_that_do_different_things_are_told_so():
    """No arrays are mixed up: kinds, shapes, dtypes, options and orders are compared before."""

    def program(r):
        with pytest.raises(errors.RanksDiffer, match=r"rank 0: all_reduce sum float32 \(2, 3\)"):
            wf.dist.all_reduce(wf.ones((2, 3) if r == 0 else (3, 2)))
        with pytest.raises(errors.RanksDiffer, match=r"rank 0: all_reduce sum float32 \(2, 3\)"):
            wf.dist.barrier()  # the group is of no more use
        return True

    assert run(3, program) == [True] * 3
    calls = {
        "dtype": lambda r: wf.dist.all_reduce(wf.ones(3, dtype="float64" if r else "float32")),
        "option": lambda r: wf.dist.all_reduce(wf.ones(3), "max" if r else "sum"),
        "root": lambda r: wf.dist.broadcast(wf.ones(3), root=r),
        "function": lambda r: wf.dist.barrier() if r else wf.dist.all_gather(wf.ones(3)),
    }
    for call in calls.values():
        with pytest.raises(errors.RanksDiffer, match=r"rank 0: .*; rank 1: .*number 0"):
            run(2, call)


def test_arrays_that_require_a_gradient_on_some_ranks_only_are_told_so():
    """Else these ranks would wait for the others in the backward pass."""
    calls = {
        "sum": lambda x: wf.dist.all_reduce(x),
        "max": lambda x: wf.dist.all_reduce(x, "max"),
        "gather": wf.dist.all_gather,
        "scatter": lambda x: wf.dist.reduce_scatter(x),
        "broadcast": lambda x: wf.dist.broadcast(x, 0),
    }
    for call in calls.values():
        with pytest.raises(errors.RanksDiffer, match=r"rank 0: \w+ recorded .*; rank 1: \w+ "):
            run(2, lambda r, call=call: call(wf.ones((2, 3), requires_grad=r == 0)))

        def in_no_grad(r, call=call):
            with wf.no_grad():
                return call(wf.ones((2, 3), requires_grad=r == 0)).requires_grad

        assert run(2, in_no_grad) == [False, False]


def test_means_of_half_types_stay_in_range():
    def program(r):
        return wf.dist.all_reduce(wf.asarray([6e4, -6e4]).to("float16"), "mean").tolist()

    assert run(3, program) == [[6e4, -6e4]] * 3
