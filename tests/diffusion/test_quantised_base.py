"""Transformers in 8 bits: near to the exact one, kept on disk, and never from a stale file."""

import errno
import os
import random

import numpy as np
import pytest

import weft as wf
from weft.diffusion import digests
from weft.io import disk

from .beside_diffusers import random_config, random_inputs

Flux = wf.diffusion.Flux
FIXED = {"attention_head_dim": 16, "axes_dims_rope": (4, 4, 8), "patch_size": 1}
CONFIG = random_config(1, **FIXED, num_layers=1, num_single_layers=1)


@pytest.fixture
def saved(tmp_path):
    wf.random.seed(0)
    Flux(CONFIG).save(tmp_path / "m")
    return tmp_path / "m"


def state(model):
    return {n: x.to("cpu").numpy() for n, x in model.state_dict().items()}


def same(a, b):
    a, b = state(a), state(b)
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and np.array_equal(a[n], b[n]) for n in a
    )


def entries(folder):
    return sorted(folder.glob("*.safetensors"))


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_all_linear_layers_of_blocks_are_in_8_bits(saved, dtype, device):
    model = Flux.load(saved, dtype, device, quantise="int8")
    exact = Flux.load(saved, dtype, device)
    for name, layer in exact.named_modules():
        if type(layer) is wf.nn.Linear:
            kind = wf.nn.Linear8bit if "blocks." in name else wf.nn.Linear
            assert type(model.get_submodule(name)) is kind
    given = {n: wf.asarray(x).to(device) for n, x in random_inputs(CONFIG, 0).items()}
    for name in ("hidden_states", "encoder_hidden_states", "pooled_projections"):
        given[name] = given[name].to(dtype)
    right, found = (m(**given).detach().to("cpu").to("float32").numpy() for m in (exact, model))
    # Errors of 0.4 % of the largest weight of a block average out.
    assert 0 < np.linalg.norm(found - right) <= 0.02 * np.linalg.norm(right)


def test_weights_are_kept_and_found_again(saved, tmp_path):
    cache = tmp_path / "kept" / "here"
    first = Flux.load(saved, quantise="int8", cache_dir=cache)
    (entry,) = entries(cache)
    before = entry.stat().st_mtime_ns
    assert same(first, Flux.load(saved, quantise="int8"))
    second = Flux.load(saved, quantise="int8", cache_dir=cache)
    assert same(first, second) and entry.stat().st_mtime_ns == before
    assert same(first, Flux.load(saved, quantise="int8", device="torch", cache_dir=cache))
    assert [p.requires_grad for p in first.parameters()] == [
        p.requires_grad for p in second.parameters()
    ]
    third = Flux.load(saved, "bfloat16", quantise="int8", cache_dir=cache)
    assert len(entries(cache)) == 2 and third.proj_out.weight.dtype == wf.bfloat16


def test_sources_are_read_once(saved, tmp_path, monkeypatch):
    read = []
    right = digests.content_digest
    monkeypatch.setattr(digests, "content_digest", lambda p: read.append(p) or right(p))
    monkeypatch.setattr(digests, "_SETTLED_NS", 0)
    for _ in range(3):
        Flux.load(saved, quantise="int8", cache_dir=tmp_path / "c")
    assert len(read) == 1
    (tmp_path / "c" / "digests.json").write_text("{")
    Flux.load(saved, quantise="int8", cache_dir=tmp_path / "c")
    assert len(read) == 2 and len(entries(tmp_path / "c")) == 1


def test_other_content_is_never_taken_for_what_was_kept(saved, tmp_path, monkeypatch):
    """Also if size and times are the same, of a new file or of the old one written over."""
    monkeypatch.setattr(digests, "_SETTLED_NS", 0)
    cache, file = tmp_path / "c", saved / "diffusion_pytorch_model.safetensors"
    Flux.load(saved, quantise="int8", cache_dir=cache)
    status = file.stat()
    for k in range(3):
        weights = wf.io.load_safetensors(file)
        name = sorted(weights)[k]
        weights[name] = weights[name] + 1.0
        wf.io.save_safetensors(tmp_path / "new", weights)
        if k == 1:
            file.write_bytes((tmp_path / "new").read_bytes())
        else:
            os.replace(tmp_path / "new", file)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
        found = Flux.load(saved, quantise="int8", cache_dir=cache)
        assert same(found, Flux.load(saved, quantise="int8"))
        assert len(entries(cache)) == k + 2


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_entry_is_never_used(saved, tmp_path, seed):
    cache, r = tmp_path / "c", random.Random(seed)
    Flux.load(saved, quantise="int8", cache_dir=cache)
    (entry,) = entries(cache)
    data = bytearray(entry.read_bytes())
    if seed % 3 == 0:
        data = data[: r.randrange(len(data))]
    elif seed % 3 == 1:
        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    else:
        data[-r.randrange(1, 5000)] ^= 1
    entry.write_bytes(data)
    with pytest.warns(wf.errors.CacheWarning, match="quantised again"):
        found = Flux.load(saved, quantise="int8", cache_dir=cache)
    assert same(found, Flux.load(saved, quantise="int8"))
    assert same(found, Flux.load(saved, quantise="int8", cache_dir=cache))


def test_a_full_disk_costs_nothing_but_the_entry(saved, tmp_path, monkeypatch):
    cache, right = tmp_path / "c", disk.write

    def full(fd, data):
        if len(data) > 1000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return right(fd, data)

    monkeypatch.setattr(disk, "write", full)
    with pytest.warns(wf.errors.CacheWarning, match="No space"):
        found = Flux.load(saved, quantise="int8", cache_dir=cache)
    assert same(found, Flux.load(saved, quantise="int8"))
    assert not entries(cache) and not list(cache.glob(".weft*"))


def test_a_compiled_step_gives_what_an_eager_one_does(saved):
    model = Flux.load(saved, quantise="int8")
    given = {n: wf.asarray(x) for n, x in random_inputs(CONFIG, 0).items()}
    image = given.pop("hidden_states")

    def step(model, image):
        return wf.value_and_grad(lambda x: (model(x, **given) ** 2).mean())(image)

    for a, b in zip(wf.compile(step)(model, image), step(model, image), strict=True):
        a, b = a.detach().numpy(), b.detach().numpy()
        assert np.abs(a - b).max() <= 1e-5 * np.abs(b).max()


def test_it_is_not_saved_as_something_else(saved, tmp_path):
    model = Flux.load(saved, quantise="int8")
    with pytest.raises(wf.errors.ArgumentError, match="8 bits"):
        model.save(tmp_path / "b")


def test_what_killed_writers_have_left_is_removed(saved, tmp_path):
    cache = tmp_path / "c"
    cache.mkdir()
    (cache / f".weft-{'0' * 16}.tmp").write_bytes(b"half")
    Flux.load(saved, quantise="int8", cache_dir=cache)
    assert len(entries(cache)) == 1 and not list(cache.glob(".weft*"))


def test_one_process_keeps_weights_at_a_time(saved, tmp_path):
    cache = tmp_path / "c"
    cache.mkdir()
    begun, ended = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with wf.io.locked(cache):
            os.write(begun[1], b"1")
            os.read(ended[0], 1)
        os._exit(0)
    os.read(begun[0], 1)
    try:
        with pytest.warns(wf.errors.CacheWarning, match=rf"cannot be kept.*process {pid}"):
            found = Flux.load(saved, quantise="int8", cache_dir=cache)
    finally:
        os.write(ended[1], b"1")
        os.waitpid(pid, 0)
    assert same(found, Flux.load(saved, quantise="int8")) and not entries(cache)
