"""Random streams: Philox against published vectors, and who draws which blocks."""

import copy
import json
import math
import pickle
import threading

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.backend.device import namespace_for
from weft.backend.shared import variates
from weft.core import counter
from weft.core.counter import Generator, ReservedBlocks

DEVICES = ["cpu", "torch", "cuda"] if torch.cuda.is_available() else ["cpu", "torch"]
# A deviation of this many standard errors happens once in 10⁹ samples.
SIGMAS = 6.0

# Random123's tests/kat_vectors, the lines of philox4x32 with 10 rounds: counter, key, output.
KNOWN = [
    ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    (" ".join(["ffffffff"] * 4), "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def number(words: str) -> int:
    return sum(int(w, 16) << (32 * i) for i, w in enumerate(words.split()))


def bits(device, draw: ReservedBlocks, count: int):
    return variates.bits(namespace_for(device).random_target(device), draw, (count,))


def reference_words(draw: ReservedBlocks, blocks: int) -> list[int]:
    """Philox4x32-10 as the paper writes it, with 64-bit products."""
    out, mask = [], 0xFFFFFFFF
    for block in range(blocks):
        n = draw.counter + block
        c = [(n >> (32 * i)) & mask for i in range(4)]
        k = [draw.key & mask, draw.key >> 32]
        for _ in range(10):
            p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
            k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
        out += c
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("start,key,expected", KNOWN)
def test_published_vectors(device, start, key, expected):
    words = [int(w, 16) for w in expected.split()]
    draw = ReservedBlocks(number(key), number(start))
    assert list(counter.philox(draw.key, *(int(w, 16) for w in start.split()))) == words
    assert bits(device, draw, 4).tolist() == words


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("position", [0, 2**32 - 50, 2**63 - 3, 2**64 - 301])
def test_blocks_are_numbered_through_the_carries(device, position):
    draw = ReservedBlocks(0x0123456789ABCDEF, (0xFEDCBA9876543210 << 64) + position)
    expected = reference_words(draw, 300)
    for count in (1, 60, 1200):
        assert bits(device, draw, count).tolist() == expected[:count]


def test_every_bit_is_fair_and_independent_of_the_next():
    n = 1 << 18
    words = bits("cpu", ReservedBlocks(1, 0), n)
    ones = np.array([((words >> i) & 1).sum() for i in range(32)])
    assert (abs(ones - n / 2) < SIGMAS * math.sqrt(n) / 2).all()
    for lag in (1, 2, 3, 4):
        flips = words[lag:] ^ words[:-lag]
        ones = np.array([((flips >> i) & 1).sum() for i in range(32)])
        assert (abs(ones - len(flips) / 2) < SIGMAS * math.sqrt(n) / 2).all()


def test_a_draw_depends_on_stream_and_position_only():
    g = Generator(5)
    first, second = (wf.rand(10, generator=g).tolist() for _ in range(2))
    wf.random.seed(99)
    other = Generator(5)
    assert wf.rand(20, generator=other).tolist()[:10] == first
    other.load_state_dict({**other.state_dict(), "position": 3})
    assert wf.rand(10, generator=other).tolist() == second


def test_state_survives_json_copy_and_pickle():
    g = Generator(8)
    wf.randn(10, generator=g)
    restored = Generator()
    restored.load_state_dict(json.loads(json.dumps(g.state_dict())))
    copies = [restored, copy.deepcopy(g), pickle.loads(pickle.dumps(g))]
    expected = wf.randn(10, generator=g).tolist()
    assert [wf.randn(10, generator=c).tolist() for c in copies] == [expected] * 3


def test_streams_by_name_are_fixed_and_unrelated():
    g = Generator(4)
    before = g.fork("noise").state_dict()
    wf.rand(100, generator=g)
    assert g.fork("noise").state_dict() == before
    n = 100_000
    streams = [g, Generator(5), g.fork("noise"), g.fork("mask"), g.fork(1), g.fork("1")]
    streams += [g.fork("noise").fork("mask"), *g.split(2), *g.split(2)]
    drawn = np.array([wf.randn(n, generator=s)._data for s in streams])
    correlations = np.corrcoef(drawn)[np.triu_indices(len(streams), 1)]
    assert (abs(correlations) < SIGMAS / math.sqrt(n)).all()


def test_threads_draw_disjoint_blocks():
    g, taken, workers, draws = Generator(6), [], 8, 300
    start = threading.Barrier(workers)

    def work(i):
        start.wait()
        mine = [(g.reserve(4 * (1 + (i + j) % 3)), 1 + (i + j) % 3) for j in range(draws)]
        taken.extend(mine)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    end = 0
    for draw, blocks in sorted(taken):
        assert draw == (6, end)
        end += blocks
    assert len(taken) == workers * draws and g.state_dict()["position"] == end


def test_threads_draw_what_one_thread_would():
    g, results = Generator(6), []

    def work():
        for _ in range(20):
            results.append(wf.rand(8, generator=g).tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    alone = Generator(6)
    assert sorted(results) == sorted(wf.rand(8, generator=alone).tolist() for _ in range(80))


def test_the_end_of_a_stream_is_an_error():
    g = Generator(1)
    g.load_state_dict({"key": 1, "nonce": 0, "position": 2**64 - 2})
    wf.rand(4, generator=g)
    with pytest.raises(errors.ArgumentError, match="fork"):
        wf.rand(4, generator=g)
