"""Tensors of a file read one at a time: the same bytes, and no more memory than they take."""

import random
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import weft as wf

DTYPES = ["float16", "float32", "float64", "int8", "uint16", "int64", "bool", "bfloat16"]


def arrays(seed):
    r, n = random.Random(seed), np.random.default_rng(seed)
    made = {}
    for k in range(r.randint(1, 8)):
        shape = tuple(r.randint(0, 5) for _ in range(r.randint(0, 3)))
        dtype = r.choice(DTYPES)
        dtype = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
        made[f"x{k}"] = np.asarray(10 * n.standard_normal(shape)).astype(dtype)
    return made


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("seed", range(8))
def test_tensors_and_rows_are_those_of_the_file(tmp_path, seed, device):
    made = arrays(seed)
    if seed % 2:
        save_file({n: x for n, x in made.items() if x.dtype != ml_dtypes.bfloat16}, tmp_path / "a")
    else:
        wf.io.save_safetensors(tmp_path / "a", {n: wf.asarray(x) for n, x in made.items()})
    r = random.Random(seed)
    with wf.io.open_safetensors(tmp_path / "a") as file:
        names = list(file.header.entries)
        r.shuffle(names)
        for name in names:
            x = made[name]
            if device == "torch" and x.dtype == np.uint16:
                continue
            found = file.read(name, device=device).to("cpu").numpy()
            assert found.dtype == x.dtype and np.array_equal(found, x) and found.shape == x.shape
            if x.ndim:
                begin = r.randint(0, len(x))
                end = r.randint(begin, len(x))
                part = file.read(name, (begin, end), device=device).to("cpu").numpy()
                assert part.shape == x[begin:end].shape and np.array_equal(part, x[begin:end])


def test_only_what_is_read_takes_memory(tmp_path):
    big = {f"x{k}": wf.ones((1000, 250)) for k in range(20)}
    wf.io.save_safetensors(tmp_path / "a", big)
    del big
    tracemalloc.start()
    with wf.io.open_safetensors(tmp_path / "a") as file:
        for k in range(20):
            file.read(f"x{k}")
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2.2e6


def test_what_cannot_be_read_is_said(tmp_path):
    made = {"x": wf.ones((2, 3)), "z": wf.ones(2, dtype="complex64"), "s": wf.tensor(1.0)}
    wf.io.save_safetensors(tmp_path / "a", made)
    with wf.io.open_safetensors(tmp_path / "a") as file:
        for name, rows in (
            ("y", None),
            ("z", None),
            ("x", (1, 3)),
            ("x", (2, 1)),
            ("x", (-1, 1)),
            ("s", (0, 1)),
        ):
            with pytest.raises(wf.errors.ArgumentError):
                file.read(name, rows)
        with open(tmp_path / "a", "r+b") as other:
            other.truncate((tmp_path / "a").stat().st_size - 30)
        with pytest.raises(wf.errors.CheckpointError, match="ended while"):
            for name in ("x", "s"):
                file.read(name)
    for path in (tmp_path / "absent", tmp_path, "/dev/null"):
        with pytest.raises(wf.errors.CheckpointError, match="cannot be read"):
            wf.io.open_safetensors(path)
    (tmp_path / "b").write_bytes(b"x" * 50)
    with pytest.raises(wf.errors.CheckpointError):
        wf.io.open_safetensors(tmp_path / "b")
