"""Kernels and routines as native functions: from the cache on disk, or compiled and put there."""

from collections.abc import Iterable

from ...core.record import record
from ..cache.disk import cache
from ..emit.code import LLModule
from ..ir.kernel import Kernel
from ..native.machine import Loaded, host
from ..native.objects import digest, link, pack_object
from .loops import Extents, lower
from .routines.routine import NativeRoutine

# A kernel, and the extents of its arrays if its accesses are checked; or a routine, and
# whether it checks them.
Checked = tuple[Kernel, Extents] | tuple[NativeRoutine, bool]


@record
class NativeFunctions:
    """Native functions by the kernel or routine that they compute, and their origin."""

    addresses: dict[Checked, int]
    from_disk: bool
    loaded: Loaded | None


def functions_of(kernels: Iterable[Checked]) -> NativeFunctions:
    """A native function for each different kernel or routine, all in one object."""
    names = {k: f"kernel{i}" for i, k in enumerate(dict.fromkeys(kernels))}
    if not names:
        return NativeFunctions({}, False, None)
    key = digest("kernels", tuple(names))
    found = cache().fetch(key)
    image = found or _image(names)
    if found is None:
        cache().store(key, image)
    loaded = link(image, list(names.values()))
    made = {k: loaded.addresses[name] for k, name in names.items()}
    return NativeFunctions(made, found is not None, loaded)


def _image(names: dict[Checked, str]) -> bytes:
    module = LLModule(host().attributes)
    for (work, checks), name in names.items():
        if isinstance(work, NativeRoutine):
            work.write(module, name, bool(checks))
        else:
            assert isinstance(checks, tuple)
            lower(work, module, name, checks)
    return pack_object(module)
