"""Collectives under every transformation, beside PyTorch's derivatives of one program of all ranks.

That program has the arrays of all ranks, stacked; a collective is a function of the stack. So the
derivatives of the sum of all ranks' losses come from an engine that knows no ranks.
"""

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors

from .threads import run

SIZE = 3
# Each has a part for each rank along its first axis, and along its last.
SHAPES = {"matrix": (3, 6), "tall": (6, 2, 3), "vector": (3,), "empty": (3, 0, 3), "one": (3, 1, 3)}


def joined(axis):
    """All ranks' arrays joined along an axis, of the stack of all."""
    return lambda v, r: torch.cat(list(v), axis)


def scattered(axis, mean=False):
    def of_all(v, r):
        part = v.sum(0).tensor_split(SIZE, axis)[r]
        return part / SIZE if mean else part

    return of_all


# By name: a function of a rank's array, and one of the stack of all ranks' arrays, and a rank.
COLLECTIVES = {
    "sum": (wf.dist.all_reduce, lambda v, r: v.sum(0)),
    "mean": (lambda x: wf.dist.all_reduce(x, "mean"), lambda v, r: v.mean(0)),
    "max": (lambda x: wf.dist.all_reduce(x, "max"), lambda v, r: v.amax(0)),
    "min": (lambda x: wf.dist.all_reduce(x, "min"), lambda v, r: v.amin(0)),
    "gather": (wf.dist.all_gather, lambda v, r: v),
    "gather along 0": (lambda x: wf.dist.all_gather(x, 0), joined(0)),
    "gather along -1": (lambda x: wf.dist.all_gather(x, -1), joined(-1)),
    "scatter along 0": (lambda x: wf.dist.reduce_scatter(x, axis=0), scattered(0)),
    "scatter along -1": (lambda x: wf.dist.reduce_scatter(x, axis=-1), scattered(-1)),
    "scattered mean": (lambda x: wf.dist.reduce_scatter(x, "mean", -1), scattered(-1, True)),
    "broadcast": (lambda x: wf.dist.broadcast(x, 1), lambda v, r: v[1]),
}


def draw(shape, seed):
    """One array for each rank, with ties between them."""
    return np.random.default_rng(seed).integers(-3, 4, (SIZE, *shape)) / 4.0


def weights(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape)


def smooth(xp, x):
    """What surrounds a collective, so that second derivatives are not zero."""
    return xp.sin(x) + x * x


class AllRanks:
    """The program of all ranks together, in PyTorch: values, and derivatives of the sum of losses."""

    def __init__(self, of_all, shape):
        self.of_all = of_all
        self.v = torch.tensor(draw(shape, 0), requires_grad=True)
        self.t = torch.tensor(draw(shape, 1))

    def outputs(self, v):
        return [smooth(torch, self.of_all(smooth(torch, v), r)) for r in range(SIZE)]

    def loss(self, v):
        ys = self.outputs(v)
        return sum((y * torch.tensor(weights(y.shape, 10 + r))).sum() for r, y in enumerate(ys))

    def gradient(self):
        (g,) = torch.autograd.grad(self.loss(self.v), self.v, create_graph=True)
        return g

    def second(self):
        """The derivative of the gradient along t."""
        (h,) = torch.autograd.grad((self.gradient() * self.t).sum(), self.v, materialize_grads=True)
        return h.numpy()

    def pushed(self):
        """The derivatives of the outputs along t, by forward mode."""
        return [
            torch.autograd.functional.jvp(
                lambda v, r=r: self.outputs(v)[r], self.v.detach(), self.t
            )[1].numpy()
            for r in range(SIZE)
        ]


def rank_program(call, r, device):
    """f and the loss of a rank."""

    def f(x):
        return smooth(wf, call(smooth(wf, x)))

    def loss(x):
        y = f(x)
        return (y * wf.tensor(weights(y.shape, 10 + r), device=device)).sum()

    return f, loss


def plain_modes(f, loss, x, t):
    """(name, result, what it is to be)."""
    tracked = x.detach().requires_grad_()
    loss(tracked).backward()
    yield "backward", tracked.grad, "gradient"
    yield "value", f(x), "value"
    yield "jvp", wf.jvp(f, (x,), (t,))[1], "pushed"
    yield "linearize", wf.linearize(f, x)[1](t), "pushed"
    yield "compiled", wf.compile(f)(x), "value"
    yield "compiled gradient", wf.compile(wf.grad(loss))(x), "gradient"
    yield "compiled jvp", wf.compile(lambda x, t: wf.jvp(f, (x,), (t,))[1])(x, t), "pushed"
    yield "checkpoint", wf.grad(lambda x: wf.checkpoint(loss, x))(x), "gradient"
    yield "vjp", wf.vjp(loss, x)[1](wf.ones_like(loss(x)))[0], "gradient"


def second_modes(f, loss, x, t):
    def along(x):
        return (wf.grad(loss)(x) * t).sum()

    yield "reverse over reverse", wf.grad(along)(x), "second"
    yield "forward over reverse", wf.jvp(wf.grad(loss), (x,), (t,))[1], "second"
    yield "reverse over forward", wf.grad(lambda x: wf.jvp(loss, (x,), (t,))[1])(x), "second"
    remembered = wf.checkpoint(loss)
    yield "checkpoint", wf.jvp(wf.grad(remembered), (x,), (t,))[1], "second"
    yield "compiled", wf.compile(wf.grad(along))(x), "second"


def control_modes(f, loss, x, t):
    """Loops, branches and batches: two elements, of which the first is x."""
    both = wf.stack([x, t])
    yield "vmap", wf.vmap(f)(both)[0], "value"
    yield "vmap of a gradient", wf.vmap(wf.grad(loss))(both)[0], "gradient"
    yield "gradient of vmap", wf.grad(lambda b: wf.vmap(loss)(b).sum())(both)[0], "gradient"
    yield "vmap of vmap", wf.vmap(wf.vmap(f))(wf.stack([both, both]))[1, 0], "value"
    last = wf.vmap(f, in_axes=-1, out_axes=-1)(wf.stack([x, t], axis=-1))
    yield "vmap along the last axis", last[..., 0], "value"
    scanned = wf.scan(
        lambda c, x: (c + loss(x), f(x)), wf.zeros((), dtype="float64", device=x.device), both
    )
    yield "scan", scanned[1][0], "value"

    def over(b):
        zero = wf.zeros((), dtype="float64", device=b.device)
        return wf.scan(lambda c, x: (c + loss(x), None), zero, b)[0]

    yield "gradient of scan", wf.grad(over)(both)[0], "gradient"
    yield "compiled scan", wf.compile(wf.grad(over))(both)[0], "gradient"
    yield "compiled vmap", wf.compile(wf.vmap(wf.grad(loss)))(both)[0], "gradient"
    pushed = wf.vmap(lambda x: wf.jvp(f, (x,), (t,))[1])(both)[0]
    yield "vmap of jvp", pushed, "pushed"
    yield "cond", wf.cond(wf.tensor(True), f, lambda x: f(x) * 0.0, x), "value"


MODES = {"plain": plain_modes, "second": second_modes, "control": control_modes}


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("modes", MODES)
def test_every_mode(modes, name, shape, device):
    call, of_all = COLLECTIVES[name]
    whole = AllRanks(of_all, SHAPES[shape])
    ys = [y.detach().numpy() for y in whole.outputs(whole.v)]
    expected = {"value": ys, "gradient": whole.gradient().detach().numpy()}
    expected["second" if modes == "second" else "pushed"] = (
        whole.second() if modes == "second" else whole.pushed()
    )

    def program(r):
        f, loss = rank_program(call, r, device)
        x = wf.tensor(whole.v.detach().numpy()[r], device=device)
        t = wf.tensor(whole.t.numpy()[r], device=device)
        found = MODES[modes](f, loss, x, t)
        return [(mode, y.detach().to("cpu").numpy(), kind) for mode, y, kind in found]

    for r, results in enumerate(run(SIZE, program)):
        for mode, result, kind in results:
            np.testing.assert_allclose(
                result, expected[kind][r], rtol=1e-12, atol=1e-12, err_msg=f"{mode} of rank {r}"
            )


DTYPES = "bool uint8 int8 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
LAYOUTS = {
    "plain": lambda x: x,
    "turned": lambda x: x.T,
    "backwards": lambda x: x[::-1],
    "thinned": lambda x: x[:, ::2],
    "broadcast": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "scalar": lambda x: x[0, 0],
    "empty": lambda x: x[:, :0],
}


def drawn(dtype, seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2 if dtype == "bool" else 20, (3, 6))
    if dtype.startswith("complex"):
        x = x + 1j * rng.integers(0, 20, (3, 6))
    return x


def reductions(stack):
    """By name, NumPy's combination of all ranks' arrays."""
    yield "sum", lambda x: wf.dist.all_reduce(x), lambda r: stack.sum(0)
    yield "mean", lambda x: wf.dist.all_reduce(x, "mean"), lambda r: stack.mean(0)
    if stack.dtype.kind != "c":
        yield "max", lambda x: wf.dist.all_reduce(x, "max"), lambda r: stack.max(0)
        yield "min", lambda x: wf.dist.all_reduce(x, "min"), lambda r: stack.min(0)
    yield "gather", wf.dist.all_gather, lambda r: stack
    yield "broadcast", lambda x: wf.dist.broadcast(x, 2), lambda r: stack[2]
    if stack.ndim > 1 and stack.shape[1] == SIZE:
        yield "scatter", wf.dist.reduce_scatter, lambda r: stack.sum(0)[r]
        yield (
            "scattered mean",
            lambda x: wf.dist.reduce_scatter(x, "mean", 0),
            lambda r: stack.mean(0)[r : r + 1],
        )


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_layout(dtype, layout, device):
    """Small integers, which all dtypes hold: results are exact, but for means of half types."""
    arrays = [LAYOUTS[layout](drawn(dtype, r)) for r in range(SIZE)]
    kept = np.stack([np.asarray(x) for x in arrays]).astype(
        "float64" if dtype == "bfloat16" else dtype
    )

    def laid(r):
        if device == "cpu":
            return wf.tensor(LAYOUTS[layout](np.asarray(drawn(dtype, r)))).to(dtype)
        x = wf.tensor(drawn(dtype, r), device=device).to(dtype)
        views = {"turned": lambda x: x.T, "thinned": lambda x: x[:, ::2], "plain": lambda x: x}
        views |= {"scalar": lambda x: x[0, 0], "empty": lambda x: x[:, :0]}
        views["backwards"] = lambda x: wf.flip(x, axis=0)
        views["broadcast"] = lambda x: wf.broadcast_to(x[:, :1], x.shape)
        return views[layout](x)

    def program(r):
        x, found = laid(r), []
        for name, call, _ in reductions(kept):
            for y in (call(x), wf.compile(call)(x)):
                found.append((name, str(y.dtype), y.to("cpu")))
        return [
            (n, d, y.to("float64").numpy() if d == "bfloat16" else y.numpy()) for n, d, y in found
        ]

    rules = {name: of_rank for name, _, of_rank in reductions(kept)}
    for r, results in enumerate(run(SIZE, program)):
        for name, found, y in results:
            assert found == dtype_of(name, dtype), name
            loose = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "complex64": 1e-6}
            rtol = loose.get(found, 1e-15) if "mean" in name else 0.0
            np.testing.assert_allclose(y, rules[name](r), rtol=rtol, err_msg=name)


def dtype_of(name, dtype):
    """Sums of booleans are counts, and means are floating point; others keep the dtype."""
    if "mean" in name and not dtype.startswith(("float", "bfloat", "complex")):
        return "float32"
    counts = dtype == "bool" and name in ("sum", "scatter")
    return "int64" if counts else dtype


def test_what_has_no_order_or_no_parts_is_refused():
    def program(r):
        with pytest.raises(errors.DTypeError, match="complex"):
            wf.dist.all_reduce(wf.ones(3, dtype="complex64"), "max")
        for shape, axis in (((), None), ((2, 3), None), ((4, 3), None), ((2, 4), 1)):
            with pytest.raises(errors.ShapeError, match="reduce_scatter"):
                wf.dist.reduce_scatter(wf.ones(shape), axis=axis)
        for call in (wf.dist.all_gather, wf.dist.reduce_scatter):
            with pytest.raises(errors.WeftError, match="axis"):
                call(wf.ones((3, 3)), axis=2)
        with pytest.raises(errors.WeftError, match="axis"):
            wf.dist.all_gather(wf.ones(()), axis=0)
        wf.dist.barrier()  # no rank is out of step
        return True

    assert run(SIZE, program) == [True] * SIZE
