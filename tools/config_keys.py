"""The keys of a training configuration as tables for docs/lora.md: `config_keys.py [--write]`.

Names and defaults are those of the dataclasses, what they mean is in their docstrings.
"""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from weft.diffusion import NoiseConfig, TrainConfig
from weft.diffusion.training import config as sections
from weft.diffusion.training.recipes import OPTIMIZERS, RATES, SCHEDULES

PAGE = Path(__file__).parent.parent / "docs" / "lora.md"
BEGIN, END = "<!-- keys -->\n", "<!-- end of keys -->"
TABLES: dict[str, type] = {
    "[model]": sections.ModelSection,
    "[[data]]": sections.FolderSection,
    "[images]": sections.ImagesSection,
    "[encoders]": sections.EncodersSection,
    "[adapter]": sections.AdapterSection,
    "[[adapter.rules]]": sections.AdapterRule,
    "[train]": sections.TrainSection,
    "[noise]": NoiseConfig,
    "[output]": sections.OutputSection,
    "[validation]": sections.ValidationSection,
    "[preview]": sections.PreviewSection,
}


def meanings(kind: type) -> dict[str, str]:
    """What a docstring says of each field; several names may share an entry."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (kind.__doc__ or "").splitlines():
        entry = re.fullmatch(r" {4}(\w+(?:, \w+)*) {2,}(\S.*)", line)
        if entry:
            names = entry[1].split(", ")
            found |= dict.fromkeys(names, entry[2])
        elif line.startswith("     ") and names:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
        else:
            names = []
    return found


def default(f: Field[Any]) -> str:
    """A field's default as TOML has it."""
    value = f.default if f.default_factory is MISSING else f.default_factory()
    if value is MISSING:
        return "needed"
    return "–" if value is None else f"`{toml(value)}`"


def toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    return f'"{value}"' if isinstance(value, str | Path) else f"{value}"


def section_table(title: str, kind: type) -> list[str]:
    """The table of a section."""
    said = meanings(kind)
    rows = [f"| `{f.name}` | {default(f)} | {said[f.name]} |" for f in fields(kind)]
    return [f"| `{title}` | default | |", "|---|---|---|", *rows, ""]


def options(kind: type, without: tuple[str, ...] = ()) -> str:
    """The fields of an optimizer or a schedule, with their defaults."""
    found = [f for f in fields(kind) if f.name not in without]
    told = [f"`{f.name}`" if f.default is MISSING else _given(f) for f in found]
    return ", ".join(told)


def _given(f: Field[Any]) -> str:
    return f"`{f.name}`" if f.default is None else f"`{f.name} = {toml(f.default)}`"


def lines() -> list[str]:
    """All tables."""
    hints = get_type_hints(TrainConfig)
    kinds = {t for hint in hints.values() for t in (hint, *get_args(hint)) if isinstance(t, type)}
    missing = {k.__name__ for k in kinds if k.__module__ == sections.__name__} - {
        k.__name__ for k in TABLES.values()
    }
    assert not missing, f"sections without a table: {missing}"
    found = [line for title, kind in TABLES.items() for line in section_table(title, kind)]
    found += ["| `[optimizer]` name | options |", "|---|---|"]
    found += [f'| `"{name}"` | {options(c)} |' for name, (_, c) in sorted(OPTIMIZERS.items())]
    found += ["", "| `[schedule]` name | options |", "|---|---|"]
    return found + [
        f'| `"{n}"` | {options(k, (*RATES, "total_steps"))} |' for n, (_, k) in SCHEDULES.items()
    ]


def page(text: str) -> str:
    """The page with the tables in their place."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n".join([*lines(), END]) + rest.split(END)[1]


if __name__ == "__main__":
    print("\n".join(lines()))
    if "--write" in sys.argv:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
