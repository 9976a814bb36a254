"""The Python blocks of README and docs as modules, for type checkers: `blocks.py FOLDER`.

A document is one module; its lines keep their numbers, so that a checker's message names the line
of the document. Of interactive blocks the examples that raise are left out: they show mistakes.
The examples of all docstrings are one more module, with a function for each docstring.
"""

import ast
import sys
from doctest import DocTestParser
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def module_text(document: str) -> str:
    """The lines of the Python blocks, and empty lines for all others."""
    lines = document.splitlines()
    module = [""] * len(lines)
    start = None
    for k, line in enumerate(lines):
        if line.startswith("```"):
            if start is not None:
                module[start:k] = _program(lines[start:k])
            start = k + 1 if line == "```python" and start is None else None
    return "\n".join(module) + "\n"


def _program(block: list[str]) -> list[str]:
    """A block as a program of as many lines."""
    if not block[0].startswith(">>>"):
        return block
    program = [""] * len(block)
    for example in DocTestParser().get_examples("\n".join(block) + "\n"):
        if example.exc_msg is None:
            source = example.source.splitlines()
            program[example.lineno : example.lineno + len(source)] = source
    return program


def docstrings_text(package: Path) -> str:
    """The examples of the docstrings below a folder; a comment names the place of each."""
    parts = []
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            found = DocTestParser().get_examples(text or "")
            if found and "import weft" in found[0].source:  # others use what their module has
                lines = "".join(e.source for e in found if e.exc_msg is None).splitlines()
                place = f"{path.relative_to(package)}:{getattr(node, 'lineno', 1)}"
                head = f"def example_{len(parts)}() -> None:  # {place}"
                parts.append("\n".join([head, "    pass", *(f"    {line}" for line in lines)]))
    silent = "# pyright: reportUnusedExpression=false"
    return "\n\n\n".join([silent, *parts]) + "\n"


def write_blocks(folder: Path) -> list[Path]:
    """Write the modules of all documents that have blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for document in DOCUMENTS:
        text = module_text(document.read_text(encoding="utf-8"))
        if text.strip():
            path = folder / f"{document.stem.replace('-', '_').lower()}_blocks.py"
            path.write_text(text, encoding="utf-8")
            written.append(path)
    path = folder / "docstrings_blocks.py"
    path.write_text(docstrings_text(ROOT / "src" / "weft"), encoding="utf-8")
    return [*written, path]


if __name__ == "__main__":
    write_blocks(Path(sys.argv[1]))
