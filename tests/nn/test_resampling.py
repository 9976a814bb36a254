"""Interpolation, padding, patches and shuffled pixels beside PyTorch's."""

import re
from itertools import product

import numpy as np
import pytest
import torch

import weft as wf

from .beside_torch import close, compare

F, TORCH = wf.nn.functional, torch.nn.functional
pytestmark = pytest.mark.parametrize("device", ["cpu", "torch"])
rng = np.random.default_rng(1)
IMAGES = rng.standard_normal((2, 3, 7, 6))
MODES = ("nearest", "nearest-exact", "bilinear", "area")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [3, (14, 12), (21, 18), (9, 4), 7, (1, 1)])
def test_interpolation_to_a_size(mode, size, device):
    compare("interpolate", IMAGES, size, mode=mode, device=device)


@pytest.mark.parametrize("mode", MODES[:3])
@pytest.mark.parametrize("factor", [2, 1.5, 0.6, (2.3, 1.7), 3])
def test_interpolation_by_a_factor(mode, factor, device):
    for recompute in (None, True):
        options = {"mode": mode, "recompute_scale_factor": recompute}
        compare("interpolate", IMAGES, scale_factor=factor, device=device, **options)


@pytest.mark.parametrize("align", [True, False])
def test_corners(align, device):
    volumes = rng.standard_normal((1, 2, 3, 2, 4))
    for x, size, mode in (
        (IMAGES[0], 11, "linear"),
        (IMAGES, (13, 1), "bilinear"),
        (volumes, (4, 5, 3), "trilinear"),
    ):
        compare("interpolate", x, size, mode=mode, align_corners=align, device=device)


FACTORS = (0.3, 0.5, 0.6, 0.75, 0.9, 0.99, 1.0, 1.01, 1.1, 1.3, 1.5, 1.9, 2.0, 2.1, 2.5, 3.0)
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


def _random_call(rng):
    """A random array and options; the scales often leave an axis its length, or double it."""
    axes = int(rng.integers(1, 4))
    size = tuple(rng.integers(1, 6, axes).tolist())
    mode = ("nearest", "nearest-exact", "area", LINEAR[axes])[int(rng.integers(4))]
    options: dict = {"mode": mode}
    if mode in LINEAR.values():
        options["align_corners"] = (None, False, True)[int(rng.integers(3))]
    if rng.random() < 0.2:
        options["size"] = rng.integers(1, 9, axes).tolist()
        return rng.standard_normal((1, 2, *size)), options
    count = 1 if rng.random() < 0.3 else axes
    uniform = rng.uniform(0.3, 3.2, count).tolist()
    factor = uniform if rng.random() < 0.5 else rng.choice(FACTORS, count).tolist()
    options["scale_factor"] = factor[0] if count < axes else factor
    options["recompute_scale_factor"] = (None, False, True)[int(rng.integers(3))]
    return rng.standard_normal((1, 2, *size)), options


def _of_torch(x, options):
    """PyTorch's result and gradient; None if it refuses, or makes nothing of something.

    Where an axis keeps or doubles its length by another scale than 1 or 2, PyTorch's gradient of
    "nearest" on the CPU is of other elements than its result is of.
    """
    theirs = torch.tensor(x, requires_grad=True)
    interpolate = _nearest_by_axes if options["mode"] == "nearest" else TORCH.interpolate
    try:
        y = interpolate(theirs, **options)
    except RuntimeError:
        return None
    if not y.numel():
        return None
    y.backward(torch.arange(1.0, y.numel() + 1, dtype=y.dtype).reshape(y.shape))
    sizes = zip(y.shape[2:], x.shape[2:], strict=True)
    odd = options["mode"] == "nearest" and any(m in (n, 2 * n) for m, n in sizes)
    return y.detach().numpy(), None if odd else theirs.grad.numpy()


def _nearest_by_axes(x, size=None, scale_factor=None, **options):
    """PyTorch's "nearest" along one axis after the other.

    Its kernel for small images on the CPU takes elements one by one, or twice each, where the
    length stays or doubles, whatever the scale; those for one and three axes, for large images
    and for CUDA go by the scale.
    """
    given = scale_factor if size is None else size
    each = list(given) if isinstance(given, list) else [given] * (x.ndim - 2)
    for axis, number in enumerate(each, 2):
        lines = x.movedim(axis, -1)
        how = {"scale_factor" if size is None else "size": number}
        y = TORCH.interpolate(lines.reshape(1, -1, lines.shape[-1]), **how, **options)
        x = y.reshape(*lines.shape[:-1], y.shape[-1]).movedim(-1, axis)
    return x


@pytest.mark.parametrize("seed", range(8))
def test_random_interpolations(seed, device):
    rng, refused = np.random.default_rng(seed), 0
    for _ in range(150):
        x, options = _random_call(rng)
        expected = _of_torch(x, options)
        given = wf.tensor(x, device=device, requires_grad=True)
        if expected is None:
            with pytest.raises(wf.errors.ArgumentError, match="would make"):
                F.interpolate(given, **options)
            refused += 1
            continue
        y = F.interpolate(given, **options)
        seeds = np.arange(1.0, y.size + 1).reshape(y.shape)
        g = y.backward(wf.tensor(seeds, device=device))[given]
        close(y.detach().numpy(), expected[0], 1e-6)
        if expected[1] is not None:
            close(g.numpy(), expected[1], 1e-6)
    assert refused < 75


def test_large_images_go_by_the_scale(device):
    x = np.arange(600.0).reshape(1, 1, 2, 300)
    for factor in ((1.0, 1.003), (1.3, 1.002), (1.0, 2.003)):
        expected = TORCH.interpolate(torch.tensor(x), scale_factor=factor).numpy()
        assert expected.shape[-1] in (300, 600)
        found = F.interpolate(wf.tensor(x, device=device), scale_factor=factor)
        assert np.array_equal(found.numpy(), expected)


def test_a_length_that_stays_is_not_interpolated(device):
    """PyTorch's results, by kernels that go by the scale or by the lengths."""
    x = wf.tensor([[[1.0, 2.0]]], device=device)
    assert F.interpolate(x, scale_factor=1.3).tolist() == [[[1.0, 1.0]]]
    assert F.interpolate(x, scale_factor=1.3, mode="linear").tolist() == [[[1.0, 2.0]]]


def test_the_older_name(device):
    x = wf.tensor(IMAGES, device=device)
    both = F.upsample(x, None, 2, "bilinear", True), F.interpolate(x, None, 2, "bilinear", True)
    assert np.array_equal(*(y.numpy() for y in both))


def test_half_precision_is_interpolated_in_single(device):
    x = wf.tensor([[[0.0, 2049.0, 1.0]]], dtype="float32", device=device).to("float16")
    y = F.interpolate(x, 5, mode="linear", align_corners=True)
    assert y.dtype == wf.float16
    assert y.tolist() == [[[0.0, 1024.0, 2048.0, 1024.0, 1.0]]]


def test_shuffled_pixels(device):
    compare("pixel_shuffle", rng.standard_normal((2, 8, 3, 2)), 2, device=device)
    compare("pixel_shuffle", rng.standard_normal((9, 1, 2)), 3, device=device)
    compare("pixel_unshuffle", rng.standard_normal((2, 3, 6, 4)), 2, device=device)


@pytest.mark.parametrize("widths", [(1, 2), (1, 0, 2, 3), (-1, 2, 1, -2), (0, 0, 0, 0, 1, 1)])
def test_constant_padding(widths, device):
    compare("pad", IMAGES, widths, device=device)
    compare("pad", IMAGES, widths, value=1.5, device=device)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_by_what_is_there(mode, device):
    compare("pad", IMAGES, (1, 2, 3, 0), mode=mode, device=device)
    compare("pad", IMAGES, (5, 0, 0, 2), mode=mode, device=device)


@pytest.mark.parametrize("kernel, stride", [*product((2, (3, 2)), (1, 2))])
def test_patches(kernel, stride, device):
    for dilation, padding in product((1, 2), (0, 1)):
        how = kernel, dilation, padding, stride
        compare("unfold", IMAGES, *how, device=device)
        columns = F.unfold(IMAGES, *how).numpy()
        compare("fold", columns, (7, 6), *how, device=device)
    compare("unfold", IMAGES[0], 2, device=device)


BAD = {
    "nothing": (lambda x: F.interpolate(x), "either size or scale_factor"),
    "both": (lambda x: F.interpolate(x, 3, 2.0), "either size or scale_factor"),
    "mode": (
        lambda x: F.interpolate(x, 3, mode="linear"),
        "'linear' for an input of 4 axes.*'bilinear'",
    ),
    "rank": (lambda x: F.interpolate(x[0, 0], 3), "one to three axes"),
    "corners": (lambda x: F.interpolate(x, 3, align_corners=True), "no meaning"),
    "factor": (lambda x: F.interpolate(x, scale_factor=-1.0), "positive"),
    "no end": (lambda x: F.interpolate(x, scale_factor=float("inf")), "positive"),
    "vanishing": (lambda x: F.interpolate(x, scale_factor=0.1), "would make"),
    "recompute": (lambda x: F.interpolate(x, 3, recompute_scale_factor=True), "needs a scale"),
    "shuffle": (lambda x: F.pixel_shuffle(x, 2), "C·2²"),
    "unshuffle": (lambda x: F.pixel_unshuffle(x, 4), "H·4"),
    "odd widths": (lambda x: F.pad(x, (1, 2, 3)), "3 widths"),
    "widths": (lambda x: F.pad(x, (1,) * 10), "10 widths"),
    "cut off": (lambda x: F.pad(x, (-4, -3)), "cut more off"),
    "reflected": (lambda x: F.pad(x, (6, 0), "reflect"), "expected 0 to 5"),
    "pad mode": (lambda x: F.pad(x, (1, 1), "mirror"), "'mirror'.*'reflect'"),
    "value": (lambda x: F.pad(x, (1, 1), "reflect", 1.0), "with a value"),
    "patch": (lambda x: F.unfold(x, 8), "span 8"),
    "columns": (lambda x: F.fold(x[0], (7, 6), 2), "expected"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments(what, device):
    call, message = BAD[what]
    with pytest.raises((wf.errors.ShapeError, wf.errors.ArgumentError)) as e:
        call(wf.tensor(IMAGES, device=device))
    assert re.search(message, e.value.message), e.value.message
