"""Which folders of the package import which: printed from the bottom to the top.

Run: python tools/imports.py [--write]

Every folder stands on a line after all that it imports; a circle is an error. Imports inside of
functions count, those for type checkers do not. With --write the lines go into ARCHITECTURE.md.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "weft"
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN, END = "<!-- imports -->\n", "<!-- end of imports -->\n"
# Layers whose folders are told one by one; of the others, all modules are one.
OPEN = ("backend", "transform", "compiler")


def modules() -> dict[tuple[str, ...], Path]:
    """The modules by their names below the package."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "__init__" else parts] = path
    return found


def folder(name: tuple[str, ...]) -> str:
    """Where a module belongs: a layer, or a folder or a module of an open one."""
    if name[0] not in OPEN:
        return "core" if name == ("errors",) else name[0]  # what each needs of the other
    return "/".join(name[:2])


def imported(name: tuple[str, ...], path: Path, known: dict) -> Iterator[tuple[str, ...]]:
    """The modules that a module imports."""
    package = name if path.name == "__init__.py" else name[:-1]
    for node in _imports(ast.parse(path.read_text())):
        if node.level:
            base = package[: len(package) - node.level + 1]
        elif (node.module or "").split(".")[0] == "weft":
            base = ()
        else:
            continue
        inside = (node.module or "").split(".") if node.module else []
        target = (*base, *(inside if node.level else inside[1:]))
        for alias in node.names:
            yield (*target, alias.name) if (*target, alias.name) in known else target


def _imports(tree: ast.AST) -> Iterator[ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom):
            yield node
        yield from _imports(node)


def edges() -> dict[str, set[str]]:
    """By folders, those that they import."""
    known = modules()
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        if not name:
            continue  # the package itself puts all together
        own = folder(name)
        others = {folder(t) for t in imported(name, path, known) if t}
        found.setdefault(own, set()).update(others - {own})
    return found


def ordered(found: dict[str, set[str]]) -> list[str]:
    """The folders, each after all that it imports; an error names a circle."""
    done: list[str] = []
    waiting = dict(sorted(found.items()))
    while waiting:
        ready = [f for f, needs in waiting.items() if not (needs & waiting.keys())]
        if not ready:
            raise SystemExit(f"folders import each other: {', '.join(waiting)}")
        done += ready
        for f in ready:
            del waiting[f]
    return done


def lines() -> list[str]:
    """One for each folder: what it imports."""
    found = edges()
    order = ordered(found)
    wide = max(map(len, order))
    return [f"{f:{wide}}  {', '.join(sorted(found[f], key=order.index))}".rstrip() for f in order]


def page(text: str, told: list[str]) -> str:
    """The page with these lines in their place."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    block = "\n".join(["```", *told, "```", ""])
    return before + BEGIN + block + END + after


def main() -> None:
    told = lines()
    print("\n".join(told))
    if "--write" in sys.argv:
        PAGE.write_text(page(PAGE.read_text(), told))


if __name__ == "__main__":
    main()
