"""What the compiler knows of a machine is behind `Target`; other folders do not name the CPU's."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import weft as wf
from weft.compiler import pipeline
from weft.compiler.cpu.target import CPU
from weft.compiler.ir.kernel import FoldStep, Step
from weft.compiler.ir.schedule import GemmStep, KernelStep

from .interpreter import INTERPRETER, Interpreted
from .targets import HERE, LEFT_OUT

ROOT = Path(pipeline.__file__).parent
WORDS = re.compile(r"\bx86|\bavx|\bsse\d|\blanes?\b|\bblas\b|thread[ _]pool", re.IGNORECASE)
IMPORTS = re.compile(r"^\s*from \.+(\w+\.)*cpu(\.\w+)* import|^\s*from \.+ import .*\bcpu\b", re.M)
# The target itself, and another one; rows at any number of lanes; what the process itself runs,
# whichever machine programs are for; and the kernels of eager mode, which are the processor's.
OWN = ("cpu", "cuda", "emit", "native", "eager")
MODULES = sorted(p for p in ROOT.rglob("*.py") if p.relative_to(ROOT).parts[0] not in OWN)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_other_folder_knows_the_cpu(path):
    text = path.read_text()
    assert not WORDS.findall(text)
    found = IMPORTS.findall(text)
    assert len(found) == (path.name == "pipeline.py"), "the default target is named once"


def test_the_words_and_imports_are_seen_where_they_are():
    assert WORDS.search((ROOT / "cpu" / "blas.py").read_text())
    assert WORDS.search((ROOT / "cpu" / "lanes.py").read_text())
    assert IMPORTS.search((ROOT / "eager" / "kernels.py").read_text())
    assert IMPORTS.search("from . import cpu\n") and IMPORTS.search("from ..cpu.blas import f\n")


def test_the_targets_do_not_know_each_other():
    """Neither imports the other, but for the words for which each is left out above."""
    for path in (ROOT / "cuda").rglob("*.py"):
        assert not IMPORTS.search(path.read_text()), path
    for path in (ROOT / "cpu").rglob("*.py"):
        assert "cuda" not in path.read_text(), path


def test_what_is_left_out_is_there():
    for place in LEFT_OUT:
        assert (HERE / place).exists(), place


def f(x, w):
    return wf.softmax(wf.tanh(x @ w) * x.sum(), -1) - x.mean()


X, W = (np.random.default_rng(0).normal(size=s) for s in ((5, 4), (4, 3)))


def test_programs_are_of_one_target():
    compiled, arrays = wf.compile(f), [wf.tensor(X), wf.tensor(W)]
    compiled(*arrays)
    with pipeline.using(INTERPRETER):
        compiled(*arrays)
        assert isinstance(compiled._last().executable, Interpreted)
        assert "NumPy does" in compiled.explain()
    assert "the target: None became" in compiled.recompilations[0]
    compiled(*arrays)
    assert not isinstance(compiled._last().executable, Interpreted)
    assert len(compiled._made) == 2
    with pipeline.using(INTERPRETER):
        assert "softmax" not in compiled.explain(stage="schedule")
        assert "by tiles" in compiled.explain(stage="schedule")  # of the CPU's program


def test_a_pull_back_is_of_the_target_of_its_call():
    compiled, x = wf.compile(f), wf.tensor(X, requires_grad=True)
    with pipeline.using(INTERPRETER):
        y = compiled(x, wf.tensor(W))
    y.sum().backward()
    assert isinstance(compiled._last().derivative.executable, Interpreted)
    z = wf.tensor(X, requires_grad=True)
    f(z, wf.tensor(W)).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-10, atol=1e-12)


def test_schedules_on_disk_are_of_one_target():
    graph = _traced()
    here, there = (pipeline.lower(graph, {}, t)[0] for t in (CPU, INTERPRETER))
    assert str(here) != str(there)
    for target, made in ((CPU, here), (INTERPRETER, there)):
        assert str(pipeline.lower(graph, {}, target)[0]) == str(made)


def _traced():
    compiled = wf.compile(lambda x, w: wf.real(wf.fft.fft(f(x, w))) + wf.cumsum(x[0])[:3])
    compiled(wf.tensor(X), wf.tensor(W))
    return compiled._last().graph


# -- planted faults --------------------------------------------------------------------------


def overlapping(schedule, placed):
    """Every scratch buffer at the start of the arena."""
    return schedule, replace(placed, offsets=dict.fromkeys(placed.offsets, 0))


def changed_kernels(change):
    """Damage of every kernel."""

    def damage(schedule, placed):
        steps = [
            replace(s, kernel=change(s.kernel)) if isinstance(s, KernelStep) else s
            for s in schedule.steps
        ]
        return replace(schedule, steps=tuple(steps)), placed

    return damage


def swapped(kernel):
    """Operands of rows in the other order."""
    steps = [replace(s, inputs=s.inputs[::-1]) if isinstance(s, Step) else s for s in kernel.steps]
    return replace(kernel, steps=tuple(steps))


def other_folds(kernel):
    """Sums in the place of maxima and means, and maxima in that of sums."""
    other = {"sum": "max", "max": "sum", "mean": "sum"}
    steps = [replace(s, kind=other[s.kind]) if isinstance(s, FoldStep) else s for s in kernel.steps]
    return replace(kernel, steps=tuple(steps))


def other_strides(kernel):
    """Operands that are walked over as if they were one number."""
    still = (0,) * len(kernel.domain)
    return replace(kernel, operands=tuple(replace(o, strides=still) for o in kernel.operands))


def scaled_products(schedule, placed):
    """Products of what is scaled by another number."""
    steps = [replace(s, alpha=2.0) if isinstance(s, GemmStep) else s for s in schedule.steps]
    return replace(schedule, steps=tuple(steps)), placed


FAULTS = [overlapping, scaled_products]
FAULTS += map(changed_kernels, (swapped, other_folds, other_strides))


@pytest.mark.parametrize("damage", [lambda *made: made, *FAULTS])
def test_damaged_programs_show(damage, monkeypatch):
    def build(self, schedule, placed, capture=True):
        return Interpreted(*damage(schedule, placed))

    monkeypatch.setattr(type(INTERPRETER), "build", build)
    try:
        with pipeline.using(INTERPRETER):
            got = wf.compile(f)(wf.tensor(X), wf.tensor(W)).numpy()
    except AssertionError:  # the verifier's
        got = np.full((5, 3), np.nan)
    same = np.allclose(got, f(wf.tensor(X), wf.tensor(W)).numpy())
    assert same == (damage not in FAULTS)


def test_a_pass_that_leaves_what_products_cannot_read_shows(monkeypatch):
    rest = tuple(p for p in INTERPRETER.passes if p[0] != "copies")
    monkeypatch.setattr(type(INTERPRETER), "passes", rest)
    compiled = wf.compile(lambda x, w: x[:, ::2] @ w[::2])
    with pipeline.using(INTERPRETER), pytest.raises(AssertionError, match="copies come before"):
        compiled(wf.tensor(X), wf.tensor(W))
