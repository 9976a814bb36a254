"""Data-parallel training of several ranks beside one process with all of the data."""

import contextlib
import re
import time
import warnings

import numpy as np
import pytest

import weft as wf
from weft import errors

from .models import DEVICES, data, draw, gradients, loss_of, mlp, shard, values
from .threads import run

SIZES = (1, 2, 3, 4)
STEPS = 50
OPTIMIZERS = {
    "sgd": lambda model: wf.optim.SGD(model, lr=0.1, momentum=0.9),
    "adamw": lambda model: wf.optim.AdamW(model, lr=0.01),
}


def train(model, batches, way, optimizer, steps=STEPS, micro=1):
    """The losses of training on one batch, cut into micro-batches."""
    x, y = batches
    step_by = OPTIMIZERS[optimizer](model)
    called = wf.compile(model) if way == "model" else model

    def step(x, y):
        loss = loss_of(called, x, y)
        step_by.zero_grad()
        loss.backward()
        step_by.step()
        return loss

    if way == "step":
        step = wf.compile(step)
    losses = []
    for _ in range(steps):
        if micro == 1:
            losses.append(step(x, y).item())
            continue
        parts = [loss_of(called, a, b) / micro for a, b in zip(x, y, strict=True)]
        step_by.zero_grad()
        for k, part in enumerate(parts):
            if k + 1 < micro:
                with model.no_sync():
                    assert not part.backward()  # the map is empty
            else:
                part.backward()
        step_by.step()
        losses.append(sum(part.item() for part in parts))
    return losses


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", ["eager", "step", "model"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ranks_train_as_one_process_with_all_of_the_data(size, way, device, dtype):
    every = data(24, dtype)
    for optimizer in OPTIMIZERS:
        one = mlp(dtype, device)
        expected = train(one, shard(every, 0, 1, device), "eager", optimizer)

        def rank(r, optimizer=optimizer):
            model = wf.dist.DataParallel(mlp(dtype, device, seed=r + 3), bucket_mb=4e-4)
            losses = train(model, shard(every, r, size, device), way, optimizer)
            return losses, values(model)

        results = run(size, rank)
        losses = np.mean([losses for losses, _ in results], 0)
        if optimizer == "sgd":
            bound = 1e-6 if dtype == "float32" else 1e-12
            for name, x in values(one).items():
                np.testing.assert_allclose(results[0][1][name], x, rtol=bound, atol=bound)
        np.testing.assert_allclose(losses, expected, rtol=1e-5 if dtype == "float32" else 1e-9)
        for _, found in results[1:]:
            for name, x in found.items():
                np.testing.assert_array_equal(x, results[0][1][name])


@pytest.mark.parametrize("size", SIZES)
def test_micro_batches_are_synchronised_once(size):
    """No gradient is seen before the last pass, and bytes are those of one pass."""
    every, micro = data(36), 3
    one = mlp()
    train(one, shard(every, 0, 1), "eager", "sgd")

    def rank(r):
        model = wf.dist.DataParallel(mlp(seed=r + 3))
        x, y = shard(every, r, size)
        before = dict(wf.dist.world.world().sent)
        train(
            model, (x.reshape(micro, -1, 5), y.reshape(micro, -1, 3)), "eager", "sgd", micro=micro
        )
        sent = wf.dist.world.world().sent["all_reduce"] - before.get("all_reduce", 0)
        n = sum(p.size + 1 for p in model.parameters()) + 1
        assert sent == STEPS * 8 * n
        assert (model.last_sync.included, model.last_sync.step) == (micro, STEPS - 1)
        return values(model)

    results = run(size, rank)
    for name, x in values(one).items():
        np.testing.assert_allclose(results[0][name], x, rtol=1e-12, atol=1e-12)
        assert all((found[name] == results[0][name]).all() for found in results)


def test_waiting_gradients_cannot_be_forgotten():
    def rank(r):
        model = wf.dist.DataParallel(mlp())
        x, y = shard(data(8), r, 2)
        optimizer, other = wf.optim.SGD(model, lr=0.1), wf.optim.SGD([wf.Parameter([1.0])], lr=1)
        with model.no_sync():
            loss_of(model, x, y).backward()
            loss_of(model, x, y).backward()
        assert model.pending == 2
        assert not any(g is not None for g in gradients(model).values())
        for call in (optimizer.step, optimizer.zero_grad):
            with pytest.raises(errors.DistributedError, match=r"2 backward passes in no_sync\(\)"):
                call()
        compiled = wf.compile(lambda x, y: loss_of(model, x, y).backward())
        with pytest.raises(errors.DistributedError, match=r"no_sync\(\)"):
            compiled(x, y)
        other.step([wf.tensor([1.0])])
        model.zero_grad()
        assert model.pending == 0
        optimizer.step()
        loss_of(model, x, y).backward()
        assert len({id(p.grad._data.base) for p in model.parameters()}) == 1  # views of a bucket
        return gradients(model)

    def alone():
        model = mlp()
        loss_of(model, *shard(data(8), 0, 1)).backward()
        return gradients(model)

    expected = alone()
    for found in run(2, rank):
        for name, g in found.items():
            np.testing.assert_allclose(g, expected[name], rtol=1e-12, atol=1e-14)


def test_compiled_programs_refuse_to_run_while_gradients_wait():
    def rank(r):
        model = wf.dist.DataParallel(mlp())
        x, y = shard(data(8), r, 2)
        compiled = wf.compile(lambda x, y: loss_of(model, x, y).backward())
        for _ in range(3):
            compiled(x, y)
        with model.no_sync(), pytest.raises(errors.DistributedError, match="is called in no_sync"):
            compiled(x, y)
        with model.no_sync():
            loss_of(model, x, y).backward()
        with pytest.raises(errors.DistributedError, match="1 backward passes wait"):
            compiled(x, y)
        model.zero_grad()
        compiled(x, y)

    run(2, rank)


@pytest.mark.parametrize("device", DEVICES)
def test_an_overflow_on_one_rank_is_one_on_all(device):
    def rank(r):
        model = wf.dist.DataParallel(mlp("float32", device))
        optimizer = wf.optim.SGD(model, lr=0.1)
        scaler = wf.amp.GradScaler(init_scale=2.0**8, growth_interval=3)
        x, y = shard(data(8, "float32"), r, 2, device)
        scales = []
        for step in range(8):
            with wf.amp.autocast("float16" if step % 2 else "bfloat16"):
                loss = loss_of(model, x, y) * (float("inf") if (step, r) == (4, 1) else 1.0)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return scales, values(model)

    (scales, first), (other, second) = run(2, rank)
    assert scales == other
    assert scales[4] == scales[3] / 2
    for name, x in first.items():
        assert np.isfinite(x).all()
        np.testing.assert_array_equal(x, second[name])


class Branches(wf.nn.Module):
    """Two heads, of which a call uses some; `first` is used under two names."""

    def __init__(self):
        super().__init__()
        self.first = wf.nn.Linear(5, 5)
        self.again = self.first
        self.heads = wf.nn.ModuleList([wf.nn.Linear(5, 3) for _ in range(3)])

    def forward(self, x, which=(0,)):
        x = self.again(wf.tanh(self.first(x)))
        return sum(self.heads[k](x) for k in which)


def test_parameters_that_some_ranks_do_not_use_count_as_zeros_there():
    def rank(r):
        model = wf.dist.DataParallel(draw(Branches().double()))
        x, y = shard(data(8), r, 2)
        for _ in range(2):
            model.zero_grad()
            ((model(x, (0, 1) if r else (0,)) - y) ** 2).mean().backward()
        return gradients(model)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = run(2, rank)
    single = []
    for r in range(2):
        model = draw(Branches().double())
        x, y = shard(data(8), r, 2)
        ((model(x, (0, 1) if r else (0,)) - y) ** 2).mean().backward()
        single.append(gradients(model))
    said = [str(w.message) for w in caught]
    assert len(said) == 2  # each rank once
    assert all("on any rank: 'heads.2.weight', 'heads.2.bias'. The" in t for t in said)
    for found in results:
        assert len(found) == 8  # the shared layer once
        for name, g in found.items():
            parts = [s[name] for s in single]
            if "heads.2" in name:
                assert g is None
                continue
            mean = sum(0 if p is None else p for p in parts) / 2
            np.testing.assert_allclose(g, mean, rtol=1e-13, atol=1e-15)


def test_compiled_passes_that_use_other_parameters_are_refused():
    def rank(r):
        model = wf.dist.DataParallel(draw(Branches().double()))
        x, y = shard(data(8), r, 2)
        which = (1,) if r else (0,)
        wf.compile(lambda x, y: ((model(x, which) - y) ** 2).mean().backward())(x, y)

    with pytest.raises(errors.RanksDiffer, match="backward pass of 4 parameters"):
        run(2, rank)


@pytest.mark.parametrize(
    ("way", "waiting"),
    [("eager", ()), ("eager", (0,)), ("eager", (1,)), ("eager", (0, 1)), ("step", ())],
)
def test_one_pass_through_several_models(way, waiting):
    """Some of which are in no_sync(): each is synchronised, or waits, for itself."""

    def pass_through(models, x, y):
        first, second = models
        z = first(x) + second(x) * first(x)  # interleaved
        return ((z - y) ** 2).mean().backward()

    def rank(r):
        models = [wf.dist.DataParallel(mlp(seed=s), bucket_mb=4e-4) for s in (1, 2)]
        x, y = shard(data(8), r, 2)
        run_pass = wf.compile(lambda x, y: pass_through(models, x, y)) if way == "step" else None
        with contextlib.ExitStack() as stack:
            for k in waiting:
                stack.enter_context(models[k].no_sync())
            (run_pass or (lambda x, y: pass_through(models, x, y)))(x, y)
        found = [gradients(model) for model in models]
        for k in waiting:
            assert (models[k].pending, *found[k].values()) == (1, *[None] * 6)
            means = [g.numpy() for _, g in models[k].reducer.average([])]
            found[k] = dict(zip(found[k], means, strict=True))
        return found

    alone = [mlp(seed=s) for s in (1, 2)]
    pass_through(alone, *shard(data(8), 0, 1))
    for found in run(2, rank):
        for k, model in enumerate(alone):
            for name, g in gradients(model).items():
                np.testing.assert_allclose(found[k][name], g, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("given", ["wrapper", "model", "parameter"])
def test_models_and_parameters_among_the_arguments_of_compiled_functions(given):
    """Their leaves are others there, which are synchronised all the same."""

    def rank(r):
        wrapper = wf.dist.DataParallel(mlp())
        x, y = shard(data(8), r, 2)
        model = wrapper.module if given == "model" else wrapper
        if given == "parameter":
            step = wf.compile(lambda p, x, y: loss_of(model, x, y).backward())
        else:
            step = wf.compile(lambda m, x, y: loss_of(m, x, y).backward())
        for _ in range(2):
            wrapper.zero_grad()
            step(wrapper.get_parameter("0.weight") if given == "parameter" else model, x, y)
        return gradients(wrapper)

    one = mlp()
    loss_of(one, *shard(data(8), 0, 1)).backward()
    for found in run(2, rank):
        for name, g in found.items():
            np.testing.assert_allclose(g, gradients(one)[name], rtol=1e-12, atol=1e-14)


def test_frozen_parameters_and_others_keep_their_gradients():
    """Also those frozen or unfrozen later; a leaf outside of the model stays this rank's own."""

    def rank(r):
        model = wf.dist.DataParallel(mlp())
        x, y = shard(data(8), r, 2)
        outside = wf.tensor(1.0 + r, requires_grad=True, dtype="float64")
        found = []
        for pattern in ("0.*", "*", "4.weight"):
            model.unfreeze("*")
            model.freeze(pattern) if pattern != "*" else None
            model.zero_grad()
            (loss_of(model, x, y) * outside).backward()
            found.append(gradients(model))
        return found, outside.grad.item(), [loss_of(model, x, y).item()]

    results = run(2, rank)
    expected = []
    for r in range(2):
        model = mlp()
        (loss_of(model, *shard(data(8), r, 2)) * (1.0 + r)).backward()
        expected.append(gradients(model))
    for found, outside, loss in results:
        np.testing.assert_allclose(outside, 3 * loss[0], rtol=1e-13)
        for frozen, by_name in zip(("0.", "-", "4.weight"), found, strict=True):
            for name, g in by_name.items():
                if name.startswith(frozen):
                    assert g is None
                else:
                    mean = (expected[0][name] + expected[1][name]) / 2
                    np.testing.assert_allclose(g, mean, rtol=1e-13, atol=1e-15)


def test_only_backward_synchronises_and_it_does_so_each_time():
    def rank(r):
        model = wf.dist.DataParallel(mlp())
        x, y = shard(data(8), r, 2)
        own = {
            n: g.detach().numpy()
            for n, g in _named(model, wf.grad(lambda m: loss_of(m, x, y))(model))
        }
        with wf.GradientTape() as tape:
            loss = loss_of(model, x, y)
        taped = tape.gradient(loss, list(model.parameters()))
        for (_, g), t in zip(own.items(), taped, strict=True):
            np.testing.assert_allclose(g, t.numpy(), rtol=1e-13)
        loss = loss_of(model, x, y)
        once = loss.backward(retain_graph=True)
        map_of = {n: once[p].numpy() for n, p in model.named_parameters()}
        for name, g in gradients(model).items():
            np.testing.assert_array_equal(g, map_of[name])
        loss.backward()
        twice = gradients(model)
        model.zero_grad()
        recorded = loss_of(model, x, y).backward(create_graph=True)
        penalty = sum((recorded[p] ** 2).sum() for p in model.parameters())
        model.zero_grad()
        penalty.backward()
        return own, map_of, twice, gradients(model)

    results = run(2, rank)
    one = mlp()
    x, y = shard(data(8), 0, 1)
    grads = loss_of(one, x, y).backward(create_graph=True)
    one.zero_grad()
    sum((grads[p] ** 2).sum() for p in one.parameters()).backward()
    for _, once, twice, second in results:
        for name, g in once.items():
            mean = (results[0][0][name] + results[1][0][name]) / 2
            np.testing.assert_allclose(g, mean, rtol=1e-13, atol=1e-15)
            np.testing.assert_array_equal(twice[name], 2 * g)
            np.testing.assert_allclose(second[name], gradients(one)[name], rtol=1e-10, atol=1e-13)


def _named(model, tree):
    return zip([n for n, _ in model.named_parameters()], tree.parameters(), strict=True)


def test_a_pass_that_fails_on_one_rank_is_reported_by_all_and_the_group_goes_on():
    def rank(r):
        model = wf.dist.DataParallel(mlp(), bucket_mb=4e-4)
        x, y = shard(data(9), r, 3)

        def fail(g):
            raise ValueError("bad gradient")

        for where in ("0.weight", "2.bias", "4.bias"):
            hook = model.get_parameter(where).register_hook(fail) if r == 1 else None
            kind = ValueError if r == 1 else errors.DistributedError
            with pytest.raises(kind, match="bad gradient") as caught:
                loss_of(model, x, y).backward()
            assert r == 1 or "rank 1: ValueError" in str(caught.value)
            assert not any(g is not None for g in gradients(model).values())
            if hook is not None:
                hook.remove()
        loss_of(model, x, y).backward()
        return gradients(model)

    one = mlp()
    loss_of(one, *shard(data(9), 0, 1)).backward()
    for found in run(3, rank):
        for name, g in found.items():
            np.testing.assert_allclose(g, gradients(one)[name], rtol=1e-12, atol=1e-14)


def different(r, change):
    """A model that is another one on rank 1."""
    if r != 1:
        return mlp()
    return {
        "shape": lambda: mlp(width=17),
        "dtype": lambda: mlp("float32"),
        "frozen": lambda: mlp().requires_grad_(False),
        "fewer": lambda: wf.nn.Sequential(*list(mlp())[:3]),
        "more": lambda: wf.nn.Sequential(*mlp(), wf.nn.Linear(3, 3)),
        "names": lambda: wf.nn.Sequential(wf.nn.Identity(), *mlp()),
    }[change]()


@pytest.mark.parametrize("change", ["shape", "dtype", "frozen", "fewer", "more", "names"])
def test_different_models_are_refused_with_the_first_parameter_that_differs(change):
    first = {"fewer": "'4.weight'.*rank 1: none", "more": "none; rank 1: '5.weight'"}
    said = first.get(change, "'0.weight'.*rank 1: ")
    with pytest.raises(errors.RanksDiffer, match=rf"rank 0: {said}.*Build the same"):
        run(3, lambda r: wf.dist.DataParallel(different(r, change)))


def test_ranks_that_are_no_longer_in_step_are_told_so():
    def rank_of(change):
        def rank(r):
            model = wf.dist.DataParallel(mlp())
            x, y = shard(data(8), r, 2)
            loss_of(model, x, y).backward()
            if r:
                change(model, x, y)
            for _ in range(3):
                loss_of(model, x, y).backward()

        return rank

    def hold(model, x, y):
        with model.no_sync():
            loss_of(model, x, y).backward()

    def diverge(model, x, y):
        with wf.no_grad():
            model.get_parameter("2.weight").copy_(model.get_parameter("2.weight") + 1e-9)

    changes = [
        ([0, 1], hold),
        ([1], lambda model, x, y: loss_of(model, x, y)),
        ([2], lambda model, x, y: model.freeze("2.weight")),
        ([3], diverge),
    ]
    for parts, change in changes:
        with pytest.raises(errors.RanksDiffer, match="values: where only the last") as caught:
            run(2, rank_of(change))
        said = r"rank {}: backward pass 1 of (\d) after (\d) calls, layout (\w+), parameters (\w+)"
        zero, one = (re.search(said.format(r), str(caught.value)) for r in range(2))
        assert [k for k in range(4) if zero[k + 1] != one[k + 1]] == parts


def test_changes_of_a_wrapped_model_are_refused():
    model_of = {
        "float32": lambda model: model.to("float32"),
        "torch": lambda model: model.to("torch"),
        "new: head.weight": lambda model: setattr(model, "head", wf.nn.Linear(2, 2)),
    }
    for said, change in model_of.items():
        with wf.dist.world.standing_in(_alone()):
            model = wf.dist.DataParallel(mlp())
            change(model)
            x, y = shard(data(4), 0, 1)
            p = model.get_parameter("0.weight")
            with pytest.raises(errors.DistributedError, match=said):
                loss_of(model, x.to(p.dtype).to(p.device), y.to(p.dtype).to(p.device)).backward()


def _alone():
    from weft.dist.alone import AloneEngine
    from weft.dist.member import Member

    return Member(AloneEngine(), "alone for a test")


def test_buffers_are_those_of_rank_0():
    def rank(r):
        bn = wf.nn.BatchNorm1d(5)
        model = wf.dist.DataParallel(draw(wf.nn.Sequential(bn, wf.nn.Linear(5, 3)).double()))
        x, y = shard(data(12), r, 3)
        found = []
        called = wf.compile(model)
        for call in (model, model, called, called):
            loss_of(call, x, y).backward()
            found.append([b.numpy().copy() for b in model.buffers()])
        sent = wf.dist.world.world().sent["broadcast"]
        model.eval()
        model(x)
        assert wf.dist.world.world().sent["broadcast"] == sent
        return found

    results = run(3, rank)
    single = wf.nn.BatchNorm1d(5).double()
    x, _ = shard(data(12), 0, 3)
    for step in range(4):
        single(x)
        for k, b in enumerate(single.buffers()):
            np.testing.assert_allclose(results[0][step][k], b.numpy(), rtol=1e-12)
            for r in (1, 2):
                np.testing.assert_array_equal(results[r][step][k], results[0][step][k])


def test_a_wrapped_model_looks_like_the_model():
    with wf.dist.world.standing_in(_alone()):
        inner = mlp()
        model = wf.dist.DataParallel(inner)
        assert model.module is inner
        assert repr(model) == repr(inner)
        assert list(model.state_dict()) == list(inner.state_dict())
        assert [n for n, _ in model.named_parameters()] == [n for n, _ in inner.named_parameters()]
        assert [m for m in model.modules()] == [m for m in inner.modules()]
        assert [m for m in model.children()] == [m for m in inner.children()]
        model.eval()
        assert not inner.training and not inner[0].training
        model.train()
        assert inner.training and model.training
        assert len(model[0].weight) == 16 if hasattr(type(model), "__getitem__") else True
        other = mlp(seed=9)
        model.load_state_dict(other.state_dict())
        for name, x in values(inner).items():
            np.testing.assert_array_equal(x, values(other)[name])
        with pytest.raises(errors.ModuleError, match=r"its\s+\.module|\.module"):
            __import__("copy").deepcopy(model)
        with pytest.raises(errors.ArgumentError, match="not wrapped yet"):
            wf.dist.DataParallel(model)


def test_early_buckets_are_sent_while_the_sweep_runs():
    """Collectives of later layers begin before the hooks of earlier layers have run."""

    def rank(r):
        model = wf.dist.DataParallel(mlp(width=64), bucket_mb=1e-3)
        x, y = shard(data(8), r, 2)
        loss_of(model, x, y).backward()
        events = []
        engine = wf.dist.world.world().engine
        engine._before = lambda collective, nbytes: (
            events.append("sent") if collective == "all_reduce" else None
        )

        def pause(g):
            time.sleep(0.05)  # the background thread goes on
            events.append("hook")

        model.get_parameter("0.weight").register_hook(pause)
        loss_of(model, x, y).backward()
        return events

    for events in run(2, rank):
        assert events.count("sent") >= 3
        assert events.index("hook") >= 2  # at least two buckets were on their way
        assert events[-1] == "sent"


class Odd(wf.nn.Module):
    """A number, an array of nothing, a matrix."""

    def __init__(self, dtype, device):
        super().__init__()
        for name, x in (("a", 1.5), ("b", np.zeros((0, 3))), ("c", np.arange(6.0).reshape(2, 3))):
            kw = {} if device == "cpu" else {"device": device}
            self.register_parameter(name, wf.Parameter(wf.tensor(x, **kw).to(dtype)))

    def forward(self, x):
        y = ((self.a * x + self.b.sum() + self.c * x) ** 2).sum()
        return y.real if "complex" in str(y.dtype) else y


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64", "complex128"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", ["eager", "compiled", "topk", "powersgd"])
def test_gradients_of_all_dtypes_and_of_odd_shapes(dtype, device, way):
    kinds = {"topk": wf.dist.TopK(1.0), "powersgd": wf.dist.PowerSGD(rank=2, start=0)}

    def gradients_of(model, r):
        kw = {} if device == "cpu" else {"device": device}
        x = wf.tensor(np.full((2, 3), r + 1.0), **kw).to(dtype)
        step = lambda x: model(x).backward()  # noqa: E731
        (wf.compile(step) if way == "compiled" else step)(x)
        wide = "complex128" if "complex" in dtype else "float64"
        grads = {name: p.grad for name, p in model.named_parameters()}
        assert all(str(g.dtype) == dtype and g.device == device for g in grads.values())
        return {name: g.to("cpu").to(wide).numpy().copy() for name, g in grads.items()}

    def rank(r):
        return gradients_of(wf.dist.DataParallel(Odd(dtype, device), compression=kinds.get(way)), r)

    single = [gradients_of(Odd(dtype, device), r) for r in range(2)]
    bound = {"float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 1e-6)
    for found in run(2, rank):
        for name, g in found.items():
            mean = (single[0][name] + single[1][name]) / 2
            assert g.shape == mean.shape
            np.testing.assert_allclose(g, mean, rtol=bound, atol=bound)


@pytest.mark.parametrize("strategy", ["full", "selective"])
def test_checkpointed_models_send_nothing_twice(strategy):
    def rank(r):
        inner = wf.nn.Sequential(wf.nn.BatchNorm1d(5), wf.nn.Linear(5, 3)).double()
        model = wf.dist.DataParallel(draw(inner))
        x, y = shard(data(12), r, 2)
        found, sent = [], []
        for config in (None, wf.CheckpointConfig(strategy=strategy)):
            model.checkpoint(config)
            model.zero_grad()
            before = wf.dist.world.world().sent.copy()
            loss_of(model, x, y).backward()
            now = wf.dist.world.world().sent
            sent.append({kind: now[kind] - before[kind] for kind in ("all_reduce", "broadcast")})
            found.append(gradients(model))
        order = 8 * len(found[0])  # which the first pass has sent besides
        assert sent[0]["broadcast"] - order == sent[1]["broadcast"] > 0
        assert sent[0]["all_reduce"] == sent[1]["all_reduce"]
        return found

    for plain, again in run(2, rank):
        for name, g in plain.items():
            np.testing.assert_allclose(again[name], g, rtol=1e-12, atol=1e-14)


def test_a_pass_in_a_pass_through_the_same_model_is_refused():
    def rank(r):
        model = wf.dist.DataParallel(mlp())
        x, y = shard(data(8), r, 2)
        hook = model.get_parameter("2.weight").register_hook(
            lambda g: loss_of(model, x, y).backward()
        )
        with pytest.raises(errors.DistributedError, match="another backward pass"):
            loss_of(model, x, y).backward()
        hook.remove()
        loss_of(model, x, y).backward()
        return True

    assert run(2, rank) == [True, True]


def tape_step(model, optimizer, x, y):
    params = list(model.parameters())
    with wf.GradientTape() as tape:
        loss = loss_of(model, x, y)
    optimizer.step(tape.gradient(loss, params))


def changed_step(model, optimizer, x, y):
    """Each rank changes its parameters in its own way."""
    loss_of(model, x, y).backward()
    with wf.no_grad():
        for p in model.parameters():
            p.copy_(p * (1 + 1e-3 * wf.dist.rank()))
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("step", [tape_step, changed_step])
@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_ranks_that_become_different_are_told_so(step, way):
    """Whatever the way past `backward()`: within some steps, and not by waiting."""

    def rank(r):
        model = wf.dist.DataParallel(mlp(seed=r))
        optimizer = wf.optim.SGD(model, lr=0.1)
        x, y = shard(data(24), r, 2)
        with pytest.raises(errors.RanksDiffer, match="parameters"):
            if way == "compiled":

                @wf.compile
                def own(x, y):
                    loss_of(model, x, y).backward()
                    optimizer.step()
                    optimizer.zero_grad()

                step(model, optimizer, x, y)
                for _ in range(2 * 64):
                    own(x, y)
            for _ in range(5):
                step(model, optimizer, x, y)
        return True

    assert run(2, rank) == [True, True]


def test_steps_of_averaged_gradients_without_backward_go_on():
    def rank(r):
        model = wf.dist.DataParallel(mlp(seed=r))
        optimizer, params = wf.optim.SGD(model, lr=0.1), list(model.parameters())
        x, y = shard(data(24), r, 2)
        for _ in range(5):
            with wf.GradientTape() as tape:
                loss = loss_of(model, x, y)
            found = tape.gradient(loss, params)
            optimizer.step([wf.dist.all_reduce(g, "mean") for g in found])
        return values(model)

    first, second = run(2, rank)
    one = mlp(seed=0)
    slow = wf.optim.SGD(one, lr=0.1)
    for _ in range(5):
        slow.zero_grad()
        loss_of(one, *data_of_all()).backward()
        slow.step()
    for name, x in values(one).items():
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], x, rtol=1e-12)


def data_of_all():
    return [wf.tensor(a) for a in data(24)]


def test_buffers_that_do_not_change_are_neither_written_nor_sent_again():
    """Statistics that are frozen stay in graphs, on all ranks; 8-bit weights are sent once."""

    def rank(r):
        frozen = wf.nn.BatchNorm1d(5)
        packed = wf.nn.Linear8bit.from_linear(wf.nn.Linear(5, 64))
        plain = wf.nn.Sequential(wf.nn.Linear(5, 5), frozen, packed, wf.nn.Linear(64, 3))
        model = wf.dist.DataParallel(plain)
        frozen.eval()
        x, y = shard(data(12, "float32"), r, 2)
        loss = loss_of(model, x, y)
        before = wf.dist.world.world().sent["broadcast"]
        loss.backward(retain_graph=True)
        sent = wf.dist.world.world().sent["broadcast"] - before
        loss.backward()
        return sent

    nbytes = sum(b.nbytes for b in wf.nn.BatchNorm1d(5).buffers())
    assert all(sent <= nbytes + 8 * 10 for sent in run(2, rank))
