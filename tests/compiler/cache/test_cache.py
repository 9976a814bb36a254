"""The cache on disk: whole entries or none, private, safe among processes, limited in size."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weft.compiler.cache import disk as caches
from weft.compiler.cache.disk import Cache
from weft.compiler.cpu.runtime.executable import NativeExecutable
from weft.compiler.native import objects
from weft.compiler.native.machine import Processor, host
from weft.errors import CacheWarning
from weft.graph.graph import Literal

from ..programs import F32, F64, chain

KEY = "0" * 64
DATA = bytes(range(256)) * 40


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "deep" / "objects"


def entry(folder):
    return folder / f"{KEY}.object"


def test_what_is_stored_is_found(folder):
    assert Cache(folder).fetch(KEY) is None
    assert not folder.exists()
    Cache(folder).store(KEY, DATA)
    assert Cache(folder).fetch(KEY) == DATA
    assert Cache(folder).fetch("1" * 64) is None
    assert folder.stat().st_mode & 0o777 == 0o700
    assert entry(folder).stat().st_mode & 0o777 == 0o600
    assert [p.name for p in folder.iterdir()] == [entry(folder).name]


def test_an_empty_entry_and_a_second_one_under_the_same_key(folder):
    cache = Cache(folder)
    cache.store(KEY, b"")
    assert cache.fetch(KEY) == b""
    cache.store(KEY, DATA)
    assert cache.fetch(KEY) == DATA


@pytest.mark.parametrize("key", ["", "../x", "a/b", "a.b"])
def test_keys_are_no_paths(folder, key):
    with pytest.raises(ValueError, match="is no key"):
        Cache(folder).store(key, DATA)


def test_every_flipped_bit_is_noticed(folder):
    cache = Cache(folder)
    cache.store(KEY, DATA)
    whole = entry(folder).read_bytes()
    rng = np.random.default_rng(0)
    for at in [0, 31, 32, len(whole) - 1, *rng.integers(0, len(whole), 40)]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        entry(folder).write_bytes(damaged)
        assert cache.fetch(KEY) is None
        assert not entry(folder).exists(), "a damaged entry is thrown away"


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 5000])
def test_a_truncated_entry_is_discarded(folder, size):
    cache = Cache(folder)
    cache.store(KEY, DATA)
    whole = entry(folder).read_bytes()
    entry(folder).write_bytes(whole[:size])
    assert cache.fetch(KEY) is None and not entry(folder).exists()
    entry(folder).write_bytes(whole + b"more")
    assert cache.fetch(KEY) is None


# -- directories that will not do ----------------------------------------------------------------


def refused(folder, match):
    """Both ways say why once, and go on without."""
    with pytest.warns(CacheWarning, match=match):
        cache = Cache(folder)
        cache.store(KEY, DATA)
        assert cache.fetch(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.store(KEY, DATA)
        assert cache.fetch(KEY) is None


def test_a_directory_that_others_may_use(folder):
    folder.mkdir(parents=True)
    for mode in (0o770, 0o707, 0o755, 0o701):
        folder.chmod(mode)
        refused(folder, "others may use it: chmod 700")
    folder.chmod(0o700)
    Cache(folder).store(KEY, DATA)
    folder.chmod(0o777)
    with pytest.warns(CacheWarning, match="others may use it"):
        assert Cache(folder).fetch(KEY) is None


def test_a_directory_of_another_user(folder, monkeypatch):
    Cache(folder).store(KEY, DATA)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    refused(folder, "it belongs to another user")


def test_an_entry_of_another_user(folder, monkeypatch):
    Cache(folder).store(KEY, DATA)
    found = os.stat_result((0o100600, 0, 0, 0, os.geteuid() + 1, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "fstat", lambda handle: found)
    assert Cache(folder).fetch(KEY) is None


def test_a_file_in_its_place(folder):
    folder.parent.mkdir()
    folder.write_bytes(b"")
    refused(folder, "File exists")
    refused(folder / "below", "Not a directory")


def test_a_directory_that_cannot_be_written(folder, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caches.tempfile, "mkstemp", full)
    refused(folder, "No space left on device")


def test_an_entry_that_is_a_link_is_not_followed(folder, tmp_path):
    cache = Cache(folder)
    cache.store(KEY, DATA)
    elsewhere = tmp_path / "elsewhere"
    entry(folder).rename(elsewhere)
    entry(folder).symlink_to(elsewhere)
    with pytest.warns(CacheWarning):
        assert cache.fetch(KEY) is None


def test_without_a_directory_nothing_is_kept():
    cache = Cache(None)
    cache.store(KEY, DATA)
    assert cache.fetch(KEY) is None


def test_the_environment_names_the_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "a"))
    assert caches.cache().folder == tmp_path / "a"
    assert caches.cache() is caches.cache()
    monkeypatch.setenv("WEFT_CACHE_DIR", "")
    assert caches.cache().folder is None
    monkeypatch.delenv("WEFT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert caches.cache().folder == tmp_path / "b" / "weft" / "objects"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "c"))
    assert caches.cache().folder == tmp_path / "c" / ".cache" / "weft" / "objects"


# -- size ----------------------------------------------------------------------------------------


def keys(folder) -> set[str]:
    return {p.stem for p in folder.iterdir()}


def test_the_oldest_entries_go_first(folder):
    cache = Cache(folder, limit=10_000)
    now = time.time()
    for i in range(9):
        cache.store(f"k{i}", bytes(1000))
        os.utime(folder / f"k{i}.object", (now - 100 + i, now - 100 + i))
    assert len(keys(folder)) == 9
    assert cache.fetch("k0") is not None  # used now: the youngest
    for key in ("k9", "k10"):  # entries are counted whenever an eighth of the limit has come
        cache.store(key, bytes(1000))
    left = keys(folder)
    assert {"k0", "k10", "k9", "k8"} <= left and not {"k1", "k2"} & left
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 10_000 * (0.75 + 0.125)


def test_what_was_given_up_is_cleared_away(folder):
    cache = Cache(folder, limit=10_000)
    cache.store("k0", bytes(1000))
    old, fresh = folder / "old.part", folder / "fresh.part"
    for path in (old, fresh, folder / "other.txt"):
        path.write_bytes(bytes(10))
        path.chmod(0o600)
    os.utime(old, (1, 1))
    os.utime(folder / "other.txt", (1, 1))
    for i in range(3):
        cache.store(f"k{i}", bytes(1000))
    assert not old.exists() and fresh.exists() and (folder / "other.txt").exists()


# -- processes -----------------------------------------------------------------------------------

WRITER = """
import os, sys
from pathlib import Path
from weft.compiler.cache.disk import Cache
cache = Cache(Path(sys.argv[1]), limit=int(sys.argv[2]))
print("ready", flush=True)
turn = 0
while True:
    for i in range(20):
        data = bytes([(i * 7 + turn) % 256]) * (20_000 + 1000 * i)
        cache.store(f"k{i}", data)
        found = cache.fetch(f"k{(i * 3) % 20}")
        assert found is None or found == found[:1] * len(found)
    turn += 1
"""


def writer(folder, limit):
    command = [sys.executable, "-W", "error", "-c", WRITER, str(folder), str(limit)]
    made = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert made.stdout is not None and made.stdout.readline() == "ready\n"
    return made


def whole(folder) -> int:
    """How many entries there are; each of them is whole."""
    cache, found = Cache(folder), 0
    for i in range(20):
        data = cache.fetch(f"k{i}")
        if data is not None:
            assert data == data[:1] * (20_000 + 1000 * i)
            found += 1
    return found


def test_killed_writers_leave_whole_entries(folder):
    kills = 40 if os.environ.get("WEFT_SOAK") else 4
    for _ in range(kills):
        process = writer(folder, 1 << 30)
        time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        before = len(list(folder.glob("*.object")))
        assert whole(folder) == before > 0


@pytest.mark.parametrize("limit", [1 << 30, 200_000])
def test_many_processes_at_once(folder, limit):
    """Also while they throw each other's entries away."""
    processes = [writer(folder, limit) for _ in range(3)]
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        whole(folder)
    for process in processes:
        process.terminate()
        assert process.communicate()[1] == ""
        assert process.returncode == -signal.SIGTERM
    assert whole(folder) > 0
    Cache(folder, limit=200_000).store("last", bytes(10))
    total = sum(p.stat().st_size for p in folder.glob("*.object"))
    assert total <= 200_000


def test_many_threads_at_once(folder):
    cache = Cache(folder, limit=100_000)

    def turn(i: int) -> bool:
        data = bytes([i % 256]) * 9000
        cache.store(f"k{i % 7}", data)
        found = cache.fetch(f"k{i % 5}")
        return found is None or found == found[:1] * 9000

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(turn, range(300)))


# -- programs ------------------------------------------------------------------------------------


def test_keys_tell_programs_and_machines_apart():
    a, b = chain(10, "exp").steps[0].kernel, chain(11, "exp").steps[0].kernel
    other = Processor(host().cpu, "")
    found = {
        objects.digest("kernels", ((a, ()),)),
        objects.digest("kernels", ((b, ()),)),
        objects.digest("kernels", ((a, ((0, 10), (0, 10))),)),
        objects.digest("kernels", ((a, ()), (b, ()))),
        objects.digest("driver", ((a, ()),)),
        objects.digest("kernels", ((a, ()),), other),
        objects.digest("kernels", ((a, ()),), Processor("generic", host().features)),
    }
    assert len(found) == 7


@pytest.mark.parametrize(
    ("a", "b"),
    [(1, 1.0), (1, True), (0.0, -0.0), (F32, F64), ((1, 2), ((1,), 2)), ("1", 1), (None, "None")],
)
def test_different_literals_have_different_keys(a, b):
    assert objects.digest("x", (Literal(a),)) != objects.digest("x", (Literal(b),))
    assert objects.digest("x", (Literal(a),)) == objects.digest("x", (Literal(a),))


def test_what_has_no_text_of_its_own_is_refused():
    with pytest.raises(TypeError, match="a object in a program"):
        objects.digest("x", (object(),))


PROGRAM = """
import sys
import numpy as np
from tests.compiler.programs import chain
import weft.compiler.native.machine as target
from weft.compiler.cpu.runtime.executable import NativeExecutable
if sys.argv[1] == "warm":
    def refuse(*args):
        raise AssertionError("LLVM was called")
    target._optimised = refuse
run = NativeExecutable(chain(50, "tanh", "gammaln", "exp"))
assert run.code.from_disk == (sys.argv[1] == "warm")
print(run([np.linspace(1, 2, 50).astype(np.float32)])[0].tobytes().hex())
"""


def started(how: str, folder) -> str:
    env = {**os.environ, "WEFT_CACHE_DIR": str(folder)}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM), how]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_second_process_does_not_call_llvm(folder):
    first = started("cold", folder)
    assert started("warm", folder) == first


def test_damaged_entries_are_made_anew(folder):
    first = started("cold", folder)
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
    assert started("cold", folder) == first
    assert started("warm", folder) == first


def test_a_cache_that_will_not_do_changes_nothing_else(monkeypatch, folder):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(folder))
    x = np.linspace(0, 1, 33).astype(F32)
    with pytest.warns(CacheWarning):
        (y,) = NativeExecutable(chain(33, "exp"))([x])
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)
    assert not list(folder.iterdir())
