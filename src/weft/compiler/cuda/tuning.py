"""The constants by which programs for a GPU are chosen: part of their keys on disk."""

import sys
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

# Folders of the compiler; in them, a module's constants have names of capitals.
FOLDERS = ("cuda", "cuda/routines", "fusion", "ir", "passes")
# Modules of no part: those that run programs, those of other targets, and those of checkpoints,
# which are loaded when there is one.
WITHOUT = frozenset(
    (
        *("cuda.device", "cuda.driver", "cuda.tuning", "passes.pooling"),
        *("fusion.apart", "fusion.budget", "fusion.eviction", "fusion.footprint", "fusion.kept"),
        *("fusion.min_cut", "fusion.recompute", "fusion.repeat"),
    )
)
_PLAIN = frozenset((bool, int, float, str, type(None)))


def tuning() -> str:
    """The digest of all constants, as they are now: tests change some of them."""
    found = [(module, name, vars(sys.modules[module])[name]) for module, name in _names()]
    return sha256(repr(found).encode()).hexdigest()


@lru_cache(maxsize=1)
def _names() -> tuple[tuple[str, str], ...]:
    """The modules and names of the constants."""
    root, package = Path(__file__).parents[1], __name__.removesuffix(".cuda.tuning")
    found: list[tuple[str, str]] = []
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("[a-z]*.py")):
            name = f"{folder.replace('/', '.')}.{path.stem}"
            if name not in WITHOUT:
                values = vars(import_module(f"{package}.{name}"))
                own = [key for key, value in values.items() if key.isupper() and _is_plain(value)]
                found += [(f"{package}.{name}", key) for key in sorted(own)]
    return tuple(found)


def _is_plain(value: Any) -> bool:
    """Whether its text is the same in every process."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, (*value, *value.values())))
    return type(value) in _PLAIN
