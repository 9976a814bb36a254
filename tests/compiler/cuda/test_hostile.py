"""Compiled programs on a GPU, real or emulated, under threads, without memory, on two devices."""

import gc
import re
import sys
from collections.abc import Callable
from contextvars import copy_context
from itertools import pairwise
from threading import Barrier, Thread

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.compiler.cuda.runtime import executable
from weft.compiler.raw.arrays import arrays_on
from weft.nn import functional as F

DEVICES = ["torch", *(["cuda"] if torch.cuda.is_available() else [])]
ALWAYS, NEVER = 0, 1 << 30  # launches up to which programs are not captured
GIB = 1 << 30


@pytest.fixture(params=DEVICES)
def device(request):
    """PyTorch's tensors on an emulated GPU, or on a real one."""
    if request.param == "torch":
        request.getfixturevalue("gpu")
    return request.param


@pytest.fixture(params=[ALWAYS, NEVER], ids=["captured", "launched"])
def way(request, monkeypatch):
    monkeypatch.setattr(executable, "_FEW", request.param)


def in_threads(*works: Callable[[], object]) -> list:
    """What functions return, each in a thread of its own that has done nothing before."""
    found: list = [None] * len(works)

    def work(k: int, f: Callable[[], object]) -> None:
        try:
            found[k] = f()
        except BaseException as e:
            found[k] = e

    threads = [
        Thread(target=copy_context().run, args=(work, k, f), daemon=True)
        for k, f in enumerate(works)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not any([t.is_alive() for t in threads]), "a thread hangs"
    for x in found:
        if isinstance(x, BaseException):
            raise x
    return found


@pytest.fixture
def switching(device, request):
    """Threads take turns after a few instructions, and before launches on the emulated GPU."""
    if device == "torch":
        request.getfixturevalue("gpu").yields = True
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def kernels_only(x):
    return (wf.tanh(x) * wf.exp(-x * x)).sum(1), wf.softmax(x, 1)


def with_libraries(x):
    y = F.gelu(x @ x.swapaxes(0, 1))
    q = y.reshape(1, 2, -1, 4)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True), wf.sort(y, axis=1)


PROGRAMS = {"kernels": kernels_only, "libraries": with_libraries}


def numbers(seed: int, device: str, *shape: int) -> wf.Tensor:
    x = np.random.default_rng(seed).normal(size=shape or (8, 8)).astype(np.float32)
    return wf.tensor(x, device=device)


def host(outputs) -> list[np.ndarray]:
    return [y.to("cpu").numpy().copy() for y in outputs]


def assert_same(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


# -- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("made", ["here", "there"])
def test_a_thread_that_never_used_the_gpu_calls_a_program(made, program, way, device):
    """Made by the main thread and called before, or made by the thread itself."""
    f = PROGRAMS[program]
    compiled, inputs = wf.compile(f), [numbers(seed, device) for seed in range(4)]
    expected = [host(f(x)) for x in inputs]
    if made == "here":
        for x, y in zip(inputs, expected, strict=True):
            assert_same(host(compiled(x)), y)

    def calls():
        return [host(compiled(x)) for x in inputs]

    for _ in range(2):
        (found,) = in_threads(calls)
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_threads_make_and_replay_programs_at_once(shared, way, device, switching):
    """Each its own programs, or all the same ones; they begin each call together."""
    count, rounds = 2, 10
    barrier = Barrier(count)
    common = [wf.compile(lambda x, f=f: f(x)) for f in PROGRAMS.values()]
    inputs = [[numbers(10 * t + k, device) for k in range(rounds)] for t in range(count)]
    expected = [[[host(f(x)) for x in xs] for f in PROGRAMS.values()] for xs in inputs]

    def work(t: int):
        own = common if shared else [wf.compile(lambda x, f=f: f(x)) for f in PROGRAMS.values()]

        def call(f, x):
            barrier.wait(60)
            return host(f(x))

        return [[call(f, x) for x in inputs[t]] for f in own]

    for t, found in enumerate(in_threads(*(lambda t=t: work(t) for t in range(count)))):
        for calls, wanted in zip(found, expected[t], strict=True):
            for a, b in zip(calls, wanted, strict=True):
                assert_same(a, b)


def test_threads_train_beside_each_other(way, device, switching):
    """Steps that write parameters: of each thread its own."""

    def train(seed: int, compile: bool):
        w = wf.Parameter(numbers(seed, device))
        optimizer = wf.optim.AdamW([w], lr=0.01)

        def step(x):
            optimizer.zero_grad()
            loss = (wf.tanh(x @ w) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        run = wf.compile(step) if compile else step
        losses = [run(numbers(seed + k, device)).detach() for k in range(4)]
        return host([*losses, w.detach()])

    found = in_threads(lambda: train(1, True), lambda: train(2, True))
    for k, seed in enumerate((1, 2)):
        assert_same(found[k], train(seed, False))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_cuda_streams_of_threads_wait_for_each_other(way):
    compiled = wf.compile(kernels_only)
    inputs = [numbers(k, "cuda", 512, 512) for k in range(6)]
    expected = [host(kernels_only(x)) for x in inputs]
    torch.cuda.synchronize()

    def calls():
        with torch.cuda.stream(torch.cuda.Stream()):
            return [host(compiled(x)) for x in inputs]

    for found in in_threads(calls, calls):
        for a, b in zip(found, expected, strict=True):
            assert_same(a, b)


# -- memory --------------------------------------------------------------------------------------


def pairs(x):
    """An array of all pairs between a product's operand and its result."""
    return wf.exp(-(x[:, None] * x[None, :])) @ x


@pytest.fixture
def limited(device, monkeypatch):
    """The emulated GPU has 64 MiB; a real one what it has. How long x is for more than it has."""
    if device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
        return int((max(total, 200 * GIB) * 1.1 / 4) ** 0.5)
    arrays, most = arrays_on("torch"), 64 << 20
    empty = arrays.empty

    def allocate(shape, dtype):
        if int(np.prod(shape)) * np.dtype(dtype).itemsize > most:
            raise torch.OutOfMemoryError("emulated")
        return empty(shape, dtype)

    monkeypatch.setattr(arrays, "empty", allocate)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda name: (most, most))
    for name in ("memory_reserved", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda name: 0)
    return 1 << 13


def test_without_memory_the_error_says_how_much_and_the_next_call_works(limited, device):
    compiled = wf.compile(pairs)
    small, large = numbers(0, device, 64), numbers(1, device, limited)
    before = host([compiled(small)])
    for _ in range(2):
        with pytest.raises(errors.BudgetExceeded, match=r"has \d+ MiB free") as refused:
            compiled(large)
        needed = re.search(r"a call needs (\d+) MiB", str(refused.value))
        assert needed is not None
        assert int(needed[1]) >= 4 * limited**2 >> 20
        assert "memory_budget_mb" in str(refused.value)
    if device == "cuda":
        gc.collect()
        assert torch.cuda.memory_allocated() < GIB
    assert_same(host([compiled(small)]), before)
    assert_same(before, host([pairs(small)]))


# -- what a user holds ---------------------------------------------------------------------------


def spans(tensors) -> list[tuple[int, int]]:
    raw = [torch.from_dlpack(t.detach()) for t in tensors]
    return [(r.data_ptr(), r.data_ptr() + r.nbytes) for r in raw]


def several(x, y):
    """Results that are views of one another, an input, and arrays of their own."""
    a = wf.tanh(x @ y)
    return a, a[2:5], a.swapaxes(0, 1), x, wf.exp(a).sum(0), wf.sort(y, axis=0)


def test_results_are_nobody_elses(way, device):
    """Results of earlier calls stay, whatever later calls do and users write into them."""
    compiled = wf.compile(several)
    held, copies = [], []
    for k in range(6):
        x, y = numbers(2 * k, device), numbers(2 * k + 1, device)
        outputs = compiled(x, y)
        assert_same(host(outputs), host(several(x, y)))
        held.append((x, y, *outputs))
        copies.append(host(held[-1]))
    for tensors, arrays in zip(held, copies, strict=True):
        for a, b in zip(host(tensors), arrays, strict=True):
            np.testing.assert_array_equal(a, b)
    fresh = sorted([s for tensors in held for s in spans([*tensors[:3], *tensors[-2:]])])
    for (_, end), (start, _) in pairwise(fresh):
        assert end <= start
    for tensors in held[:3]:
        torch.from_dlpack(tensors[2].detach()).fill_(7.0)
    x, y = held[-1][:2]
    assert_same(host(compiled(x, y)), copies[-1][2:])


def test_the_same_array_at_each_call_is_read_and_not_kept(way, device):
    """A captured graph reads it in place: what a user writes into it is seen, and stays."""
    compiled, x = wf.compile(kernels_only), numbers(0, device)
    raw = torch.from_dlpack(x.detach())
    for k in range(4):
        raw.fill_(0.25 * k)
        before = host([x])
        assert_same(host(compiled(x)), host(kernels_only(x)))
        np.testing.assert_array_equal(host([x])[0], before[0])


# -- devices -------------------------------------------------------------------------------------


def test_tensors_on_two_devices_are_refused(device):
    other = "cpu" if device == "torch" else "torch"
    compiled = wf.compile(lambda x, y: wf.tanh(x) * wf.exp(y))
    here, there = numbers(0, device), numbers(1, other)
    for given in ((here, there), (there, here)):
        with pytest.raises(errors.DeviceError, match=f"'{device}"):
            compiled(*given)
    assert_same(host([compiled(here, here)]), host([wf.tanh(here) * wf.exp(here)]))


def test_a_parameter_on_another_device_is_refused(device):
    other = "cpu" if device == "torch" else "torch"
    w, x = wf.Parameter(numbers(0, other)), numbers(1, device)
    compiled = wf.compile(lambda x: wf.tanh(x @ w))
    with pytest.raises(errors.DeviceError, match=f"'{other}"):
        compiled(x)
