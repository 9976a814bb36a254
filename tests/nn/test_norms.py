"""Normalisations beside PyTorch's: values, gradients, running statistics, memory."""

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors

from .alike import F, T, agree, same, saved_bytes

rng = np.random.default_rng(6)
DEVICES = ("cpu", "torch")


def normal(*shape):
    return rng.normal(size=shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_layer_norm(shape, device):
    x = normal(2, 3, 4)
    for options in (
        {},
        {"weight": normal(*shape)},
        {"weight": normal(*shape), "bias": normal(*shape)},
    ):
        agree("layer_norm", x, normalized_shape=shape, eps=1e-3, device=device, **options)
    same(
        lambda x, b: F.layer_norm(x, shape, bias=b),
        lambda x, b: T.layer_norm(x, shape, bias=b),
        x,
        normal(*shape),
        device=device,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("eps", [None, 1e-2])
def test_rms_norm(eps, device):
    for shape in ((4,), (3, 4)):
        x, weight = normal(2, 3, 4), normal(*shape)
        agree("rms_norm", x, normalized_shape=shape, weight=weight, eps=eps, device=device)
        agree("rms_norm", x, normalized_shape=shape, eps=eps, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(2, 6, 3), (3, 6), (2, 6, 2, 3)])
def test_group_norm(shape, device):
    x, weight, bias = normal(*shape), normal(6), normal(6)
    for groups in (1, 2, 3) if len(shape) > 2 else (1, 2):
        agree("group_norm", x, num_groups=groups, device=device)
        agree("group_norm", x, num_groups=groups, weight=weight, bias=bias, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 4), (2, 3, 2, 2)])
def test_batch_norm(shape, training, device):
    x, weight, bias = normal(*shape), normal(3), normal(3)
    for options in ({}, {"weight": weight, "bias": bias}, {"weight": weight}):
        ours = [wf.tensor(v, device=device) for v in (np.full(3, 0.5), np.full(3, 2.0))]
        theirs = [torch.tensor(v) for v in (np.full(3, 0.5), np.full(3, 2.0))]
        same(
            lambda x, ours=ours, **o: F.batch_norm(x, *ours, training=training, momentum=0.3, **o),
            lambda x, theirs=theirs, **o: T.batch_norm(
                x, *theirs, training=training, momentum=0.3, **o
            ),
            x,
            device=device,
            **options,
        )
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-13)


def test_batch_norm_without_running_statistics():
    x = normal(4, 3)
    same(
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: T.batch_norm(x, None, None, training=True),
        x,
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("own", [True, False])
def test_instance_norm(own, device):
    x, weight, bias = normal(2, 3, 2, 3), normal(3), normal(3)
    ours = [wf.tensor(v, device=device) for v in (np.full(3, 0.5), np.full(3, 2.0))]
    theirs = [torch.tensor(v) for v in (np.full(3, 0.5), np.full(3, 2.0))]
    same(
        lambda x, w, b: F.instance_norm(x, *ours, w, b, use_input_stats=own, momentum=0.3),
        lambda x, w, b: T.instance_norm(x, *theirs, w, b, use_input_stats=own, momentum=0.3),
        x,
        weight,
        bias,
        device=device,
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-13)
    agree("instance_norm", x, weight=weight, bias=bias, device=device)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
def test_an_empty_batch_leaves_the_statistics(name):
    x = wf.ones((0, 3, 4), dtype="float64").requires_grad_()
    mean, variance, weight = wf.zeros(3), wf.ones(3), wf.ones(3).requires_grad_()
    y = getattr(F, name)(x, mean, variance, weight, **{TRAINING[name]: True})
    grads = y.sum().backward()
    assert (y.shape, grads[x].shape, grads[weight].tolist()) == (x.shape, x.shape, [0.0] * 3)
    assert (mean.tolist(), variance.tolist()) == ([0.0] * 3, [1.0] * 3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_by_running_statistics_of_float32(dtype):
    """Evaluation of a model that was trained under autocast, where means are far from zero."""
    half = torch.float16 if dtype == "float16" else torch.bfloat16
    mean, variance = (normal(8) * 100).astype(np.float32), np.full(8, 1e-4, np.float32)
    x = torch.tensor(normal(16, 8) * 0.5 + mean).to(half)
    w, b = normal(8).astype(np.float32), normal(8).astype(np.float32)
    theirs = [x.clone().requires_grad_(), *(torch.tensor(v, requires_grad=True) for v in (w, b))]
    ours = [wf.tensor(x.float().numpy()).to(dtype).requires_grad_()]
    ours += [wf.tensor(v, requires_grad=True) for v in (w, b)]
    y = F.batch_norm(ours[0], wf.tensor(mean), wf.tensor(variance), *ours[1:])
    z = T.batch_norm(theirs[0], torch.tensor(mean), torch.tensor(variance), *theirs[1:])
    grads = y.sum().backward()
    z.sum().backward()
    unit = torch.finfo(half).eps
    found = [y.detach(), *(grads[v] for v in ours)]
    for a, c in zip(found, [z.detach(), *(v.grad for v in theirs)], strict=True):
        expected = c.double().numpy()
        bound = 2 * unit * np.abs(expected).max()
        np.testing.assert_allclose(a.to("float64").numpy(), expected, rtol=0, atol=bound)


TRAINING = {"batch_norm": "training", "instance_norm": "use_input_stats"}


def test_half_precision_goes_with_weights_of_float32():
    x = wf.tensor(normal(2, 4).astype(np.float16), requires_grad=True)
    w = wf.tensor(normal(4).astype(np.float32), requires_grad=True)
    y = F.layer_norm(x, (4,), w, w)
    grads = y.sum().backward()
    assert (y.dtype, grads[x].dtype, grads[w].dtype) == (wf.float16, wf.float16, wf.float32)


def test_a_checkpoint_counts_the_statistics_once():
    mean, variance = wf.zeros(3, dtype="float64"), wf.ones(3, dtype="float64")
    x = wf.tensor(normal(4, 3), requires_grad=True)

    def layer(x):
        return F.batch_norm(wf.tanh(x), mean, variance, training=True)

    plain = (layer(x) * x).sum().backward()[x].numpy()
    once = mean.numpy().copy(), variance.numpy().copy()
    mean.copy_(wf.zeros(3, dtype="float64"))
    variance.copy_(wf.ones(3, dtype="float64"))
    again = (wf.checkpoint(layer, x) * x).sum().backward()[x].numpy()
    np.testing.assert_array_equal(plain, again)
    np.testing.assert_array_equal(mean.numpy(), once[0])
    np.testing.assert_array_equal(variance.numpy(), once[1])


def test_running_statistics_inside_transformations():
    x = wf.tensor(normal(4, 3))

    def loss(x):
        return (F.batch_norm(x, mean, wf.ones(3, dtype="float64"), training=True) ** 3).sum()

    for transformed in (lambda: wf.jvp(loss, (x,), (x,)), lambda: wf.jacobian(loss)(x)):
        mean = wf.zeros(3, dtype="float64")
        transformed()
        np.testing.assert_allclose(mean.numpy(), 0.1 * x.numpy().mean(0), rtol=1e-13)
    stacked = wf.tensor(normal(2, 4, 3))
    with pytest.raises(errors.BatchingError, match="inside vmap the statistics differ"):
        wf.vmap(loss)(stacked)
    y = wf.vmap(lambda x: F.batch_norm(x, None, None, training=True))(stacked)
    np.testing.assert_allclose(
        y.numpy()[1], F.batch_norm(stacked[1], None, None, training=True).numpy(), rtol=1e-12
    )


def test_what_is_kept():
    """The normalised values, one or two numbers for each line, and the weights."""
    x = wf.tensor(rng.normal(size=(100, 64)).astype(np.float32), requires_grad=True)
    w = wf.tensor(np.ones(64, np.float32), requires_grad=True)
    lines = 100 * 4
    assert saved_bytes(lambda: F.layer_norm(x, 64, w, w)) <= x.nbytes + 2 * lines + w.nbytes
    assert saved_bytes(lambda: F.rms_norm(x, 64, w)) <= x.nbytes + lines + w.nbytes
    channels = 64 * 4
    options = {"weight": w, "bias": w, "training": True}
    kept = saved_bytes(lambda: F.batch_norm(x, None, None, **options))
    assert kept <= x.nbytes + 2 * channels + w.nbytes


def test_constant_lines_have_finite_gradients():
    for x in (np.zeros((2, 3)), np.full((2, 3), 1e3)):
        t = wf.tensor(x, requires_grad=True)
        loss = F.layer_norm(t, 3).sum() + (F.rms_norm(t, 3) ** 2).sum()
        assert np.isfinite(loss.backward()[t].numpy()).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.layer_norm(wf.ones((2, 3)), 2), r"expected the lengths of the last axes"),
        (lambda: F.layer_norm(wf.ones((2, 3)), 3, wf.ones(2)), r"shape \(2,\), expected \(3,\)"),
        (lambda: F.rms_norm(wf.ones((2, 3)), (2, 2)), "expected the lengths of the last axes"),
        (
            lambda: F.group_norm(wf.ones((2, 3)), 2),
            "3 channels in 2 groups; num_groups must divide 3",
        ),
        (lambda: F.group_norm(wf.ones(3), 1), r"expected \(N, C, …\)"),
        (lambda: F.batch_norm(wf.ones((2, 3)), None, None), "give both"),
        (
            lambda: F.batch_norm(wf.ones((1, 3)), None, None, training=True),
            "one value for each channel, which has no variance",
        ),
        (lambda: F.instance_norm(wf.ones((2, 3, 1))), "one value for each channel"),
        (
            lambda: F.batch_norm(wf.ones((2, 3)), np.zeros(3), wf.ones(3), training=True),
            "cannot be changed in place; expected a tensor",
        ),
        (
            lambda: F.batch_norm(wf.ones((2, 3)), wf.ones(2), wf.ones(2)),
            r"of shape \(2,\), expected \(3,\)",
        ),
    ],
)
def test_arguments_that_make_no_sense(call, message):
    with pytest.raises(errors.WeftError, match=message):
        call()


@pytest.mark.parametrize("size", [400.0, 1.0, 1e-4])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "group_norm"])
def test_half_types_of_any_size(name, dtype, size):
    """Squares leave the range of float16, so statistics are kept in float32, as PyTorch does."""
    rng = np.random.default_rng(5)
    a, c = (rng.standard_normal((8, 64)).astype(np.float32) for _ in range(2))
    how = 4 if name == "group_norm" else (64,)
    x, weights = (wf.tensor(v).to(dtype) for v in (a * np.float32(size), c))
    gradient = (getattr(F, name)(x.requires_grad_(), how) * weights).sum().backward()[x]
    y, others = (torch.tensor(v).to(getattr(torch, dtype)) for v in (a * np.float32(size), c))
    (getattr(T, name)(y.requires_grad_(), how) * others).sum().backward()
    expected = y.grad.float().numpy()
    error = np.abs(gradient.to("float32").numpy() - expected).max() / np.abs(expected).max()
    assert error < 2 * torch.finfo(y.dtype).eps


def test_half_statistics_of_large_values():
    x = wf.tensor((np.random.default_rng(6).standard_normal((64, 2)) * 400).astype(np.float16))
    variance = wf.ones(2)
    F.batch_norm(x, wf.zeros(2), variance, training=True, momentum=1.0)
    expected = x.numpy().astype(np.float64).var(0, ddof=1)
    np.testing.assert_allclose(variance.numpy(), expected, rtol=1e-5)


# -- half types beside wider weights -------------------------------------------------------------

HALVES = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def _batch_norm_of(x, w, b, mean, variance, lib, **options):
    return lib.batch_norm(x, mean, variance, w, b, training=True, momentum=0.3, **options)


@pytest.mark.parametrize("way", ["cpu", "torch", "compiled"])
@pytest.mark.parametrize("cast", [True, False], ids=["autocast", "plain"])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(8, 3), (4, 3, 5), (2, 3, 4, 4)])
def test_batch_norm_keeps_the_dtype_of_half_types_beside_wide_weights(shape, dtype, cast, way):
    """As PyTorch does: float32 statistics and weights, one rounding at the end."""
    device, unit = "torch" if way == "torch" else "cpu", HALVES[dtype]
    values = [normal(*shape) * 3 + 5, normal(3), normal(3), normal(*shape)]
    x, w, b, g = (wf.tensor(v, dtype="float32", device=device) for v in values)
    x, g = x.to(dtype), g.to(dtype)
    running = [wf.tensor(np.full(3, v), dtype="float32", device=device) for v in (0.5, 2.0)]

    def run(x, w, b):
        with wf.amp.autocast(dtype, enabled=cast):
            y = _batch_norm_of(x, w, b, *running, F)
        return y, (y * g).to("float32").sum()

    def both(x, w, b):
        (_, y), grads = wf.value_and_grad(
            lambda x, w, b: run(x, w, b)[::-1], argnums=(0, 1, 2), has_aux=True
        )(x, w, b)
        return y, *grads

    got = (wf.compile(both) if way == "compiled" else both)(x, w, b)
    exact = [torch.tensor(np.asarray(v.to("float64").numpy())) for v in (x, w, b, g)]
    for v in exact[:3]:
        v.requires_grad_()
    theirs = [torch.full((3,), v, dtype=torch.float64) for v in (0.5, 2.0)]
    y = _batch_norm_of(*exact[:3], *theirs, T)
    (y * exact[3]).sum().backward()
    assert [v.dtype.name for v in got] == [dtype, dtype, "float32", "float32"]
    for ours, right in zip(got, (y, *[v.grad for v in exact[:3]]), strict=True):
        right = right.detach().numpy()
        # Gradients are of the rounded result's cotangents, which are exact here.
        apart = np.abs(ours.to("float64").numpy() - right).max()
        narrow = ours.dtype.name != "float32"
        assert apart <= (unit if narrow else 2e-5) * np.abs(right).max(), (apart, ours.dtype)
    for ours, right in zip(running, theirs, strict=True):
        assert ours.dtype.name == "float32"
        np.testing.assert_allclose(ours.numpy(), right.numpy(), rtol=1e-5)


@pytest.mark.parametrize("keep", ["keep_fp32_ops", "autocast_ops"])
def test_a_config_says_what_batch_norm_is_computed_in(keep):
    x, w, running = wf.tensor(normal(4, 3), dtype="bfloat16"), wf.ones(3), wf.zeros(3)
    config = wf.AmpConfig(precision_mode="float16", **{keep: ["batch_norm"]})
    with wf.amp.autocast(config):
        y = _batch_norm_of(x, w, w, running, wf.ones(3), F)
    assert y.dtype.name == ("float32" if keep == "keep_fp32_ops" else "float16")
    assert running.numpy().any()  # the user's tensor follows, not a cast of it


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_norms_take_weights_of_other_dtypes(seed):
    """Kinds of norms × dtypes of x and of the weights, on both backends, beside float64."""
    from weft.ops.native_norm import native_norm, native_rms_norm

    rng = np.random.default_rng(seed)
    n, c, s = (int(k) for k in rng.integers(2, 6, 3))
    shape, axes, weights = [
        ((n, c), (1,), (c,)),
        ((n, c, s), (0, 2), (c, 1)),
        ((n, c, s, 2), (0, 2, 3), (c, 1, 1)),
        ((n, c, 2, s), (2, 3), (c, 2, 1)),
        ((n, c, s), (1,), (c, 1)),
    ][seed % 5]
    for own in ("bfloat16", "float16", "float32", "float64"):
        for other in {own, "float32", "float64"}:
            for device in DEVICES:
                values = [rng.normal(size=k) for k in (shape, weights, weights, shape)]
                x, w, b, g = (wf.tensor(v, device=device) for v in values)
                x, w, b, g = x.to(own), w.to(other), b.to(other), g.to(own)
                for row, given in ((native_norm, (x, w, b)), (native_rms_norm, (x, w))):
                    static = (axes, 1e-3, wf.float32 if own != "float64" else wf.float64)

                    def f(*a, row=row, static=static, g=g):
                        return (row(*a, *static)[0].to("float64") * g.to(a[0].dtype)).sum()

                    argnums = tuple(range(len(given)))
                    grads = wf.grad(f, argnums=argnums)(*given)
                    exact = wf.grad(f, argnums=argnums)(*[v.to("float64") for v in given])
                    assert row(*given, *static)[0].dtype.name == own
                    for a, v, e in zip(grads, given, exact, strict=True):
                        assert a.dtype == v.dtype
                        e = e.numpy()
                        coarse = min(
                            own, other, key=["bfloat16", "float16", "float32", "float64"].index
                        )
                        unit = HALVES.get(coarse, 1e-6)
                        near = 3 * unit * (np.abs(e).max() + 1)
                        assert np.abs(a.to("float64").numpy() - e).max() <= near, (own, other, row)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("which", ["mean", "variance", "both", "views", "wide", "tracked", "short"])
def test_running_statistics_follow_whatever_they_are(which, device):
    """Each alone, views of other memory, of another dtype, differentiated, of a wrong shape."""
    x = wf.tensor(normal(4, 3, 5), dtype="float32", device=device)
    w = wf.ones(3, dtype="float32", device=device)
    mean, variance = np.full(3, 0.5), np.full(3, 2.0)
    held = wf.tensor(np.stack([mean, variance]), dtype="float32", device=device)
    ours = [wf.tensor(v, dtype="float32", device=device) for v in (mean, variance)]
    if which == "views":
        ours = [held[0], held[1]]
    elif which == "wide":
        ours = [r.to("float64") for r in ours]
    elif which == "tracked":
        ours[0].requires_grad_()
    elif which == "short":
        ours[1] = wf.ones(2, dtype="float32", device=device)
        with pytest.raises(errors.ShapeError):
            F.batch_norm(x, *ours, w, w, training=True)
        return
    given = [None if which == k else r for k, r in zip(("variance", "mean"), ours, strict=True)]
    theirs = [torch.tensor(v, dtype=torch.float64) for v in (mean, variance)]
    before = ours[0].clone() if which == "both" else None
    F.batch_norm(x, *given, w, w, training=True, momentum=0.3)
    T.batch_norm(torch.tensor(x.numpy(), dtype=torch.float64), *theirs, training=True, momentum=0.3)
    for r, right in zip(given, theirs, strict=True):
        if r is not None:
            np.testing.assert_allclose(r.detach().numpy(), right.numpy(), rtol=1e-5)
    if which == "views":
        np.testing.assert_allclose(held.numpy(), np.stack([t.numpy() for t in theirs]), rtol=1e-5)
    assert before is None or before.numpy().tolist() == mean.tolist()
