"""Interpolation, padding, patches and shuffled pixels beside PyTorch's."""

import re
from itertools import product

import numpy as np
import pytest

import weft as wf

from .beside_torch import compare

F = wf.nn.functional
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
