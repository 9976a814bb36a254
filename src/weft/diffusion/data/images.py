"""Image files as pixels: read once, checked, decoded, cropped and scaled."""

from __future__ import annotations

import io
import warnings
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import ArgumentError, DatasetError
from ...io import disk
from .settings import ScanSettings

if TYPE_CHECKING:
    from PIL.Image import Image

    from .buckets import Box, Size

# By their names for Pillow; others have decoders that are rarely used, and so rarely attacked.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
_PLAIN = ("1", "L", "P", "RGB", "CMYK", "YCbCr", "RGBX")
_ALPHA = ("LA", "PA", "RGBA")
_SIXTEEN = ("I;16", "I;16L", "I;16B", "I;16N", "I")


class Refused(Exception):
    """A file that cannot be used: the problem's name and what was found."""

    def __init__(self, problem: str, detail: str):
        super().__init__(problem, detail)
        self.problem = problem
        self.detail = detail


def read_bytes(path: str, longest: int, unreadable: str, too_long: str) -> bytes:
    """The bytes of a regular file; the last two arguments name the problems."""
    try:
        with disk.open_to_read(Path(path)) as file:
            data = bytearray()
            while len(data) <= longest and (chunk := file.read(1 << 20)):
                data += chunk
    except OSError as e:
        raise Refused(unreadable, e.strerror or str(e)) from None
    if len(data) > longest:
        raise Refused(too_long, f"more than {longest} bytes")
    return bytes(data)


def digest_of(data: bytes) -> str:
    """The SHA-256 of bytes, in hexadecimal."""
    return sha256(data).hexdigest()


def decode_image(data: bytes, settings: ScanSettings) -> Image:
    """8-bit RGB pixels of a file, upright by its EXIF orientation; colour profiles are ignored.

    Transparent images are put on white. Of 16-bit grey levels the nearest 8-bit ones are taken; of
    16-bit colours Pillow keeps the upper 8 bits.
    """
    return _guarded(lambda: _to_rgb(_load(data, settings), settings.alpha))


def decode_mask(data: bytes, settings: ScanSettings) -> Image:
    """8-bit grey levels of a mask's file, upright; transparent parts are black."""
    return _guarded(lambda: _to_grey(_load(data, settings)))


def _guarded(decode: Any) -> Any:
    """A decoded image; whatever a decoder raises or warns of is a reason to refuse the file."""
    require_pillow()
    with warnings.catch_warnings():
        # Pillow warns of damaged metadata, of files that end early and of decompression bombs.
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return decode()
        except Refused:
            raise
        except MemoryError:
            raise Refused("huge", "decoding takes more memory than there is") from None
        except Exception as e:  # decoders of hostile files raise almost anything
            raise _refusal(e) from None


def _refusal(e: Exception) -> Refused:
    if type(e).__name__ == "UnidentifiedImageError":  # its text has an address in memory
        return Refused("unreadable", f"none of {', '.join(FORMATS)}")
    text = f"{type(e).__name__}: {e}"[:200]
    if type(e).__name__.startswith("DecompressionBomb"):
        return Refused("huge", text)
    short = isinstance(e, EOFError) or any(
        sign in str(e).lower() for sign in ("truncated", "unexpected end", "ended")
    )
    return Refused("truncated" if short else "unreadable", text)


def _load(data: bytes, settings: ScanSettings) -> Image:
    """The decoded first frame, upright, in the mode of the file."""
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        _check_frame(image, settings)
        image.verify()  # checksums, which loading does not look at
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        image.load()
        upright = ImageOps.exif_transpose(image)
        upright.format = image.format
        return upright


def _check_frame(image: Image, settings: ScanSettings) -> None:
    width, height = image.size
    if width * height > settings.max_pixels:
        raise Refused("huge", f"{width}×{height} are more than {settings.max_pixels} pixels")
    # The other pictures of an MPO, which phones write as .jpg, are previews or depths.
    if getattr(image, "is_animated", False) and image.format != "MPO":
        raise Refused("animated", f"a {image.format} of several frames")


def _to_rgb(image: Image, alpha: str) -> Image:
    from PIL import Image as pil

    if image.mode in _SIXTEEN:
        return _eight_bits(image).convert("RGB")
    if image.mode not in (*_PLAIN, *_ALPHA):
        raise Refused("unsupported-mode", f"mode {image.mode}")
    if not image.has_transparency_data:
        return image.convert("RGB")
    layered = image.convert("RGBA")
    if np.asarray(layered)[..., 3].min() == 255:
        return layered.convert("RGB")
    if alpha == "refuse":
        raise Refused("transparent", f"mode {image.mode} with transparent pixels")
    white = pil.new("RGBA", layered.size, (255, 255, 255, 255))
    return pil.alpha_composite(white, layered).convert("RGB")


def _to_grey(image: Image) -> Image:
    from PIL import Image as pil

    if image.mode in _SIXTEEN:
        return _eight_bits(image)
    if image.mode not in (*_PLAIN, *_ALPHA):
        raise Refused("unsupported-mode", f"a mask of mode {image.mode}")
    if not image.has_transparency_data:
        return image.convert("L")
    layered = image.convert("RGBA")
    black = pil.new("RGBA", layered.size, (0, 0, 0, 255))
    return pil.alpha_composite(black, layered).convert("L")


def _eight_bits(image: Image) -> Image:
    """Grey levels of 16 bits as the nearest of 8 bits."""
    from PIL import Image as pil

    values = np.asarray(image).astype(np.int64)
    if "transparency" in image.info:
        raise Refused("unsupported-mode", "16-bit grey levels with a transparent one")
    if image.mode == "I" and (image.format != "PNG" or values.min() < 0 or values.max() > 65535):
        raise Refused("unsupported-mode", "32-bit integers, whose white is not known")
    return pil.fromarray(((values * 255 + 32767) // 65535).astype(np.uint8))


def scale_crop(image: Image, box: Box, size: Size, filter: str) -> Image:
    """The part of an image in a box, scaled to a size; a part of that size is copied."""
    from PIL import Image as pil

    left, top, right, bottom = box
    if (right - left, bottom - top) == size:
        return image.crop((int(left), int(top), int(right), int(bottom)))
    method = pil.Resampling.LANCZOS if filter == "lanczos" else pil.Resampling.BOX
    return image.resize(size, method, box=box)


def to_pixels(image: Image) -> np.ndarray:
    """RGB in [-1, 1] as (1, 3, height, width) of float32: 2·(value / 255) − 1."""
    values = np.asarray(image, dtype=np.float32) / np.float32(255.0)
    return np.ascontiguousarray((2 * values - 1).transpose(2, 0, 1)[None])


def to_weights(mask: Image) -> np.ndarray:
    """Grey levels in [0, 1] as (1, height, width) of float32."""
    return (np.asarray(mask, dtype=np.float32) / np.float32(255.0))[None]


def require_pillow() -> None:
    """Raise unless Pillow is there, and refuses files that end early."""
    try:
        from PIL import ImageFile
    except ModuleNotFoundError:
        raise DatasetError("images need Pillow; pip install 'weft[train]'") from None
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ArgumentError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, which makes grey pixels of what a file "
            "lacks; set it to False"
        )
