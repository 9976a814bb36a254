"""`fn.explain()` and `fn.kernels`: what they say is so."""

import re

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.compiler.explain.report import MOST
from weft.compiler.ir.schedule import LibraryStep, TiledStep

HERE = r"test_explain\.py:\d+"


def program(f):
    return f._made[-1].program.executable


def fact(text: str, name: str) -> str:
    return re.search(rf"^  {name} +(.*)$", text, re.MULTILINE)[1]


def test_a_step_of_training():
    p = wf.Parameter(np.ones((64, 32), np.float32))
    optimizer = wf.optim.SGD([p], lr=0.1, momentum=0.9)

    @wf.compile
    def step(x, scale):
        optimizer.zero_grad()
        loss = ((x @ p) ** 2).mean() * scale
        loss.backward()
        optimizer.step()
        return loss

    step(wf.ones((16, 64)), 2.0)
    text = step.explain()
    assert text.startswith("step: 1 of at most 8 programs\n\nprogram 0: x: float32[16, 64], scale:")
    made = program(step)
    kinds = [type(s) for s in made.schedule.steps]
    head = re.search(r"(\d+) equations became (\d+) steps: (.*)", text)
    assert int(head[1]) == len(step.graph.equations) and int(head[2]) == len(kinds)
    assert kinds == [TiledStep, TiledStep] and head[3] == "2 matrix products"
    assert re.search(r"product +16×64 · 64×32 .* then multiply, fold mean", text)
    assert re.search(r"product +64×16 · 16×32 .* aᵀ, then multiply, subtract", text)
    assert "1 captured tensors, 1 arrays of state in place" in fact(text, "changes")
    assert fact(text, "runs as").startswith("one native call")
    listed = re.findall(r"^    (\d+) +(\w+)", text, re.MULTILINE)
    assert [int(k) for k, _ in listed] == list(range(len(kinds)))
    assert len(re.findall(HERE, text)) >= len(kinds)


def test_memory_is_the_plans():
    f = wf.compile(lambda x: wf.sort(wf.sin(x)) * 2)
    f(wf.ones(5000))
    text, made = f.explain(), program(f)
    numbers = [float(n) for n in re.findall(r"([\d.]+) kB", fact(text, "memory"))]
    assert numbers[0] == round(made.plan.size / 1e3, 1) and 20.0 in numbers
    assert numbers[-1] == round((made.plan.size + 20_000) / 1e3, 1)


def test_library_calls_and_their_reasons():
    @wf.compile
    def f(a, x):
        y = wf.linalg.solve(a, x)
        return wf.sort(y) + wf.linalg.eigvalsh(a)

    f(wf.eye(4), wf.ones(4))
    text = f.explain()
    calls = [s for s in program(f).schedule.steps if isinstance(s, LibraryStep)]
    assert len(calls) >= 2
    for step in calls:
        assert step.reason and f"library call {step.op.name} at {step.line}: {step.reason}" in text
    assert f"{len(calls) + 1} native calls" in fact(text, "runs as")


def test_why_each_program_was_made():
    f = wf.compile(lambda x, n=1: x * n, static_argnames="n", max_variants=5)
    f(wf.ones(3))
    f(wf.ones(4))
    f(wf.ones(4), n=2)
    text = f.explain()
    assert text.startswith("<lambda>: 3 of at most 5 programs")
    parts = text.split("\nprogram ")[1:]
    assert "made because of" not in parts[0]
    assert "made because of argument 'x': float32[3] became float32[4]" in parts[1]
    assert f"made because of {f.recompilations[1]}" in parts[2]
    assert parts[1].startswith("1: x: float32[4]") and "n: 2 (static)" in parts[2]


def test_times_and_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))

    def run():
        f = wf.compile(lambda x: wf.tanh(x) * 3)
        f(wf.ones(100))
        return f.explain()

    cold, warm = run(), run()
    assert cold.count("(compiled)") == 1 and warm.count("(loaded from the cache)") == 1
    total, *parts = [float(n) for n in re.findall(r"([\d.]+)(?: ms|, | \()", _made(cold))]
    assert total == pytest.approx(sum(parts), abs=0.3) and len(parts) == 4
    for stage in ("trace", "passes", "schedule", "native code"):
        assert f"{stage} " in _made(cold)
    assert "plan from the cache" in _made(warm) and "passes" not in _made(warm)


def _made(text: str) -> str:
    return re.search(r"made in .*", text)[0]


def test_copies_checks_and_decisions(monkeypatch):
    monkeypatch.setenv("WEFT_CHECK_BOUNDS", "1")
    f = wf.compile(lambda x, rate: x * rate if rate > 0 else x)
    x = wf.asarray(np.ones((8, 8), np.float32)[:, ::2])
    f(x, 1.0)
    f(x, 2.0)
    text = f.explain()
    assert "argument 0 at 2 calls: it is not laid out row by row" in fact(text, "copied")
    assert "every access" in fact(text, "checks")
    assert fact(text, "holds for") == "(> 0) of number 0: True"


def test_a_program_that_is_differentiated():
    w = wf.tensor([1.0, 2.0], requires_grad=True)
    f = wf.compile(lambda x: (x * w).sum())
    f(wf.ones(2)).backward()
    assert re.match(r"\d+ equations, for backward\(\)", fact(f.explain(), "pull-back"))


def test_long_programs_are_told_in_short():
    @wf.compile
    def f(x):
        for _ in range(MOST):
            x = wf.sort(x + 1)
        return x

    f(wf.ones(3))
    short, whole = f.explain(), f.explain(verbose=True)
    assert "steps more: explain(verbose=True)" in short and "steps more" not in whole
    assert len(re.findall(r"^    \d", short, re.MULTILINE)) == MOST
    assert len(re.findall(r"^    \d", whole, re.MULTILINE)) == len(program(f).schedule.steps)


def test_nothing_yet():
    f = wf.compile(lambda x: x)
    assert f.explain() == "<lambda>: 0 of at most 8 programs"


def test_texts_are_shown_as_they_are():
    f = wf.compile(lambda x: wf.exp(x - x.max()) / 2)
    f(wf.ones(7, dtype="float64"))
    assert repr(f.explain()) == str(f.explain()) and isinstance(f.explain(), str)
    assert repr(f.kernels) == str(f.kernels) == "\n\n".join(f.kernels)
    text = "\n".join(f.kernels)
    assert re.search(rf"^kernel .*at {HERE}", text)
    for formula in ("max of ", " - ", "exp(", " · 0.5", "f64[7]", "→"):
        assert formula in text, text


def test_what_each_stage_makes():
    f = wf.compile(lambda x: wf.softmax(x @ x.T, -1).max())
    with pytest.raises(errors.ArgumentError, match="has not been compiled"):
        f.explain(stage="trace")
    f(wf.ones((4, 5)))
    told = {s: str(f.explain(stage=s)) for s in ("trace", "passes", "schedule", "memory", "build")}
    assert "softmax(" in told["trace"] and "exp(" not in told["trace"]
    assert "softmax(" not in told["passes"] and "exp(" in told["passes"]
    assert "gemm" in told["schedule"] and "kernel" in told["schedule"]
    assert "bytes" in told["memory"] and "exp(" in told["build"]
    with pytest.raises(errors.ArgumentError, match="stage='planning', expected 'trace'"):
        f.explain(stage="planning")
