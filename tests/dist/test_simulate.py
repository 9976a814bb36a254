"""Predictions of scaling: laws that any must keep, and simulations made in another way."""

import math
from dataclasses import replace
from itertools import pairwise
from math import prod

import numpy as np
import pytest

import weft as wf
from weft.core.aval import Aval
from weft.dist import GradientProfile, Link, PowerSGD, StepProfile, TopK, simulate
from weft.dist.buckets import ParameterSpec, plan_buckets
from weft.dist.step_profile import expected_maximum
from weft.dist.timeline import Piece, play
from weft.dist.traffic import buckets_of
from weft.errors import ArgumentError

SEEDS = range(60)
SIZES = (1, 2, 3, 4, 7, 8, 16, 33, 64, 1024)
COMPRESSIONS = (None, "float16", "bfloat16", "topk", "powersgd", TopK(0.3), PowerSGD(1, start=0))


def random_profile(rng) -> StepProfile:
    forward, backward, optimizer = rng.uniform(0, 0.3, 3) + 1e-3
    shapes = [tuple(int(n) for n in rng.integers(1, 900, rng.integers(0, 4))) for _ in range(12)]
    gradients = [
        GradientProfile(s, float(rng.uniform(0, backward)), int(rng.choice([2, 4, 4, 8])))
        for s in shapes
        if prod(s) < 3e6
    ]
    return StepProfile(
        forward,
        backward,
        optimizer,
        (*gradients, GradientProfile((7,), backward)),
        samples=int(rng.integers(1, 64)),
        spread=float(rng.choice([0.0, 0.01])),
        cores=float(rng.choice([0.0, 1.0, 1.7])),
        speed=float(rng.choice([1e9, 5e10])),
    )


def random_link(rng) -> Link:
    return Link(
        latency=float(rng.choice([0.0, 10 ** rng.uniform(-6, -3)])),
        bandwidth=10 ** rng.uniform(7, 11),
        algorithm=rng.choice(["ring", "tree", "halving", "hierarchical"]),
        node_size=int(rng.choice([1, 4, 8, 5000])),
        inner_latency=rng.choice([None, 1e-6]),
        inner_bandwidth=rng.choice([None, 5e10]),
        cores=rng.choice([None, 2.0, 64.0]),
        busy=float(rng.choice([0.0, 0.3, 1.2])),
    )


def random_options(rng) -> dict:
    return {
        "overlap": bool(rng.integers(2)),
        "compression": COMPRESSIONS[rng.integers(len(COMPRESSIONS))],
        "compression_seconds": rng.choice([None, 0.02]),
        "bucket_mb": float(rng.choice([0.01, 1.0, 25.0, 1e4])),
        "sharded": bool(rng.integers(2)),
    }


def cases():
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        yield random_profile(rng), random_link(rng), random_options(rng)


def at_most(a: float, b: float) -> bool:
    return a <= b * (1 + 1e-9) + 1e-12


# Laws


def test_a_step_is_at_least_each_of_its_parts_and_at_most_their_sum():
    for profile, link, options in cases():
        for p in simulate(profile, link, SIZES, **options):
            assert at_most(max(p.compute, p.communication, p.compression), p.step), (link, options)
            assert at_most(p.step, p.compute + p.compression + p.communication), (link, options)
            assert at_most(0.0, p.exposed)
            # only shares of the optimizer's work can make a step shorter than that of one rank
            assert options["sharded"] or at_most(p.efficiency, 1.0)
            assert p.throughput == pytest.approx(profile.samples * p.size / p.step)


def test_one_rank_is_the_profile():
    for profile, link, options in cases():
        cores = None if link.cores is None else max(link.cores, profile.cores)
        (p,) = simulate(profile, replace(link, cores=cores), [1], **options)
        assert p.step == pytest.approx(profile.step, rel=1e-12) and p.sent == 0
        assert p.buckets == () and p.communication == p.compression == 0


def test_buckets_are_sent_one_after_the_other_when_they_are_ready():
    for profile, link, options in cases():
        for p in simulate(profile, link, SIZES[1:], **options):
            for b in p.buckets:
                assert at_most(b.ready, b.begin) and b.begin <= b.end and at_most(b.end, p.step)
            for a, b in pairwise(p.buckets):
                assert at_most(a.end, b.begin)


def test_every_gradient_is_in_one_bucket_and_all_bytes_are_sent():
    for profile, link, options in cases():
        limit = options["bucket_mb"] * 2**20
        buckets = buckets_of(profile.gradients, limit, min(limit, 2**20))
        flat = sorted([id(g) for bucket in buckets for g in bucket])
        assert flat == sorted([id(g) for g in profile.gradients])
        assert all(len({g.itemsize for g in bucket}) == 1 for bucket in buckets)
        assert [b[-1].ready for b in buckets] == sorted(b[-1].ready for b in buckets)
        for bucket in buckets[1:]:  # no bucket would have been full with one gradient less
            assert sum(g.nbytes for g in bucket[:-1]) < limit
        counts = sum((len(b) + 1) * b[0].itemsize for b in buckets)
        (p,) = simulate(profile, link, [4], **{**options, "compression": None, "sharded": False})
        assert p.sent == profile.nbytes + counts
        (q,) = simulate(profile, link, [4], **{**options, "compression": None, "sharded": True})
        assert q.sent == p.sent + math.ceil(profile.nbytes / 4)


@pytest.mark.parametrize("seed", range(20))
def test_buckets_are_those_of_data_parallel(seed):
    rng = np.random.default_rng(seed)
    shapes = [tuple(rng.integers(1, 700, rng.integers(0, 3)).tolist()) for _ in range(12)]
    dtypes = [np.dtype(rng.choice(["float32", "float64"])) for _ in shapes]
    ready = rng.permutation(len(shapes)).tolist()
    limit = int(rng.choice([1 << 18, 1 << 21]))
    specs = [
        ParameterSpec(str(i), Aval(s, d, "cpu"), True)
        for i, (s, d) in enumerate(zip(shapes, dtypes, strict=True))
    ]
    order = sorted(range(len(shapes)), key=lambda i: ready[i])
    theirs = {tuple(b.members) for b in plan_buckets(specs, order, limit)}
    gradients = [
        GradientProfile(s, float(t), d.itemsize)
        for s, t, d in zip(shapes, ready, dtypes, strict=True)
    ]
    numbers = {id(g): i for i, g in enumerate(gradients)}
    ours = {
        tuple(numbers[id(g)] for g in b) for b in buckets_of(gradients, limit, min(limit, 1 << 20))
    }
    assert ours == theirs


# What is changed, and whether a step may get no shorter (+1) or no longer (−1).
CHANGES = {
    "bandwidth": (-1, lambda p, x, o: (p, replace(x, bandwidth=x.bandwidth * 1.7), o)),
    "latency": (+1, lambda p, x, o: (p, replace(x, latency=x.latency + 1e-4), o)),
    "busy": (+1, lambda p, x, o: (p, replace(x, busy=x.busy + 0.2), o)),
    "cores": (-1, lambda p, x, o: (p, replace(x, cores=x.cores and x.cores * 2), o)),
    "spread": (+1, lambda p, x, o: (replace(p, spread=p.spread + 0.01), x, o)),
    "speed": (-1, lambda p, x, o: (replace(p, speed=p.speed * 2), x, o)),
    "no overlap": (+1, lambda p, x, o: (p, x, {**o, "overlap": False})),
    "compute": (+1, lambda p, x, o: (replace(p, forward=p.forward + 0.05), x, o)),
    "more work": (+1, lambda p, x, o: (p, x, {**o, "compression_seconds": 100.0})),
}


@pytest.mark.parametrize("name", CHANGES)
def test_steps_follow_what_they_depend_on(name):
    sign, change = CHANGES[name]
    for profile, link, options in cases():
        before = simulate(profile, link, SIZES, **options)
        profile2, link2, options2 = change(profile, link, options)
        after = simulate(profile2, link2, SIZES, **options2)
        for p, q in zip(before, after, strict=True):
            shorter, longer = (p, q) if sign > 0 else (q, p)
            assert at_most(shorter.step, longer.step), (name, p.size, link, options)


def test_more_ranks_take_no_less_time():
    for profile, link, options in cases():
        found = simulate(profile, link, SIZES, **{**options, "sharded": False})
        if link.algorithm != "hierarchical":  # it favours full machines
            for p, q in pairwise(found):
                assert at_most(p.step, q.step), (p.size, link, options)


# Simulations made in another way


def test_without_contention_it_is_a_queue():
    for profile, link, options in cases():
        link = replace(link, cores=None, busy=0.0)
        options = {**options, "compression": None, "sharded": False, "compression_seconds": None}
        profile = replace(profile, speed=None, spread=0.0)
        limit = options["bucket_mb"] * 2**20
        for n in SIZES[1:]:
            end = 0.0
            for i, bucket in enumerate(buckets_of(profile.gradients, limit, min(limit, 2**20))):
                done = profile.forward + (bucket[-1].ready if options["overlap"] else 0)
                done += 0 if options["overlap"] else profile.backward
                nbytes = sum(g.nbytes for g in bucket) + (len(bucket) + 1) * bucket[0].itemsize
                header = link.all_gather(128, n) if i == 0 else 0.0
                end = max(end, done) + link.all_reduce(nbytes, n) + header
            end = max(end, profile.forward + profile.backward) + profile.optimizer
            (p,) = simulate(profile, link, [n], **options)
            assert p.step == pytest.approx(end, rel=1e-9)


def integrated(compute: Piece, ready, jobs, capacity: float, dt: float) -> float:
    """The time until computing and sending are done, in small steps."""
    time = done = 0.0
    waiting = [
        (due, [[p.seconds, p.demand] for p in job]) for due, job in zip(ready, jobs, strict=True)
    ]
    while done < compute.seconds - 1e-12 or waiting:
        while waiting and not waiting[0][1]:
            waiting.pop(0)
        sending = bool(waiting) and waiting[0][0] <= done + 1e-12
        computing = done < compute.seconds - 1e-12
        need = compute.demand * computing + (waiting[0][1][0][1] if sending else 0.0)
        rate = min(1.0, capacity / need) if need else 1.0
        done += rate * dt * computing
        if sending:
            waiting[0][1][0][0] -= rate * dt
            if waiting[0][1][0][0] <= 0:
                waiting[0][1].pop(0)
        time += dt
    return time


@pytest.mark.parametrize("seed", range(8))
def test_contention_is_what_small_steps_of_time_give(seed):
    rng = np.random.default_rng(seed)
    compute = Piece(1.0, float(rng.uniform(0.5, 2)))
    ready = np.sort(rng.uniform(0.1, 1.0, 4))
    jobs = [
        [Piece(float(rng.uniform(0.01, 0.4)), float(rng.uniform(0, 2))) for _ in range(2)]
        for _ in ready
    ]
    capacity = float(rng.uniform(0.5, 3))
    expected = integrated(compute, ready, jobs, capacity, 1e-4)
    assert play(compute, ready, jobs, capacity).end == pytest.approx(expected, rel=5e-3)


def exchanged(n: int, turns, latency: float, bandwidth: float) -> float:
    """When the last rank is done: in each turn, rank r sends to another and waits for a third.

    turns  for each turn (to, from, bytes): functions of the rank, and what each sends
    """
    clock = [0.0] * n
    for to, source, nbytes in turns:
        arrives = {to(r): clock[r] + latency + nbytes / bandwidth for r in range(n)}
        clock = [max(arrives[r], clock[source(r)]) for r in range(n)]
    return max(clock)


@pytest.mark.parametrize("n", [2, 3, 8, 64])
def test_rings_are_what_their_messages_take(n):
    nbytes, link = 1e6, Link(1e-5, 1e8)
    turn = (lambda r: (r + 1) % n, lambda r: (r - 1) % n, nbytes / n)
    expected = exchanged(n, [turn] * (2 * (n - 1)), link.latency, link.bandwidth)
    assert link.all_reduce(nbytes, n) == pytest.approx(expected)
    assert link.all_gather(nbytes / n, n) == pytest.approx(expected / 2)


@pytest.mark.parametrize("n", [2, 8, 64])
def test_halving_and_doubling_is_what_its_messages_take(n):
    nbytes, link = 1e6, Link(1e-5, 1e8, "halving")
    halves = [
        (lambda r, d=n >> k + 1: r ^ d, lambda r, d=n >> k + 1: r ^ d, nbytes / 2 ** (k + 1))
        for k in range(n.bit_length() - 1)
    ]
    expected = exchanged(n, [*halves, *halves[::-1]], link.latency, link.bandwidth)
    assert link.all_reduce(nbytes, n) == pytest.approx(expected)


def test_machines_with_fast_links_inside():
    flat = Link(1e-5, 1e9, "ring", 8, 1e-6, 1e11)
    levels = replace(flat, algorithm="hierarchical")
    inside = 14 * (1e-6 + 1e8 / 8 / 1e11)
    assert flat.all_reduce(1e8, 8) == pytest.approx(inside) == levels.all_reduce(1e8, 8)
    assert flat.all_reduce(1e8, 16) == pytest.approx(30 * (1e-5 + 1e8 / 16 / 1e9))
    assert levels.all_reduce(1e8, 16) == pytest.approx(inside + 2 * (1e-5 + 1e8 / 2 / 1e9))


def test_the_expected_maximum_of_normal_numbers():
    # L. H. C. Tippett, Biometrika 17 (1925); H. L. Harter, Biometrika 48 (1961)
    table = {1: 0.0, 2: 0.56419, 3: 0.84628, 5: 1.16296, 10: 1.53875, 100: 2.50759, 1000: 3.24144}
    for n, value in table.items():
        assert expected_maximum(n) == pytest.approx(value, abs=2e-5)


# Bad arguments


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda p, x: simulate(p, x, [0]), "a size of 0"),
        (lambda p, x: simulate(p, x, [2.0]), "a size of 2.0"),
        (lambda p, x: simulate(p, x, bucket_mb=0), "bucket_mb=0"),
        (lambda p, x: simulate(p, x, compression="zip"), "compression='zip'"),
        (lambda p, x: simulate(p, x, compression="topk"), "compression_seconds"),
        (lambda p, x: replace(x, latency=-1), "latency=-1"),
        (lambda p, x: replace(x, latency=math.nan), "latency=nan"),
        (lambda p, x: replace(x, bandwidth=0), "bandwidth=0"),
        (lambda p, x: replace(x, algorithm="star"), "algorithm='star'"),
        (lambda p, x: replace(x, node_size=0), "node_size=0"),
        (lambda p, x: replace(p, forward=-1.0), "forward=-1.0"),
        (lambda p, x: replace(p, backward=0.01), "ready"),
        (lambda p, x: StepProfile(0.0, 0.0, 0.0, ()), "0 seconds"),
        (lambda p, x: wf.dist.measure_step(lambda: wf.ones(()), None, steps=1), "steps=1"),
    ],
)
def test_bad_arguments_are_named(call, match):
    with pytest.raises(ArgumentError, match=match):
        call(StepProfile.even(0.1, 1e6), Link(1e-6, 1e9))
