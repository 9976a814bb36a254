"""Reproducible libraries: one thread each, and deterministic algorithms only.

The results of NumPy's and SciPy's OpenBLAS and of PyTorch depend on their number of threads; those
of this package's own thread pool do not. These are settings of the process: they hold while there
is a request, of any thread.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import partial, wraps
from threading import RLock
from types import ModuleType
from typing import Any

import numpy as np

from ..core.backends import guard, unguard
from ..core.op import Op
from ..core.record import record
from ..core.settings import current
from .shared import blas

# PyTorch's messages for a missing deterministic kernel, and for cuBLAS initialised too early.
_REFUSED = re.compile(r"^(\S+) does not have a deterministic implementation")
_CUBLAS = "CUBLAS_WORKSPACE_CONFIG"

_lock = RLock()
_asked: list["Request"] = []
_undo: list[Callable[[], Any]] = []  # functions that undo the settings, run last first
_torch_set = _cudnn_set = False


@record(frozen=False, eq=False)
class Request:
    """The request of one block.

    cudnn  keep cuDNN from choosing algorithms by timing them
    """

    cudnn: bool


def ask(request: Request) -> None:
    """Make the libraries deterministic until the request is withdrawn."""
    with _lock:
        if not _asked:
            _pin()
        _asked.append(request)
        set_torch()


def withdraw(request: Request) -> None:
    """End a request; after the last one everything is as it was before the first."""
    global _torch_set, _cudnn_set
    with _lock:
        _asked.remove(request)
        if not _asked:
            while _undo:
                _undo.pop()()
            _torch_set = _cudnn_set = False


def unpinned_blas() -> str | None:
    """The name of NumPy's BLAS, if its number of threads cannot be set."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    if blas.thread_count_functions("numpy") is not None or "1" in map(os.environ.get, names):
        return None
    return np.show_config(mode="dicts")["Build Dependencies"]["blas"].get("name", "unknown")


def _pin() -> None:
    blas.pin()
    _undo.append(blas.unpin)
    scipys = blas.thread_count_functions("scipy")
    if scipys is not None:
        count, tell = scipys[0](), scipys[1]
        tell(1)
        _undo.append(partial(tell, count))
    # Read by cuBLAS when PyTorch first multiplies matrices on a GPU, and harmless otherwise.
    os.environ.setdefault(_CUBLAS, ":4096:8")


def set_torch() -> None:
    """Make PyTorch deterministic, if it is loaded and there is a request."""
    global _torch_set, _cudnn_set
    torch = sys.modules.get("torch")
    with _lock:
        if torch is None or not _asked:
            return
        if not _torch_set:
            _torch_set = True
            _set_algorithms(torch)
        if not _cudnn_set and any(r.cudnn for r in _asked):
            _cudnn_set = True
            # As a context manager: PyTorch may be set to refuse single assignments.
            flags = torch.backends.cudnn.flags(None, False, None, True, None)  # None: as it is
            flags.__enter__()
            _undo.append(partial(flags.__exit__, None, None, None))


def _set_algorithms(torch: ModuleType) -> None:
    count, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    quiet = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    kinds = (torch.Tensor, torch.nn.Parameter)
    for kind in kinds:
        guard(kind, _watch_kernel)
    _undo.append(partial(torch.set_num_threads, count))
    _undo.append(partial(torch.use_deterministic_algorithms, strict, warn_only=quiet))
    _undo.extend([partial(unguard, kind, _watch_kernel) for kind in kinds])


def _watch_kernel(op: Op, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, with PyTorch's refusal turned into our error or, if allowed, a warning."""

    @wraps(kernel, assigned=())
    def watched(*args, **kwargs):
        try:
            return kernel(*args, **kwargs)
        except RuntimeError as e:
            why = _reason(str(e))
            if why is None:
                raise
        determinism = current.get().determinism
        if determinism is not None:  # else only another thread has requested it
            determinism.refuse_or_warn(op.name, why)
        return _run_allowed(kernel, args, kwargs)

    return watched


def _reason(message: str) -> str | None:
    if found := _REFUSED.match(message):
        return (
            f"PyTorch has no deterministic kernel for it ({found[1]}); compute it on NumPy, with "
            "x.to('cpu')"
        )
    if _CUBLAS in message:
        return (
            "cuBLAS was used before determinism was asked for; call wf.deterministic before the "
            f"first product of matrices on a GPU, or set {_CUBLAS}=:4096:8 in the environment"
        )
    return None


def _run_allowed(kernel: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a kernel that PyTorch refuses; other threads still get deterministic ones."""
    torch = sys.modules["torch"]
    with _lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            return kernel(*args, **kwargs)
        finally:
            torch.use_deterministic_algorithms(True)
