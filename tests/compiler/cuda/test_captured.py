"""Whole steps and programs on a GPU, real or emulated: captured or not, run after run, same bits.

Mistakes that are planted in captured graphs, cells, barriers and strides are found by programs.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import weft as wf
from weft.compiler.cuda.device import gpu_of
from weft.compiler.cuda.runtime import captured, executable
from weft.compiler.cuda.runtime.cells import Cells
from weft.compiler.ir.kernel import Kernel
from weft.nn import functional as F

from ..fuzz.oracle import Mismatch, Run, check, compiled_run, mode_of
from ..fuzz.writer import written
from . import emulated_gpu
from .emulator import AccessOutside, Emulated

DEVICES = ["torch", *(["cuda"] if torch.cuda.is_available() else [])]
RUNS = {"torch": 3, "cuda": 10}
ALWAYS, NEVER = 0, 1 << 30  # launches up to which programs are not captured


@pytest.fixture(params=DEVICES)
def device(request):
    """PyTorch's tensors on an emulated GPU, or on a real one."""
    if request.param == "torch":
        request.getfixturevalue("gpu")
    return request.param


SHAPES = {
    "conv": (8, 2, 3, 3),
    "words": (11, 8),
    "query": (8, 8),
    "key": (8, 8),
    "value": (8, 8),
    "out": (8, 5),
}


def trained(device: str, steps: int = 4) -> list[bytes]:
    """A step with a convolution, an embedding, attention and dropout: losses and parameters."""
    with wf.deterministic(seed=5):
        rng = np.random.default_rng(3)
        names = {n: rng.normal(size=s).astype(np.float32) * 0.3 for n, s in SHAPES.items()}
        p = {n: wf.Parameter(wf.tensor(a, device=device)) for n, a in names.items()}
        optimizer = wf.optim.AdamW(list(p.values()), lr=0.01)

        def step(image, words, classes):
            optimizer.zero_grad()
            h = F.gelu(F.conv2d(image, p["conv"], padding=1)).reshape((4, 8, -1))
            h = h.permute((0, 2, 1)) + F.embedding(words, p["words"])
            q, k, v = (h @ p[n] for n in ("query", "key", "value"))
            h = h + F.dropout(F.scaled_dot_product_attention(q, k, v, is_causal=True), 0.2)
            loss = F.cross_entropy(F.layer_norm(h, (8,)).mean(1) @ p["out"], classes)
            loss.backward()
            optimizer.step()
            return loss

        compiled, found = wf.compile(step), []
        for _ in range(steps):
            image = wf.tensor(rng.normal(size=(4, 2, 6, 6)).astype(np.float32), device=device)
            words, classes = (
                wf.tensor(rng.integers(0, high, shape), device=device)
                for high, shape in ((11, (4, 36)), (5, (4,)))
            )
            found.append(bytes_of(compiled(image, words, classes)))
        return [*found, *map(bytes_of, p.values())]


def bytes_of(x: wf.Tensor) -> bytes:
    return x.detach().to("cpu").numpy().tobytes()


def test_runs_of_a_training_step_have_the_same_bits(device):
    first = trained(device)
    assert len(set(first)) == len(first)  # no two losses and no two parameters are equal
    for _ in range(RUNS[device] - 1):
        assert trained(device) == first


def test_a_captured_training_step_has_the_bits_of_an_uncaptured_one(device, monkeypatch):
    found = []
    for few in (ALWAYS, NEVER):
        monkeypatch.setattr(executable, "_FEW", few)
        found.append(trained(device))
    assert found[0] == found[1]


def run_of(seed: int, device: str) -> Run:
    text = written(seed)
    with wf.deterministic(seed=1):
        return compiled_run(text, mode_of(text), device)


def bits(run: Run) -> list[list]:
    return [[x.tobytes() if isinstance(x, np.ndarray) else x for x in call] for call in run.leaves]


@pytest.mark.parametrize("batch", range(4))
def test_captured_programs_have_the_bits_of_uncaptured_ones(device, batch, monkeypatch):
    for seed in range(batch * 50, batch * 50 + (50 if device == "cuda" else 8)):
        found = []
        for few in (ALWAYS, NEVER):
            monkeypatch.setattr(executable, "_FEW", few)
            found.append(run_of(seed, device))
        captured, plain = found
        assert type(captured.error) is type(plain.error), seed
        assert bits(captured) == bits(plain), seed


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_steps_that_write_inputs_run_on_the_stream_of_the_call():
    """On one that does not wait for it, they would read cells before these are written."""
    gpu = gpu_of("cuda:0")
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream), gpu.within(gpu.stream()):
            assert gpu.stream() == stream.cuda_stream


# -- planted mistakes ------------------------------------------------------------------------


def mismatches(device: str, seeds) -> list[int]:
    """The seeds of programs whose compiled values are not eager's."""
    found = []
    for text in map(written, seeds):
        try:
            check(text, mode_of(text), device)
        except (Mismatch, AccessOutside):
            found.append(text.seed)
    return found


SEEDS = range(27)


def test_a_graph_that_keeps_the_first_batch_shows(device, monkeypatch):
    monkeypatch.setattr(executable, "_FEW", ALWAYS)
    assert not mismatches(device, SEEDS)
    made = captured.Captured.__init__

    def stale(self, *args):
        made(self, *args)
        self._into, replay = [], self.replay
        given: dict[int, torch.Tensor] = {}

        def first(values):
            for i in (i for i in self.own if i < args[-1]):
                self.own[i].copy_(given.setdefault(i, values[i].clone()))
            replay(values)

        self.replay = first

    monkeypatch.setattr(captured.Captured, "__init__", stale)
    assert len(mismatches(device, SEEDS)) >= 5


def test_a_stale_cell_shows(device, monkeypatch):
    monkeypatch.setattr(executable, "_FEW", ALWAYS)
    steps = trained(device)
    write = Cells.write

    def once(self, values):
        if not hasattr(self, "wrote"):
            self.wrote = write(self, values)
        return self.wrote

    monkeypatch.setattr(Cells, "write", once)
    stale = trained(device)
    assert stale[0] == steps[0]
    assert all(x != y for x, y in zip(stale[1:], steps[1:], strict=True))
    assert device == "cuda" or len(mismatches(device, SEEDS)) >= 2


def planted(monkeypatch, change: Callable[[Kernel, int], Emulated]) -> None:
    """Kernels of the emulated GPU are what `change` makes of them."""

    def made(what, aligned=16):
        return change(what, aligned) if isinstance(what, Kernel) else Emulated(what, aligned)

    monkeypatch.setattr(emulated_gpu, "Emulated", made)


def test_a_wrong_stride_shows(gpu, monkeypatch):
    def wrong(kernel, aligned):
        first = kernel.operands[0] if kernel.operands else None
        if first is None or not first.strides:
            return Emulated(kernel, aligned)
        operand = replace(first, strides=(*first.strides[:-1], 0))
        return Emulated(replace(kernel, operands=(operand, *kernel.operands[1:])), aligned)

    planted(monkeypatch, wrong)
    assert len(mismatches("torch", SEEDS)) >= 5


def wide_sums(x):
    return (wf.exp(x) * x).sum(1), wf.softmax(x, 1)


def test_a_missing_barrier_shows(gpu, monkeypatch):
    """Lines that several warps share."""
    x = wf.asarray(torch.tensor(np.random.default_rng(0).normal(size=(3, 5000))))
    expected = [y.numpy() for y in wide_sums(x)]
    waited: list[int] = []

    def careless(faults: frozenset[int]) -> list[np.ndarray]:
        def make(kernel, aligned):
            made = Emulated(kernel, aligned, faults)
            waited.append(made.barriers)
            return made

        planted(monkeypatch, make)
        gpu._made.clear()
        return [y.numpy() for y in wf.compile(lambda t: wide_sums(t))(x)]

    for a, b in zip(careless(frozenset()), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert max(waited) > 0
    found = careless(frozenset([0]))
    assert not all(np.allclose(a, b) for a, b in zip(found, expected, strict=True))


def test_a_released_program_has_no_memory_until_it_runs_again(device):
    """Its arena is freed, and the next calls allocate, capture and compute as the first did."""
    w = wf.tensor(np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32), device=device)
    f = wf.compile(lambda x: wf.tanh(wf.exp(x @ w) @ w) @ w)
    x = wf.ones((8, 8), dtype="float32", device=device)
    first = f(x).numpy()
    frame = f._latest[1].executable._frame
    for _ in range(2):
        assert frame._arena is not None and frame._placed.offsets
        f.release()
        assert frame._arena is None and not frame._placed.offsets.keys() & frame._whole.keys()
        for _ in range(3):
            assert np.array_equal(f(x).numpy(), first)
