"""Where the keys of a TOML file are: `tomllib` reads values without their lines."""

from __future__ import annotations

import re

Path = tuple[str | int, ...]

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}\n#]*")
# Strings as they are written, the long forms first.
_STRINGS = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r'"""(?:\\.|[^\\])*?"""(?:"{0,2})',
        r"'''.*?'''(?:'{0,2})",
        r'"(?:\\.|[^"\\])*"',
        r"'[^']*'",
    )
)


def key_lines(text: str) -> dict[Path, int]:
    """The line of each key and of each item of an array, counted from 1, by its path.

    text  a TOML file that `tomllib` has read without an error

    >>> from weft.io.toml_lines import key_lines
    >>> key_lines("a = 1\\n[b]\\nc = [{d = 2}]\\n")[("b", "c", 0, "d")]
    3
    """
    return _Scanner(text).document()


class _Scanner:
    """A position in a text that is known to be TOML."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.found: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}  # the tables of each array of tables

    def document(self) -> dict[Path, int]:
        table: Path = ()
        self.skip(_SPACE)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self.header()
            else:
                self.entry(table)
            self.skip(_SPACE)
        return self.found

    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found.group() if found else ""

    def header(self) -> Path:
        """The path of `[a.b]`, or of the next table of `[[a.b]]`."""
        line = self.line()
        many = self.text.startswith("[[", self.at)
        self.at += 2 if many else 1
        path = self.resolve(self.key())
        self.at += 2 if many else 1
        if many:
            self.found.setdefault(path, line)
            self.counts[path] = self.counts.get(path, 0) + 1
            path = (*path, self.counts[path] - 1)
        self.found[path] = line
        return path

    def resolve(self, names: list[str]) -> Path:
        """The names below the last tables of the arrays that they lead through."""
        path: Path = ()
        for name in names[:-1]:
            path = (*path, name)
            if path in self.counts:
                path = (*path, self.counts[path] - 1)
        return (*path, names[-1])

    def key(self) -> list[str]:
        names = []
        while True:
            self.skip(_SPACE)
            quoted = self.string()
            names.append(quoted[1:-1] if quoted else self.skip(_BARE))
            self.skip(_SPACE)
            if self.text[self.at : self.at + 1] != ".":
                return names
            self.at += 1

    def entry(self, table: Path) -> None:
        """A key and its value."""
        line, names = self.line(), self.key()
        path = table
        for name in names:
            path = (*path, name)
            self.found.setdefault(path, line)
        self.at += 1  # the sign =
        self.value(path)

    def value(self, path: Path) -> None:
        self.skip(_SPACE)
        opening = self.text[self.at : self.at + 1]
        if opening == "[":
            self.items(path, "]")
        elif opening == "{":
            self.items(path, "}")
        elif not self.string():
            self.skip(_SCALAR)

    def string(self) -> str:
        for pattern in _STRINGS:
            if found := self.skip(pattern):
                return found
        return ""

    def items(self, path: Path, closing: str) -> None:
        """What is inside of brackets."""
        self.at += 1
        count = 0
        while True:
            self.skip(_SPACE)
            if self.text[self.at] == closing:
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
            elif closing == "}":
                self.entry(path)
            else:
                self.found[(*path, count)] = self.line()
                self.value((*path, count))
                count += 1
