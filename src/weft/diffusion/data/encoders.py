"""What turns images into latents and captions into embeddings; two encoders without weights."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Protocol

import numpy as np

from ...errors import ArgumentError
from ...io import strict_json


class ImageEncoder(Protocol):
    """Images to latents.

    digest    of everything that the latents depend on: weights, config, precision
    factor    pixels along a side of a latent
    channels  of a latent
    shift     subtracted from latents before training
    scale     then multiplied with them

    >>> from weft.diffusion.data.encoders import ImageEncoder, PixelEncoder
    >>> encoder: ImageEncoder = PixelEncoder(2)
    >>> encoder.factor, encoder.channels
    (2, 12)
    """

    @property
    def digest(self) -> str: ...
    @property
    def factor(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def shift(self) -> float: ...
    @property
    def scale(self) -> float: ...
    def encode(self, pixels: np.ndarray) -> np.ndarray:
        """Latents (N, C, H / factor, W / factor), in float32.

        pixels  (N, 3, H, W) in [-1, 1]

        >>> import numpy as np
        >>> from weft.diffusion.data import PixelEncoder
        >>> PixelEncoder(4).encode(np.zeros((1, 3, 8, 8), np.float32)).shape
        (1, 48, 2, 2)
        """
        ...

    def decode(self, latents: np.ndarray) -> np.ndarray:
        """Pixels (N, 3, H, W) in [-1, 1], in float32.

        latents  (N, C, H / factor, W / factor), neither shifted nor scaled

        >>> import numpy as np
        >>> from weft.diffusion.data import PixelEncoder
        >>> PixelEncoder(4).decode(np.zeros((1, 48, 2, 2), np.float32)).shape
        (1, 3, 8, 8)
        """
        ...

    def release(self) -> None:
        """Free the weights; the next call of `encode` loads them again.

        >>> from weft.diffusion.data import PixelEncoder
        >>> PixelEncoder().release()
        """
        ...


class TextEncoder(Protocol):
    """Captions to embeddings.

    digest  of everything that they depend on: weights, configs, tokenizers, lengths, precision

    >>> from weft.diffusion.data.encoders import HashTextEncoder, TextEncoder
    >>> encoder: TextEncoder = HashTextEncoder(length=4)
    >>> encoder.truncation("a cat") is None
    True
    """

    @property
    def digest(self) -> str: ...
    def encode(self, captions: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings of the tokens (N, length, width) and pooled ones (N, width), in float32.

        captions  N texts

        >>> from weft.diffusion.data import HashTextEncoder
        >>> [x.shape for x in HashTextEncoder(4, 8, 6).encode(["a cat"])]
        [(1, 4, 8), (1, 6)]
        """
        ...

    def truncation(self, caption: str) -> str | None:
        """What of a caption is cut off, in words; None if it fits.

        caption  a text

        >>> from weft.diffusion.data import HashTextEncoder
        >>> HashTextEncoder(length=1).truncation("a cat")
        '1 of 2 words are kept'
        """
        ...

    def release(self) -> None:
        """Free the weights; the next call of `encode` loads them again.

        >>> from weft.diffusion.data import PixelEncoder
        >>> PixelEncoder().release()
        """
        ...


@dataclass(frozen=True)
class Encoders:
    """The encoders of a run.

    image  an `ImageEncoder`
    text   a `TextEncoder`

    >>> from weft.diffusion.data import Encoders, HashTextEncoder, PixelEncoder
    >>> Encoders(PixelEncoder(2), HashTextEncoder()).image.channels
    12
    """

    image: ImageEncoder
    text: TextEncoder


def digest_settings(**settings: object) -> str:
    """The SHA-256 of settings, by name."""
    text = strict_json.dumps(dict(sorted(settings.items())))
    return sha256(text.encode("ascii")).hexdigest()


class PixelEncoder:
    """Pixels themselves as latents, for small models and tests.

    Channel c of latent (i, j) at offset (a, b) of a block of factor × factor pixels is number
    (c·factor + a)·factor + b of the latent's channels.

    factor  pixels along a side of a latent; 1: images stay as they are

    >>> import numpy as np
    >>> from weft.diffusion.data import PixelEncoder
    >>> PixelEncoder(2).encode(np.zeros((1, 3, 8, 4), np.float32)).shape
    (1, 12, 4, 2)
    """

    def __init__(self, factor: int = 1):
        if not isinstance(factor, int) or factor < 1:
            raise ArgumentError(f"PixelEncoder: factor={factor!r}, expected an integer ≥ 1")
        self.factor: int = factor
        self.channels: int = 3 * factor * factor
        self.shift: float = 0.0
        self.scale: float = 1.0
        self.digest: str = digest_settings(encoder="pixels", version=1, factor=factor)

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        """Blocks of pixels as channels.

        pixels  (N, 3, H, W)

        >>> import numpy as np
        >>> from weft.diffusion.data import PixelEncoder
        >>> PixelEncoder().encode(np.ones((1, 3, 2, 2), np.float32)).sum()
        np.float32(12.0)
        """
        n, c, high, wide = pixels.shape
        f = self.factor
        blocks = pixels.reshape(n, c, high // f, f, wide // f, f)
        latents = blocks.transpose(0, 1, 3, 5, 2, 4).reshape(n, c * f * f, high // f, wide // f)
        return np.ascontiguousarray(latents, dtype=np.float32)

    def decode(self, latents: np.ndarray) -> np.ndarray:
        """The pixels of latents: the inverse of `encode`.

        latents  (N, 3·factor², H, W)

        >>> import numpy as np
        >>> from weft.diffusion.data import PixelEncoder
        >>> x = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
        >>> bool((PixelEncoder(2).decode(PixelEncoder(2).encode(x)) == x).all())
        True
        """
        n, c, high, wide = latents.shape
        f = self.factor
        blocks = latents.reshape(n, c // (f * f), f, f, high, wide).transpose(0, 1, 4, 2, 5, 3)
        return np.ascontiguousarray(blocks.reshape(n, c // (f * f), high * f, wide * f))

    def release(self) -> None:
        """There is nothing to free.

        >>> from weft.diffusion.data import PixelEncoder
        >>> PixelEncoder().release()
        """


class HashTextEncoder:
    """Embeddings made of the words' hashes, for demonstrations and tests: they mean nothing.

    A word's vector has uniform numbers of variance 1 that are a function of the word's bytes. A
    caption's embeddings are those of its words, then zeros; the pooled one is the mean of its
    words' vectors, times the square root of their number.

    length        words that are kept
    width         of the words' embeddings
    pooled_width  of the pooled embedding

    >>> from weft.diffusion.data import HashTextEncoder
    >>> words, pooled = HashTextEncoder(4, 8, 6).encode(["a red cat", ""])
    >>> words.shape, pooled.shape, bool(pooled[1].any())
    ((2, 4, 8), (2, 6), False)
    """

    def __init__(self, length: int = 16, width: int = 32, pooled_width: int = 32):
        for name, value in (("length", length), ("width", width), ("pooled_width", pooled_width)):
            if not isinstance(value, int) or value < 1:
                raise ArgumentError(f"HashTextEncoder: {name}={value!r}, expected an integer ≥ 1")
        self.length, self.width, self.pooled_width = length, width, pooled_width
        sizes = [length, width, pooled_width]
        self.digest: str = digest_settings(encoder="hash", version=1, sizes=sizes)

    def encode(self, captions: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The embeddings of captions.

        captions  texts

        >>> from weft.diffusion.data import HashTextEncoder
        >>> words, pooled = HashTextEncoder().encode(["cat dog", "dog"])
        >>> bool((words[0, 1] == words[1, 0]).all())
        True
        """
        embeds = np.zeros((len(captions), self.length, self.width), np.float32)
        pooled = np.zeros((len(captions), self.pooled_width), np.float32)
        for i, caption in enumerate(captions):
            words = caption.split()[: self.length]
            for j, word in enumerate(words):
                embeds[i, j] = _word_vector(word, self.width, b"token")
                pooled[i] += _word_vector(word, self.pooled_width, b"pooled")
            pooled[i] /= np.sqrt(max(len(words), 1))
        return embeds, pooled

    def truncation(self, caption: str) -> str | None:
        """What of a caption is cut off.

        caption  a text

        >>> from weft.diffusion.data import HashTextEncoder
        >>> HashTextEncoder(length=2).truncation("a red cat")
        '2 of 3 words are kept'
        """
        n = len(caption.split())
        return f"{self.length} of {n} words are kept" if n > self.length else None

    def release(self) -> None:
        """There is nothing to free.

        >>> from weft.diffusion.data import HashTextEncoder
        >>> HashTextEncoder().release()
        """


def _word_vector(word: str, width: int, use: bytes) -> np.ndarray:
    """Uniform numbers in ±√3, 16 from each hash."""
    parts = [
        blake2b(word.encode("utf-8"), salt=k.to_bytes(8, "little"), person=b"weft." + use).digest()
        for k in range(-(-width // 16))
    ]
    drawn = np.frombuffer(b"".join(parts), "<u4")[:width].astype(np.float64)
    return ((drawn / (1 << 31) - 1) * np.sqrt(3)).astype(np.float32)
