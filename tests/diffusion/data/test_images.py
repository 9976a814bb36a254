"""Decoding, orientation, transparency, 16 bits, cropping and scaling, beside NumPy and Pillow."""

import io

import numpy as np
import pytest
from PIL import Image

from weft.diffusion.data import BucketSettings, ScanSettings, assign_bucket, bucket_sizes, crop_box
from weft.diffusion.data.images import (
    Refused,
    decode_image,
    decode_mask,
    scale_crop,
    to_pixels,
    to_weights,
)

from .random_folders import picture

SETTINGS = ScanSettings()
# What each EXIF orientation asks for, as NumPy's operations on (height, width, …).
ORIENTATIONS = {
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a.swapaxes(0, 1)[:, ::-1],
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: a.swapaxes(0, 1)[::-1],
}


def encoded(image, format="PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_orientation(orientation, format):
    image = picture(np.random.default_rng(0), (40, 24))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if format == "WEBP" else {}
    data = encoded(image, format, exif=exif, **options)
    stored = np.asarray(image)
    if format == "JPEG":  # which loses something; and of TIFF, Pillow itself turns the pixels
        with Image.open(io.BytesIO(data)) as raw:
            stored = np.asarray(raw)
    found = np.asarray(decode_image(data, SETTINGS))
    np.testing.assert_array_equal(found, ORIENTATIONS[orientation](stored))


def test_sixteen_bits():
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    found = np.asarray(decode_image(encoded(Image.fromarray(values)), SETTINGS))
    np.testing.assert_array_equal(found[..., 0], np.rint(values / 257).astype(np.uint8))
    grey = np.asarray(decode_mask(encoded(Image.fromarray(values), "TIFF"), SETTINGS))
    np.testing.assert_array_equal(grey, found[..., 0])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "PA"])
def test_transparent_images_are_put_on_white(mode):
    rng = np.random.default_rng(1)
    image = picture(rng, (33, 21), "RGBA")
    image.putalpha(Image.fromarray(rng.integers(0, 256, (21, 33), dtype=np.uint8)))
    if mode == "LA":
        image = image.convert("LA")
    if mode in ("P", "PA"):
        image = image.quantize(200)
    data = encoded(image)
    with Image.open(io.BytesIO(data)) as raw:
        layers = np.asarray(raw.convert("RGBA")).astype(float)
    alpha = layers[..., 3:] / 255
    expected = layers[..., :3] * alpha + 255 * (1 - alpha)
    found = np.asarray(decode_image(data, SETTINGS)).astype(float)
    assert np.abs(found - expected).max() <= 1  # a rounding of 8 bits
    with pytest.raises(Refused) as refused:
        decode_image(data, ScanSettings(alpha="refuse"))
    assert refused.value.problem == "transparent"
    grey = np.asarray(decode_mask(data, SETTINGS)).astype(float)
    black = (layers[..., :3] * alpha) @ [0.299, 0.587, 0.114]
    assert np.abs(grey - black).max() <= 2


def test_a_transparent_colour():
    image = Image.new("RGB", (20, 10), (255, 0, 0))
    image.paste((0, 0, 255), (0, 0, 10, 10))
    found = np.asarray(decode_image(encoded(image, transparency=(0, 0, 255)), SETTINGS))
    assert (found[:, :10] == 255).all() and (found[:, 10:] == [255, 0, 0]).all()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "CMYK", "YCbCr"])
def test_other_modes(mode):
    image = picture(np.random.default_rng(2), (40, 24), mode)
    format = "JPEG" if mode in ("CMYK", "YCbCr") else "PNG"
    data = encoded(image, format)
    with Image.open(io.BytesIO(data)) as raw:
        expected = np.asarray(raw.convert("RGB"))
    np.testing.assert_array_equal(np.asarray(decode_image(data, SETTINGS)), expected)


def test_a_part_of_the_right_size_is_copied():
    image = picture(np.random.default_rng(3), (100, 64))
    for at in ((0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (0.37, 0.9)):
        box = crop_box(image.size, (64, 64), at)
        part = np.asarray(scale_crop(image, box, (64, 64), "lanczos"))
        left = int(box[0])
        np.testing.assert_array_equal(part, np.asarray(image)[:, left : left + 64])


def test_area_is_the_mean():
    image = picture(np.random.default_rng(4), (96, 64))
    small = np.asarray(scale_crop(image, (0, 0, 96, 64), (24, 16), "area")).astype(float)
    means = np.asarray(image).astype(float).reshape(16, 4, 24, 4, 3).mean((1, 3))
    assert np.abs(small - means).max() <= 1
    mask = to_weights(scale_crop(image.convert("L"), (0, 0, 96, 64), (24, 16), "area"))
    assert (
        mask.shape == (1, 16, 24)
        and mask.dtype == np.float32
        and 0 <= mask.min() <= mask.max() <= 1
    )


@pytest.mark.parametrize(("size", "scaled"), [((300, 200), (96, 64)), ((100, 400), (64, 256))])
def test_lanczos_is_scaling_before_cropping(size, scaled):
    """Pixels beyond the crop's edge have their part in those at the edge."""
    image = picture(np.random.default_rng(5), size)
    found = np.asarray(scale_crop(image, crop_box(size, (64, 64)), (64, 64), "lanczos"))
    left, top = (scaled[0] - 64) // 2, (scaled[1] - 64) // 2
    whole = image.resize(scaled, Image.Resampling.LANCZOS)
    expected = np.asarray(whole.crop((left, top, left + 64, top + 64)))
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_pixels():
    values = np.arange(256, dtype=np.uint8).repeat(3).reshape(16, 16, 3)
    pixels = to_pixels(Image.fromarray(values))
    assert pixels.shape == (1, 3, 16, 16) and pixels.dtype == np.float32
    assert pixels.min() == -1 and pixels.max() == 1
    np.testing.assert_allclose(pixels[0, 1].ravel(), np.linspace(-1, 1, 256), atol=1e-7)


@pytest.mark.parametrize("seed", range(30))
def test_buckets(seed):
    """Sizes, the nearest aspect ratio, no enlarging, and crops, for random settings."""
    rng = np.random.default_rng(seed)
    step = int(rng.choice([8, 16, 64]))
    low = step * int(rng.integers(1, 5))
    settings = BucketSettings(
        resolutions=tuple(int(rng.integers(low, 1024)) for _ in range(rng.integers(1, 3))),
        step=step,
        min_side=low,
        max_side=1024,
        upscale=bool(rng.integers(2)),
        keep=float(rng.choice([0.0, 0.5, 0.9])),
    )
    lists = {r: bucket_sizes(r, step, low, 1024) for r in settings.resolutions}
    for resolution, sizes in lists.items():
        assert sizes == sorted(set(sizes)) and {(h, w) for w, h in sizes} == set(sizes)
        for w, h in sizes:
            assert w % step == h % step == 0 and low <= min(w, h) and max(w, h) <= 1024
            assert w * h <= resolution * resolution
    for _ in range(50):
        size = tuple(int(n) for n in np.exp(rng.uniform(0, 8, 2)).astype(int) + 1)
        check_assignment(size, assign_bucket(size, settings), lists, settings)


def check_assignment(size, found, lists, settings):
    def distance(b):
        return abs(np.log(b[0] * size[1] / (b[1] * size[0])))

    fits, nearest = {}, {}
    for resolution, sizes in lists.items():
        if not sizes:
            continue
        nearest[resolution] = min(map(distance, sizes))
        close = [b for b in sizes if distance(b) <= nearest[resolution] + 1e-9]
        fits[resolution] = [b for b in close if b[0] <= size[0] and b[1] <= size[1]]
    if hasattr(found, "problem"):
        assert found.problem in ("too-small", "aspect")
        if found.problem == "too-small" and all(lists.values()):
            assert not settings.upscale
            assert not any(len(f) == 1 for f in fits.values() if len(f) == 1 and f)
        return
    assert any(abs(distance(found) - d) < 1e-9 for d in nearest.values())
    if not settings.upscale:
        assert found[0] <= size[0] and found[1] <= size[1]
    for at in ((0, 0), (0.5, 0.5), (1, 1)):
        left, top, right, bottom = crop_box(size, found, at)
        assert 0 <= left and 0 <= top and right <= size[0] + 1e-9 and bottom <= size[1] + 1e-9
        assert np.isclose((right - left) / (bottom - top), found[0] / found[1])
        assert right - left == size[0] or bottom - top == size[1]
        area = (right - left) * (bottom - top) / (size[0] * size[1])
        assert area >= settings.keep - 1e-9
