"""docs/contributing.md: each of its diffs applies to the tree, and adds what it says it adds."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "contributing.md"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", DOCUMENT.read_text(), re.M | re.S))
DIFF = re.compile(r"^```diff\n(.*?)^```$", re.M | re.S)

# What the table's tests ask of a row: values, derivatives, both backends, vmap, compiled = eager.
ROW = """
from tests.compiler.test_jit_rows_native import test_a_row_compiled_equals_eager
from tests.table.batching import check_batch
from tests.table.check import check_row
from tests.table.rows import load

op = load()[{name!r}]
assert check_row(op, "numpy") + check_row(op, "torch") + check_batch(op, "numpy") == []
test_a_row_compiled_equals_eager(op.name)
"""
CHECKS = {
    "An elementwise operation": ROW.format(name="haversine")
    + """
x = np.linspace(-3.0, 3.0, 64)
np.testing.assert_allclose(wf.haversine(x).numpy(), np.sin(x / 2) ** 2, rtol=1e-15)
compiled = wf.compile(lambda x: wf.haversine(x) + 1.0)
compiled(wf.tensor(x))
steps = compiled._last().executable.schedule.steps
assert [type(s).__name__ for s in steps] == ["KernelStep"]  # no call of NumPy
assert wf.haversine(wf.tensor(x), out=wf.zeros(64, dtype="float64")).dtype == wf.float64
""",
    "An operation with native code": ROW.format(name="discounted_sum")
    + """
x = np.random.default_rng(0).normal(size=(3, 5))
want = np.stack([sum(0.5 ** (t - s) * x[:, s] for s in range(t + 1)) for t in range(5)], 1)
np.testing.assert_allclose(wf.discounted_sum(x, 0.5).numpy(), want, rtol=1e-14)
compiled = wf.compile(lambda x: wf.discounted_sum(x, 0.5))
np.testing.assert_allclose(compiled(wf.tensor(x)).numpy(), want, rtol=1e-14)
steps = compiled._last().executable.schedule.steps
assert [type(s).__name__ for s in steps] == ["NativeStep"]
""",
    "An optimizer": """
target = wf.tensor([0.5, -1.0, 2.0])
for compile in (lambda f: f, wf.compile):
    p = wf.Parameter([0.0, 0.0, 0.0])
    optimizer = wf.optim.Signum([p], lr=0.125, momentum=0.0)

    def step():
        optimizer.step(((p - target) ** 2).sum().backward())

    step = compile(step)
    for _ in range(16):
        step()
    assert p.tolist() == target.tolist()  # it takes sixteen steps of 1/8 at most, and stays
saved = optimizer.state_dict()
wf.optim.Signum([p], lr=0.125, momentum=0.0).load_state_dict(saved)
try:
    wf.optim.Signum([p], momentum=-1.0)
except wf.errors.ArgumentError as e:
    assert "momentum" in str(e)
else:
    raise AssertionError("a momentum below zero")
""",
    "A layer": """
rng = np.random.default_rng(0)
layer = wf.nn.Snake(3, alpha=0.7, dtype="float64")
x = rng.normal(size=(4, 3))
want = x + np.sin(0.7 * x) ** 2 / 0.7
np.testing.assert_allclose(layer(x).detach().numpy(), want, rtol=1e-14)
assert list(layer.state_dict()) == ["alpha"]
grads = (layer(x) ** 2).sum().backward()


def loss(alpha):
    return ((x + np.sin(alpha * x) ** 2 / alpha) ** 2).sum()


h = 1e-6
for k, unit in enumerate(np.eye(3)):
    slope = (loss(0.7 + h * unit) - loss(0.7 - h * unit)) / (2 * h)
    np.testing.assert_allclose(grads[layer.alpha].numpy()[k], slope, rtol=1e-7)
np.testing.assert_allclose(wf.compile(layer)(wf.tensor(x)).detach().numpy(), want, rtol=1e-14)
""",
    "A target": """
from weft.compiler import pipeline
from weft.compiler.by_rows import ByRows
from weft.compiler.frontend.arguments import flatten_arguments
from weft.compiler.frontend.trace import trace


def f(x, w, i):
    def loss(w):
        y = wf.softmax(wf.tanh(x @ w.T), -1)
        picked = wf.take(y, i, axis=0)[1:, ::2].reshape(-1)
        return (picked**2).sum() + wf.concat([y, y])[::-1].max()

    value, gradient = wf.value_and_grad(loss)(w)
    return value, gradient, w.T, wf.linalg.solve(w.T @ w, x.T)


rng, target = np.random.default_rng(0), ByRows()
given = wf.tensor(rng.normal(size=(4, 3))), wf.tensor(rng.normal(size=(5, 3))), wf.tensor([3, 0, 2])
taken = flatten_arguments(given, {}, lambda name: False, True)
program = trace("f", f, taken)
schedule, plan = pipeline.lower(program.graph, {}, target)
made = target.build(schedule, plan).run([p.read(taken.call) for p in program.places])
assert plan.size > 0 and {s.op.name for s in schedule.steps} >= {"matmul", "softmax", "solve"}
for want, got in zip(f(*given), made, strict=False):
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-12)
""",
}


def patched(tmp_path: Path, *sections: str) -> Path:
    """A copy of the tree with the diffs of some sections."""
    for part in ("src", "tests/table", "tests/compiler"):  # with .pyc files, which save seconds
        shutil.copytree(ROOT / part, tmp_path / part)
    for section in sections:
        (diff,) = DIFF.findall(SECTIONS[section])
        subprocess.run(
            ["git", "apply", "-C1", "-"], cwd=tmp_path, input=diff, text=True, check=True
        )
    return tmp_path


@pytest.mark.parametrize("section", CHECKS)
def test_a_diff_adds_what_it_says(section, tmp_path):
    tree = patched(tmp_path, section)
    (tmp_path / "check.py").write_text(
        f"import numpy as np\n\nimport weft as wf\n{CHECKS[section]}"
    )
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    own = {"PYTHONPATH": paths, "WEFT_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-W", "error", "check.py"]
    done = subprocess.run(
        command, cwd=tree, env=os.environ | own, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_diffs_go_together(tmp_path):
    """Each section has one, and none is in the way of another."""
    shown = [section for section, text in SECTIONS.items() if DIFF.findall(text)]
    assert shown == list(CHECKS)
    tree = patched(tmp_path, *shown)
    command = [sys.executable, "-m", "ruff", "check", "--config", ROOT / "pyproject.toml", "src"]
    assert subprocess.run(command, cwd=tree).returncode == 0
