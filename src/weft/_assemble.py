"""Putting the package together: everything that `import weft` changes besides making modules.

Of the process:

- the C library keeps freed memory (`mallopt`, by `arrays/memory.py`);
- warnings that arise in kernels are shown at the user's line (Python's hook, by `core/warned.py`);
- whoever imports einops later finds tensors known there (`sys.meta_path`, by `arrays/einops_.py`);
- `weft.linalg`, `weft.fft`, `weft.special` and `weft.random` are names of modules (`sys.modules`);
- children of a fork begin without this process's threads and locks (`os.register_at_fork`, where
  those are: `backend/shared/threads.py`, `backend/shared/blas.py`, `core/once.py`).

Of the package:

- Tensor gets its methods (`arrays/namespace.py`), and those of `transform/modes/backward.py`;
- some of NumPy's kernels are replaced by compiled ones for large arrays (`compiler/eager`);
- the planner of Jacobians gets the compiler, which it does not import (`transform/jacobian`);
- budgets of bytes get the native counter of allocations (`transform/checkpoint/auto.py`).

Apart from that modules register what they define, each in a table that says so: rows (`core/op.py`
TABLE), array types (`core/backends.py` BACKENDS), kinds of boxes (`core/box.py`), what the layers
above applying do (`core/dispatch.py` above). Modules that `import weft` does not load register
further handlers of forks (`io/lock.py`, `transform/checkpoint/disk.py`, `compiler/compiled.py`,
`compiler/native/machine.py`, `compiler/native/shielded.py`, `compiler/cpu`, `dist/world.py`), and
three of the interpreter's exit, which end the thread pool (`compiler/cpu/runtime/thread_pool.py`),
wait for LLVM (`compiler/native/shielded.py`) and leave the group of processes (`dist/world.py`).
"""

import sys
from importlib import import_module
from typing import Any

from .arrays import einops_, memory, namespace
from .arrays.tensor import Tensor
from .compiler.eager import kernels
from .core import warned
from .transform.checkpoint import host
from .transform.jacobian import compiler
from .transform.modes import backward


def assemble() -> dict[str, Any]:
    """Do all of that; the public names that are gathered by name."""
    memory.keep_freed_memory()
    warned.install()
    einops_.install()
    for name, module in namespace.MODULES.items():
        sys.modules[f"{__package__}.{name}"] = module
    namespace.give_methods()
    for name in ("backward", "register_hook", "retain_grad"):
        setattr(Tensor, name, getattr(backward, name))
    kernels.install()
    host.above.new_counter, host.above.held, host.above.bytes_to_come = _counting()
    compiler.install(lambda f: import_module(f"{__package__}.compiler.jit").compile(f))
    return namespace.FUNCTIONS | namespace.CONSTANTS | namespace.MODULES


def _counting() -> tuple[Any, Any, Any]:
    """A native counter of live bytes, what optimizers hold, and what they will make."""
    name = f"{__package__}.optim.optimizer"  # there are none until it is loaded

    def make() -> Any:
        return import_module(f"{__package__}.profile.counter").Counter()

    def held() -> Any:
        return sys.modules[name].held_arrays() if name in sys.modules else ()

    def bytes_to_come(device: str) -> int:
        return sys.modules[name].bytes_to_come(device) if name in sys.modules else 0

    return make, held, bytes_to_come
