"""Convolutions and pools beside PyTorch's: every combination of options, tiles, bad arguments."""

import re
from itertools import product

import numpy as np
import pytest
import torch

import weft as wf
from weft.backend.numpy import (
    columns as numpy_columns,
)
from weft.backend.numpy import (
    convolve as numpy_convolve,
)
from weft.backend.numpy import (
    depthwise as numpy_depthwise,
)
from weft.backend.numpy import (
    pool as numpy_pool,
)
from weft.backend.shared import threads

from .beside_torch import close, compare

F = wf.nn.functional
DEVICES = ("cpu", "torch")
SIZES = {1: (8,), 2: (6, 7), 3: (5, 6, 5)}
CHANNELS = 4
# Groups, and how many channels the result has: the last two are depthwise.
GROUPS = ((1, 6), (2, 6), (CHANNELS, CHANNELS), (CHANNELS, 2 * CHANNELS))
rng = np.random.default_rng(0)


def draw(*shape) -> np.ndarray:
    return rng.standard_normal(shape)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axes", SIZES)
@pytest.mark.parametrize("stride, padding", [*product((1, 2, 3), (0, 1)), (1, "same")])
@pytest.mark.parametrize("dilation", [1, 2])
def test_convolution(axes, stride, padding, dilation, device):
    for (groups, made), kernel, bias in product(GROUPS, (1, 2, 3), (False, True)):
        x, w = draw(2, CHANNELS, *SIZES[axes]), draw(made, CHANNELS // groups, *(kernel,) * axes)
        b = draw(made) if bias else None
        if padding == "same" and kernel % 2 == 0:
            continue  # torch warns of a copy
        compare(f"conv{axes}d", x, w, b, stride, padding, dilation, groups, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axes", SIZES)
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
def test_transposed_convolution(axes, stride, padding, dilation, device):
    size = [n - 2 for n in SIZES[axes]]
    for (groups, made), bias in product(GROUPS, (False, True)):
        x, w = draw(2, CHANNELS, *size), draw(CHANNELS, made // groups, *(3,) * axes)
        b = draw(made) if bias else None
        for more in range(max(stride, dilation)):
            how = stride, padding, more, groups, dilation
            compare(f"conv_transpose{axes}d", x, w, b, *how, device=device)


def test_options_may_differ_by_axis():
    x, w = draw(2, 2, 9, 8), draw(4, 2, 3, 2)
    compare("conv2d", x, w, None, (2, 1), (1, 0), (1, 3))
    compare("conv_transpose2d", x, draw(2, 3, 3, 2), None, (2, 3), (1, 0), (0, 2), 1, (1, 2))


def test_same_padding_of_an_even_kernel_is_longer_behind():
    x, w = draw(1, 1, 5), draw(1, 1, 4)
    expected = torch.nn.functional.conv1d(
        torch.nn.functional.pad(torch.tensor(x), (1, 2)), torch.tensor(w)
    )
    close(F.conv1d(x, w, padding="same").numpy(), expected.numpy(), 1e-14)


@pytest.mark.parametrize("device", DEVICES)
def test_without_an_axis_of_images(device):
    compare("conv2d", draw(3, 5, 5), draw(2, 3, 3, 3), draw(2), device=device)
    compare("conv_transpose1d", draw(3, 5), draw(3, 2, 3), draw(2), device=device)
    compare("max_pool2d", draw(3, 4, 4), 2, device=device)
    compare("avg_pool1d", draw(3, 5), 2, device=device)


def test_larger_images():
    compare("conv2d", draw(3, 8, 33, 30), draw(16, 8, 3, 3), draw(16), 1, 1)
    compare("conv2d", draw(3, 16, 12, 12), draw(8, 16, 1, 1), draw(8))
    compare("conv2d", draw(3, 16, 20, 20), draw(8, 16, 1, 1), None, 2)
    compare("conv2d", draw(2, 12, 20, 20), draw(12, 1, 3, 3), None, 1, 1, 1, 12)


def test_many_small_images_are_joined():
    """Several images in a matrix, several matrices in a tile, and images that are left over."""
    for x, w, how in (
        ((30, 4, 9, 9), (6, 4, 3, 3), {"padding": 1}),
        ((30, 24, 9, 9), (6, 24, 3, 3), {"padding": 1, "stride": 2}),
        ((70, 8, 3, 3), (10, 4, 2, 3), {"padding": (0, 1), "groups": 2}),
        ((30, 60, 7), (6, 60, 3), {"padding": 2, "dilation": 2}),
    ):
        compare(f"conv{len(x) - 2}d", draw(*x), draw(*w), draw(w[0]), **how)


GEOMETRIES = [
    ((5, 6, 9, 8), (4, 6, 3, 3), {"padding": 1}),
    ((5, 6, 9, 8), (4, 3, 3, 2), {"stride": 2, "padding": 1, "groups": 2}),
    ((5, 6, 9, 8), (6, 1, 3, 3), {"padding": 1, "groups": 6}),
    ((4, 2, 40), (3, 2, 5), {"stride": 3, "dilation": 2}),
]


@pytest.mark.parametrize("height", [1, 9, 40])
def test_tiles_cover_each_window_once(height):
    bands = numpy_columns.bands_of((height, 8), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1))
    sizes = (0, 1, 2, 7, 30), (1, 20, 100, 500, 10**6), (1, 100, 256), (1, 4, 16)
    for images, size, few, parts in product(*sizes):
        seen = np.zeros((images, height), int)
        for tile in numpy_columns.tiles_of(bands, images, size, few, parts):
            matrices, rows, joined = tile.shape
            assert matrices * joined == tile.last_image - tile.image
            assert matrices * rows * joined * 8 <= size or (matrices, rows, joined) == (1, 1, 1)
            seen[tile.image : tile.last_image, tile.row : tile.last_row] += 1
        assert (seen == 1).all()


@pytest.mark.parametrize("tile", [1, 1 << 10, 1 << 13])
@pytest.mark.parametrize("x, w, how", GEOMETRIES)
def test_tiles_and_threads_change_nothing(monkeypatch, tile, x, w, how):
    """Images, rows of windows and groups, one by one and by several threads at once."""
    axes = len(x) - 2
    x, w = draw(*x), draw(*w)
    monkeypatch.setattr(numpy_convolve, "TILE_BYTES", tile)
    for module in (numpy_depthwise, numpy_pool):
        monkeypatch.setattr(module, "BLOCK_BYTES", tile)
    for enough, cores in ((1 << 60, 1), (1, 3)):
        monkeypatch.setattr(threads, "ENOUGH", enough)
        monkeypatch.setattr(threads, "cores", lambda cores=cores: cores)
        compare(f"conv{axes}d", x, w, draw(w.shape[0]), **how)
        compare(f"max_pool{axes}d", x, 3, 2, 1)
        compare(f"avg_pool{axes}d", x, 3, 2, 1)


def test_gradients_repeat_bit_by_bit(monkeypatch):
    x, w = draw(40, 4, 12, 12).astype("float32"), draw(8, 4, 3, 3).astype("float32")
    monkeypatch.setattr(numpy_convolve, "TILE_BYTES", 1 << 15)

    def gradients(cores):
        monkeypatch.setattr(threads, "ENOUGH", 1)
        monkeypatch.setattr(threads, "cores", lambda: cores)
        leaves = wf.tensor(x, requires_grad=True), wf.tensor(w, requires_grad=True)
        grads = (F.conv2d(*leaves, padding=1) ** 2).sum().backward()
        return [grads[leaf].numpy() for leaf in leaves]

    once = gradients(1)
    for cores in (2, 3, 2):
        assert all(map(np.array_equal, once, gradients(cores)))


def test_an_error_in_another_thread_is_raised():
    def worker():
        return lambda piece: 1 // piece

    with pytest.raises(ZeroDivisionError):
        threads.share([1, 1, 0, 1], worker, threads.ENOUGH)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_accumulates_in_single(device, dtype):
    x, w = (wf.ones(s, dtype=dtype, device=device) for s in ((1, 4096, 2), (1, 4096, 1)))
    assert F.conv1d(x, w).tolist() == [[[4096.0, 4096.0]]]
    assert F.conv_transpose1d(x, wf.ones((4096, 1, 1), dtype=dtype, device=device)).tolist() == [
        [[4096.0, 4096.0]]
    ]
    large = wf.full((1, 1, 4096), 60000.0, dtype=dtype, device=device)
    assert F.avg_pool1d(large, 4096).item() == large[0, 0, 0].item()
    assert F.adaptive_avg_pool1d(large, 1).item() == large[0, 0, 0].item()
    y = F.conv1d(x, w)
    assert y.dtype == wf.canonical_dtype(dtype)


POOLED = {1: (9,), 2: (7, 6), 3: (5, 4, 6)}


def whole(*shape) -> np.ndarray:
    """Small whole numbers, many of them equal."""
    return rng.integers(-2, 3, shape).astype(float)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axes", POOLED)
@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("stride", [None, 1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_max_pool(axes, kernel, stride, padding, device):
    for dilation, ceil_mode, make in product((1, 2), (False, True), (draw, whole)):
        if kernel == 3 and dilation == 2 and axes == 3:
            continue  # spans more than there is
        x = make(2, 3, *POOLED[axes])
        how = kernel, stride, padding, dilation, ceil_mode, True
        compare(f"max_pool{axes}d", x, *how, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axes", POOLED)
@pytest.mark.parametrize("kernel", [2, 3])
@pytest.mark.parametrize("stride", [None, 1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1])
def test_avg_pool(axes, kernel, stride, padding, device):
    x = draw(2, 3, *POOLED[axes])
    for ceil_mode, include in product((False, True), (False, True)):
        how = kernel, stride, padding, ceil_mode, include
        compare(f"avg_pool{axes}d", x, *how, device=device)
        if axes > 1:
            compare(f"avg_pool{axes}d", x, *how, 5, device=device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("target", [1, 2, 3, 4, 5, 9])
def test_adaptive_pools(target, device):
    for axes, size in POOLED.items():
        x = draw(2, 3, *size)
        compare(f"adaptive_avg_pool{axes}d", x, target, device=device)
        compare(f"adaptive_max_pool{axes}d", x, target, True, device=device)
    compare("adaptive_avg_pool2d", draw(2, 7, 6), (None, target), device=device)
    compare("adaptive_max_pool2d", whole(2, 7, 6), (target, None), True, device=device)


def test_global_pools():
    x = draw(2, 3, 4, 5)
    close(F.global_avg_pool(x).numpy(), x.mean((2, 3), keepdims=True), 1e-15)
    assert np.array_equal(F.global_max_pool(x).numpy(), x.max((2, 3), keepdims=True))


@pytest.mark.parametrize("device", DEVICES)
def test_pools_of_nan_and_infinity(device):
    x = np.array([[1.0, np.nan, 2.0, np.nan, -np.inf, -np.inf, np.inf, 0.0]])
    compare("max_pool1d", x[:, None], 3, 2, 1, return_indices=True, device=device)
    y, at = F.max_pool1d(np.full((1, 3), -np.inf), 2, 2, 1, return_indices=True)
    assert y.tolist() == [[-np.inf, -np.inf]] and at.tolist() == [[0, 1]]


def test_many_taps_have_larger_numbers():
    """Windows of more than 256 elements, whose taps no byte can count."""
    compare("max_pool2d", draw(1, 2, 20, 20), 17, 3, return_indices=True)
    compare("max_pool2d", draw(1, 2, 40, 20), (32, 8), (4, 6), return_indices=True)


BAD = {
    "rank": (lambda: F.conv2d(draw(3, 4), draw(1, 3, 1, 1)), r"\(3, 4\).*\(N, C, H, W\)"),
    "rank of weights": (lambda: F.conv1d(draw(1, 3, 4), draw(3, 1)), "expected 3 axes"),
    "channels": (lambda: F.conv1d(draw(1, 3, 4), draw(2, 2, 1)), "3 channels; expected 2 for"),
    "groups": (lambda: F.conv1d(draw(1, 3, 4), draw(2, 3, 1), groups=2), "2 groups.*divide"),
    "groups of the result": (
        lambda: F.conv1d(draw(1, 4, 4), draw(3, 2, 1), groups=2),
        "groups must divide",
    ),
    "no groups": (lambda: F.conv1d(draw(1, 3, 4), draw(2, 3, 1), groups=0), "groups 0"),
    "bias": (lambda: F.conv1d(draw(1, 3, 4), draw(2, 3, 1), draw(3)), r"bias.*\(2,\)"),
    "window": (lambda: F.conv1d(draw(1, 1, 4), draw(1, 1, 5)), "span 5.*pad more"),
    "dilated window": (lambda: F.conv1d(draw(1, 1, 4), draw(1, 1, 3), dilation=2), "span 5"),
    "empty kernel": (lambda: F.conv1d(draw(1, 1, 4), draw(1, 1, 0)), "each axis of the kernel"),
    "stride": (lambda: F.conv1d(draw(1, 1, 4), draw(1, 1, 1), stride=0), "stride 0.*at least 1"),
    "strides": (
        lambda: F.conv2d(draw(1, 1, 4, 4), draw(1, 1, 1, 1), stride=(1, 1, 1)),
        "3 numbers; give one, or 2",
    ),
    "fraction": (lambda: F.max_pool1d(draw(1, 4), 1.5), "kernel_size 1.5, expected an integer"),
    "same by steps": (
        lambda: F.conv1d(draw(1, 1, 4), draw(1, 1, 1), stride=2, padding="same"),
        "use stride=1",
    ),
    "padding": (lambda: F.conv1d(draw(1, 1, 4), draw(1, 1, 1), padding="full"), "'full'.*'same'"),
    "negative padding": (
        lambda: F.conv1d(draw(1, 1, 4), draw(1, 1, 1), padding=-1),
        "padding -1.*at least 0",
    ),
    "output padding": (
        lambda: F.conv_transpose1d(draw(1, 1, 4), draw(1, 1, 1), output_padding=1),
        "output_padding 1 with stride 1 and dilation 1",
    ),
    "nothing left": (
        lambda: F.conv_transpose1d(draw(1, 1, 2), draw(1, 1, 1), padding=1),
        "less padding",
    ),
    "padding of a pool": (lambda: F.max_pool1d(draw(1, 4), 2, padding=2), "at most 1, half"),
    "window of a pool": (lambda: F.max_pool1d(draw(1, 4), 5), "span 5"),
    "divisor": (
        lambda: F.avg_pool2d(draw(1, 4, 4), 2, divisor_override=0),
        "divisor_override 0",
    ),
    "targets": (lambda: F.adaptive_avg_pool2d(draw(1, 4, 4), (1, 2, 3)), "give one, or 2"),
    "no target": (lambda: F.adaptive_max_pool1d(draw(1, 4), 0), "output_size.*at least 1"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments(what):
    call, message = BAD[what]
    with pytest.raises((wf.errors.ShapeError, wf.errors.ArgumentError, wf.errors.DTypeError)) as e:
        call()
    assert re.search(message, e.value.message), e.value.message


def test_complex_numbers_have_no_largest():
    with pytest.raises(wf.errors.DTypeError, match="complex"):
        F.max_pool1d(draw(1, 4) + 1j, 2)
