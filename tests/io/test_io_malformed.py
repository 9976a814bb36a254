"""Files that somebody has made wrong give a clean error, and no more memory than their size."""

import json
import os
import random
import tracemalloc
from hashlib import sha256

import numpy as np
import pytest
import safetensors
from alike import raw, same

import weft as wf
from weft import errors
from weft.io import manifest

FILES = 10_000 if os.environ.get("WEFT_SOAK") else 300
MEMORY = 1 << 20  # bytes that a reader may take beside a multiple of the file's size
VALUES = (
    *(-1, 0, 1, 2**31, 2**63, 2**64, 10**40, 1.5, -0.0, 1e300, True, None, "", "F32", "a\x00"),
    *([], {}, [[]], [1, 2], {"a": 1}, "../x", "/etc/passwd", "\ud800", [True, True], "x" * 2000),
)


def table_and_data(rng: random.Random) -> tuple[dict, bytes]:
    """A valid header and its data."""
    table: dict = {"__metadata__": {"a": "b"}} if rng.random() < 0.5 else {}
    at = rng.choice([0, 300])
    table["bytes"] = {"dtype": "U8", "shape": [at], "data_offsets": [0, at]}
    for i in range(rng.randint(1, 4)):
        shape = [rng.randint(0, 3) for _ in range(rng.randint(0, 3))]
        dtype, size = rng.choice([("F32", 4), ("BF16", 2), ("I64", 8), ("U8", 1), ("F64", 8)])
        end = at + int(np.prod(shape)) * size
        table[f"t{i}"] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    return table, rng.randbytes(at)


def packed(table, data: bytes) -> bytes:
    text = table if isinstance(table, bytes) else json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


def tensors_of(table: dict) -> list[str]:
    return [n for n in table if n != "__metadata__"]


# Each of these makes a file wrong for certain.


def truncated(rng, table, data):
    whole = packed(table, data)
    return whole[: rng.randrange(len(whole))]


def longer(rng, table, data):
    return packed(table, data) + rng.randbytes(rng.randint(1, 20))


def wrong_length(rng, table, data):
    whole = packed(table, data)
    n = int.from_bytes(whole[:8], "little")
    other = rng.choice([0, 1, n - 1, n + 1, len(whole), 2**31, 2**63, 2**64 - 1, 100_000_001])
    return other.to_bytes(8, "little") + whole[8:]


def twice(rng, table, data):
    name = rng.choice(tensors_of(table))
    text = json.dumps(table)[:-1] + f', "{name}": {json.dumps(table[name])}}}'
    return packed(text.encode(), data)


def twice_inside(rng, table, data):
    text = json.dumps(table).replace('"dtype": ', '"shape": [], "dtype": ', 1)
    return packed(text.encode(), data)


def moved(rng, table, data):
    entry = table[rng.choice(tensors_of(table))]
    shift = rng.choice([-1, 1, 7, 2**40, 2**63])
    entry["data_offsets"] = [n + shift for n in entry["data_offsets"]]
    return packed(table, data)


def resized(rng, table, data):
    entry = table[rng.choice(tensors_of(table))]
    entry["data_offsets"][rng.randint(0, 1)] += rng.choice([-1, 1, 2**40, 2**62])
    return packed(table, data)


def overlapping(rng, table, data):
    for name in ("again", "and again"):
        shape = [len(data) + 1]
        table[name] = {"dtype": "U8", "shape": shape, "data_offsets": [0, *shape]}
    return packed(table, data + b"!")


def gap(rng, table, data):
    table["far"] = {"dtype": "U8", "shape": [1], "data_offsets": [len(data) + 5, len(data) + 6]}
    return packed(table, data + b"!" * 6)


def enormous(rng, table, data):
    shape = rng.choice([[2**62], [2**40, 2**40], [2**32] * 9, [0, 2**62, 2**62], [0] * 65])
    table["big"] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data)] * 2}
    if rng.random() < 0.5:
        table["big"]["data_offsets"] = [
            len(data),
            len(data) + 4 * int(np.prod(shape, dtype=object)),
        ]
    if shape[0] == 0 and len(shape) < 65 and table["big"]["data_offsets"][1] == len(data):
        table["big"]["shape"] = [2**70, 0]
    return packed(table, data)


def other_dtype(rng, table, data):
    name = rng.choice(["F8_E4M3", "f32", "C128", "", "X", None, 1, ["F32"], "F128", "F4"])
    table[rng.choice(tensors_of(table))]["dtype"] = name
    return packed(table, data)


def other_keys(rng, table, data):
    entry = table[rng.choice(tensors_of(table))]
    if rng.random() < 0.5:
        entry["more"] = 1
    else:
        del entry[rng.choice(list(entry))]
    return packed(table, data)


def bad_metadata(rng, table, data):
    table["__metadata__"] = rng.choice([1, None, [], "a", {"a": 1}, {"a": None}, {"a": {"b": "c"}}])
    return packed(table, data)


def bad_complex(rng, table, data):
    bad = rng.choice(['["missing"]', "{}", "[1]", "NaN", "[", "\ud800", '["t0", "t0"', "1"])
    table["__metadata__"] = {"weft.complex": bad}
    return packed(table, data)


def bad_name(rng, table, data):
    name = rng.choice(["", "a\x00", "line\nline", "\x7f", "\ud800", "\u2028", "x" * 1001])
    table[name] = {"dtype": "F32", "shape": [0], "data_offsets": [len(data)] * 2}
    return packed(table, data)


def deep(rng, table, data):
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}")])
    n = rng.choice([200, 5000, 100_000])
    inside = opening * n + b"1" + closing * (n if rng.random() < 0.5 else 0)
    return packed(b'{"t":' + inside + b"}", data)


def not_json(rng, table, data):
    text = json.dumps(table).encode()
    wrong = [
        text[1:],
        b" " + text,
        b"\xef\xbb\xbf" + text,
        text + b"\x00",
        text + b"{}",
        b"",
        b"null",
    ]
    wrong += [
        text.decode().encode("utf-16"),
        text.replace(b"t0", b"\xff"),
        text.replace(b":", b"="),
    ]
    wrong += [b'{"t":NaN}', b'{"t":Infinity}', b'{"t":1e999}', b'{"t":' + b"9" * 5000 + b"}"]
    return packed(rng.choice(wrong), data)


def bad_booleans(rng, table, data):
    end = len(data) + 3
    table["flags"] = {"dtype": "BOOL", "shape": [3], "data_offsets": [len(data), end]}
    return packed(table, data + bytes([0, 1, rng.randint(2, 255)]))


WRONG = (
    *(truncated, longer, wrong_length, twice, twice_inside, moved, resized, overlapping, gap),
    *(enormous, other_dtype, other_keys, bad_metadata, bad_complex, bad_name, deep, not_json),
    *(bad_booleans,),
)


def refused(load, size: int) -> None:
    """The load must fail with our error, and without much memory."""
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    with pytest.raises(errors.CheckpointError) as caught:
        load()
    assert tracemalloc.get_traced_memory()[1] - before < MEMORY + 50 * size
    assert len(str(caught.value)) < 1500 and str(caught.value).isprintable()


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("wrong", WRONG, ids=lambda f: f.__name__)
def test_wrong_safetensors_files(tmp_path, traced, wrong):
    path, rng = tmp_path / "file", random.Random(wrong.__name__)
    for _ in range(max(FILES // (3 * len(WRONG)), 6)):
        content = wrong(rng, *table_and_data(rng))
        path.write_bytes(content)
        refused(lambda: wf.io.load_safetensors(path), len(content))
        if wrong not in (bad_complex, bad_booleans):
            with pytest.raises(errors.CheckpointError):
                wf.io.read_header(path)


def scrambled(rng: random.Random, content: bytes) -> bytes:
    """A few random changes of bytes."""
    out = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(out) + 1)
        what = rng.randrange(4)
        if what == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            out[at:at] = rng.choice([b"0", b"9", b'"', b"[", b"}", b"\x00", b"\xff", b",", b" "])
        elif what == 2:
            del out[at : at + rng.randint(1, 9)]
        else:
            source = rng.randrange(len(out) + 1)
            out[at : at + 8] = out[source : source + 8]
    return bytes(out)


def test_scrambled_safetensors_files(tmp_path, traced):
    path, rng, accepted = tmp_path / "file", random.Random(0), 0
    for _ in range(FILES // 3):
        content = scrambled(rng, packed(*table_and_data(rng)))
        path.write_bytes(content)
        try:
            loaded = wf.io.load_safetensors(path)
        except errors.CheckpointError:
            continue
        # Changed data, or names: then the reference reader takes it too, and reads the same.
        accepted += 1
        theirs = dict(safetensors.deserialize(content))
        assert set(theirs) == set(loaded)
        for name, entry in theirs.items():
            assert tuple(entry["shape"]) == loaded[name].shape
            assert bytes(entry["data"]) == raw(loaded[name]).tobytes()
    assert 0 < accepted < FILES // 6


def sealed(table: dict) -> bytes:
    """A manifest with the right digest, whatever it says."""
    body = b'",' + json.dumps(table).encode()[1:]
    return b'{"sha256":"' + sha256(body).hexdigest().encode() + body


def places(value, path=()):
    """All paths into a tree of dicts and lists."""
    yield path
    if isinstance(value, dict | list):
        for key, v in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(v, (*path, key))


def replaced(value, path, new):
    """A copy of the tree with something else at the path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


EXTRA = {"x": wf.ones(2), "n": [1, (2.0, float("nan"))], "c": 1j, 5: np.float32(1.0)}


@pytest.fixture
def checkpoint(tmp_path):
    path = wf.save_checkpoint(tmp_path, wf.Checkpoint({"w": wf.ones(3)}, extra=EXTRA), step=1)
    table = json.loads((path / "manifest.json").read_bytes())
    del table["sha256"]
    return path, table


def test_wrong_manifests_with_a_right_digest(checkpoint, traced):
    path, table = checkpoint
    rng, accepted = random.Random(1), 0
    where = [p for p in places(table) if p]
    for _ in range(FILES // 3):
        spot = rng.choice(where)
        content = sealed(replaced(table, spot, rng.choice(VALUES)))
        (path / "manifest.json").write_bytes(content)
        try:
            wf.load_checkpoint(path)
        except errors.CheckpointError as e:
            assert len(str(e)) < 1500
        else:  # a number or a string of the tree may be another
            accepted += 1
            assert spot[0] in ("trees", "step")
    assert accepted < FILES // 6


FILE = {"name": "extra.safetensors", "size": 80, "sha256": "0" * 64}
TRICKS = {
    "parent": {"name": "../extra.safetensors"},
    "absolute": {"name": "/tmp/extra.safetensors"},
    "backslash": {"name": "..\\extra.safetensors"},
    "drive": {"name": "c:extra.safetensors"},
    "nul": {"name": "extra.safetensors\x00"},
    "line": {"name": "extra.safetensors\n"},
    "itself": {"name": "manifest.json"},
    "upper case digest": {"sha256": "A" * 64},
    "short digest": {"sha256": "0" * 63},
    "negative size": {"size": -1},
    "boolean size": {"size": True},
    "float size": {"size": 80.0},
    "huge size": {"size": 2**63},
    "more": {"mode": "w"},
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_with_files_in_the_manifest(checkpoint, trick):
    table = checkpoint[1]
    table["files"]["extra"] = FILE | TRICKS[trick]
    with pytest.raises(errors.CheckpointError, match=r"^manifest\.json: "):
        manifest.decode(sealed(table), "manifest.json")


def test_other_tricks_with_the_manifest(checkpoint):
    path, table = checkpoint
    fields = {"format": "weft-checkpoint/2", "trees": {"extra": None}, "more": 1, "step": 2}
    for name, value in fields.items():
        (path / "manifest.json").write_bytes(sealed(table | {name: value}))
        with pytest.raises(errors.CheckpointError, match=r"format|belongs to|exactly|of step 2"):
            wf.load_checkpoint(path)
    both = table["files"] | {"extra": table["files"]["model_state"]}
    (path / "manifest.json").write_bytes(sealed(table | {"files": both}))
    with pytest.raises(errors.CheckpointError, match="two trees in one file"):
        wf.load_checkpoint(path)
    (path / "manifest.json").write_bytes(b" " * (manifest.LONGEST + 1))
    with pytest.raises(errors.CheckpointError, match="expected at most"):
        wf.load_checkpoint(path)


TREES = {
    "missing tensor": {"$tensor": "y"},
    "no name": {"$tensor": 1},
    "twice": [{"$tensor": "x"}, {"$tensor": "x"}],
    "unused": None,
    "unknown tag": [{"$tensor": "x"}, {"$import": "os"}],
    "tag among keys": {"$tensor": "x", "y": 1},
    "float": [{"$tensor": "x"}, {"$float": "7ff8"}],
    "float of a number": [{"$tensor": "x"}, {"$float": 1.0}],
    "complex": [{"$tensor": "x"}, {"$complex": ["7ff8000000000000"]}],
    "tuple": {"$tuple": {"$tensor": "x"}},
    "items": {"$items": [[0, {"$tensor": "x"}], [0, 1]]},
    "items without pairs": [{"$tensor": "x"}, {"$items": [[1, 2, 3]]}],
    "items with float keys": [{"$tensor": "x"}, {"$items": [[1.5, 2]]}],
    "items with list keys": [{"$tensor": "x"}, {"$items": [[[], 2]]}],
    "scalar with axes": {"$scalar": "x"},
}


@pytest.mark.parametrize("case", TREES)
def test_wrong_trees(tmp_path, case):
    path = wf.save_checkpoint(tmp_path, wf.Checkpoint(extra={"x": wf.ones(2)}), step=1)
    table = json.loads((path / "manifest.json").read_bytes())
    del table["sha256"]
    table["trees"]["extra"] = TREES[case]
    (path / "manifest.json").write_bytes(sealed(table))
    with pytest.raises(errors.CheckpointError, match=r"its tree (names|holds|does not)"):
        wf.load_checkpoint(path)
    table["trees"]["extra"] = {"$tuple": [{"$tensor": "x"}]}
    (path / "manifest.json").write_bytes(sealed(table))
    assert same(wf.load_checkpoint(path).extra, (wf.ones(2),))


class Keeper:
    def state_dict(self):
        return {"m": wf.tensor([1.0, 2.0]), "groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]}

    def load_state_dict(self, state):
        self.state = state


def test_scrambled_optimizers(tmp_path, traced):
    path, rng = tmp_path / "optimizer", random.Random(2)
    wf.save_optimizer(path, Keeper())
    whole = path.read_bytes()
    for _ in range(FILES // 10):
        content = scrambled(rng, whole)
        if content != whole:
            path.write_bytes(content)
            refused(lambda: wf.load_optimizer(path, Keeper()), len(content))


def test_sparse_files_take_no_memory(tmp_path, traced):
    """A file may claim a length that the disk does not hold."""
    path = tmp_path / "file"
    content = packed({"t": {"dtype": "U8", "shape": [2**40], "data_offsets": [0, 2**40]}}, b"")
    path.write_bytes(content)
    os.truncate(path, len(content) + 2**40 - 1)  # one byte less than it claims
    refused(lambda: wf.io.load_safetensors(path), len(content))
