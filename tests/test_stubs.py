"""The stubs say what is there at run time, and type checkers find what is not."""

import ast
import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.arrays import namespace
from weft.arrays.keywords import signature_of

ROOT = Path(__file__).parent.parent
HOME = "weft.optim.optimizers"
USES = Path(__file__).parent / "typed_uses.py"
# Typical mistakes, each of which both checkers must find: names, keywords, numbers of arguments,
# kinds of values and of choices.
WRONG = """
wf.not_there
wf.nn.Liner
wf.optim.Adamm
wf.nn.functional.rellu
wf.linalg.solv(a, a)
a.summ()
a.shape.foo
wf.sum(a, axs=0)
wf.sum(a, axis="rows")
a.mean(axis=1.5)
wf.zeros(2, 3)
wf.zeros("big")
wf.sin(a, a)
wf.concat(a, a)
wf.allclose(a, a, tolerance=1e-3)
wf.reshape(a)
a["column"]
a + "1"
wf.ones((2, 2), dtype=1.0)
wf.linalg.qr(a, mode="raw")
wf.linalg.svd(a).values
wf.grad(energy)(a, c=a)
wf.grad(energy)(a)
wf.grad(energy, argnums="a")
compiled(a, c=a)
wf.nn.Linear(2)
wf.nn.Linear(2, 3, biass=False)
wf.nn.Linear(2, "3")
wf.nn.Linear(2, 3)()
wf.nn.Linear(2, 3)(a, a)
wf.nn.MSELoss(reduction="average")
wf.nn.MSELoss()(a)
wf.nn.functional.mse_loss(a, a, reduction="max")
wf.nn.Sequential([wf.nn.ReLU()])
net(a, b=a)
net(a).foo
wf.optim.AdamW(net.parameters(), learning_rate=1e-3)
wf.optim.AdamW(net.parameters(), lr="fast")
wf.optim.SGD(net.parameters(), betas=(0.9, 0.99))
wf.optim.SGD(1.0).step().item()
wf.optim.clip_grad_norm(net)
wf.train.Trainer(net)
wf.train.Trainer(net, wf.optim.SGD(net), wf.nn.MSELoss(), nonfinite="ignore")
wf.train.DataLoader(data, batchsize=2)
wf.train.DataLoader(data).epoch()
wf.load_checkpoint(directory=3)
wf.random.normal(shape=(2,), sigma=1.0)
wf.argmax(a, axis=(0, 1))
wf.cumsum(a, axis=[0])
a.cumprod(axis=(0,))
a.data = a
""".strip().splitlines()


def _generator():
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "tools" / "stubs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STUBS = _generator()


def definitions(tree) -> dict[str, list[ast.stmt]]:
    """What a module or a class of a stub defines, by name."""
    found: dict[str, list[ast.stmt]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found.setdefault(ast.unparse(target), []).append(node)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if alias.asname is not None and not alias.asname.startswith("_"):
                    found.setdefault(alias.asname, []).append(node)
    return found


def told_parameters(node: ast.FunctionDef) -> list[tuple[str, str, str | None]]:
    """(name, kind, default) of each parameter of a definition."""
    a = node.args
    plain = [(p.arg, "positional") for p in a.posonlyargs] + [(p.arg, "either") for p in a.args]
    defaults = [None] * (len(plain) - len(a.defaults)) + [ast.unparse(d) for d in a.defaults]
    told = [(n, k, d) for (n, k), d in zip(plain, defaults, strict=True)]
    told += [(a.vararg.arg, "*", None)] if a.vararg else []
    for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True):
        told.append((p.arg, "keyword", None if d is None else ast.unparse(d)))
    return told + ([(a.kwarg.arg, "**", None)] if a.kwarg else [])


def real_parameters(function) -> list[tuple[str, str, str | None]]:
    words = ("positional", "either", "*", "keyword", "**")
    kinds = dict(zip(inspect._ParameterKind, words, strict=True))
    return [
        (p.name, kinds[p.kind], None if p.default is p.empty else _written(p.default))
        for p in signature_of(function).parameters.values()
    ]


def _written(value) -> str:
    if isinstance(value, type):
        return value.__name__
    return ast.unparse(ast.parse(repr(value), mode="eval").body)


def parsed(path: Path):
    return ast.parse(path.read_text(encoding="utf-8"))


def test_committed_stubs_are_what_the_generator_writes():
    for path, text in STUBS.stubs().items():
        assert path.read_text(encoding="utf-8") == text, f"run python tools/stubs.py: {path.name}"


def test_the_package_stub_has_the_public_names():
    told = set(definitions(parsed(STUBS.ROOT / "__init__.pyi")))
    extra = {"__all__", "__version__", "__array_api_version__", "__array_namespace_info__"}
    assert told == set(weft.__all__) | extra


@pytest.mark.parametrize("name", namespace.MODULES)
def test_module_stubs_have_the_public_names(name):
    told = definitions(parsed(STUBS.ROOT / f"{name}.pyi"))
    assert set(told) == {*namespace.MODULES[name].__all__, "__all__"}
    for n, (node, *_) in told.items():
        if isinstance(node, ast.FunctionDef):
            assert told_parameters(node) == real_parameters(getattr(namespace.MODULES[name], n)), n


def test_functions_have_their_signatures():
    compared = 0
    for name, (node, *_) in definitions(parsed(STUBS.ROOT / "__init__.pyi")).items():
        if isinstance(node, ast.FunctionDef):
            assert told_parameters(node) == real_parameters(getattr(weft, name)), name
            compared += 1
    assert compared == sum(inspect.isfunction(f) for f in namespace.FUNCTIONS.values()) + 1


def test_tensor_has_its_methods():
    tree = parsed(STUBS.ROOT / "arrays" / "tensor.pyi")
    told = definitions(definitions(tree)["Tensor"][0])
    real = {n: v for n, v in vars(weft.Tensor).items() if n not in STUBS.UNTOLD}
    assert set(told) == set(real)
    for name, value in real.items():
        node, decorators = told[name][0], {ast.unparse(d) for d in told[name][0].decorator_list}
        assert ("property" in decorators) == isinstance(value, property), name
        if isinstance(value, property):
            assert (len(told[name]) == 2) == (value.fset is not None), name
        elif not (name.startswith("__") and name.endswith("__")):
            assert ("staticmethod" in decorators) == isinstance(value, staticmethod), name
            static = isinstance(value, staticmethod)
            expected = real_parameters(value.__func__ if static else value)
            if not static:
                expected[0] = ("self", *expected[0][1:])
            assert told_parameters(node) == expected, name


# Type checkers


# In a user's program no type is unknown.
KNOWN = [f"reportUnknown{what}Type" for what in "Argument Lambda Member Parameter Variable".split()]


def pyright(folder: Path) -> list[str]:
    """Pyright's errors: `name:line: message`."""
    settings = {"extraPaths": [str(ROOT / "src")]} | dict.fromkeys(KNOWN, "error")
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    call = [sys.executable, "-m", "pyright", "-p", str(folder), "--outputjson"]
    call += ["--pythonpath", sys.executable]
    found = json.loads(subprocess.run(call, capture_output=True, text=True).stdout)
    return [
        f"{Path(d['file']).stem}:{d['range']['start']['line'] + 1}: {d['message']}"
        for d in found["generalDiagnostics"]
        if d["severity"] == "error"
    ]


def mypy(folder: Path) -> list[str]:
    """Mypy's errors: `name:line: message`."""
    config = folder / "mypy.ini"
    config.write_text(f"[mypy]\nmypy_path = {ROOT / 'src'}\nfollow_imports = silent\n")
    call = [sys.executable, "-m", "mypy", "--config-file", str(config), "--no-error-summary"]
    call += ["--cache-dir", str(folder / ".mypy_cache"), *map(str, sorted(folder.glob("*.py")))]
    out = subprocess.run(call, capture_output=True, text=True, cwd=folder)
    assert not out.stderr, out.stderr
    lines = [line.partition(": error: ") for line in out.stdout.splitlines()]
    return [
        f"{Path(at.split(':')[0]).stem}:{at.split(':')[1]}: {what}"
        for at, sep, what in lines
        if sep
    ]


PROLOGUE = """
import weft as wf
a = wf.ones((2, 2))
def energy(a: wf.Tensor, b: wf.Tensor) -> wf.Tensor:
    return (a * b).sum()
compiled = wf.compile(energy)
class Net(wf.nn.Module):
    def forward(self, a: wf.Tensor) -> wf.Tensor:
        return a
net = Net()
data = wf.train.TensorDataset(a)
"""


def test_optimizers_have_their_keywords():
    told = definitions(parsed(STUBS.ROOT / "optim" / "optimizers.pyi"))
    found = [v for v in vars(weft.optim).values() if inspect.isclass(v) and v.__module__ == HOME]
    assert set(told) == {"UNQUANTISED", *(cls.__name__ for cls in found)}
    for cls in found:
        init = definitions(told[cls.__name__][0])["__init__"][0]
        assert isinstance(init, ast.FunctionDef)
        names = [name for name, *_ in told_parameters(init)[1:]]
        taken = inspect.signature(cls).parameters
        assert names == list(dict.fromkeys([*taken, *cls.Config.SPELLED])), cls
        defaults = {n: d for n, _, d in told_parameters(init)[1:] if n in taken}
        assert defaults == {n: _written(p.default) for n, p in taken.items()}, cls


@pytest.mark.parametrize("checker", [pyright, mypy])
def test_checkers_pass_what_is_right_and_find_what_is_wrong(checker, tmp_path):
    if checker is mypy:
        pytest.importorskip("mypy")
    (tmp_path / "right.py").write_text(USES.read_text(encoding="utf-8"))
    (tmp_path / "wrong.py").write_text(PROLOGUE + "\n".join(WRONG) + "\n")
    found = checker(tmp_path)
    assert [e for e in found if e.startswith("right:")] == []
    first = PROLOGUE.count("\n") + 1
    lines = {int(e.split(":")[1]) for e in found if e.startswith("wrong:")}
    missed = [w for k, w in enumerate(WRONG) if first + k not in lines]
    assert not missed and lines <= set(range(first, first + len(WRONG))), found


def test_the_uses_run():
    spec = importlib.util.spec_from_file_location("typed_uses", USES)
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
