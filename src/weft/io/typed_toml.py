"""Frozen dataclasses from TOML files: every key known, every value of its type."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .. import errors
from .toml_lines import Path as Place
from .toml_lines import key_lines

Config = TypeVar("Config")

LONGEST = 1 << 20  # bytes of a file
_DEEPEST = 20  # tables in tables
_NESTING = (dict, list)
_LARGEST = 10**300  # larger ones are no floating-point numbers, and cannot always be printed


class Misfits(errors.ConfigError):
    """Values of a configuration that cannot be, with their places.

    found  what is wrong at each place
    """

    def __init__(self, found: Iterable[tuple[Place, str]]):
        self.found: list[tuple[Place, str]] = [*found]
        super().__init__("\n".join([f"{spelled(p)}: {t}" if p else t for p, t in self.found]))


class Problems:
    """What is wrong in a file, each with its line."""

    def __init__(self, path: Path, lines: dict[Place, int]):
        self.path, self.lines = path, lines
        self.found: list[tuple[int, str]] = []

    def add(self, place: Place, text: str) -> None:
        """Note that something is wrong at a key, or at what it would be in."""
        where = place
        while where and where not in self.lines:
            where = where[:-1]
        named = f"{spelled(place)}: " if place else ""
        self.found.append((self.lines.get(where, 1), f"{named}{text}"))

    def raise_if_any(self) -> None:
        """One error for all of them, in the order of the lines."""
        if self.found:
            listed = [f"{self.path}:{line}: {text}" for line, text in sorted(self.found)]
            raise errors.ConfigError("\n".join(listed))


def spelled(place: Place) -> str:
    """A path as one writes it in TOML.

    >>> from weft.io.typed_toml import spelled
    >>> spelled(("data", 0, "path"))
    'data[0].path'
    """
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def read_toml(path: str | Path, kind: type[Config]) -> tuple[Config, Problems]:
    """A file as a dataclass, and where its keys are, for checks of what the types do not say.

    path  the file
    kind  a dataclass; its fields may be dataclasses, tuples of them, or plain values

    >>> import tempfile
    >>> from dataclasses import dataclass
    >>> from pathlib import Path
    >>> from weft.io.typed_toml import read_toml
    >>> @dataclass(frozen=True)
    ... class Run:
    ...     steps: int = 10
    >>> with tempfile.TemporaryDirectory() as here:
    ...     file = Path(here, "run.toml")
    ...     _ = file.write_text("steps = 3")
    ...     read_toml(file, Run)[0]
    Run(steps=3)
    """
    path = Path(path)
    text = _text(path)
    data = _parse(path, text)
    problems = Problems(path, key_lines(text))
    made: Any = read_table(kind, data, (), problems)
    problems.raise_if_any()
    return made, problems


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(text)
    except ValueError as e:  # numbers with too many digits are none of tomllib's own errors
        raise errors.ConfigError(f"{path}: not TOML: {e}") from None
    except RecursionError:
        data = None
    level: list[Any] = [data]
    for _ in range(_DEEPEST):
        if any(isinstance(x, int) and abs(x) > _LARGEST for x in level):
            raise errors.ConfigError(f"{path}: not TOML: an integer of more than 300 digits")
        inner = [x.values() if isinstance(x, dict) else x for x in level if type(x) in _NESTING]
        level = [y for x in inner for y in x]
    if data is None or any(type(x) in _NESTING for x in level):
        raise errors.ConfigError(
            f"{path}: tables or lists that are nested more than {_DEEPEST} deep, which no "
            "configuration has"
        )
    return data


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LONGEST + 1)
    except OSError as e:
        raise errors.ConfigError(f"{path}: cannot be read: {e.strerror}") from None
    if len(raw) > LONGEST:
        raise errors.ConfigError(f"{path}: more than {LONGEST} bytes, which no configuration has")
    try:
        return raw.decode()
    except UnicodeDecodeError as e:
        raise errors.ConfigError(f"{path}: not UTF-8: {e}") from None


def read_table(kind: Any, data: Any, place: Place, problems: Problems) -> Any:
    """A table as a dataclass; None, and problems, if it is not one.

    kind      the dataclass, or a class with `from_toml(data, place, problems)`
    data      what `tomllib` has read
    place     where it is in the file
    problems  where problems are noted
    """
    if not isinstance(data, dict):
        problems.add(place, f"{_shown(data)}, expected a table")
        return None
    if hasattr(kind, "from_toml"):
        return kind.from_toml(data, place, problems)
    before = len(problems.found)
    hints = get_type_hints(kind)
    known = {f.name: f for f in fields(kind) if f.init}
    for key in data:
        if key not in known:
            problems.add((*place, key), unknown_key(key, known))
    values = {
        name: read_value(hints[name], data[name], (*place, name), problems)
        for name in known
        if name in data
    }
    for name, f in known.items():
        if name not in data and f.default is MISSING and f.default_factory is MISSING:
            problems.add(place, f"{name} is missing")
    if len(problems.found) > before:
        return None
    try:
        return kind(**values)
    except errors.WeftError as e:
        for where, text in misfits_of(kind, e):
            problems.add((*place, *where), text)
        return None


def misfits_of(kind: Any, error: errors.WeftError) -> list[tuple[Place, str]]:
    """What a dataclass refuses of its fields: the field's name, and what is said of it.

    kind   the dataclass; its messages are as `Kind: field=value, expected …`
    error  that it raised

    >>> from dataclasses import dataclass
    >>> import weft as wf
    >>> from weft.io.typed_toml import misfits_of
    >>> @dataclass
    ... class Noise:
    ...     std: float
    >>> misfits_of(Noise, wf.errors.ArgumentError("Noise: std=0, expected a number > 0"))
    [(('std',), '0, expected a number > 0')]
    """
    if isinstance(error, Misfits):
        return error.found
    text = re.sub(r"^\w+: ", "", error.message)
    names = "|".join([f.name for f in fields(kind)])
    first = re.match(rf"({names})(?:=| is (?!more|less|empty))", text)
    if first is not None:
        return [((first[1],), text[first.end() :])]
    named = re.search(rf"\b({names})\b", text)
    return [((), text) if named is None else ((named[1],), text)]


def unknown_key(key: str, known: Any) -> str:
    """What is said of a key that is not one of those that are known."""
    return f"unknown key; {nearest_name(key, known)}"


def nearest_name(name: str, known: Any) -> str:
    """What one may have meant by a name: the nearest one that is known, or all of them."""
    near = get_close_matches(name, known, 1, 0.6)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def read_value(hint: Any, value: Any, place: Place, problems: Problems) -> Any:
    """A value as its type has it; a problem if it is of another."""
    if is_dataclass(hint):
        return read_table(hint, value, place, problems)
    if get_origin(hint) is tuple:
        return _sequence(hint, value, place, problems)
    for kind in _alternatives(hint):
        if get_origin(kind) is tuple and isinstance(value, list):
            return _sequence(kind, value, place, problems)
        if is_dataclass(kind) and isinstance(value, dict):
            return read_table(kind, value, place, problems)
        if _fits(kind, value):
            return kind(value) if kind in (float, Path) else value
    near = _nearest(hint, value)
    problems.add(place, f"{_shown(value)}, expected {_expected(hint)}{near}")
    return None


def misfits(hint: Any, value: Any, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """The places at which a value is not what `read_value` would give for the same types.

    hint   a type
    value  that was made in Python
    place  where it is

    >>> from dataclasses import dataclass
    >>> from typing import Literal
    >>> from weft.io.typed_toml import misfits
    >>> @dataclass(frozen=True)
    ... class Run:
    ...     steps: int = 10
    ...     layouts: tuple[Literal["a", "b"], ...] = ()
    >>> list(misfits(Run, Run(layouts=("c",))))
    [(('layouts', 0), "'c', expected 'a' or 'b'")]
    """
    if is_dataclass(hint):
        if not isinstance(value, hint if isinstance(hint, type) else object):
            yield place, f"{value!r:.60}, expected a {getattr(hint, '__name__', hint)}"
            return
        hints = get_type_hints(hint)
        for f in fields(hint):
            if f.init:
                yield from misfits(hints[f.name], getattr(value, f.name), (*place, f.name))
    elif value is None and NoneType in get_args(hint):
        return
    elif get_origin(hint) is tuple and isinstance(value, tuple):
        kind = get_args(hint)[0]
        for i, item in enumerate(value):
            yield from misfits(kind, item, (*place, i))
    elif not any(_is_of(kind, value) for kind in _alternatives(hint)):
        near = _nearest(hint, value)
        yield place, f"{value!r:.60}, expected {_expected(hint)}{near}"


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value made in Python is of a plain type."""
    if get_origin(kind) is Literal or kind is float:
        return _fits(kind, value)
    if kind in (int, str, bool):
        return type(value) is kind
    if get_origin(kind) is tuple:
        return isinstance(value, tuple)
    return kind is Any or isinstance(value, get_origin(kind) or kind)


def _sequence(hint: Any, value: Any, place: Place, problems: Problems) -> Any:
    kinds = get_args(hint)
    if not isinstance(value, list):
        problems.add(place, f"{_shown(value)}, expected {_expected(hint)}")
        return None
    if kinds[-1] is not Ellipsis and len(value) != len(kinds):
        problems.add(place, f"{len(value)} items, expected {len(kinds)}")
        return None
    each = kinds if kinds[-1] is not Ellipsis else kinds[:1] * len(value)
    found = zip(each, value, strict=True)
    return tuple([read_value(k, v, (*place, i), problems) for i, (k, v) in enumerate(found)])


def _alternatives(hint: Any) -> Iterator[Any]:
    """The plain types of a union, and the values of literals as types of their own."""
    if get_origin(hint) in (Union, UnionType):
        for kind in get_args(hint):
            if kind is not NoneType:  # TOML has no null: what is not wanted is left out
                yield from _alternatives(kind)
    else:
        yield hint


def _fits(kind: Any, value: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(kind))
    if kind is float:
        return type(value) in (int, float) and isfinite(value)
    if kind is Path:
        return type(value) is str and bool(value) and value.isprintable()
    return type(value) is kind


def _nearest(hint: Any, value: Any) -> str:
    choices = [
        choice
        for kind in _alternatives(hint)
        if get_origin(kind) is Literal
        for choice in get_args(kind)
        if isinstance(choice, str)
    ]
    near = get_close_matches(value, choices, 1, 0.6) if isinstance(value, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a finite number",
    str: "a text",
}
_WORDS |= {Path: "a path, a text without control characters"}


def _expected(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return f"a list of {_expected(get_args(hint)[0])}"
    words = []
    for kind in _alternatives(hint):
        if get_origin(kind) is Literal:
            words += [repr(choice) for choice in get_args(kind)]
        elif is_dataclass(kind):
            words.append("a table")
        elif get_origin(kind) is tuple:
            words.append(_expected(kind))
        else:
            words.append(_WORDS.get(kind, str(kind)))
    return " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def _shown(value: Any) -> str:
    kinds: dict[Any, str] = {dict: "a table", list: "a list"}
    return kinds[type(value)] if type(value) in kinds else f"{value!r:.60}"
