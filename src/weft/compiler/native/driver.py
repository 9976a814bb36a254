"""The native code that all programs share: calls, signals, threads, products, guards."""

from time import CLOCK_MONOTONIC

import llvmlite.binding as llvm

from ...core.once import once
from ..cache.disk import cache
from ..emit.code import LLModule
from . import layout
from .buffers import write_kept, write_room
from .entry import write_entry
from .machine import Loaded, host
from .objects import PROVIDERS, digest, link, pack_object
from .pick import write_pick
from .products import write_product, write_tiles, write_vector_product
from .profile import write_profile
from .signals import write_signals
from .thread_pool import write_thread_pool
from .watch import write_count, write_watch

EXPORTS = [
    *("weft_begin", "weft_look"),
    *("weft_call", "weft_lock", "weft_unlock", "weft_share", "weft_wake", "weft_work"),
    *("weft_product", "weft_tiles", "weft_vector_product"),
    *("weft_watch", "weft_count", "weft_room", "weft_kept", "weft_pick", "weft_profile"),
]


def module_of_driver() -> LLModule:
    """The LLVM IR of these functions."""
    module = LLModule(host().attributes)
    triple = llvm.get_process_triple()
    write_signals(module, CLOCK_MONOTONIC)
    write_thread_pool(module, triple.partition("-")[0], "linux" in triple)
    write_entry(module)
    write_product(module)
    write_tiles(module)
    write_vector_product(module)
    write_watch(module)
    write_count(module)
    write_room(module)
    write_kept(module)
    write_pick(module)
    write_profile(module)
    return module


@once
def driver() -> Loaded:
    """The driver, loaded for the lifetime of the process."""
    layout.verify_layout()
    key = digest("driver", (layout.TYPE, layout.DATA, layout.VERSION))
    image = cache().fetch(key)
    if image is None:
        image = pack_object(module_of_driver(), quickly=True)
        cache().store(key, image)
    return link(image, EXPORTS)


PROVIDERS.append(lambda symbol: driver().addresses.get(symbol) if symbol in EXPORTS else None)
