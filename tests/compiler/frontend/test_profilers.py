"""Profilers that run while a function is compiled go on afterwards, in the state they were in."""

import cProfile
import pstats
import sys

import pytest

import weft as wf


def doubled(x):
    return 2 * x


def function():
    return wf.compile(lambda x: doubled(x).sum())


def test_cprofile_goes_on():
    profiler = cProfile.Profile()
    profiler.enable()
    found = function()(wf.ones(3)).item()
    for _ in range(7):
        sorted([2, 1])
        doubled(1)
    profiler.disable()
    counts = {key[2]: value[0] for key, value in pstats.Stats(profiler).stats.items()}
    assert found == 6.0
    assert counts["doubled"] >= 7
    assert sys.getprofile() is None


def test_a_profile_function_goes_on():
    seen = []

    def profile(frame, event, argument):
        seen.append((frame.f_code.co_name, event))

    f = function()
    sys.setprofile(profile)
    try:
        f(wf.ones(3))
        kept = sys.getprofile()
        del seen[:]
        doubled(1)
    finally:
        sys.setprofile(None)
    assert kept is profile
    assert ("doubled", "call") in seen


def test_without_one_there_is_none_afterwards():
    with pytest.raises(ZeroDivisionError):
        wf.compile(lambda x: x * (1 // 0))(wf.ones(3))
    assert sys.getprofile() is None


def test_many_functions_are_told_apart():
    """More codes than the table of addresses has room for."""
    space: dict = {}
    exec("\n".join([f"def f{k}(x): return x + {k}" for k in range(9000)]), space)
    made = [space[f"f{k}"] for k in range(9000)]

    def f(x):
        for g in made:
            x = g(x) if g(0) >= 8990 else x
        return x

    assert wf.compile(f)(wf.zeros(())).item() == sum(range(8990, 9000))
