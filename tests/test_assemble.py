"""`import weft` changes what `_assemble` says, of the process and of the package; nothing else."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import weft
from weft import _assemble

SOURCE = Path(weft.__file__).parent

# Runs in a process of its own: what Python and NumPy can tell about themselves, before and after.
LOOK = """
import atexit, builtins, gc, json, locale, os, random, signal, sys, threading, warnings
import numpy as np

forks, exits = [], []
def noted(kind, plain):
    def register(*args, **kwargs):
        kind.append(sys._getframe(1).f_globals["__name__"])
        return plain(*args, **kwargs)
    return register
os.register_at_fork = noted(forks, os.register_at_fork)
atexit.register = noted(exits, atexit.register)

def look():
    hooks = "excepthook displayhook unraisablehook breakpointhook".split()
    return {
        "builtins": sorted(vars(builtins)),
        "environment": dict(os.environ),
        "errors of NumPy": np.geterr(),
        "finders": [type(f).__module__ for f in sys.meta_path],
        "path": [*sys.path, *map(repr, sys.path_hooks)],
        "collector": [gc.isenabled(), *gc.get_threshold()],
        "hooks": [repr(getattr(sys, h)) for h in hooks],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
        "locale": locale.setlocale(locale.LC_ALL),
        "printing": repr(np.get_printoptions()),
        "random": [repr(random.getstate()), repr(np.random.get_state())],
        "signals": [repr(signal.getsignal(s)) for s in sorted(signal.valid_signals())],
        "threads": threading.active_count(),
        "tracing": [repr(sys.gettrace()), repr(sys.getprofile())],
        "warnings": [repr(warnings.filters), repr(warnings.showwarning)],
        "warnings' hook": warnings._showwarnmsg.__module__,
    }

before = look()
modules = set(sys.modules)
import weft
after = look()
new = {n: m.__name__ for n, m in sys.modules.items() if n not in modules and n[:5] == "weft."}
foreign = {n: own for n, own in new.items() if n != own}
changed = {k: after[k] for k in before if before[k] != after[k]}
print(json.dumps({"changed": changed, "forks": forks, "exits": exits, "modules": foreign}))
"""


def test_what_importing_changes():
    made = subprocess.run(
        [sys.executable, "-c", LOOK], capture_output=True, text=True, env=dict(os.environ)
    )
    found = json.loads(made.stdout or made.stderr)
    finders = found["changed"].pop("finders")
    assert finders.count("weft.arrays.einops_") == 1
    assert found["changed"] == {"warnings' hook": "weft.core.warned"}
    assert found["modules"] == {
        f"weft.{name}": f"weft.arrays.{name}" for name in ("linalg", "fft", "special", "random")
    }
    forks = ("backend.shared.blas", "backend.shared.threads", "core.once")
    assert sorted(found["forks"]) == [f"weft.{name}" for name in forks]
    assert found["exits"] == []


def test_every_module_with_a_handler_is_named():
    """Those that are loaded later, too."""
    said = _assemble.__doc__
    for path in SOURCE.rglob("*.py"):
        text, name = path.read_text(), str(path.relative_to(SOURCE))
        if path.name == "_assemble.py" or not any(
            word in text for word in ("register_at_fork(", "atexit.register(", "sys.meta_path")
        ):
            continue
        folder = "compiler/cpu" if name.startswith("compiler/cpu/") else name
        assert folder in said, name


def test_nothing_is_installed_elsewhere():
    """Calls that change something of another module are made by `assemble` alone."""
    allowed = {"install_level", "install"}
    for path in SOURCE.rglob("*.py"):
        for n in ast.parse(path.read_text()).body:
            if not isinstance(n, ast.Expr) or not isinstance(n.value, ast.Call):
                continue
            called = ast.unparse(n.value.func)
            assert not called.endswith((".install", "setattr")), (path, called)
            if called in allowed:  # kinds of boxes and of tensors, by who defines them
                assert path.name in KINDS, (path, called)


KINDS = {"capture.py", "batch.py", "dual.py", "trace.py", "tensor.py", "parameter.py"}
