"""A backend's names are listed: whatever else NumPy, SciPy or PyTorch have is an error."""

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import scipy.special

import weft
from weft.ops.table import whole

torch = pytest.importorskip("torch")

SOURCE = Path(weft.__file__).parent
LIBRARIES = {
    "numpy": (np, np.linalg, np.fft, scipy.special, scipy.linalg),
    "torch": (torch, torch.special, torch.linalg, torch.fft, torch.nn.functional),
}
ASKING = ("ops", "backend/shared", "optim")  # whose `xp` is a backend
# Names that one library alone has; whoever asks for them looks at `xp.name` first.
ONLY = {
    "numpy": {"_foreach_copy_", "addmm", "joint_norm", "view_as_real", "with_strides"},
    "torch": {"has_nan"},
}


def namespace(backend: str) -> ModuleType:
    return import_module(f"weft.backend.{backend}.namespace")


def stated(path: Path) -> set[str]:
    """The names that a module defines or assigns: not those it imports for itself."""
    found = set()
    for n in ast.parse(path.read_text()).body:
        if isinstance(n, ast.FunctionDef | ast.ClassDef):
            found.add(n.name)
        targets = n.targets if isinstance(n, ast.Assign) else [getattr(n, "target", None)]
        for target in targets:
            found |= (
                {x.id for x in ast.walk(target) if isinstance(x, ast.Name)} if target else set()
            )
    return found


def listed(backend: str) -> set[str]:
    """Everything that a backend has, as its source says it."""
    xp = namespace(backend)
    files = [Path(xp.__file__), *[Path(xp.__file__).with_name(f"{f}.py") for f in xp._FAMILIES]]
    own = {name for names in xp._LIBRARY.values() for name in names.split()}
    return own.union(*map(stated, files))


def asked_by_rows() -> set[str]:
    """The names that rows ask of a backend: their own, or those in what computes them."""
    found = {name for name, op in whole().items() if op.compute is None}
    for path in [p for folder in ASKING for p in SOURCE.glob(f"{folder}/*.py")]:
        for n in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(n, ast.Attribute)
                and isinstance(n.value, ast.Name)
                and n.value.id == "xp"
            ):
                found.add(n.attr)
    return found - {"shape"}  # of points, in `quantiles`


@pytest.mark.parametrize("backend", LIBRARIES)
def test_every_name_that_a_row_asks_for_is_listed(backend):
    asked, have = asked_by_rows() - ONLY[backend], listed(backend)
    assert len(asked) > 200
    assert sorted(asked - have) == []
    assert [n for n in sorted(asked) if getattr(namespace(backend), n) is None] == []


def _is_typing(value) -> bool:
    """Whether a name was imported for annotations."""
    return getattr(value, "__module__", "") in ("typing", "collections.abc", "__future__")


@pytest.mark.parametrize("backend", LIBRARIES)
def test_nothing_else_of_a_library_is_found(backend):
    have, xp = listed(backend), namespace(backend)
    imported = {n for n, v in vars(xp).items() if isinstance(v, ModuleType) or _is_typing(v)}
    names = {n for library in LIBRARIES[backend] for n in dir(library) if not n.startswith("__")}
    assert len(names) > 700
    wrong = [n for n in sorted(names - have - imported) if hasattr(xp, n)]
    assert wrong == []


def test_an_error_names_the_backend():
    with pytest.raises(AttributeError, match="the numpy backend has no 'lstsq'"):
        namespace("numpy").lstsq  # noqa: B018
    with pytest.raises(AttributeError, match="the torch backend has no 'lstsq'"):
        namespace("torch").lstsq  # noqa: B018


def test_looking_for_a_name_loads_no_library():
    program = (
        "import sys, weft\n"
        "hasattr(weft.backend.numpy_, 'not_there')\n"
        "print([m for m in ('scipy', 'scipy.special', 'torch') if m in sys.modules])"
    )
    made = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=dict(os.environ)
    )
    assert made.stdout.strip() == "[]", made.stderr
