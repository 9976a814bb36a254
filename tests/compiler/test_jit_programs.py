"""Random programs, compiled beside eager: values, gradients and everything they change.

`make test` runs 500 of them, `make soak` 20 000. A failure is printed as the shortest program that
still fails, with its seed; `examined(seed)` runs it again.
"""

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tests.compiler.fuzz.oracle import MODES, Mismatch, check, examined, shrunk
from tests.compiler.fuzz.statements import STATEMENTS
from tests.compiler.fuzz.writer import Text, Writer, written

from weft.core.op import TABLE

SOAK = os.environ.get("WEFT_SOAK") == "1"
BATCHES, PROGRAMS = (400, 50) if SOAK else (10, 50)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_programs(batch):
    seen = Counter(examined(batch * PROGRAMS + k) for k in range(PROGRAMS))
    assert seen["same"] >= 0.8 * PROGRAMS, seen  # few are refused, by eager or by both


def test_programs_are_the_same_in_every_run():
    assert [written(seed) for seed in range(5)] == [written(seed) for seed in range(5)]


def test_every_statement_can_be_written():
    writers = [Writer(seed) for seed in range(40)]
    for make in STATEMENTS:
        assert any(w.add(make) for w in writers), make(writers[0])


def wrong_tanh(monkeypatch):
    """Compiled functions compute tanh as something else."""
    from weft.compiler import compiled

    trace, sine = compiled.trace, TABLE["sin"]

    def worse(*args):
        program = trace(*args)
        for k, e in enumerate(program.graph.equations):
            if e.op.name == "tanh":
                program.graph.equations[k] = replace(e, op=sine)
        return program

    monkeypatch.setattr(compiled, "trace", worse)


def test_a_planted_mistake_is_found_and_told_briefly(monkeypatch):
    wrong_tanh(monkeypatch)
    found, lengths = 0, []
    for seed in range(60):
        try:
            examined(seed)
        except Mismatch as e:
            found += 1
            assert "tanh" in str(e) or "gelu" in str(e)
            lengths.append(len(str(e).split("def program")[1].split("return")[0].splitlines()))
    assert found > 2 and np.median(lengths) < 9


def test_what_is_not_changed_is_noticed():
    """A compiled function that forgets what it has to change differs from eager."""
    from weft.compiler.frontend.inputs import Captured

    text = Text(0, (), ("with wf.no_grad():\n    B0.copy_(B0 * 2)", "v1 = B0 + 1"), ("v1",))
    assert check(text, "plain") == "same"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Captured, "changed", property(lambda self: False))
        with pytest.raises(Mismatch):
            check(text, "plain")
        assert "B0.copy_" in shrunk(text, "plain").source()


def test_roundings_are_allowed_and_no_more():
    from tests.compiler.fuzz.oracle import _close

    a = np.linspace(1, 2, 5, dtype=np.float32)
    noisy = [a * np.float32(1 + 1e-7)]
    assert _close(a, a * np.float32(1 + 1e-6), noisy)
    assert not _close(a, a * np.float32(1 + 1e-4), noisy)
    nan = a.copy()
    nan[2] = np.nan
    assert not _close(a, nan, noisy) and not _close(nan, a, [nan])
    assert set(MODES) >= {"plain", "inside", "outside", "step", "of grad", "grad of", "vmap", "jvp"}
