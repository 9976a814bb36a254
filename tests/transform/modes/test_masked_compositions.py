"""What `where` did not take is an exact zero, in every mode, to second order.

Random programs (`masked_programs`) are compared with PyTorch's derivatives of the same programs,
where safe numbers stand in the places that no mask takes.
"""

import os

import numpy as np
import pytest
import torch
from masked_programs import BINARY, COLUMNS, ROWS, UNARY, UNSAFE, Program, draw_program

import weft as wf

SOAK = os.environ.get("WEFT_SOAK") == "1"
COUNT, COMPILED = (6000, 600) if SOAK else (240, 12)
BLOCK = 20


class Shared:
    """Functions that both libraries spell alike."""

    def __init__(self, xp):
        self.xp = xp

    def __getattr__(self, name):
        return getattr(self.xp, name)

    def where(self, mask, a, b):
        return self.xp.where(mask, a, b)

    neg = staticmethod(lambda a: -a)
    add = staticmethod(lambda a, b: a + b)
    sub = staticmethod(lambda a, b: a - b)
    mul = staticmethod(lambda a, b: a * b)
    div = staticmethod(lambda a, b: a / b)
    pow = staticmethod(lambda a, b: a**b)
    cube = staticmethod(lambda a: a**3)
    power = staticmethod(lambda a: a**-1.5)
    half = staticmethod(lambda a: a**0.5)
    turn = staticmethod(lambda a: a.T.reshape(tuple(a.shape)) if a.ndim == 2 else a)

    def squash(self, a):
        return self.tanh(a) * 0.25 + 0.5

    def acosh(self, a):
        return self.xp.acosh(a + 1.0)

    def clip(self, a):
        return self.xp.clip(a, 0.3, 0.6)

    def swap(self, a):
        return self.concat([a[..., 1:], a[..., :1]])

    def total(self, a):
        return a.sum()

    def pair(self, a):
        return self.stacked([a, a * 0.5]).sum(0)

    def spread(self, a):
        return self.xp.broadcast_to(a, (ROWS, COLUMNS))

    def sum0(self, a):
        return self.xp.broadcast_to(self.sums(a, 0), tuple(a.shape))

    def sum1(self, a):
        return self.sums(a, -1)

    def mean1(self, a):
        return self.sums(a, -1) / a.shape[-1]


class Torch(Shared):
    array = staticmethod(lambda a: torch.tensor(np.asarray(a)))
    concat = staticmethod(lambda parts: torch.cat(parts, -1))
    stacked = staticmethod(lambda parts: torch.stack(parts, 0))
    sums = staticmethod(lambda a, axis: a.sum(axis, keepdim=True))
    flip = staticmethod(lambda a: a.flip(-1))
    roll = staticmethod(lambda a: a.roll(1, -1))
    cumsum = staticmethod(lambda a: a.cumsum(-1))
    xlogy = staticmethod(torch.special.xlogy)
    gelu = staticmethod(torch.nn.functional.gelu)
    silu = staticmethod(torch.nn.functional.silu)
    softplus = staticmethod(torch.nn.functional.softplus)
    relu = staticmethod(torch.relu)
    take = staticmethod(lambda a: a[..., [0, 0, 1]] if a.shape[-1] == 3 else a)
    pad = staticmethod(lambda a: torch.nn.functional.pad(a, (1, 1))[..., 1:-1])


class Weft(Shared):
    array = staticmethod(lambda a: wf.asarray(np.asarray(a)))
    concat = staticmethod(lambda parts: wf.concat(parts, axis=-1))
    stacked = staticmethod(lambda parts: wf.stack(parts, axis=0))
    sums = staticmethod(lambda a, axis: a.sum(axis=axis, keepdims=True))
    mean1 = staticmethod(lambda a: a.mean(axis=-1, keepdims=True))
    flip = staticmethod(lambda a: wf.flip(a, axis=-1))
    roll = staticmethod(lambda a: wf.roll(a, 1, axis=-1))
    cumsum = staticmethod(lambda a: wf.cumsum(a, axis=-1))
    sigmoid = staticmethod(wf.special.expit)
    erf, erfinv = staticmethod(wf.special.erf), staticmethod(wf.special.erfinv)
    logit, erfc = staticmethod(wf.special.logit), staticmethod(wf.special.erfc)
    xlogy = staticmethod(wf.special.xlogy)
    gelu = staticmethod(wf.nn.functional.gelu)
    silu = staticmethod(wf.nn.functional.silu)
    softplus = staticmethod(wf.nn.functional.softplus)
    take = staticmethod(lambda a: a[..., wf.asarray([0, 0, 1])] if a.shape[-1] == 3 else a)

    @staticmethod
    def pad(a):
        return wf.pad(a, ((0, 0),) * (a.ndim - 1) + ((1, 1),))[..., 1:-1]


TORCH, WEFT = Torch(torch), Weft(wf)


class Reference:
    """PyTorch's value, gradient g, and H·v, at the safe inputs."""

    def __init__(self, program: Program, v: np.ndarray):
        at = [torch.tensor(a, requires_grad=True) for a in program.safe]
        self.value = program.run(TORCH, *at)
        grads = torch.autograd.grad(
            self.value, at, create_graph=True, allow_unused=True, materialize_grads=True
        )
        self.gradient = _flat([g.detach().numpy() for g in grads])
        along = sum((g * torch.tensor(d)).sum() for g, d in zip(grads, _parts(v), strict=True))
        along = along + sum((a * 0).sum() for a in at)  # a gradient may be a constant
        second = torch.autograd.grad(along, at, allow_unused=True, materialize_grads=True)
        self.product = _flat([g.numpy() for g in second])
        self.value = self.value.item()


def _flat(parts) -> np.ndarray:
    return np.concatenate([np.ravel(p) for p in parts])


def _parts(v):
    n = ROWS * COLUMNS
    return v[:n].reshape(ROWS, COLUMNS), v[n : n + COLUMNS], v[n + COLUMNS]


def _function(program: Program):
    """The program as a function of one vector."""

    def f(z):
        n = ROWS * COLUMNS
        return program.run(WEFT, z[:n].reshape((ROWS, COLUMNS)), z[n : n + COLUMNS], z[-1])

    return f


def _backward(f, z, v):
    x = wf.tensor(z.numpy(), requires_grad=True)
    f(x).backward()
    return x.grad


def _again(f, z, v):
    x = wf.tensor(z.numpy(), requires_grad=True)
    g = f(x).backward(create_graph=True)[x]
    return (g * v).sum().backward()[x] if g.requires_grad else wf.zeros_like(z)


def _taped(f, z, v):
    with wf.GradientTape() as outer:
        outer.watch(z)
        with wf.GradientTape() as inner:
            inner.watch(z)
            y = f(z)
        (g,) = inner.gradient(y, [z], unconnected="zero")
        along = (g * v).sum()
    return outer.gradient(along, [z], unconnected="zero")[0]


def _along(f, v):
    return lambda z: wf.jvp(f, (z,), (v,))[1]


FIRST = {
    "backward": _backward,
    "grad": lambda f, z, v: wf.grad(f)(z),
    "checkpoint": lambda f, z, v: wf.grad(lambda z: wf.checkpoint(f, z))(z),
    "vmap": lambda f, z, v: wf.vmap(wf.grad(f))(wf.stack([z, z]))[1],
    "forward": lambda f, z, v: wf.jacfwd(f)(z),
}
SECOND = {
    "forward over reverse": lambda f, z, v: wf.jvp(wf.grad(f), (z,), (v,))[1],
    "reverse over forward": lambda f, z, v: wf.grad(_along(f, v))(z),
    "reverse over reverse": lambda f, z, v: wf.grad(lambda z: (wf.grad(f)(z) * v).sum())(z),
    "backward twice": _again,
    "tapes": _taped,
    "hessian": lambda f, z, v: wf.hessian(f)(z) @ v,
    "hvp": lambda f, z, v: wf.hvp(f, (z,), (v,)),
    "vmap": lambda f, z, v: wf.vmap(lambda z: wf.hvp(f, (z,), (v,)))(wf.stack([z, z]))[1],
}
NATIVE = {
    "grad": (lambda f, v: wf.grad(f), "gradient"),
    "reverse over reverse": (
        lambda f, v: wf.grad(lambda z: (wf.grad(f)(z) * v).sum()),
        "product",
    ),
    "forward over reverse": (lambda f, v: lambda z: wf.jvp(wf.grad(f), (z,), (v,))[1], "product"),
    "reverse over forward": (lambda f, v: wf.grad(_along(f, v)), "product"),
}


def _problem(seed: int):
    rng = np.random.default_rng(seed)
    program = draw_program(rng, int(rng.integers(2, 12)), TORCH)
    v = rng.normal(size=ROWS * COLUMNS + COLUMNS + 1)
    return program, Reference(program, v), wf.asarray(_flat(program.inputs)), wf.asarray(v)


def _check(found, expected, program: Program, what) -> None:
    found = found.numpy()
    size = np.abs(expected).max(initial=1.0)
    close = np.abs(found - expected) <= 1e-9 * size
    assert close.all(), (what, found, expected, program.steps)
    assert (found[_flat(program.unsafe)] == 0).all(), (what, found, program.steps)


@pytest.mark.parametrize("first", range(0, COUNT, BLOCK))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_no_mask_takes_is_an_exact_zero_in_every_mode(first):
    for seed in range(first, first + BLOCK):
        program, reference, z, v = _problem(seed)
        f = _function(program)
        assert abs(f(z).item() - reference.value) <= 1e-9 * max(1.0, abs(reference.value))
        for name, mode in FIRST.items():
            _check(mode(f, z, v), reference.gradient, program, (seed, name))
        for name, mode in SECOND.items():
            _check(mode(f, z, v), reference.product, program, (seed, name))


@pytest.mark.parametrize("seed", range(COMPILED))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_no_mask_takes_is_an_exact_zero_in_programs(seed):
    program, reference, z, v = _problem(seed + 100_000)
    f = _function(program)
    for name, (mode, expected) in NATIVE.items():
        found = wf.compile(mode(f, v))(z)
        _check(found, getattr(reference, expected), program, (seed, name))


def _elementwise(rng):
    """A random composition of elementwise functions of three arrays, singular values included."""
    steps = []
    for k in range(int(rng.integers(1, 8))):

        def pick(k=k):
            return int(rng.integers(max(0, k - 2), k + 3))

        if rng.random() < 0.5:
            steps.append((str(rng.choice(UNARY)), (pick(),), None))
        else:
            steps.append((str(rng.choice(BINARY)), (pick(), pick()), None))
    at = [wf.asarray(rng.choice([0.3, 0.6, *UNSAFE], 8)) for _ in range(3)]
    return Program((), (), np.ones(()), steps), at


@pytest.mark.parametrize("first", range(0, COUNT, BLOCK))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_a_mask_takes_is_bit_for_bit_what_it_is_without_one(first):
    """NaN and infinities of the branch that was taken included, in first and second order."""
    for seed in range(first, first + BLOCK):
        rng = np.random.default_rng(seed)
        program, at = _elementwise(rng)
        w = wf.asarray(rng.choice([0.0, 1.0, -0.7], 8))
        taken = rng.random(8) < 0.6
        mask = wf.asarray(taken)

        def bare(*at, program=program, w=w):
            return (program.result(WEFT, *at) * w).sum()

        def masked(*at, program=program, w=w, mask=mask):
            return (wf.where(mask, program.result(WEFT, *at), 0.0) * w).sum()

        for mode in (_all_gradients, _all_products):
            pairs = zip(mode(bare, at, w), mode(masked, at, w), strict=True)
            for a, b in pairs:
                a, b = a.numpy(), b.numpy()
                np.testing.assert_array_equal(a[taken], b[taken], str((seed, program.steps)))
                assert (b[~taken] == 0).all(), (seed, program.steps)


def _all_gradients(f, at, w):
    return wf.grad(f, argnums=(0, 1, 2))(*at)


def _all_products(f, at, w):
    return wf.jvp(wf.grad(f, argnums=(0, 1, 2)), tuple(at), (w, w + 1, w - 2))[1]


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64", "complex128"])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_masks_in_every_dtype_on_both_backends(dtype, device):
    mask = wf.asarray([False, True, False]).to(device)

    def f(z):
        y = wf.where(mask, wf.tanh(wf.log(z)) * z * wf.log(z) ** 2, 0.0)
        return wf.real(y.sum()) if dtype.startswith("complex") else y.sum()

    def slope(z):
        g = wf.grad(f)(z).sum()
        return wf.real(g) if dtype.startswith("complex") else g

    z = wf.tensor([0.0, 2.0, float("inf")], dtype=dtype, device=device)
    for found, expected in ((wf.grad(f)(z), 1.42753835), (wf.grad(slope)(z), 1.87236771)):
        found = found.numpy()
        assert found.dtype == np.dtype(z.dtype)
        assert (found[[0, 2]] == 0).all()
        assert abs(complex(found[1]) - expected) < (0.02 if "16" in dtype else 1e-5)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_hook_that_replaces_a_gradient_ends_the_mask():
    x = wf.tensor([0.0, 2.0], requires_grad=True)
    y = wf.log(x + 1.0)
    y.register_hook(lambda g: g + 1.0)
    wf.where(wf.asarray([False, True]), y * y, 0.0).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [1.0, (2 * np.log(3) + 1) / 3], rtol=1e-6)


def test_a_value_that_is_also_used_without_a_mask_has_none():
    x = wf.tensor([0.5, 2.0], dtype="float64")

    def f(x):
        y = wf.sin(x * 1.0)
        bare = y.sum()  # older than `where`, whose cotangent comes first then
        return wf.where(wf.asarray([False, True]), y, 0.0).sum() + bare

    for found, slope in (
        (wf.grad(f)(x), np.cos),
        (wf.hvp(f, (x,), (wf.ones_like(x),)), _minus_sin),
    ):
        np.testing.assert_allclose(found.numpy(), slope(x.numpy()) * [1, 2], rtol=1e-12)


def _minus_sin(x):
    return -np.sin(x)
