"""Random choices for samples, as functions of seed, epoch and the item's number alone."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

from ...core.counter import WORD, Generator, block_words
from ...train.order import shuffle as random_order
from .buckets import CENTRE
from .settings import Augmentation, TokenShuffle


class Choice(NamedTuple):
    """What an item is in an epoch.

    flip   whether the image is mirrored
    crop   the number of its crop
    drop   whether it has the empty caption
    order  the number of its caption's order

    >>> from weft.diffusion.data import Choice
    >>> Choice(flip=True, crop=0, drop=False, order=0).flip
    True
    """

    flip: bool
    crop: int
    drop: bool
    order: int


def choose(settings: Augmentation, seed: int, epoch: int, item: int) -> Choice:
    """The random choices for an item; no other item, batch or worker has a part in them.

    settings  an `Augmentation`
    seed      of the run
    epoch     number of the epoch
    item      number of the item: repeats of an image are several

    >>> from weft.diffusion.data import Augmentation, choose
    >>> choose(Augmentation(flip=1.0), seed=0, epoch=0, item=3)
    Choice(flip=True, crop=0, drop=False, order=0)
    """
    stream = Generator(seed).fork("augment").fork(epoch).fork(item)
    flip, crop, drop, order = block_words(stream.advance(4), 0, 0)
    orders = 1 if settings.shuffle is None else settings.shuffle.variants
    return Choice(
        flip=flip < settings.flip * WORD,
        crop=crop * (settings.crops or 1) // WORD,
        drop=drop < settings.caption_dropout * WORD,
        order=order * orders // WORD,
    )


def crop_places(settings: Augmentation, digest: str) -> list[tuple[float, float]]:
    """The places of an image's crops: functions of its digest, so that caches stay valid."""
    if settings.crop == "center":
        return [CENTRE]
    return [_place(f"{digest}/{i}") for i in range(settings.crops or 1)]


def _place(name: str) -> tuple[float, float]:
    drawn = blake2b(name.encode("ascii"), digest_size=8, person=b"weft.crop").digest()
    x, y = int.from_bytes(drawn[:4], "little"), int.from_bytes(drawn[4:], "little")
    return x / (WORD - 1), y / (WORD - 1)


def captions_of(settings: Augmentation, caption: str) -> list[str]:
    """The forms of a caption by the number of their order.

    settings  an `Augmentation`
    caption   the text

    >>> from weft.diffusion.data import Augmentation, TokenShuffle, captions_of
    >>> captions_of(Augmentation(shuffle=TokenShuffle(keep=1, variants=2)), "cat, red, big, old")
    ['cat, big, red, old', 'cat, old, big, red']
    """
    if settings.shuffle is None:
        return [caption]
    return [_reorder(settings.shuffle, caption, i) for i in range(settings.shuffle.variants)]


def _reorder(settings: TokenShuffle, caption: str, number: int) -> str:
    """The parts of a caption in the order of this number; spaces around parts are not kept."""
    parts = [p for p in (part.strip() for part in caption.split(settings.separator)) if p]
    fixed, moved = parts[: settings.keep], parts[settings.keep :]
    if len(moved) < 2:
        return caption
    order = random_order(len(moved), Generator(0).fork(caption).fork(number))
    between = settings.separator
    between = between if between[-1].isspace() else f"{between} "
    return between.join(fixed + [moved[i] for i in order])
