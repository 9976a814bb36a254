"""Random streams as integer arithmetic: generators own counters, Philox4x32-10 maps them to words.

A stream is a 64-bit key with a 64-bit nonce; its blocks are numbered by a 64-bit position.
Block p is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC11) of the counter nonce·2⁶⁴ + p under
the key: four 32-bit words that depend on nothing else. A generator is a stream and the
position of its next unused block; a draw takes the blocks it needs, whole, in one step.
"""

import os
import threading
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

from ..errors import ArgumentError
from .reading import refuse_reading
from .settings import current, refuse_while_staging

WORD = 1 << 32
MASK = WORD - 1
POSITIONS = 1 << 64
WORDS_PER_BLOCK = 4

# The multipliers and the key schedule's increments (Weyl constants) of Philox4x32.
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10

# Held only while a position moves: one for all generators, so that they copy and pickle.
_LOCK = threading.Lock()


# One word of a block, or an int64 array with one of each of several blocks.
Words: TypeAlias = Any


_FIELDS = ("key", "nonce", "position")  # of a stream that is saved
_REMEDY = "read it outside of the function"


class ReservedBlocks(NamedTuple):
    """A reserved run of blocks: the key and the counter of the first."""

    key: int
    counter: int


def high_low(a: Words, m: int) -> tuple[Words, Words]:
    """The two words of a·m for words a and m, where a is an int or an int64 array.

    A large m is taken as m - 2³², so that no product leaves int64.
    """
    large = m >> 31
    low = a * (m - WORD if large else m)
    high = low >> 32
    if large:
        high += a
    low &= MASK
    return high, low


def philox(
    key: int, c0: Words, c1: Words, c2: Words, c3: Words
) -> tuple[Words, Words, Words, Words]:
    """The four words of the block with counter words c0 (lowest) … c3: ints or int64 arrays."""
    k0, k1 = key & MASK, key >> 32
    for _ in range(_ROUNDS):
        high0, low0 = high_low(c0, _M0)
        high1, low1 = high_low(c2, _M1)
        high1 ^= c1
        high1 ^= k0
        high0 ^= c3
        high0 ^= k1
        c0, c1, c2, c3 = high1, low1, high0, low0
        k0, k1 = (k0 + _W0) & MASK, (k1 + _W1) & MASK
    return c0, c1, c2, c3


def block_words(
    draw: ReservedBlocks, start: int, offset: Words
) -> tuple[Words, Words, Words, Words]:
    """The four words of the draw's blocks start + offset, for an int or an int64 array."""
    position, nonce = draw.counter % POSITIONS + start, draw.counter // POSITIONS
    low = offset + (position & MASK)
    return philox(draw.key, low & MASK, (low >> 32) + (position >> 32), nonce & MASK, nonce >> 32)


class Generator:
    """A random stream and the position of its next unused block.

    seed  an integer from 0 to 2¹²⁸ − 1; None takes one from the operating system

    Equal seeds give equal streams. A draw depends on the stream and the position only: neither
    the device, nor other streams, nor the order in which values are later computed matter.

    >>> import weft as wf
    >>> wf.random.Generator(7).fork("dropout")
    Generator(key=0x3a478af8e6291405, nonce=0xeb678d09749c3a08, position=0)
    >>> g = wf.random.Generator(7)
    >>> g.position, wf.rand(8, generator=g).shape, g.position
    (0, (8,), 2)
    """

    __slots__ = ("_key", "_nonce", "_position")

    _key: int
    _nonce: int
    _position: int

    def __init__(self, seed: int | None = None):
        self.seed(_from_the_system() if seed is None else seed)

    @property
    def key(self) -> int:
        """The key of the stream."""
        refuse_reading("the key of a random stream", _REMEDY)
        return self._key

    @property
    def nonce(self) -> int:
        """The nonce of the stream."""
        refuse_reading("the nonce of a random stream", _REMEDY)
        return self._nonce

    @property
    def position(self) -> int:
        """The number of the next unused block."""
        refuse_reading("the position of a random stream", _REMEDY)
        return self._position

    def seed(self, seed: int) -> None:
        """Begin the stream of `seed`, from its first block.

        seed  an integer from 0 to 2¹²⁸ − 1

        >>> import weft as wf
        >>> g = wf.random.Generator(1)
        >>> first = wf.rand(2, generator=g).tolist()
        >>> g.seed(1)
        >>> wf.rand(2, generator=g).tolist() == first
        True
        """
        seed = _check_bounds("seed", seed, 1 << 128)
        refuse_while_staging("a random stream is begun anew")
        with _LOCK:
            self._nonce, self._key = divmod(seed, POSITIONS)
            self._position = 0

    def reserve(self, words: int) -> ReservedBlocks:
        """The next blocks of the stream, enough for `words` 32-bit words.

        A replay gets the blocks of the first run, and leaves the position where it is.
        """
        draws = current.get().draws
        return self.advance(words) if draws is None else draws(self, words)

    def advance(self, words: int) -> ReservedBlocks:
        """The next blocks of the stream, also inside a replay."""
        blocks = -(-words // WORDS_PER_BLOCK)
        with _LOCK:
            position = self._position
            if position + blocks >= POSITIONS:
                raise ArgumentError(
                    f"Generator: {blocks} blocks at position {position} go past the end of the "
                    f"stream at 2**64: continue on another from fork()"
                )
            self._position = position + blocks
            return ReservedBlocks(self._key, self._nonce * POSITIONS + position)

    def give_back(self, draw: ReservedBlocks, words: int, position: int) -> None:
        """Go back from the end of a draw to a position in it, unless another draw followed."""
        nonce, start = divmod(draw.counter, POSITIONS)
        here = (draw.key, nonce, start - (-words // WORDS_PER_BLOCK))
        with _LOCK:
            if (self._key, self._nonce, self._position) == here:
                self._position = position

    def here(self) -> tuple[int, int, int]:
        """The stream and its position."""
        with _LOCK:
            return self._key, self._nonce, self._position

    def rewind(self, start: tuple[int, int, int], end: tuple[int, int, int]) -> None:
        """Undo a draw: go back from `end` to `start`, if the stream is still at `end`."""
        with _LOCK:
            if (self._key, self._nonce, self._position) == end and start[:2] == end[:2]:
                self._position = start[2]

    def fork(self, name: str | int) -> "Generator":
        """The stream of this name: the same for equal names, whatever has been drawn before.

        name  a string or an integer

        >>> import weft as wf
        >>> g = wf.random.Generator(1)
        >>> g.fork("dropout").key == g.fork("dropout").key != g.fork("noise").key
        True
        """
        refuse_while_staging("a random stream is forked")
        if not isinstance(name, str | Integral):
            raise ArgumentError(f"fork: name {name!r}: expected a string or an integer")
        return self._child(name if isinstance(name, str) else int(name))

    def split(self, n: int = 2) -> list["Generator"]:
        """n new streams, others at each call: takes one block of this stream.

        n  how many

        >>> import weft as wf
        >>> a, b = wf.random.Generator(1).split()
        >>> a.key != b.key
        True
        """
        n = _check_bounds("split: n", n, POSITIONS)
        position = self.reserve(WORDS_PER_BLOCK).counter % POSITIONS
        return [self._child("split", position, i) for i in range(n)]

    def _child(self, *path: str | int) -> "Generator":
        from hashlib import blake2b  # streams are split rarely, and this takes 10 ms
        from json import dumps

        # JSON is injective on lists of strings and integers, and the same everywhere.
        digest = blake2b(dumps(path).encode(), digest_size=16, person=b"weft.random")
        digest.update(self._key.to_bytes(8, "little") + self._nonce.to_bytes(8, "little"))
        return Generator(int.from_bytes(digest.digest(), "little"))

    def state_dict(self) -> dict[str, int]:
        """The stream and its position, as plain integers.

        >>> import weft as wf
        >>> sorted(wf.random.Generator(1).state_dict())
        ['key', 'nonce', 'position']
        """
        refuse_while_staging("the position of a random stream is saved")
        with _LOCK:
            return {name: getattr(self, f"_{name}") for name in _FIELDS}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue from a `state_dict()`.

        state  the integers by name

        >>> import weft as wf
        >>> g = wf.random.Generator(1)
        >>> state = g.state_dict()
        >>> first = wf.rand(2, generator=g).tolist()
        >>> g.load_state_dict(state)
        >>> wf.rand(2, generator=g).tolist() == first
        True
        """
        if set(state) != set(_FIELDS):
            raise ArgumentError(
                f"load_state_dict: keys {sorted(state)}: expected {sorted(_FIELDS)}, "
                f"as state_dict() gives them"
            )
        key, nonce = (_check_bounds(k, state[k], POSITIONS) for k in ("key", "nonce"))
        position = _check_bounds("position", state["position"], POSITIONS)
        refuse_while_staging("the position of a random stream is set")
        with _LOCK:
            self._key, self._nonce, self._position = key, nonce, position

    def __repr__(self) -> str:
        return f"Generator(key={self.key:#x}, nonce={self.nonce:#x}, position={self.position})"


def _from_the_system() -> int:
    determinism = current.get().determinism
    if determinism is not None:
        determinism.refuse_or_warn(
            "Generator", "without a seed it takes one from the operating system; give it a seed"
        )
    return int.from_bytes(os.urandom(16), "little")


def _check_bounds(what: str, value, end: int) -> int:
    if not isinstance(value, Integral) or not 0 <= int(value) < end:
        raise ArgumentError(
            f"{what}: {value!r}: expected an integer from 0 to 2**{end.bit_length() - 1} - 1"
        )
    return int(value)
