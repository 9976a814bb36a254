"""`wf.compile` beside a cache that is shared, damaged, unwritable or of another machine."""

import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.errors import CacheWarning

PROGRAM = """
import sys
import numpy as np
import weft as wf
from weft.compiler.native import machine as target
if "elsewhere" in sys.argv:  # a processor with other features
    found = target.host()
    other = target.Processor(found.cpu, found.features + ",-fma4")
    for module in list(sys.modules.values()):
        if getattr(module, "host", None) is target.host and module is not target:
            module.host = lambda: other
    target.host = lambda: other
rng = np.random.default_rng(0)
w = wf.Parameter(rng.standard_normal((8, 4)))
optimizer = wf.optim.AdamW([w], lr=0.1)
@wf.compile
def step(x, y):
    optimizer.zero_grad()
    loss = wf.nn.functional.cross_entropy(wf.tanh(x) @ w, y)
    loss.backward()
    optimizer.step()
    return loss
x, y = wf.tensor(rng.standard_normal((6, 8))), wf.tensor(rng.integers(0, 4, 6))
for _ in range(3):
    loss = step(x, y)
print("disk" if step._last().executable.code.from_disk else "made")
print(loss.detach().numpy().tobytes().hex(), w.detach().numpy().tobytes().hex())
"""


def begin(folder, *how: str) -> subprocess.Popen:
    env = {**os.environ, "WEFT_CACHE_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), *how]
    return subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen, quiet: bool = True) -> tuple[str, str]:
    """Whether the code came from the disk, and what was computed."""
    out, told = process.communicate(timeout=200)
    assert process.returncode == 0, told
    assert not (quiet and told), told
    kind, numbers = out.splitlines()
    return kind, numbers


def test_processes_that_start_at_once_and_one_after_them(tmp_path):
    folder = tmp_path / "cache"
    found = [end(p) for p in [begin(folder) for _ in range(2)]]
    assert len({numbers for _, numbers in found}) == 1
    assert end(begin(folder)) == ("disk", found[0][1])
    assert end(begin(folder, "elsewhere"))[0] == "made"


@pytest.mark.parametrize("harm", ["cut", "swapped"])  # more in test_cache
def test_damaged_entries(tmp_path, harm):
    folder = tmp_path / "cache"
    _, numbers = end(begin(folder))
    entries = sorted(p for p in folder.iterdir() if p.is_file())
    assert entries
    contents = [p.read_bytes() for p in entries]
    for k, (path, data) in enumerate(zip(entries, contents, strict=True)):
        path.write_bytes(harmed(harm, data, contents[k - 1]))
    # An entry under another key is whole, and of another program: its key must be part of it.
    assert end(begin(folder)) == ("made", numbers)


def harmed(how: str, data: bytes, other: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] if how == "cut" else other


def test_a_directory_that_cannot_be_made(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("WEFT_CACHE_DIR", str(blocked / "cache"))
    x = wf.tensor(np.arange(7.0))
    with pytest.warns(CacheWarning):
        found = wf.compile(lambda x: wf.sin(x) * 3.25)(x)
    np.testing.assert_allclose(found.numpy(), 3.25 * np.sin(np.arange(7.0)), rtol=1e-12)


def test_no_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", "")
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert wf.compile(lambda x: x * 2.125)(wf.ones(3)).tolist() == [2.125] * 3
    assert not list(Path(tmp_path).iterdir())
