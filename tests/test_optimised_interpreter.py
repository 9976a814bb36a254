"""`python -O`, which drops asserts, computes the same bits."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent
PURE = {"all", "any", "isinstance", "issubclass", "len", "max", "min", "set", "sorted", "type"}
PROGRAM = """
import hashlib
import numpy as np
import weft as wf

F, rng, N = wf.nn.functional, np.random.default_rng(5), 300_000
ONE = (
    "celu elu geglu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_softmax "
    "logsigmoid mish relu relu6 selu sigmoid silu softmax softmin softplus softshrink softsign "
    "swiglu swish tanh tanhshrink"
).split()
CALLS = {name: getattr(F, name) for name in ONE}
CALLS["gelu tanh"] = lambda x: F.gelu(x, approximate="tanh")
for n in (48, 100, 1000):
    CALLS[f"layer_norm {n}"] = lambda x, n=n: F.layer_norm(
        x.reshape(-1, n), (n,), wf.linspace(1, 2, n, dtype=x.dtype), wf.ones(n, dtype=x.dtype)
    )
OPTIMIZERS = [
    cls for name, cls in vars(wf.optim).items()
    if isinstance(cls, type) and issubclass(cls, wf.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "EMAOptimizer", "MultiGroupOptimizer")
]


def show(name, *tensors):
    bits = b"".join(np.ascontiguousarray(t.detach().numpy()).tobytes() for t in tensors)
    print(name, hashlib.sha256(bits).hexdigest())


for dtype in ("float32", "float64"):
    data = (rng.standard_normal(N) * 3).astype(dtype)
    for name, f in CALLS.items():
        x = wf.tensor(data, requires_grad=True)
        y = f(x)
        show(f"{name} {dtype}", y, (y * y).sum().backward()[x])
    for cls in OPTIMIZERS:
        p = wf.Parameter(data.reshape(600, 500) if cls is wf.optim.Muon else data)
        optimizer = cls([p], lr=0.01)
        for _ in range(2):
            (p * p * p).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        show(f"{cls.__name__} {dtype}", p)
"""


def test_asserts_only_look():
    """A call in an assert is one that changes nothing: with -O there is no call."""
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Assert):
                assert not list(changes(node)), f"{path}:{node.lineno}: {ast.unparse(node)}"


def changes(node: ast.Assert):
    """The parts of an assert that may change something."""
    for n in ast.walk(node):
        if isinstance(n, ast.Call):
            if ast.unparse(n.func).rpartition(".")[2] not in PURE:
                yield n
        elif isinstance(n, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)):
            yield n


@pytest.mark.parametrize("text", ["d.setdefault(1, 2) == 2", "(n := 3)", "next(x)", "f(x).all()"])
def test_the_walk_sees_changes(text):
    (node,) = ast.parse(f"assert {text}").body
    assert list(changes(node))


def test_large_eager_kernels_and_optimizers_compute_the_same_bits():
    def results(*options):
        command = [sys.executable, *options, "-c", PROGRAM]
        run = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
        assert run.returncode == 0, run.stderr
        return run.stdout.splitlines()

    plain, optimised = results(), results("-O")
    assert len(plain) > 60
    assert plain == optimised
