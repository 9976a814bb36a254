"""Unambiguous JSON: no duplicate keys, no NaN, bounded length, depth and numbers."""

import json
from math import isfinite
from typing import Any

from ..errors import CheckpointError

DEPTH = 128
DIGITS = 1000


def dumps(value: Any) -> str:
    """`value` as JSON without spaces; ASCII, so that lone surrogates survive."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def loads(data: bytes | str, where: str) -> Any:
    """The value of strict JSON in UTF-8; else an error that begins with `where`."""
    try:
        value = json.loads(
            data if isinstance(data, str) else data.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
    except RecursionError:
        raise CheckpointError(f"{where}: JSON nested too deeply") from None
    except ValueError as e:  # undecodable bytes, bad syntax, and errors of the hooks
        raise CheckpointError(f"{where}: not strict JSON: {_short(e)}") from None
    _check_depth(value, where)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        names = [k for k, _ in pairs]
        twice = next(k for i, k in enumerate(names) if k in names[:i])
        raise ValueError(f"the key {_short(twice)!r} occurs twice")
    return out


def _constant(name: str):
    raise ValueError(f"{name} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"the number {_short(text)} is beyond float64")
    return value


def _int(text: str) -> int:
    if len(text) > DIGITS:
        raise ValueError(f"an integer of {len(text)} digits is too long")
    return int(text)


def _short(text: object) -> str:
    text = str(text)
    return text if len(text) <= 100 else f"{text[:80]}…"


def _check_depth(value: Any, where: str) -> None:
    layer, depth = [value], 0
    while layer:
        depth += 1
        if depth > DEPTH:
            raise CheckpointError(f"{where}: JSON nested deeper than {DEPTH} levels")
        layer = [
            x
            for outer in layer
            if isinstance(outer, dict | list)
            for x in (outer.values() if isinstance(outer, dict) else outer)
        ]
