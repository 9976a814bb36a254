"""Budgets of bytes on PyTorch's devices: kept by measured bytes, gradients of the same bits.

Without a GPU the device is PyTorch's CPU, whose live bytes the tests count by themselves: every
storage that an operation makes, until it is freed. On a GPU its allocator's history is asked.
"""

import gc
from contextlib import contextmanager
from weakref import ref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import weft as wf
from weft import errors, nn
from weft.nn import functional as F
from weft.transform.checkpoint import devices

MIB = 1 << 20
DEVICES = [
    "torch",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    ),
]


class Storages(TorchDispatchMode):
    """Counts the bytes of storages, from when an operation makes them until they are freed."""

    def __init__(self):
        super().__init__()
        self.sizes, self.peak = {}, 0

    def add(self, x):
        storage = x.untyped_storage()
        key = storage._cdata
        if key not in self.sizes:
            forget = lambda _: self.sizes.pop(key)  # noqa: E731
            self.sizes[key] = ref(storage, forget), storage.nbytes()
            self.peak = max(self.peak, self.live)

    @property
    def live(self):
        return sum(n for _, n in self.sizes.values())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, list | tuple) else (result,):
            if isinstance(x, torch.Tensor):
                self.add(x)
        return result


@pytest.fixture(autouse=True)
def repeatable():
    """cuDNN's gradients are the same bits each time."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        yield


@contextmanager
def allocations():
    """A block with a function: the most bytes that a GPU's allocator had handed out in it.

    They are those of its history: its own peak begins again whenever a need is measured.
    """
    record = torch.cuda.memory._record_memory_history
    before = torch.cuda.memory_allocated()
    record("all", context=None, max_entries=1 << 20)

    def peak():
        live = most = before
        for event in torch.cuda.memory._snapshot()["device_traces"][0]:
            sign = {"alloc": 1, "free_completed": -1}.get(event["action"], 0)
            live += sign * event["size"]
            most = max(most, live)
        return most

    try:
        yield peak
    finally:
        record(None)


@contextmanager
def measured(device, tensors):
    """A block with a function: the most bytes that were live in it, `tensors` included."""
    gc.collect()
    if device == "cuda":
        with allocations() as peak:
            yield peak
        return
    with Storages() as storages:
        for t in tensors:
            storages.add(t._data)
        yield lambda: storages.peak


def bits(tensors):
    return [t.detach().to("cpu").numpy().tobytes() for t in tensors]


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), None
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.1)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), None
        self.out = nn.Linear(width, width)

    def forward(self, x):
        parts = self.qkv(self.norm(x)).reshape(*x.shape[:2], 3, 4, -1)
        q, k, v = (parts[:, :, i].swapaxes(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.swapaxes(1, 2).reshape(x.shape))


def perceptron():
    parts = [p for _ in range(16) for p in (nn.Linear(64, 64), nn.Tanh())]
    return nn.Sequential(*parts), (512, 64)


def transformer():
    parts = [p for _ in range(6) for p in (Attention(32), Residual(32))]
    return nn.Sequential(*parts), (8, 32, 32)


def convolutions():
    parts = [nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(8):
        parts += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*parts), (8, 3, 16, 16)


NETWORKS = [perceptron, transformer, convolutions]


class Program:
    """A model on a device with its batch."""

    def __init__(self, make, device):
        wf.random.seed(3)
        self.model, shape = make()
        if device == "cuda":  # its allocator rounds up
            shape = (16 * shape[0], *shape[1:])
        self.device = device
        self.x = wf.randn(shape).to(device)
        self.model.to(device)
        self.parameters = list(self.model.parameters())
        self.state = {k: v.clone() for k, v in self.model.state_dict().items()}
        buffers = self.model.buffers()
        self.held = [self.x, *self.parameters, *buffers, *self.state.values()]

    def live(self):
        """The bytes that are there before a step, the libraries' workspaces on a GPU included."""
        held = sum(t.nbytes for t in self.held)
        return torch.cuda.memory_allocated() if self.device == "cuda" else held

    def share(self, share, whole):
        """A budget in bytes: what is there before, gradients, and a share of the rest."""
        fixed = self.live() + sum(p.nbytes for p in self.parameters)
        return int(fixed + share * (whole - fixed))

    def __call__(self, config):
        """The bits of the gradients, and the most bytes meanwhile."""
        self.model.load_state_dict(self.state)
        wf.random.seed(5)
        with measured(self.device, [*self.held, *self.model.buffers()]) as peak:
            with wf.GradientTape(checkpoint=config) as tape:
                loss = (self.model(self.x) ** 2).mean()
            found = tape.gradient(loss, self.parameters)
            most = peak()
        return bits(found), most


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", NETWORKS)
def test_budgets_are_kept(make, device):
    run = Program(make, device)
    run(None)
    expected, whole = run(None)
    before = None
    for share in (1.0, 0.75, 0.6) if device == "cuda" else (1.0, 0.75, 0.5, 0.35):
        budget = run.share(share, whole)
        config = wf.CheckpointConfig("auto", memory_budget_mb=budget / MIB)
        for _ in range(2):  # needs are measured, for which a GPU's peak begins again
            run(config)
        found, most = run(config)
        assert found == expected
        assert most <= budget
        assert before is None or most <= before
        before = most


@pytest.mark.parametrize("device", DEVICES)
def test_the_first_step_is_within_its_budget(device, monkeypatch):
    """Also where no operation's need is known yet."""
    run = Program(perceptron, device)
    run(None)
    expected, whole = run(None)
    monkeypatch.setattr(devices, "_NEEDS", {})
    budget = run.share(0.6, whole)
    found, most = run(wf.CheckpointConfig("auto", memory_budget_mb=budget / MIB))
    assert found == expected and most <= budget


@pytest.mark.parametrize("device", DEVICES)
def test_an_impossible_budget(device):
    """It is refused with one that works; parameters, statistics and random streams stay."""
    run = Program(convolutions, device)
    expected, _ = run(None)
    run.model.load_state_dict(run.state)
    buffers, streams = bits(run.model.buffers()), wf.random.get_state()
    with pytest.raises(errors.BudgetExceeded, match="works") as refused:
        with wf.GradientTape(checkpoint=wf.CheckpointConfig("auto", memory_budget_mb=0.05)) as tape:
            loss = (run.model(run.x) ** 2).mean()
        tape.gradient(loss, run.parameters)
    assert bits(run.model.buffers()) == buffers
    assert wf.random.get_state() == streams
    smallest = refused.value.smallest
    del refused, tape, loss
    gc.collect()
    found, most = run(wf.CheckpointConfig("auto", memory_budget_mb=smallest / MIB))
    assert found == expected and most <= smallest


@pytest.mark.parametrize("device", DEVICES)
def test_moments_have_room(device):
    """The first step leaves room for what the optimizer will make."""
    run = Program(perceptron, device)
    run(None)
    _, whole = run(None)
    optimizer = wf.optim.AdamW(run.parameters, lr=1e-3)
    moments = 2 * sum(p.nbytes for p in run.parameters)
    budget = run.share(0.6, whole) + moments
    config = wf.CheckpointConfig("auto", memory_budget_mb=budget / MIB)
    run(config)
    run(config)
    _, most = run(config)
    assert most <= budget - moments
    del optimizer


@pytest.mark.parametrize("device", DEVICES)
def test_views_of_dropped_memory(device):
    """What is saved as views of one piece of memory is dropped together."""
    x = wf.randn((64, 64)).to(device)
    before = torch.cuda.memory_allocated() - x.nbytes if device == "cuda" else 0

    def run(config):
        with measured(device, [x]) as peak:
            with wf.GradientTape(checkpoint=config) as tape:
                tape.watch(x)
                h = x
                for _ in range(20):
                    h = wf.sin(h.T.reshape((-1,)).reshape((64, 64)))
                total = h.sum()
                del h
            found = tape.gradient(total, x)
            return bits([found]), peak()

    expected, whole = run(None)
    for _ in range(2):
        run(wf.CheckpointConfig("auto", memory_budget_mb=whole / MIB))
    budget = before + 0.5 * (whole - before)
    found, most = run(wf.CheckpointConfig("auto", memory_budget_mb=budget / MIB))
    assert found == expected and most <= budget


def test_memory_that_runs_out(monkeypatch):
    """Where the device itself has no memory left, saved values are dropped, and it goes on."""
    run = Program(perceptron, "torch")
    expected, _ = run(None)
    limited, left = devices.DeviceLimit.run, [3]

    def fail(self, func, args, kwargs):
        planted = func is torch.ops.aten.mm.default and left[0] > 0

        def call(*args, **kwargs):
            nonlocal planted
            if planted:
                planted, left[0] = False, left[0] - 1
                raise torch.OutOfMemoryError("planted")
            return func(*args, **kwargs)

        return limited(self, call, args, kwargs)

    monkeypatch.setattr(devices.DeviceLimit, "run", fail)
    found, _ = run(wf.CheckpointConfig("auto", memory_budget_mb=1000))
    assert found == expected and left == [0]


CONFIGS = {
    "selective": wf.CheckpointConfig("selective", verify=True),
    "block": wf.CheckpointConfig("block", checkpoint_every_n=2, verify=True),
    "full": wf.CheckpointConfig("full", verify=True),
    "full, to host": wf.CheckpointConfig("full", offload="cpu"),
    "full, to disk": wf.CheckpointConfig("full", offload="disk"),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", NETWORKS)
def test_strategies(make, device):
    """Gradients of the same bits under every strategy, also under autocast."""
    run = Program(make, device)
    expected, _ = run(None)
    with wf.amp.autocast("bfloat16"):
        cast, _ = run(None)
    for config in CONFIGS.values():
        assert run(config)[0] == expected
        with wf.amp.autocast("bfloat16"):
            assert run(config)[0] == cast


@pytest.mark.parametrize("device", DEVICES)
def test_budgets_with_values_moved_out(device):
    """What the budget demands is moved to host memory; there, it is computed again."""
    run = Program(perceptron, device)
    run(None)
    expected, whole = run(None)
    budget = run.share(0.8, whole)
    config = wf.CheckpointConfig("auto", memory_budget_mb=budget / MIB, offload="cpu")
    run(config)
    run(config)
    found, most = run(config)
    assert found == expected and most <= budget


def test_tensors_made_of_numpys_arrays():
    """Memory that comes from NumPy in the block makes room, each time again."""
    run = Program(perceptron, "torch")
    _, whole = run(None)
    data = wf.ones((512, 64)).numpy()
    budget = wf.CheckpointConfig("auto", memory_budget_mb=0.75 * whole / MIB)
    for _ in range(5):
        with wf.GradientTape(checkpoint=budget) as tape:
            h = run.model(run.x) * wf.tensor(data, device="torch")
            loss = (h**2).mean()
        assert all(g is not None for g in tape.gradient(loss, run.parameters))
