"""Saved values that are moved out: the same bits, less memory, and nothing left behind."""

import gc
import os
import resource
from collections import deque
from threading import Thread
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.transform.jacobian.dags import Dag

import weft as wf
from weft import errors, nn
from weft.backend.torch import transfers
from weft.profile import Counter
from weft.transform.checkpoint import disk, offload
from weft.transform.checkpoint.disk import Disk
from weft.transform.modes.trees import flatten

SOAK = bool(os.environ.get("WEFT_SOAK"))
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def everything(monkeypatch):
    """Small values are moved, too."""
    monkeypatch.setattr(offload, "LEAST", 0)


@pytest.fixture
def stored(monkeypatch):
    """The bytes of the arrays that are written to disk."""
    found: list[bytes] = []
    real = Disk.store

    def store(self, raws):
        found.extend([np.asarray(raw).tobytes() for raw in raws])
        return real(self, raws)

    monkeypatch.setattr(Disk, "store", store)
    return found


def bits(tensors) -> list[bytes]:
    return [b"" if t is None else np.asarray(t.detach().numpy()).tobytes() for t in tensors]


def our_files() -> int:
    """How many of our temporary files this process has open."""
    gc.collect()
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return sum(("(deleted)" in link and "weft-" in link) or "/#" in link for link in links)


# -- the file ------------------------------------------------------------------------------------


def random_view(rng) -> np.ndarray:
    """Memory of any dtype, in any layout."""
    kinds = [np.float32, np.float64, np.complex64, np.int32, np.bool_, wf.bfloat16]
    shape = tuple(rng.integers(1, 9, rng.integers(1, 4)))
    a = rng.integers(0, 2, shape).astype(kinds[rng.integers(len(kinds))])
    a = a * a.dtype.type(1)
    for _ in range(rng.integers(0, 3)):
        how = rng.integers(5)
        if how == 0:
            a = a.T
        elif how == 1:
            a = a[::-1]
        elif how == 2:
            a = a[..., : max(1, a.shape[-1] // 2)]
        elif how == 3:
            a = a[::2]
        else:
            a = np.broadcast_to(a, (3, *a.shape))
    return a


@pytest.mark.parametrize("seed", range(300 if SOAK else 30))
def test_arrays_in_a_file(monkeypatch, seed):
    """Many are stored and die; those that live are as they were; space is used again."""
    monkeypatch.setattr(disk, "_GROWTH", 4096)
    rng, place = np.random.default_rng(seed), Disk()
    alive: list = []
    most = now = 0
    for _ in range(400):
        while alive and (len(alive) > 30 or rng.random() < 0.5):
            now -= alive.pop(rng.integers(len(alive)))[3]
        a = random_view(rng)
        made = place.store([a])
        low, high = disk._bounds(a)
        if made is None:
            assert high - low > disk._SPREAD * a.nbytes
            continue
        nbytes = -(-(high - low) // 64) * 64
        loaded = made[0].load() if rng.random() < 0.3 else None
        turned = loaded is not None and rng.random() < 0.5
        loaded = loaded.T if turned else loaded
        held = None if loaded is not None and rng.random() < 0.5 else made[0]
        alive.append((held, loaded, turned, nbytes, a))
        now += nbytes
        most = max(most, now)
        del made, loaded, held
    for held, loaded, turned, _, a in alive:
        if held is not None:
            found = held.load()
            assert found.strides == a.strides and found.dtype == a.dtype
            assert not found.flags.writeable
            np.testing.assert_array_equal(found, a)
        if loaded is not None:
            np.testing.assert_array_equal(loaded, a.T if turned else a)
    assert place._file.size <= 3 * most + 2 * 4096


def test_free_ranges_become_one(monkeypatch):
    monkeypatch.setattr(disk, "_GROWTH", 4096)
    place = Disk()
    small = [place.store([np.zeros(512)]) for _ in range(16)]
    size = place._file.size
    for k in (3, 1, 2, 0, *range(15, 3, -1)):
        small[k] = None
    made = place.store([np.ones(512 * 16)])
    assert place._file.size == size and made[0].load().sum() == 512 * 16


def test_views_of_one_piece_of_memory_are_stored_once():
    whole = np.arange(3000.0).reshape(10, 300)
    parts = [whole[:, :100], whole[:, 100:200], whole[:, 200:].T]
    place = Disk()
    made = place.store(parts)
    for part, one in zip(parts, made, strict=True):
        np.testing.assert_array_equal(one.load(), part)
    used = place._file.size - sum(end - start for start, end in place._file._free)
    assert used == 24_000 // 64 * 64


# -- the same gradients --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(400 if SOAK else 40))
def test_random_programs(everything, seed):
    dag = Dag(seed)
    f, xs = dag.function(), dag.points[0]

    def gradients(block):
        for x in xs:
            x.requires_grad_()
        with block:
            ys = flatten(f(*xs))[0]
            total = sum([(y * y.detach().cos()).real.sum() for y in ys if y.requires_grad])
            if not isinstance(total, wf.Tensor):
                return []
            first = total.backward(create_graph=True)
            found = [first.get(x) for x in xs]
            again = sum([(g * g).real.sum() for g in found if g is not None and g.requires_grad])
        twice = total.backward(retain_graph=True)
        second = again.backward() if isinstance(again, wf.Tensor) else wf.GradientMap()
        return bits([*found, *[twice.get(x) for x in xs], *[second.get(x) for x in xs]])

    assert gradients(wf.save_on_disk()) == gradients(wf.enable_grad())


def network():
    wf.random.seed(0)
    parts = [p for _ in range(8) for p in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
    model = nn.Sequential(*parts)
    for p in model.parameters():  # or a normalization's result is what it keeps
        p.apply_update(wf.randn(p.shape) * 0.1)
    return model, wf.randn((512, 64))


def test_live_bytes_fall_and_nothing_is_left(tmp_path, stored):
    model, x = network()
    before = our_files()
    peaks, found = [], []
    for block in (wf.enable_grad(), wf.save_on_disk(tmp_path)):
        with Counter() as counter:
            with block:
                loss = (model(x) ** 2).mean()
            live = counter.live
            grads = loss.backward()
        peaks.append((live, counter.peak))
        found.append(bits([grads[p] for p in model.parameters()]))
    assert found[0] == found[1]
    assert peaks[1][0] < 0.02 * peaks[0][0] and peaks[1][1] < 0.5 * peaks[0][1]
    leaves = {b for p in model.parameters() for b in bits([p, p.mT if p.ndim == 2 else p])}
    assert not leaves & set(stored) and len(set(stored)) == len(stored) > 20  # each once
    del loss, grads, block
    assert our_files() == before and os.listdir(tmp_path) == []


def test_leaves_stay(stored):
    """Those of tensors, of functions, and views of them."""
    x = wf.rand((60, 40), requires_grad=True)
    w = wf.Parameter(wf.rand((30, 40)))
    z = wf.rand((60, 40))
    with wf.save_on_disk():
        y = wf.exp(x @ w.mT).sum()
        wf.grad(lambda z: wf.exp(z * z).sum())(z)
        y.backward()
    assert stored and not set(bits([x, w, z, x.mT, w.mT])) & set(stored)


def test_steps_use_the_same_space(monkeypatch):
    monkeypatch.setattr(disk, "_GROWTH", 4096)
    model, x = network()
    with wf.save_on_disk() as _:
        hook = wf.core.settings.current.get().saved_hooks[0]
        for _ in range(5):
            (model(x) ** 2).mean().backward()
            size = hook._place._file.size
    with wf.save_on_disk():
        (model(x) ** 2).mean().backward()
        once = wf.core.settings.current.get().saved_hooks[0]._place._file.size
    assert size == once


def test_results_that_are_overwritten_are_stored_anew():
    x = wf.rand(5000, requires_grad=True)
    with wf.save_on_disk():
        y = wf.exp(x)
        kept = y.detach()
        a = (y * kept).sum()
        kept.copy_(wf.ones(5000))
        b = (x * kept).sum()
    np.testing.assert_array_equal(b.backward()[x].numpy(), 1.0)
    np.testing.assert_allclose(a.backward()[x].numpy(), np.exp(2 * x.detach().numpy()), rtol=1e-5)


def test_memory_that_numpy_overwrites():
    """A batch's buffer is filled anew while an old graph is alive."""
    buffer = np.ones(5000, np.float32)
    x = wf.rand(5000, requires_grad=True)
    with wf.save_on_disk():
        batch = wf.from_dlpack(buffer)
        first = (x * batch).sum()
        buffer[:] = 2.0
        second = (x * batch).sum()
    assert second.backward()[x][0].item() == 2.0
    assert first.backward()[x][0].item() == 1.0


def test_inside_other_blocks(everything):
    x = wf.rand((40, 40), requires_grad=True)

    def f(x):
        return (wf.exp(wf.sin(x) * 1.5) * wf.tanh(x @ x.mT)).sum()

    expected = bits([f(x).backward()[x]])
    compiled = wf.compile(f)
    with wf.save_on_disk():
        assert bits([wf.checkpoint(f, x).backward()[x]]) == expected
        assert bits([wf.grad(f)(x)]) == expected
        same = wf.grad(f)(x).detach().numpy()
        np.testing.assert_allclose(compiled(x).backward()[x].numpy(), same, 1e-4)
        assert bits([wf.vmap(wf.grad(f))(x[None])[0]]) == bits([wf.vmap(wf.grad(f))(x[None])[0]])
    with wf.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t), wf.save_on_disk():
        assert bits([f(x).backward()[x]]) == expected


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_other_backends(device):
    x = wf.rand(5000, device=device, requires_grad=True)
    expected = bits([wf.exp(wf.sin(x)).sum().backward()[x].to("cpu")])
    for block in (wf.save_on_disk(), wf.save_on_cpu()):
        with block:
            got = wf.exp(wf.sin(x)).sum().backward()[x]
        assert got.device == device and bits([got.to("cpu")]) == expected


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_strategies_leave_parameters(stored, device):
    """Nor are views of them moved; what is made of them is."""
    w = wf.Parameter(wf.rand((60, 40), device=device))
    x = wf.rand((50, 40), device=device)
    with wf.GradientTape(checkpoint=wf.CheckpointConfig(strategy="full", offload="disk")) as tape:
        tape.watch(x)
        y = wf.exp((x @ w.mT.reshape(40, 60)) * 0.1).sum()
    whole = [np.ascontiguousarray(v.to("cpu").detach().numpy()).tobytes() for v in (w, w.mT, x)]
    assert stored and not set(whole) & set(stored)
    with wf.GradientTape() as plain:
        z = wf.exp((x @ w.mT.reshape(40, 60)) * 0.1).sum()
    assert bits([tape.gradient(y, w).to("cpu")]) == bits([plain.gradient(z, w).to("cpu")])


# -- threads, exceptions, forks, full disks ------------------------------------------------------


def test_threads():
    xs = [
        wf.tensor(np.random.default_rng(k).normal(size=5000), requires_grad=True) for k in range(4)
    ]

    def run(x):
        return bits([wf.exp(wf.sin(x) * 2).sum().backward()[x]])

    expected = [run(x) for x in xs]
    found: dict = {}
    from contextvars import copy_context

    with wf.save_on_disk():
        contexts = [copy_context() for _ in xs]

    def several(k):
        with wf.save_on_disk():
            found[k] = [run(xs[k]) for _ in range(10)]

    threads = [Thread(target=c.run, args=(several, k)) for k, c in enumerate(contexts)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert [found[k] for k in range(4)] == [[e] * 10 for e in expected]


def test_one_file_for_several_threads():
    place, problems = Disk(), []

    def run(seed):
        rng = np.random.default_rng(seed)
        for _ in range(200):
            a = rng.standard_normal(rng.integers(1, 3000))
            (made,) = place.store([a])
            if not np.array_equal(made.load(), a):
                problems.append(seed)

    threads = [Thread(target=run, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not problems


def test_exceptions():
    x = wf.rand(5000, requires_grad=True)
    before = our_files()
    with pytest.raises(ZeroDivisionError), wf.save_on_disk():
        y = wf.exp(x)
        raise ZeroDivisionError
    assert not wf.sin(x)._node.extra and y.sum().backward()[x].shape == (5000,)
    del y
    assert our_files() == before


def test_forks():
    """Both processes go on with a graph, and store other values; neither sees the other's."""
    x = wf.rand(5000, requires_grad=True)

    def f(k):
        return wf.exp(wf.sin(x) * k).sum()

    expected = {k: bits([f(k).backward()[x]]) for k in (2.0, 3.0, 4.0)}
    first, second = os.pipe(), os.pipe()
    with wf.save_on_disk():
        kept, other = f(2.0), f(2.0)
        child = os.fork()
        if not child:
            good = False
            try:
                os.read(first[0], 1)  # the parent has freed and stored
                mine = [f(3.0), f(3.0)]
                good = bits([kept.backward()[x]]) == expected[2.0]
                del kept
                mine += [f(3.0), f(3.0)]
                good = good and all(bits([y.backward()[x]]) == expected[3.0] for y in mine)
                os.write(second[1], b".")
            finally:
                os._exit(0 if good else 1)
        del kept
        mine = [f(4.0) for _ in range(4)]
        os.write(first[1], b".")
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert bits([other.backward()[x]]) == expected[2.0]
        assert all(bits([y.backward()[x]]) == expected[4.0] for y in mine) and code == 0
    [os.close(end) for end in (*first, *second)]


def test_a_full_disk(tmp_path):
    x = wf.rand(100_000, requires_grad=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(errors.OffloadError, match="400,000 bytes could not be moved out"):
            with wf.save_on_disk(tmp_path):
                wf.exp(x)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(errors.OffloadError, match="folder="), wf.save_on_disk(tmp_path / "nowhere"):
        wf.exp(x)


# -- copies that overlap -------------------------------------------------------------------------


class FakeStreams:
    """Streams whose copies are made only when somebody waits for them, in their order."""

    made: ClassVar[list] = []

    def __init__(self, device):
        self.queue: deque = deque()
        self.log: list = []
        self.alive = 0
        FakeStreams.made.append(self)

    def _copy(self, target, source):
        event = object()
        self.queue.append((event, target, source))
        return target, event

    def copy_out(self, x):
        self.log.append(("out", float(x.flatten()[0])))
        return self._copy(torch.full_like(x, torch.nan), x)

    def copy_back(self, host, written):
        self.finish(written)
        self.log.append(("back", float(host.flatten()[0])))
        return self._copy(torch.full_like(host, torch.nan), host)

    def give_back(self, host, event):
        self.finish(event)
        host.fill_(torch.nan if host.is_floating_point() else 0)  # somebody else has it now

    def wait(self, event, x):
        self.finish(event)

    def finish(self, event):
        while any(e is event for e, _, _ in self.queue):
            _, target, source = self.queue.popleft()
            target.copy_(source)


@pytest.fixture
def overlapping(monkeypatch, everything):
    """`save_on_cpu` moves torch's arrays on the CPU, by copies that are late."""
    FakeStreams.made = []

    class Faked(offload.Host):
        def store(self, raws):
            if raws[0].__class__ is np.ndarray:
                return None
            if self._transfers is None:
                self._transfers = transfers.Transfers(FakeStreams)
            return self._transfers.store(raws)

    monkeypatch.setattr(offload, "Host", Faked)
    return FakeStreams.made


def chain(x, length=8):
    for _ in range(length):
        x = wf.exp(wf.sin(x))
    return x.sum()


@pytest.mark.parametrize("length", [1, 2, 3, 10])
def test_overlapped_copies(overlapping, length):
    x = wf.rand((20, 20), device="torch", requires_grad=True)
    expected = bits([chain(x, length).backward()[x].to("cpu")])
    with wf.save_on_cpu():
        y = chain(x, length)
        z = chain(x * 2, length)
    (streams,) = overlapping
    assert len(streams.queue) <= transfers._PENDING
    for retain in (True, True, False):
        assert bits([y.backward(retain_graph=retain)[x].to("cpu")]) == expected
    z.backward(create_graph=True)[x].sum().backward()
    assert not any(np.isnan(a) for _, a in streams.log)


def test_copies_come_back_before_they_are_wanted(overlapping):
    x = wf.rand((20, 20), device="torch", requires_grad=True)
    with wf.save_on_cpu():
        y = chain(x)
    (streams,) = overlapping
    out = [v for kind, v in streams.log if kind == "out"]
    streams.log.clear()
    loaded = []
    load = transfers.HostCopy.load
    try:
        transfers.HostCopy.load = lambda self: loaded.append(len(streams.log)) or load(self)
        y.backward()
    finally:
        transfers.HostCopy.load = load
    back = [v for kind, v in streams.log if kind == "back"]
    assert back == out[::-1]  # each once, the last first
    fresh = [n for n, before in zip(loaded[1:], loaded, strict=False) if n != before]
    # When the k-th is wanted, so many have been sent.
    assert fresh[:-3] == [k + transfers._AHEAD for k in range(1, len(fresh) - 2)]


def test_what_is_not_wanted_is_not_held(overlapping):
    x = wf.rand((20, 20), device="torch", requires_grad=True)
    with wf.save_on_cpu():
        y = chain(x)
        del y
        gc.collect()
        z = wf.exp(x).sum()
    assert z.backward()[x].shape == (20, 20)


@cuda
def test_on_a_gpu():
    wf.random.seed(0)
    x = wf.rand((512, 512), device="cuda", requires_grad=True)
    w = wf.Parameter(wf.rand((512, 512), device="cuda") * 0.01)

    def f():
        h = x
        for _ in range(12):
            h = wf.tanh(h @ w) + wf.sin(h.mT)
        return h.sum()

    expected = f().backward()
    torch.cuda.synchronize()
    base = torch.cuda.memory_allocated()
    plain = f()
    whole = torch.cuda.memory_allocated() - base
    del plain
    for _ in range(3):
        with wf.save_on_cpu():
            y = f()
            y.item()
        held = torch.cuda.memory_allocated() - base
        assert held < 0.5 * whole
        for retain in (True, False):
            got = y.backward(retain_graph=retain)
            for t in (x, w):
                assert bits([got[t].to("cpu")]) == bits([expected[t].to("cpu")])
    config = wf.CheckpointConfig(strategy="full", offload="cpu")
    with wf.GradientTape(checkpoint=config) as tape:
        y = f()
    assert bits([tape.gradient(y, w).to("cpu")]) == bits([expected[w].to("cpu")])
