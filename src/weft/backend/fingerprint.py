"""What a run's results depend on besides its program: versions, processor, libraries, threads.

It does not identify the machine: no host, no user, no path.
"""

import platform
import sys
from collections.abc import Mapping
from ctypes import c_char_p
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .. import errors
from ..core import dtypes
from .shared import blas, threads

# Read from the packages' metadata, so that none is imported.
_PACKAGES = ("numpy", "scipy", "ml_dtypes", "llvmlite")


def fingerprint() -> dict[str, Any]:
    """Versions, processor, BLAS, threads, system and default dtype, as plain JSON.

    Two runs of one program with equal seeds are bitwise equal where these are equal. PyTorch's
    part is there once it has been loaded, the GPU's once it has been used.

    >>> import weft as wf
    >>> wf.fingerprint()["weft"] == wf.__version__
    True
    >>> wf.fingerprint() == wf.fingerprint()
    True
    """
    return {
        "weft": sys.modules[__name__.partition(".")[0]].__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        **{name: _version(name) for name in _PACKAGES},
        **_machine(),
        "blas": _products(),
        "threads": threads.cores(),
        "default_dtype": dtypes.default_float().name,
        "torch": _torch(),
    }


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What differs between two fingerprints, a line each; nested parts by their paths.

    one, other  what `wf.fingerprint()` gave

    >>> import weft as wf
    >>> mine = wf.fingerprint()
    >>> wf.fingerprint_differences(mine | {"numpy": "2.0.0"}, mine | {"numpy": "2.1.0"})
    ["numpy: '2.0.0', then '2.1.0'"]
    """
    for given in (one, other):
        if not isinstance(given, Mapping):
            raise errors.ArgumentError(
                f"fingerprint_differences: got {type(given).__name__}, expected two of "
                "wf.fingerprint()'s results"
            )
    names = [*one, *(name for name in other if name not in one)]
    return [line for name in names for line in _compare(name, one.get(name), other.get(name))]


def _compare(name: str, a: Any, b: Any) -> list[str]:
    if a == b:
        return []
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return [f"{name}.{line}" for line in differences(a, b)]
    if isinstance(a, list) and isinstance(b, list):
        lost = [f"{x} only before" for x in a if x not in b]
        return [f"{name}: {', '.join([*lost, *(f'{x} only then' for x in b if x not in a)])}"]
    return [f"{name}: {a!r}, then {b!r}"]


@lru_cache(maxsize=None)
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@lru_cache(maxsize=None)
def _machine() -> dict[str, Any]:
    """The processor's model, the instruction sets that NumPy uses, and the C library."""
    # What np.show_runtime() prints.
    from numpy._core._multiarray_umath import (  # type: ignore[import-not-found]
        __cpu_features__,
    )

    return {
        "cpu": _processor(),
        "cpu_features": sorted(name for name, there in __cpu_features__.items() if there),
        "system": f"{platform.system()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def _processor() -> str:
    """The processor's model, from /proc/cpuinfo on Linux, else from `platform`."""
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        for line in listed.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "cpu model"):
                return value.strip()
    return platform.processor() or platform.machine()


@lru_cache(maxsize=None)
def _products() -> dict[str, str | None]:
    """NumPy's BLAS, and the kernels that it has chosen for this processor."""
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    library = blas.openblas("numpy")
    core = None
    if library is not None:
        ask = library.scipy_openblas_get_corename64_
        ask.restype = c_char_p
        core = ask().decode()
    return {"name": built.get("name"), "version": built.get("version"), "kernels": core}


def _torch() -> dict[str, Any] | None:
    """PyTorch's versions, threads and GPU, if it is loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    gpu = torch.cuda.get_device_name() if torch.cuda.is_initialized() else None
    return {
        "version": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "gpu": gpu,
    }
