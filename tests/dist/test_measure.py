"""What is measured for predictions: a step on all ranks, a link, and the bytes that are sent."""

from itertools import count
from math import prod

import numpy as np
import pytest

import weft as wf
from weft.dist import Link, PowerSGD, StepProfile, TopK, measure, simulate
from weft.dist.world import world
from weft.errors import ArgumentError

from . import threads

COMPRESSIONS = (None, "float16", "bfloat16", "topk", "powersgd", TopK(0.3), PowerSGD(1, start=0))


def test_gradients_are_final_after_their_last_use(monkeypatch):
    ticks = count()
    monkeypatch.setattr(measure, "_now", lambda: float(next(ticks)))
    first, shared, last, unused = (wf.Parameter(wf.rand((3, 3))) for _ in range(4))
    x = wf.rand((2, 3))

    def loss():
        return (((x @ first).tanh() @ shared).tanh() @ shared @ last).sum()

    optimizer = wf.optim.SGD([first, shared, last, unused], lr=0.1)
    with pytest.warns(UserWarning, match="on any rank: '3'"):
        profile = wf.dist.measure_step(loss, optimizer, samples=2)
    a, b, c, d = [g.ready / profile.backward for g in profile.gradients]
    # a tick at the begin, one for each moment at which some are final, and one at the end
    assert (c, b, a, d) == pytest.approx((1 / 4, 2 / 4, 3 / 4, 1.0))
    assert [g.shape for g in profile.gradients] == [(3, 3)] * 4 and profile.samples == 2
    assert (profile.forward, profile.backward, profile.optimizer) == (1.0, 1.0, 1.0)


def test_what_a_compiled_function_computes_is_final_at_its_end():
    model = wf.nn.Sequential(wf.nn.Linear(8, 8), wf.nn.Tanh(), wf.nn.Linear(8, 1))
    x, optimizer = wf.rand((4, 8)), wf.optim.SGD(model, lr=0.1)
    eager = wf.dist.measure_step(lambda: model(x).sum(), optimizer)
    whole = wf.compile(lambda x: model(x).sum())
    compiled = wf.dist.measure_step(lambda: whole(x), optimizer)
    assert len({g.ready for g in compiled.gradients}) == 1 == len(compiled.gradients) - 3
    assert eager.gradients[2].ready < eager.gradients[0].ready <= eager.backward
    assert eager.nbytes == compiled.nbytes == 4 * sum(prod(p.shape) for p in model.parameters())


@pytest.mark.parametrize("seed", range(4))
def test_a_line_through_times(seed):
    rng = np.random.default_rng(seed)
    fixed, slope = 10 ** rng.uniform(-6, -3), 10 ** rng.uniform(-11, -8)
    sizes = np.array(measure._SIZES)
    noise = 1 + rng.uniform(-0.02, 0.02, len(sizes))
    found = measure.line(sizes, (fixed + slope * sizes) * noise)
    assert found[0] + found[1] * sizes == pytest.approx(fixed + slope * sizes, rel=0.04)
    assert found[1] == pytest.approx(slope, rel=0.04)


def test_lines_that_are_none():
    sizes = np.array([1e3, 1e6])
    assert measure.line(sizes, np.array([1e-6, 2e-3]))[0] == 0.0
    with pytest.raises(ArgumentError, match="larger sizes"):
        measure.line(sizes, np.array([2e-3, 1e-3]))


def wrapped_model():
    wf.random.seed(0)
    layers = (wf.nn.Linear(40, 300), wf.nn.Tanh(), wf.nn.Linear(300, 7))
    return wf.nn.Sequential(*layers, wf.nn.LayerNorm(7), wf.nn.Linear(7, 1, bias=False))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("bucket_mb", [0.001, 25])
def test_data_parallel_sends_as_many_bytes_as_predicted(compression, bucket_mb):
    if compression == "powersgd":
        compression = PowerSGD(4, start=0)
    x = wf.rand((5, 40))

    def program(rank):
        model = wrapped_model()
        optimizer = wf.optim.SGD(model, lr=1e-3)
        profile = wf.dist.measure_step(lambda: model(x).sum(), optimizer, steps=2)
        model = wf.dist.DataParallel(model, bucket_mb=bucket_mb, compression=compression)
        model(x).sum().backward()  # the ranks agree on the order in which gradients are final
        member = world()
        before = member.sent.total()
        model(x).sum().backward()
        return profile, member.sent.total() - before

    for profile, sent in threads.run(2, program):
        options = {"compression": compression, "compression_seconds": 0.0, "bucket_mb": bucket_mb}
        assert simulate(profile, Link(1e-5, 1e9), [2], **options)[0].sent == sent


@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_measure_the_same_step(size):
    def program(rank):
        model = wrapped_model()
        return wf.dist.measure_step(
            lambda: model(wf.ones((4, 40))).sum(), wf.optim.SGD(model, lr=1e-3), steps=2
        )

    found = threads.run(size, program)
    assert all(profile == found[0] for profile in found)


def test_wrapped_models_are_refused():
    def program(rank):
        model = wf.dist.DataParallel(wrapped_model())
        wf.dist.measure_step(lambda: model(wf.ones((4, 40))).sum(), wf.optim.SGD(model, lr=1e-3))

    with pytest.raises(ArgumentError, match="before it is wrapped"):
        threads.run(2, program)


@pytest.mark.parametrize("size", [2, 3])
def test_all_ranks_measure_the_same_link(size):
    def program(rank):
        return wf.dist.measure_link(sizes=[1 << 10, 1 << 16, 1 << 20], repeats=3)

    found = threads.run(size, program)
    assert all(link == found[0] for link in found)
    assert found[0].node_size == size and found[0].cores >= 1 and found[0].bandwidth > 0
    assert simulate(StepProfile.even(0.1, 1e6), found[0], [size])[0].step > 0.1


@pytest.mark.parametrize("size", [2, 3, 4])
def test_links_take_what_was_measured(size, monkeypatch):
    monkeypatch.setattr(measure, "_reduced", lambda group, *asked: (6e-4 + 3e-9 * asked[1], 0.25))
    for link in threads.run(size, lambda rank: wf.dist.measure_link()):
        assert link.all_reduce(1 << 20, size) + link.all_gather(0, size) == pytest.approx(
            6e-4 + 3e-9 * (1 << 20), rel=1e-6
        )
        assert link.all_reduce(1 << 24, size) - link.all_reduce(1 << 20, size) == pytest.approx(
            3e-9 * ((1 << 24) - (1 << 20)), rel=1e-6
        )
        assert link.busy == pytest.approx(0.25) and link.algorithm == "ring"


def test_a_link_needs_two_ranks():
    with pytest.raises(ArgumentError, match="at least two"):
        threads.run(1, lambda rank: wf.dist.measure_link())
