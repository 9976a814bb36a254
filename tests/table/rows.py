"""The rows under test: every module of weft.ops imported, and the cases a row draws."""

import importlib
import pkgutil
import zlib
from dataclasses import replace

import numpy as np

import weft
import weft.ops
from weft.core.op import TABLE, Op, Partials
from weft.ops.samples.case import Case

importlib.import_module("weft.backend")
importlib.import_module("weft.arrays.tensor")
importlib.import_module("weft.transform.modes.reverse")

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


def cases(op: Op, draw: int = 0) -> list[Case]:
    """The row's cases, the same ones in every process; another draw has other numbers in them."""
    rng = np.random.default_rng(zlib.crc32(op.name.encode()) + draw)
    found = [] if op.sample is None else [_whole(case) for case in op.sample(rng)]
    return found + _completing(found) if isinstance(op.rule, Partials) else found


def _whole(case: Case) -> Case:
    """Arithmetic on 0-d arrays gives NumPy scalars: make them arrays again."""
    args = tuple(np.asarray(a) if isinstance(a, np.generic) else a for a in case.args)
    return replace(case, args=args)


def shapes(case: Case) -> list[tuple[int, ...]]:
    """The shapes of a case's arrays."""
    return [a.shape for a in case.args if isinstance(a, np.ndarray)]


def _completing(found: list[Case]) -> list[Case]:
    """0-d, 0-size and broadcast cases of an elementwise row, where its sample has none."""
    able = [
        c for c in found if c.smooth and not c.static and shapes(c) and all(map(len, shapes(c)))
    ]
    if not able:
        return []
    case = max(able, key=lambda c: len(shapes(c)))
    made = []
    if not any(() in shapes(c) for c in found):
        made.append(_reshaped(case, "0-d", lambda a, k: np.asarray(a.reshape(-1)[0])))
    if not any(0 in s for c in found for s in shapes(c)):
        made.append(_reshaped(case, "0-size", lambda a, k: a.reshape(-1)[:0]))
    if not any(len(set(shapes(c))) > 1 for c in found) and len(shapes(case)) > 1:
        made.append(_reshaped(case, "broadcast", lambda a, k: a.reshape((-1, 1) if k == 0 else -1)))
    return made


def _reshaped(case: Case, label: str, change) -> Case:
    """The case with its arrays changed by change(array, how many arrays came before)."""
    args, count = [], 0
    for a in case.args:
        args.append(change(a, count) if isinstance(a, np.ndarray) else a)
        count += isinstance(a, np.ndarray)
    return Case(tuple(args), (), f"{label} of {case.label}", case.post)
