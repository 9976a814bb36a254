"""Latents of images as the tokens of Flux: packing, positions, and the scale of the autoencoder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import weft as wf

from .. import errors

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import Device, DTypeLike

# Of Flux's autoencoder: z = (x − SHIFT)·SCALE.
SHIFT, SCALE = 0.1159, 0.3611


def pack_latents(latents: Tensor) -> Tensor:
    """Squares of 2 × 2 pixels as tokens: (b, c, 2h, 2w) to (b, h·w, 4c), channels slowest.

    latents  (batch, channels, height, width), height and width even

    >>> import weft as wf
    >>> wf.diffusion.pack_latents(wf.ones((1, 16, 8, 12))).shape
    (1, 24, 64)
    """
    if latents.ndim != 4 or latents.shape[2] % 2 or latents.shape[3] % 2:
        raise errors.ShapeError(
            f"pack_latents: {latents.shape}, expected (batch, channels, height, width) with an "
            "even height and width; crop or pad the image to a multiple of 16 pixels"
        )
    b, c, h, w = latents.shape
    squares = latents.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return squares.reshape(b, (h // 2) * (w // 2), 4 * c)


def unpack_latents(tokens: Tensor, height: int, width: int) -> Tensor:
    """The inverse of `pack_latents`: (b, h·w, 4c) to (b, c, 2h, 2w).

    tokens         (batch, tokens, 4·channels)
    height, width  of the latents, in their pixels: an eighth of the image's

    >>> import weft as wf
    >>> wf.diffusion.unpack_latents(wf.ones((1, 24, 64)), 8, 12).shape
    (1, 16, 8, 12)
    """
    fits = tokens.ndim == 3 and height % 2 == width % 2 == 0 and tokens.shape[2] % 4 == 0
    if not fits or tokens.shape[1] * 4 != height * width:
        raise errors.ShapeError(
            f"unpack_latents: {tokens.shape} for a height of {height} and a width of {width}; "
            "expected (batch, height·width/4, 4·channels), height and width even"
        )
    b, _, c = tokens.shape
    squares = tokens.reshape(b, height // 2, width // 2, c // 4, 2, 2).permute(0, 3, 1, 4, 2, 5)
    return squares.reshape(b, c // 4, height, width)


def image_ids(
    height: int,
    width: int,
    index: int = 0,
    *,
    dtype: DTypeLike = "float32",
    device: Device | None = None,
) -> Tensor:
    """The positions (index, row, column) of an image's tokens: (h·w, 3).

    height, width  of the latents, in their pixels: two of them a token
    index          which image: 0 is the one that is made, a reference image is 1
    dtype, device  of the result

    >>> import weft as wf
    >>> wf.diffusion.image_ids(4, 4, dtype="int64").tolist()
    [[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1]]
    """
    if height % 2 or width % 2:
        raise errors.ArgumentError(
            f"image_ids: latents of {height} × {width}, expected even numbers: a token is 2 × 2"
        )
    rows, columns = height // 2, width // 2
    shape = (rows, columns, 1)
    row = wf.broadcast_to(wf.arange(rows, device=device).reshape(rows, 1, 1), shape)
    column = wf.broadcast_to(wf.arange(columns, device=device).reshape(1, columns, 1), shape)
    which = wf.full(shape, index, dtype=row.dtype, device=device)
    return wf.concat([which, row, column], axis=2).reshape(rows * columns, 3).to(dtype)


def text_ids(tokens: int, *, dtype: DTypeLike = "float32", device: Device | None = None) -> Tensor:
    """The positions of a text's tokens: zeros (tokens, 3).

    tokens         how many
    dtype, device  of the result

    >>> import weft as wf
    >>> wf.diffusion.text_ids(512).shape
    (512, 3)
    """
    return wf.zeros((tokens, 3), dtype=dtype, device=device)


def scale_latents(latents: Tensor, shift: float = SHIFT, scale: float = SCALE) -> Tensor:
    """(x − shift)·scale: what the autoencoder encodes as what the transformer is trained on.

    latents       of the autoencoder
    shift, scale  `shift_factor` and `scaling_factor` of its config; those of Flux by default

    >>> import weft as wf
    >>> round(wf.diffusion.scale_latents(wf.tensor(1.1159)).item(), 4)
    0.3611
    """
    return (latents - shift) * scale


def unscale_latents(latents: Tensor, shift: float = SHIFT, scale: float = SCALE) -> Tensor:
    """x/scale + shift, the inverse of `scale_latents`: what the autoencoder decodes.

    latents       of the transformer
    shift, scale  as of `scale_latents`

    >>> import weft as wf
    >>> round(wf.diffusion.unscale_latents(wf.tensor(0.3611)).item(), 4)
    1.1159
    """
    return latents / scale + shift
