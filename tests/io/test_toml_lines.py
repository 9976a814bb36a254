"""The lines of keys: random files, whose writer notes where it puts them."""

import random
import tomllib

import pytest

from weft.io.toml_lines import key_lines

SCALARS = (
    *("1", "-2.5e3", "true", "1979-05-27T07:32:00Z", "inf", "0x_ff".replace("_", "")),
    *('"a # \\" ] }"', "'c = [1,'", '"""\nlong\n"" # ]\n"""', "'''\n} [x]\n'''", '""', "''"),
)


class Writer:
    """A random TOML file, and the lines of its keys."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.text, self.lines, self.count = "", {}, 0
        self.entries((), self.rng.randint(0, 3))
        for _ in range(self.rng.randint(0, 4)):
            self.table()

    def line(self) -> int:
        return self.text.count("\n") + 1

    def name(self) -> tuple[str, str]:
        """A new name and how it is written."""
        self.count += 1
        name = f"k{self.count}" if self.rng.random() < 0.7 else f"k {self.count}.[]#="
        return name, name if name.isalnum() else self.rng.choice([f'"{name}"', f"'{name}'"])

    def noise(self) -> str:
        return self.rng.choice(["", "", "\n", "# a = 1 [b]\n", "  \n\t"])

    def table(self) -> None:
        name, written = self.name()
        self.text += self.noise()
        if self.rng.random() < 0.5:
            self.lines[(name,)] = self.line()
            self.text += f"[ {written} ]{self.rng.choice(['', ' # x'])}\n"
            self.entries((name,), self.rng.randint(0, 3))
            return
        self.lines[(name,)] = self.line()
        for i in range(self.rng.randint(1, 3)):
            self.lines[(name, i)] = self.line()
            self.text += f"[[{written}]]\n"
            self.entries((name, i), self.rng.randint(0, 2))
            if self.rng.random() < 0.5:
                below, spelled = self.name()
                self.lines[(name, i, below)] = self.line()
                self.text += f"[{written}.{spelled}]\n"
                self.entries((name, i, below), 1)

    def entries(self, place, number: int) -> None:
        for _ in range(number):
            self.text += self.noise()
            self.entry(place)
            self.text += self.rng.choice(["\n", " # c\n", "\n\n"])

    def entry(self, place, depth: int = 0) -> None:
        names = [self.name() for _ in range(self.rng.choice([1, 1, 1, 2]))]
        path = place
        for name, _ in names:
            path = (*path, name)
            self.lines[path] = self.line()
        self.text += ".".join(written for _, written in names) + self.rng.choice([" = ", "="])
        self.value(path, depth)

    def value(self, path, depth: int) -> None:
        kind = self.rng.random()
        if depth > 2 or kind < 0.6:
            self.text += self.rng.choice(SCALARS)
        elif kind < 0.8:
            self.text += "[" + self.noise()
            for i in range(self.rng.randint(0, 3)):
                self.lines[(*path, i)] = self.line()
                self.value((*path, i), depth + 1)
                self.text += "," + self.noise()
            self.text += "]"
        else:
            self.text += "{"
            for i in range(self.rng.randint(0, 2)):
                self.text += ", " if i else " "
                self.entry(path, depth + 1)
            self.text += "}"


def keys_of(value, path=()):
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from keys_of(inner, (*path, key))


@pytest.mark.parametrize("seed", range(300))
def test_lines_of_random_files(seed):
    written = Writer(seed)
    found = key_lines(written.text)
    assert found == written.lines
    assert set(found) == set(keys_of(tomllib.loads(written.text)))
