"""The rows under test: every module of weft.ops imported, and the cases a row draws."""

import importlib
import pkgutil
import zlib
from dataclasses import replace

import numpy as np

import weft
import weft.ops
from weft.core.op import TABLE, Op
from weft.ops.samples.case import Case

importlib.import_module("weft.backend")
importlib.import_module("weft.array.tensor")
importlib.import_module("weft.transform.sweep")

# Rows that need no cases of their own, each with the reason.
EXEMPT = {
    "transfer": "its result is on another device than its argument: the devices' tests cover it",
}


def modules() -> list[str]:
    """The names of all modules that hold rows."""
    found = pkgutil.walk_packages(weft.ops.__path__, "weft.ops.")
    return sorted(m.name for m in found if ".samples" not in m.name)


def load() -> dict[str, Op]:
    """The whole table."""
    for name in modules():
        importlib.import_module(name)
    return TABLE


def cases(op: Op) -> list[Case]:
    """The row's cases, the same ones in every process."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    return [] if op.sample is None else [_whole(case) for case in op.sample(rng)]


def _whole(case: Case) -> Case:
    """Arithmetic on 0-d arrays gives NumPy scalars: make them arrays again."""
    args = tuple(np.asarray(a) if isinstance(a, np.generic) else a for a in case.args)
    return replace(case, args=args)
