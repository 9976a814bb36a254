"""Imports point down only."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent
LAYERS = (
    *("core", "graph", "backend", "ops", "arrays", "transform", "compiler", "optimize"),
    *("io", "nn", "optim", "amp", "profile", "dist", "train", "diffusion", "cli"),
)
MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


def layer(parts) -> int:
    """How high a module is; `weft.errors` belongs to core, public names of modules to the top."""
    name = parts[0].removesuffix(".py")
    if name in ("__main__", "_assemble", "cuda", "implicit", "gradient_clipping"):
        return len(LAYERS)
    return LAYERS.index("core" if name == "errors" else name)


def imported(path: Path):
    """The weft modules a file imports, as parts below the package."""
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = package[: len(package) - node.level + 1]
            if node.module:
                yield (*base, *node.module.split("."))
            else:
                yield from ((*base, a.name) for a in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weft"):
            yield tuple(node.module.split(".")[1:])


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    mine = layer(path.relative_to(ROOT).parts)
    for target in imported(path):
        assert layer(target) <= mine, f"{path.name} imports {'.'.join(target)}"


def test_no_folders_import_each_other_and_the_map_shows_what_they_do():
    path = ROOT.parent.parent / "tools" / "imports.py"
    spec = importlib.util.spec_from_file_location("imports", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    told = tool.lines()
    text = tool.PAGE.read_text()
    assert tool.page(text, told) == text, "run: python tools/imports.py --write"
    with pytest.raises(SystemExit, match="a, b"):
        tool.ordered({"a": {"b"}, "b": {"a"}, "c": set()})


def test_the_walk_sees_imports():
    assert ("core", "op") in set(imported(ROOT / "ops" / "rows.py"))


def test_transform_and_compile_do_not_know_each_other():
    for path in MODULES:
        mine = path.relative_to(ROOT).parts[0]
        other = {"transform": "compiler", "compiler": "transform"}.get(mine)
        assert other not in {t[0] for t in imported(path)}


def test_names_that_are_loaded_later_are_those_that_type_checkers_see():
    tree = ast.parse((ROOT / "__init__.py").read_text())
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    shown = {a.asname or a.name for n in block.body for a in n.names}
    assert shown == set(weft._HOMES)
    assert all(getattr(weft, name) is not None for name in weft._HOMES)
    assert shown <= set(weft.__all__) <= set(dir(weft))


def test_importing_weft_loads_neither_torch_nor_scipy():
    program = (
        "import sys, weft; print([m for m in ('torch', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stdout + out.stderr
