"""`wf.cuda` with and without a GPU, and arrays on their way to one."""

import subprocess
import sys

import numpy as np
import pytest

import weft as wf
from weft import errors

torch = pytest.importorskip("torch")
namespace = pytest.importorskip("weft.backend.torch.namespace")

ASKING = "memory_allocated max_memory_allocated reset_peak_memory_stats synchronize Event".split()


class FakeCuda:
    """Two GPUs, as PyTorch would show them."""

    Event = type("Event", (), {"__init__": lambda self, enable_timing: None})

    def is_available(self):
        return True

    def device_count(self):
        return 2

    def memory_allocated(self, device):
        return 100 if device is None else device


@pytest.fixture
def without(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_weft_does_not_load_torch():
    code = "import weft, sys; weft.cuda; print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_no_gpu(without):
    assert wf.cuda.is_available() is False and wf.cuda.device_count() == 0


@pytest.mark.parametrize("name", ASKING)
def test_no_gpu_is_an_error_where_one_is_needed(name, without):
    with pytest.raises(errors.DeviceError, match=rf"cuda.{name}: this machine has no CUDA device"):
        getattr(wf.cuda, name)()


@pytest.mark.parametrize("name", ASKING)
def test_no_torch(name, monkeypatch):
    monkeypatch.setattr(wf.cuda, "find_spec", lambda name: None)
    assert not wf.cuda.is_available() and wf.cuda.device_count() == 0
    with pytest.raises(errors.DeviceError, match="pip install"):
        getattr(wf.cuda, name)()


def test_devices_by_name(monkeypatch):
    monkeypatch.setattr(torch, "cuda", FakeCuda())
    found = [wf.cuda.memory_allocated(d) for d in (None, "cuda", "cuda:1", 0)]
    assert found == [100, 100, 1, 0]
    for wrong in ("cuda:2", 5, "cpu", "torch", "cuda:x"):
        with pytest.raises(errors.DeviceError, match=r"2 CUDA device\(s\)"):
            wf.cuda.memory_allocated(wrong)


def test_times_need_timed_events(monkeypatch):
    monkeypatch.setattr(torch, "cuda", FakeCuda())
    with pytest.raises(errors.ArgumentError, match="enable_timing"):
        wf.cuda.Event().elapsed_time(wf.cuda.Event(enable_timing=False))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64", "uint8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5), (2, 3, 4, 5)])
def test_arrays_through_pinned_memory(dtype, shape, monkeypatch):
    taken = []

    def unpinned(shape, dtype):
        taken.append(torch.empty(shape, dtype=dtype))
        return taken[-1]

    monkeypatch.setattr(namespace, "pinned", unpinned)
    values = np.arange(np.prod(shape)).reshape(shape)
    raw = wf.tensor(values).to(dtype)._data
    for given in (raw, raw.T, np.asfortranarray(raw)):
        made = namespace.upload(given, torch.device("cpu"))
        assert made.dtype == namespace.raw_dtype(raw.dtype) and tuple(made.shape) == given.shape
        assert np.array_equal(namespace.to_numpy(made), given)
        if given.size:  # axes lie in their order, so that kernels give the same bits
            assert [n * given.itemsize for n in made.stride()] == list(given.strides)
    assert len(taken) == 3
