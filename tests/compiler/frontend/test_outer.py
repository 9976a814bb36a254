"""Numbers, strings and flags that a compiled function finds outside of itself."""

import math

import pytest

import weft as wf
from weft import errors

RATE, MODE, AXES = 0.5, "sum", (0,)
shape = 3  # called as an attribute is


def scaled(x):
    return x * RATE


def by_mode(x):
    return x.sum(axis=AXES) if MODE == "sum" else x.mean(axis=AXES)


def helped(x):
    return scaled(x) + 1


def shaped(x):
    return x.reshape(x.shape[::-1])


@pytest.mark.parametrize("f", [scaled, helped, wf.grad(lambda x: scaled(x).sum())])
def test_another_value_of_a_global_makes_another_program(f, monkeypatch):
    compiled, x = wf.compile(f), wf.tensor([1.0, 2.0])
    assert compiled(x).tolist() == f(x).tolist()
    monkeypatch.setitem(globals(), "RATE", 2.0)
    assert compiled(x).tolist() == f(x).tolist()
    assert compiled.recompilations == ["the variable 'RATE': was 0.5, is 2.0"]
    monkeypatch.setitem(globals(), "RATE", 0.5)
    assert compiled(x).tolist() == f(x).tolist()
    assert len(compiled.recompilations) == 1
    assert "RATE = 0.5" in compiled.explain()


def test_strings_and_tuples(monkeypatch):
    compiled, x = wf.compile(by_mode), wf.ones((2, 3))
    assert compiled(x).tolist() == [2.0] * 3
    monkeypatch.setitem(globals(), "MODE", "mean")
    assert compiled(x).tolist() == [1.0] * 3
    monkeypatch.setitem(globals(), "AXES", (1,))
    assert compiled(x).tolist() == [1.0] * 2
    assert len(compiled.recompilations) == 2


def test_outer_variables():
    rate = 1.0

    @wf.compile
    def f(x):
        return x / rate

    values = [0.0, -0.0, math.nan, math.nan, float("nan"), 2.0, 2.0]
    found = []
    for rate in values:  # noqa: B007
        found.append(f(wf.tensor(1.0)).item())
    assert found[:2] == [math.inf, -math.inf] and all(map(math.isnan, found[2:5]))
    assert found[5:] == [0.5, 0.5] and len(f.recompilations) == 3


def test_names_of_attributes_are_not_globals(monkeypatch):
    compiled = wf.compile(shaped)
    compiled(wf.ones((2, 3)))
    monkeypatch.setitem(globals(), "shape", 4)
    compiled(wf.ones((2, 3)))
    assert compiled.recompilations == []


def test_what_changes_at_every_call_runs_out_of_programs(monkeypatch):
    compiled = wf.compile(scaled, max_variants=3)
    for k in range(3):
        monkeypatch.setitem(globals(), "RATE", float(k))
        compiled(wf.ones(2))
    monkeypatch.setitem(globals(), "RATE", 3.0)
    with pytest.raises(errors.VariantsExhausted, match=r"the variable 'RATE': was 2\.0, is 3\.0"):
        compiled(wf.ones(2))


def test_functions_that_find_nothing_are_called_directly():
    compiled = wf.compile(lambda x: (x * wf.tanh(x)).sum())
    compiled(wf.ones(3))
    assert compiled._quick.direct is not None
