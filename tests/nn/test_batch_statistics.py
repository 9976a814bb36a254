"""Batch norm whose running statistics follow in the same kernel: as by kernels one by one."""

from contextlib import nullcontext

import numpy as np
import pytest

import weft as wf
from weft.nn.functional import norms

torch = pytest.importorskip("torch")
F = wf.nn.functional
SHAPE = (4, 3, 2, 5)


def _tensor(seed, *shape, dtype="float32"):
    values = np.random.default_rng(seed).normal(size=shape) + 0.5
    return wf.tensor(values, dtype=dtype, device="torch")


def _statistics(dtype="float32"):
    return [wf.tensor(np.full(3, v), dtype=dtype, device="torch") for v in (0.5, 2.0)]


def _results(x, w, b, running, **how):
    """The result, the running statistics, and all gradients, twice in a row."""
    for p in (x, w, b):
        p.grad = None
    for _ in range(2):
        y = F.batch_norm(x, *running, w, b, training=True, **how)
        (y * y * y).to("float64").sum().backward()
    found = [y.detach(), *running, *(p.grad for p in (x, w, b))]
    return [(t.dtype, t.to("float64").numpy()) for t in found]


def _one_by_one(monkeypatch):
    monkeypatch.setattr(norms, "normed_and_followed", lambda *given: None)


def _is_at_once(x, w, b, running):
    done = norms.normed_and_followed(x, tuple(running), w, b, 0.1, 1e-5)
    return done is not None


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("casts", [False, True])
def test_the_same_as_by_several_kernels(dtype, casts, monkeypatch):
    wide = "float64" if dtype == "float64" else "float32"
    x, w, b = _tensor(1, *SHAPE, dtype=dtype), *(_tensor(k, 3, dtype=wide) for k in (2, 3))
    leaves = [t.requires_grad_() for t in (x, w, b)]
    assert _is_at_once(*leaves, _statistics(wide))
    with wf.amp.autocast("bfloat16", enabled=casts):
        found = _results(*leaves, _statistics(wide), momentum=0.3)
        _one_by_one(monkeypatch)
        expected = _results(*leaves, _statistics(wide), momentum=0.3)
    unit = 2**-52 if wide == "float64" else 2**-23
    for (own, ours), (right, theirs) in zip(found, expected, strict=True):
        assert own == right and np.abs(ours - theirs).max() <= 8 * unit * np.abs(theirs).max()


def test_running_statistics_are_pytorchs():
    x, w, b = _tensor(1, *SHAPE), _tensor(2, 3), _tensor(3, 3)
    running = _statistics()
    theirs = [r.numpy().copy() for r in running]
    theirs = [torch.from_numpy(r) for r in theirs]
    F.batch_norm(x, *running, w, b, training=True, momentum=0.25)
    given = [torch.from_numpy(t.numpy().copy()) for t in (x, w, b)]
    torch.nn.functional.batch_norm(given[0], *theirs, *given[1:], training=True, momentum=0.25)
    for ours, right in zip(running, theirs, strict=True):
        assert np.array_equal(ours.numpy(), right.numpy())


def test_second_derivatives(monkeypatch):
    leaves = [t.requires_grad_() for t in (_tensor(1, *SHAPE), _tensor(2, 3), _tensor(3, 3))]

    def penalty():
        y = F.batch_norm(leaves[0], *_statistics(), *leaves[1:], training=True)
        g = (y * y * y).sum().backward(create_graph=True)
        again = sum((g[p] * g[p]).sum() for p in leaves).backward()
        return [again[p].numpy() for p in leaves]

    found = penalty()
    _one_by_one(monkeypatch)
    for ours, right in zip(found, penalty(), strict=True):
        assert np.abs(ours - right).max() <= 2**-16 * np.abs(right).max()
        assert np.abs(right).max() > 0


def test_values_stay_values():
    """A copy of running statistics, and what was computed from them, does not change with them."""
    x, w, b = _tensor(1, *SHAPE), _tensor(2, 3), _tensor(3, 3)
    mean, variance = _statistics()
    before = mean.detach().clone()
    used = (before * 1.0).requires_grad_()
    loss = (used * mean).sum()
    F.batch_norm(x, mean, variance, w, b, training=True)
    assert before.tolist() == [0.5] * 3 and mean.tolist() != [0.5] * 3
    with pytest.raises(wf.errors.SavedValueOverwritten, match="multiply"):
        loss.backward()


def test_a_severed_gradient_is_not_passed_on():
    x, w, b = _tensor(1, *SHAPE).requires_grad_(), _tensor(2, 3), _tensor(3, 3)
    g = (x * x).sum().backward()[x]
    y = F.batch_norm(g, *_statistics(), w, b, training=True)
    with pytest.raises(wf.errors.GradientError, match="create_graph"):
        y.sum().backward()


def test_a_checkpoint_counts_once():
    x, w, b = _tensor(1, *SHAPE).requires_grad_(), _tensor(2, 3), _tensor(3, 3)
    plain, again = _statistics(), _statistics()
    F.batch_norm(x, *plain, w, b, training=True)
    wf.checkpoint(lambda v: F.batch_norm(v, *again, w, b, training=True))(x).sum().backward()
    assert [r.tolist() for r in plain] == [r.tolist() for r in again]


@pytest.mark.parametrize("kind", ["one value", "shapes", "dtypes", "tracked", "numpy"])
def test_others_go_one_by_one(kind):
    x, w, b = _tensor(1, *SHAPE), _tensor(2, 3), _tensor(3, 3)
    running = _statistics()
    if kind == "one value":
        x = x[:1, :, :1, :1]
    elif kind == "shapes":
        running[1] = running[1][:2]
    elif kind == "dtypes":
        running[0] = running[0].to("float64")
    elif kind == "tracked":
        running[0].requires_grad_()
    else:
        x, w, b, *running = (t.to("cpu") for t in (x, w, b, *running))
    before = [r.tolist() for r in running]
    assert not _is_at_once(x, w, b, running)
    assert [r.tolist() for r in running] == before


def _hooks():
    return wf.saved_tensors_hooks(lambda t: t.detach().clone(), lambda kept: kept)


def _tape(strategy: str):
    how = {"memory_budget_mb": 4096} if strategy == "auto" else {}
    return lambda: wf.GradientTape(checkpoint=wf.CheckpointConfig(strategy, **how))


SAVING = {
    "hooks": _hooks,
    "host": wf.save_on_cpu,
    "disk": wf.save_on_disk,
    **{name: _tape(name) for name in ("selective", "block", "full", "auto")},
}


def _followed(seed: int, device: str, block) -> list[bytes]:
    """The bits of a random norm's result and statistics after some batches within a block."""
    rng = np.random.default_rng(seed)
    wide = str(rng.choice(["float32", "float64"]))
    dtype = wide if rng.random() < 0.6 else "bfloat16"
    batch, given = rng.random() < 0.7, rng.random(4) < 0.7
    norm = F.batch_norm if batch else F.instance_norm
    shape = (int(rng.integers(2, 9)), 3, *rng.integers(2, 5, int(rng.integers(1, 4))).tolist())
    lines = [
        wf.tensor(rng.uniform(0.5, 2.0, 3), dtype=wide, device=device) if there else None
        for there in given
    ]
    if batch is False and (lines[0] is None) != (lines[1] is None):
        lines[:2] = None, None
    leaves = [None if t is None else t.requires_grad_() for t in lines[2:]]
    how = {"momentum": float(rng.choice([0.1, 0.3, 1.0])), "eps": float(rng.choice([1e-5, 1e-2]))}
    how |= {"training": True} if batch else {"use_input_stats": True}
    found = []
    for _ in range(2):
        x = wf.tensor(rng.normal(size=shape) + 0.5, dtype=dtype, device=device)
        with block():
            y = norm(x.requires_grad_(), *lines[:2], *leaves, **how)
            total = (y * y * y).to("float64").sum()
        total.backward()
        grads = [p.grad for p in (x, *leaves) if p is not None]
        kept = [y.detach(), *[t for t in (*lines[:2], *grads) if t is not None]]
        found += [t.to("cpu").to("float64").numpy().tobytes() for t in kept]
    return found


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("way", SAVING)
def test_every_way_of_saving_leaves_the_bits(way, device):
    for seed in range(40):
        expected = _followed(seed, device, nullcontext)
        assert _followed(seed, device, SAVING[way]) == expected, seed
