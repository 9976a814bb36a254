"""Warnings of kernels name the user's line, and obey the user's filters: beside NumPy itself."""

import os
import random
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

import weft as wf
from weft.backend.shared import threads

PROGRAMS = 400 if os.environ.get("WEFT_SOAK") else 60
FUNCTIONS = "log sqrt exp log10 log1p arcsin arccosh arctanh square cosh log2".split()
# (arguments of filterwarnings, whose module and line are those of the program)
FILTERS = {
    "nothing": [],
    "always": [{"action": "always"}],
    "default": [{"action": "default"}],
    "once": [{"action": "once"}],
    "module": [{"action": "module"}],
    "ignore": [{"action": "ignore"}],
    "ignored here": [{"action": "always"}, {"action": "ignore", "module": "users_program"}],
    "an error here": [{"action": "always"}, {"action": "error", "module": "users_program"}],
    "a line": [{"action": "always"}, {"action": "ignore", "lineno": 3}],
    "a text": [{"action": "always"}, {"action": "ignore", "message": "divide by zero"}],
    "others": [{"action": "always"}, {"action": "error", "module": "somebody_else"}],
}


def program(seed: int) -> str:
    """A loop of calls that warn on some inputs; the names in it are NumPy's and ours."""
    draw, lines = random.Random(seed), ["for i in range(3):"]
    values = "[0.0, -1.0]", "[1e300, 2.0]", "[float('inf')]", "[float('nan'), 1.0]", "[3.0]"
    for _ in range(draw.randint(2, 6)):
        x = f"xp.asarray({draw.choice(values)}, dtype=xp.float64)"
        lines.append(
            draw.choice(
                [
                    f"    xp.{draw.choice(FUNCTIONS)}({x})",
                    f"    {x} / xp.asarray(0.0, dtype=xp.float64)",
                    f"    {x} * xp.asarray(1e300, dtype=xp.float64)",
                    f"    f({x})",
                ]
            )
        )
    return "\n".join([*lines, "def f(x):", "    return xp.log(x) - xp.sqrt(x)"][-2:] + lines)


def told(source: str, xp, filters: list[dict]) -> list[tuple]:
    """What a program is told, and how it ends."""
    own = {"__name__": "users_program", "xp": xp}
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        for filter_ in filters:
            warnings.filterwarnings(**filter_)
        try:
            exec(compile(source, "users_program.py", "exec"), own)
        except RuntimeWarning as e:
            return [*[_place(m) for m in found], ("raised", str(e).partition(" (at")[0])]
    return [_place(m) for m in found]


def _place(m) -> tuple:
    return m.filename, m.lineno, m.category.__name__, str(m.message)


@pytest.mark.parametrize("name", FILTERS)
def test_programs_are_told_what_numpy_tells_them(name):
    told_something = 0
    for seed in range(PROGRAMS):
        source = program(seed)
        expected = told(source, np, FILTERS[name])
        assert told(source, wf, FILTERS[name]) == expected, source
        told_something += bool(expected)
    assert told_something > PROGRAMS // 2 or name in ("ignore", "ignored here", "a line")


HOSTILE = [0.0, -1.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-310, 2.5]
WAYS = {
    "eager": lambda f: f,
    "recorded": lambda f: lambda x: f(wf.tensor(x, requires_grad=True)),
    "grad": lambda f: wf.grad(lambda x: wf.sum(f(x))),
    "hessian": lambda f: wf.hessian(lambda x: wf.sum(f(x))),
    "jvp": lambda f: lambda x: wf.jvp(f, (x,), (x,)),
    "vmap": lambda f: wf.vmap(f),
    "jacobian": lambda f: wf.jacobian(f),
    "checkpoint": lambda f: lambda x: wf.checkpoint(f, x),
    "compile": lambda f: wf.compile(f),
    "scan": lambda f: lambda x: wf.scan(lambda c, a: (c, f(a)), wf.tensor(0.0), x),
}
OURS = """
    log sqrt exp expm1 log1p log2 log10 asin acos atanh acosh cosh sinh tan reciprocal square
    floor ceil round abs sign sigmoid softplus gelu logsumexp prod var std mean cumsum cumprod
    max sort
""".split()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_names_the_users_line(way):
    x = wf.tensor(HOSTILE, dtype="float64")
    count = 0
    for name in OURS:
        f = getattr(wf, name)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            try:
                WAYS[way](f)(x)
            except wf.errors.WeftError:
                continue
        for m in found:
            assert m.filename == __file__, (name, m)
        count += len(found)
    assert count > 3 or way == "compile"


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_matrices_casts_and_modules_name_it_too(device):
    bad = wf.tensor([[np.inf, 1.0], [1.0, np.nan]], dtype="float64", device=device)
    layer = wf.nn.Linear(2, 2, dtype="float64", device=device)
    calls = [
        lambda: wf.linalg.det(bad),
        lambda: bad.to("int8"),
        lambda: (bad * 1e300).to("float16"),
        lambda: layer(bad),
        lambda: bad @ bad,
        lambda: wf.std(bad, correction=2, axis=0),
        lambda: wf.optim.SGD([wf.Parameter(bad)], lr=1.0).step([bad]),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call()
        assert all(m.filename == __file__ for m in found), [str(m) for m in found]


KERNEL = """
def do(piece):
    both.wait(timeout=20)
    np.log(np.zeros(1))
"""


def test_threads_that_help_name_the_line_of_who_called(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    own = {"np": np, "both": threading.Barrier(2)}
    exec(compile(KERNEL, f"{wf.__path__[0]}/backend/kernel.py", "exec"), own)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        threads.share([0, 1], lambda: own["do"], threads.ENOUGH)
        line = sys._getframe().f_lineno - 1
    assert [(m.filename, m.lineno) for m in found] == [(__file__, line)] * 2


def test_warnings_of_others_stay_where_they_are():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        np.log(np.zeros(1))
        np.linalg.det(np.full((2, 2), np.nan))
        np.mean([])
        warnings.warn("mine", UserWarning, stacklevel=1)
    plain = subprocess.run(
        [sys.executable, "-W", "always", "-c", "import numpy as np; np.mean([])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    places = [m.filename for m in found]
    assert any("numpy" in p for p in places) and "numpy" in plain.stderr
    assert places[0] == places[-1] == __file__


def test_a_line_is_told_once_in_a_program_of_its_own(tmp_path):
    source = (
        "import weft as wf\nx = wf.tensor([0.0])\nfor _ in range(3):\n    wf.log(x)\nwf.log(x)\n"
    )
    (tmp_path / "mine.py").write_text(source)
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "mine.py")], capture_output=True, text=True, check=True
    )
    lines = [line for line in ran.stderr.splitlines() if "RuntimeWarning" in line]
    assert [line.split(":")[1] for line in lines] == ["4", "5"] and "mine.py" in lines[0]
