"""Steps of many parameters with merged launches: values as in eager mode, order of memory kept."""

from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
import pytest

import weft as wf
from weft.compiler.cuda import many
from weft.compiler.cuda import target as cuda_target
from weft.compiler.cuda.limits import GPU_LIMITS
from weft.compiler.cuda.routines.many import ManyKernels
from weft.compiler.ir.kernel import Kernel
from weft.compiler.ir.schedule import KernelStep, NativeStep, Schedule
from weft.compiler.ir.verify import verify
from weft.compiler.memory import plan
from weft.compiler.pipeline import using
from weft.compiler.raw.arrays import arrays_on

from ..test_jit_training import OPTIMIZERS
from .emulated_gpu import emulated_target
from .staged import seeds

nn, F = wf.nn, wf.nn.functional
WHICH = [name for name in OPTIMIZERS if name != "Muon"]


@pytest.fixture
def merged(monkeypatch, tmp_path):
    """Functions of tensors of PyTorch's are compiled for an emulated GPU.

    The list holds the schedules before and after launches were merged.
    """
    monkeypatch.setattr(arrays_on("torch"), "host_runtime", False)
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    seen: list[tuple[Schedule, Schedule]] = []

    def merge(schedule, alignment, limits, tight):
        seen.append((schedule, many.merge_launches(schedule, alignment, limits, tight)))
        return seen[-1][1]

    monkeypatch.setattr(cuda_target, "merge_launches", merge)
    with using(emulated_target()):
        yield seen


class Training:
    """A random network in training: its widths, optimizer, clipping, average and scaler."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        widths = [int(n) for n in rng.choice((3, 8, 8, 17, 32), rng.integers(3, 6))]
        wf.random.seed(seed)
        layers = []
        for n, m in pairwise(widths):
            layers += [nn.Linear(n, m), nn.LayerNorm(m), nn.Tanh()]
        model = nn.Sequential(*layers, nn.Linear(widths[-1], 4))
        self.model = model.to(dtype="float64", device="torch")
        name, options = OPTIMIZERS[str(rng.choice(WHICH))]
        self.optimizer = getattr(wf.optim, name)(self.model.parameters(), **options)
        self.norm = (None, 0.1, 1.0)[rng.integers(3)]
        self.kind = (2.0, np.inf, 1.0)[rng.integers(3)]
        self.average = wf.optim.EMA(self.model, 0.9) if rng.random() < 0.5 else None
        self.scaler = wf.amp.GradScaler(init_scale=8.0) if rng.random() < 0.4 else None
        self.batches = [
            (rng.standard_normal((6, widths[0])), rng.integers(0, 4, 6)) for _ in range(3)
        ]

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self.norm is not None:
            wf.optim.clip_grad_norm(self.model.parameters(), self.norm, self.kind)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.average is not None:
            self.average.update()
        return loss

    def go(self, compiles: bool) -> list[np.ndarray]:
        """All that has changed after some steps."""
        self.compiled = wf.compile(self.step)
        run = self.compiled if compiles else self.step
        made = [run(*(wf.tensor(a, device="torch") for a in batch)) for batch in self.batches]
        parameters = list(self.model.parameters())
        made += [*parameters, *(p.grad for p in parameters)]
        if self.average is not None:
            made += [self.average.average_of(p) for p in parameters]
        return [x.detach().numpy().copy() for x in made]


def launches(schedule: Schedule) -> list[ManyKernels]:
    steps = [s for s in schedule.steps if isinstance(s, NativeStep)]
    return [s.routine for s in steps if isinstance(s.routine, ManyKernels)]


# -- the order of memory -----------------------------------------------------------------------


def parts_of(step) -> list:
    """The kernels of a step, in the form that a step of one has; else the step."""
    if not isinstance(step, NativeStep) or not isinstance(step.routine, ManyKernels):
        return [step]
    buffers, kernels = (*step.operands, *step.results), step.routine.kernels
    made = []
    for k, *places in step.routine.members:
        own, reads = [buffers[at] for at in places], len(kernels[k].operands)
        made.append(KernelStep(kernels[k], tuple(own[:reads]), tuple(own[reads:])))
    return made


def history(schedule: Schedule) -> list:
    """For each step: what it is, and which steps have written what it reads, as sorted text."""

    def memory(i: int) -> int:
        root = schedule.storage(i)
        takes = schedule.buffers[root].takes
        return root if takes is None else takes

    writers: dict[int, set[str]] = {}
    seen = []
    for step in schedule.steps:
        now: dict[int, set[str]] = {}
        reads = [set(map(memory, part.reads)) for part in parts_of(step)]
        for n, part in enumerate(parts_of(step)):
            others = [one for k, one in enumerate(reads) if k != n]
            assert not set(map(memory, part.writes)) & set().union(*others), "a race"
            name = repr((type(part).__name__, part.reads, part.writes))
            read = [(i, sorted(writers.get(memory(i), ()))) for i in part.reads]
            over = [(i, sorted(writers.get(memory(i), ()))) for i in part.writes if i in part.reads]
            seen.append((name, read, over))
            for i in part.writes:
                now.setdefault(memory(i), set()).add(name)
        for root, names in now.items():
            writers.setdefault(root, set()).update(names)
    return sorted(seen)


def same_order(pairs) -> None:
    for before, after in pairs:
        verify(after)
        assert history(after) == history(before)


class Exchange:
    """Arrays in place of which others are computed, from each other's values, in a random order."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        sizes = rng.choice((5, 64, 300), rng.integers(3, 7))
        self.states = [wf.tensor(rng.uniform(0.5, 1, n), device="torch") for n in sizes]
        self.pairs = [rng.choice(len(sizes), 2) for _ in range(rng.integers(4, 12))]

    def step(self, x):
        made = {}
        for i, j in self.pairs:
            if i in made:
                self._change(made)
                made = {}
            made[i] = self.states[i] * 0.5 + self.states[j][0] + x
        self._change(made)
        return self.states[0] * 1.5

    def _change(self, made) -> None:
        for i, value in made.items():
            self.states[i].copy_(value)

    def go(self, compiles: bool) -> list[np.ndarray]:
        run = wf.compile(self.step) if compiles else self.step
        made = [run(wf.tensor(0.25, dtype="float64", device="torch")) for _ in range(3)]
        return [x.detach().numpy().copy() for x in (*made, *self.states)]


def check(seed: int, program=Training) -> None:
    want, found = (program(seed).go(compiles) for compiles in (False, True))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", seeds(12))
def test_random_steps_are_eager_mode(merged, seed):
    check(seed)
    same_order(merged)
    assert max(len(r.members) for _, after in merged for r in launches(after)) > 3


@pytest.mark.parametrize("seed", seeds(30))
def test_arrays_that_change_in_place_are_eager_mode(merged, seed):
    check(seed, Exchange)
    same_order(merged)


def _after_nobody(schedule: Schedule) -> list[set[int]]:
    return [set() for _ in schedule.steps]


def _before_readers(schedule: Schedule) -> list[set[int]]:
    """Of all dependences, those on writers of what a step reads."""
    roots = [
        [set(map(schedule.storage, side)) for side in (step.reads, step.writes)]
        for step in schedule.steps
    ]
    pairs = enumerate(many.dependences(schedule))
    return [{j for j in after if roots[j][1] & roots[k][0]} for k, after in pairs]


@pytest.mark.parametrize("fault", [_after_nobody, _before_readers])
def test_a_wrong_order_is_found(merged, monkeypatch, fault):
    check(0, Exchange)
    schedule = merged[-1][0]
    deps = fault(schedule)
    monkeypatch.setattr(many, "dependences", lambda _: deps)
    with pytest.raises(AssertionError):
        same_order([(schedule, many.merge_launches(schedule, 256, GPU_LIMITS))])


def test_merged_launches_are_stored(merged):
    """The second program has its schedule from the disk."""
    check(0)
    (pair,) = merged
    training = Training(0)
    training.go(True)
    found = training.compiled._last().executable.schedule
    assert merged == [pair]
    assert launches(found) == launches(pair[1]) != []
    check(0)


# -- large kernels -----------------------------------------------------------------------------


class Mixed:
    """Training in bfloat16: casts of weights, some of them twice, and updates in place.

    widths  of the layers; random ones by default
    """

    def __init__(self, seed: int, widths: tuple[int, ...] = ()):
        rng = np.random.default_rng(seed)
        wf.random.seed(seed)
        widths = widths or tuple([int(n) for n in rng.choice((16, 24, 33, 40), rng.integers(4, 8))])
        layers = []
        for n, m in pairwise(widths):
            layers += [nn.Linear(n, m), nn.GELU("tanh")]
        self.model = nn.Sequential(*layers).to(device="torch")
        name, options = OPTIMIZERS[str(rng.choice(["AdamW", "SGD", "Adam"]))]
        self.optimizer = getattr(wf.optim, name)(self.model.parameters(), **options)
        self.clips, self.keeps = rng.random(2) < 0.5
        rows = int(rng.choice((2, 64)))
        self.batches = [rng.standard_normal((rows, widths[0]), np.float32) for _ in range(2)]

    def step(self, x):
        self.optimizer.zero_grad()
        with wf.amp.autocast("bfloat16"):
            y = self.model(x)
        loss = (y * y).mean()
        loss.backward()
        if self.clips:
            wf.optim.clip_grad_norm(self.model.parameters(), 0.1)
        self.optimizer.step()
        if not self.keeps:
            self.optimizer.zero_grad()
        return loss.detach()

    def go(self, compiles: bool) -> list[np.ndarray]:
        """All that has changed after some steps."""
        run = wf.compile(self.step) if compiles else self.step
        made = [run(wf.tensor(x, device="torch")) for x in self.batches]
        return [x.detach().numpy().copy() for x in (*made, *self.model.parameters())]


def large(schedule: Schedule) -> list[ManyKernels]:
    """The launches of kernels that are not small."""

    def is_large(kernel: Kernel) -> bool:
        return prod(kernel.domain) > many.ELEMENTS and not kernel.folded

    return [r for r in launches(schedule) if any(map(is_large, r.kernels))]


def peak(schedule: Schedule) -> int:
    return plan(schedule, 256, adopts=True).peak


def allowed(schedule: Schedule) -> float:
    """The most bytes of memory that a schedule may take after launches were merged."""
    return peak(schedule) * (1 + GPU_LIMITS.remat_share)


@pytest.fixture
def compare(merged, monkeypatch, tmp_path):
    """Compares results with those of programs whose kernels are launched one by one."""

    def compare(found: list[np.ndarray], program: Mixed) -> None:
        same_order(merged)
        monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "apart"))
        monkeypatch.setattr(cuda_target, "merge_launches", lambda schedule, *_: schedule)
        for a, b in zip(found, program.go(True), strict=True):
            np.testing.assert_array_equal(a, b)

    return compare


@pytest.mark.parametrize("seed", seeds(10))
def test_large_kernels_together_are_bit_by_bit_those_alone(merged, monkeypatch, compare, seed):
    monkeypatch.setattr(many, "ELEMENTS", 200)
    found = Mixed(seed).go(True)
    assert any(large(after) for _, after in merged)
    compare(found, Mixed(seed))


@pytest.mark.parametrize("seed", seeds(10))
def test_large_kernels_wait_only_where_memory_has_room(merged, monkeypatch, seed):
    monkeypatch.setattr(many, "ELEMENTS", 200)
    Mixed(seed).go(True)
    for before, _ in merged:
        after = many.merge_launches(before, 256, replace(GPU_LIMITS, arena_bytes=0))
        same_order([(before, after)])
        assert not large(after) or peak(after) <= allowed(before)
        assert not large(many.merge_launches(before, 256, GPU_LIMITS, tight=True))


def test_kernels_that_wait_regardless_take_more_memory(merged, monkeypatch):
    """The rule above can be broken."""
    monkeypatch.setattr(many, "ELEMENTS", 200)
    for seed in range(4):
        Mixed(seed).go(True)
    pairs = []
    for before, _ in merged:
        room = [1 << 40] * len(before.steps)
        pairs.append((before, many._Merger(before, many._families(before), room).merged()))
    assert any(peak(after) > allowed(before) for before, after in pairs)


def test_weights_of_millions_are_updated_together(merged, compare):
    widths = (1032, 1040, 1032, 1040)
    found = Mixed(0, widths).go(True)
    members = [len(r.members) for _, after in merged for r in large(after)]
    assert members.count(3) >= 2
    compare(found, Mixed(0, widths))
