"""Compressed gradients: against the papers' formulas in NumPy, and PyTorch's own PowerSGD."""

from math import ceil

import numpy as np
import pytest

import weft as wf
from weft import errors

from .models import DEVICES, data, draw, gradients, loss_of, mlp, shard, values
from .threads import run

KINDS = {
    "none": None,
    "float16": "float16",
    "bfloat16": "bfloat16",
    "topk": wf.dist.TopK(0.1),
    "powersgd": wf.dist.PowerSGD(rank=2, start=2),
}
SHAPES = [(16, 5), (16,), (16, 16), (16,), (3, 16), (3,)]
N = sum(np.prod(s) for s in SHAPES)


def sent_of(kind, dtype, step):
    """The bytes that a rank hands over in one pass of one bucket."""
    size, tail = np.dtype(dtype).itemsize, len(SHAPES) + 1
    if kind in ("float16", "bfloat16"):
        return 2 * (N + tail)
    if kind == "topk":
        k = ceil(0.1 * N)
        return k * (size + 4) + tail * size
    if kind == "powersgd" and step >= 2:
        matrices = [s for s in SHAPES if len(s) == 2 and sum(s) * 2 < np.prod(s)]
        rest = N - sum(np.prod(s) for s in matrices)
        return size * (rest + tail + sum(sum(s) * 2 for s in matrices))
    return size * (N + tail)


class Reference:
    """The formulas, on the flat gradients of all ranks in the order of buckets."""

    def __init__(self, kind, size, order):
        self.kind, self.size, self.order, self.step = kind, size, order, 0
        self.errors = [np.zeros(N) for _ in range(size)]
        self.qs = {}

    def mean(self, every):
        """The mean that ranks make of their lists of gradients, in the order of parameters."""
        flats = [np.concatenate([g[k].reshape(-1) for k in self.order]) for g in every]
        found = getattr(self, f"_{self.kind}", self._plain)(flats)
        self.step += 1
        parts, at = [None] * len(SHAPES), 0
        for k in self.order:
            n = int(np.prod(SHAPES[k]))
            parts[k] = found[at : at + n].reshape(SHAPES[k])
            at += n
        return parts

    def _plain(self, flats):
        return sum(flats) / self.size

    def _topk(self, flats):
        total, k = np.zeros(N), ceil(0.1 * N)
        for r, flat in enumerate(flats):
            whole = flat + self.errors[r]
            places = np.argsort(-np.abs(whole), kind="stable")[:k]
            total[places] += whole[places]
            whole[places] = 0
            self.errors[r] = whole
        return total / self.size

    def _powersgd(self, flats):
        if self.step < 2:
            return self._plain(flats)
        given = [flat + e for flat, e in zip(flats, self.errors, strict=True)]
        mean, at = sum(given) / self.size, 0
        for k in self.order:
            n = int(np.prod(SHAPES[k]))
            if len(SHAPES[k]) == 2 and sum(SHAPES[k]) * 2 < n:
                ms = [g[at : at + n].reshape(SHAPES[k]) for g in given]
                p = np.linalg.qr(sum(m @ self.qs[k] for m in ms))[0]
                self.qs[k] = sum(m.T @ p for m in ms) / self.size
                mean[at : at + n] = (p @ self.qs[k].T).reshape(-1)
                for r in range(self.size):
                    self.errors[r][at : at + n] = given[r][at : at + n] - mean[at : at + n]
            at += n
        return mean


def random_start(k, shape):
    """Q as it begins: the same on all ranks."""
    return np.random.default_rng(k).standard_normal((shape[1], min(*shape, 2)))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_means_and_bytes_are_those_of_the_formulas(kind, size, device, dtype):
    steps, every = 6, data(12, dtype)

    def rank(r):
        model = wf.dist.DataParallel(mlp(dtype, device), compression=KINDS[kind])
        optimizer = wf.optim.SGD(model, lr=0.05)
        x, y = shard(every, r, size, device)
        member, found = wf.dist.world.world(), []
        for _ in range(steps):
            own = [np.array(g.detach().numpy()) for g in _own(model.module, x, y)]
            before = sum(member.sent.values())
            if len(found) == 0:
                before += 8 * len(SHAPES)  # the order of buckets
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            bytes_sent = sum(member.sent.values()) - before
            found.append((own, list(gradients(model).values()), bytes_sent))
            optimizer.step()
        return found, model.reducer.layout.order, values(model)

    results = run(size, rank)
    reference = Reference(kind, size, results[0][1])
    reference.qs = {k: random_start(k, s) for k, s in enumerate(SHAPES) if len(s) == 2}
    bound = {"float16": 2e-3, "bfloat16": 2e-2}.get(kind, 1e-4 if dtype == "float32" else 1e-11)
    for step in range(steps):
        expected = reference.mean([found[step][0] for found, *_ in results])
        scale = max(np.abs(e).max() for e in expected)
        for found, *_ in results:
            assert found[step][2] == sent_of(kind, dtype, step)
            for g, e, first in zip(found[step][1], expected, results[0][0][step][1], strict=True):
                np.testing.assert_allclose(g, e, rtol=bound, atol=bound * scale)
                np.testing.assert_array_equal(g, first)
    for _, _, last in results:
        assert all((last[n] == results[0][2][n]).all() for n in last)


def _own(model, x, y):
    return wf.grad(lambda m: loss_of(m, x, y))(model).parameters()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_what_is_not_finite_on_one_rank_is_so_on_all_and_is_forgotten(kind, device, bad):
    """The pass after it is the same as if the bad one had not been there."""

    def rank_of(interrupted):
        def rank(r):
            model = wf.dist.DataParallel(mlp("float32", device), compression=KINDS[kind])
            x, y = shard(data(8, "float32"), r, 2, device)
            found = []
            for step in range(6):
                if step == 4 and interrupted:
                    model.zero_grad()
                    (loss_of(model, x, y) * (bad if r else 1.0)).backward()
                    found.append([not np.isfinite(g).all() for g in gradients(model).values()])
                model.zero_grad()
                (loss_of(model, x, y) * (step + 1)).backward()
                found.append(list(gradients(model).values()))
            return found

        return rank

    for interrupted, plain in zip(run(2, rank_of(True)), run(2, rank_of(False)), strict=True):
        spoiled = interrupted.pop(4)
        assert any(spoiled) if kind == "topk" else all(spoiled)
        for a, b in zip(interrupted, plain, strict=True):
            for g, e in zip(a, b, strict=True):
                np.testing.assert_array_equal(g, e)


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_goes_on_to_the_bit(kind):
    def train(model, optimizer, x, y, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(model, x, y).backward()
            optimizer.step()

    def rank(r):
        x, y = shard(data(12), r, 3)
        model = wf.dist.DataParallel(mlp(), compression=KINDS[kind])
        optimizer = wf.optim.SGD(model, lr=0.05)
        train(model, optimizer, x, y, 4)
        kept = {n: v.numpy().copy() for n, v in model.state_dict().items()}
        state = model.reducer.state_dict()
        state = {k: v.numpy() if hasattr(v, "numpy") else v for k, v in state.items()}
        train(model, optimizer, x, y, 4)
        other = wf.dist.DataParallel(mlp(seed=8), compression=KINDS[kind])
        other.load_state_dict(kept)
        other.reducer.load_state_dict(state)
        train(other, wf.optim.SGD(other, lr=0.05), x, y, 4)
        return values(model), values(other)

    for one, other in run(3, rank):
        assert all((one[name] == other[name]).all() for name in one)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_compiled_steps_cast_as_eager_ones_do(kind):
    def rank(r):
        found = []
        for compiled in (False, True):
            model = wf.dist.DataParallel(mlp("float32"), compression=kind)
            x, y = shard(data(8, "float32"), r, 2)
            step = lambda x, y, model=model: loss_of(model, x, y).backward()  # noqa: E731
            (wf.compile(step) if compiled else step)(x, y)
            found.append(gradients(model))
        return found

    for eager, compiled in run(2, rank):
        for name, g in eager.items():
            np.testing.assert_allclose(compiled[name], g, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("kind", ["topk", "powersgd"])
def test_compiled_steps_refuse_what_remembers(kind):
    def rank(r):
        model = wf.dist.DataParallel(mlp(), compression=kind)
        x, y = shard(data(8), r, 2)
        with pytest.raises(errors.StagingError, match=r"wf\.compile\(model\)"):
            wf.compile(lambda x, y: loss_of(model, x, y).backward())(x, y)
        loss_of(wf.compile(model), x, y).backward()

    run(2, rank)


@pytest.mark.parametrize("bad", ["topK", 3, object, ["float16"]])
def test_an_unknown_compression_is_refused(bad):
    with pytest.raises(errors.ArgumentError, match=r"compression=.*'powersgd'"):
        run(1, lambda r: wf.dist.DataParallel(mlp(), compression=bad))


def test_a_share_of_the_steps_needs_their_number():
    with pytest.raises(errors.ArgumentError, match="total_steps"):
        wf.dist.PowerSGD(start=0.1)
    assert wf.dist.PowerSGD(start=0.1, total_steps=50).begin == 5


def test_powersgd_is_that_of_pytorch():
    """One process, from the same Q: PyTorch's hook and ours give the same gradients."""
    torch = pytest.importorskip("torch")
    from torch import distributed
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hook

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = mlp()
        theirs = torch.nn.Sequential(
            *(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 16)),
            *(torch.nn.Tanh(), torch.nn.Linear(16, 3)),
        ).double()
        theirs.load_state_dict({n: torch.tensor(x) for n, x in values(model).items()})
        wrapped = torch.nn.parallel.DistributedDataParallel(theirs)
        state = hook.PowerSGDState(
            distributed.group.WORLD, 2, start_powerSGD_iter=2, min_compression_rate=1
        )
        wrapped.register_comm_hook(state, hook.powerSGD_hook)
        x, y = data(12)
        expected = []
        for step in range(6):
            if step == 2:
                kept = state.rng.get_state()
            wrapped.zero_grad()
            (((wrapped(torch.tensor(x)) - torch.tensor(y)) ** 2).mean() * (step + 1)).backward()
            expected.append([p.grad.numpy().copy() for p in theirs.parameters()])
        state.rng.set_state(kept)
        torch.manual_seed(state.rng.randint(1_000_000_000))
        # Their bucket has the parameters in the order in which gradients were final.
        compressed = [k for k in (4, 2, 0) if sum(SHAPES[k]) * 2 < np.prod(SHAPES[k])]
        by_shape = {k: torch.randn(1, SHAPES[k][1], 2, dtype=torch.float64) for k in compressed}
    finally:
        distributed.destroy_process_group()

    def rank(r):
        model = wf.dist.DataParallel(mlp(), compression=KINDS["powersgd"])
        model.reducer.compressor.state["q"] = {k: q[0].numpy() for k, q in by_shape.items()}
        found = []
        for step in range(6):
            model.zero_grad()
            (loss_of(model, *shard(data(12), 0, 1)) * (step + 1)).backward()
            found.append(list(gradients(model).values()))
        return found

    (found,) = run(1, rank)
    for mine, others in zip(found, expected, strict=True):
        for g, e in zip(mine, others, strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-9, atol=1e-12)


def test_training_with_little_traffic_reaches_nearly_the_same_loss():
    """200 steps; the model has layers that PowerSGD and top-k compress."""

    def rank_of(compression):
        def rank(r):
            model = wf.dist.DataParallel(draw(mlp(width=48)), compression=compression)
            optimizer = wf.optim.SGD(model, lr=0.02, momentum=0.9)
            x, y = shard(data(32), r, 2)
            for _ in range(200):
                optimizer.zero_grad()
                loss = loss_of(model, x, y)
                loss.backward()
                optimizer.step()
            return loss.item()

        return rank

    plain = sum(run(2, rank_of(None)))
    for kind in ("bfloat16", wf.dist.PowerSGD(rank=4, start=20)):
        assert abs(sum(run(2, rank_of(kind))) - plain) < 0.05 * plain, kind
