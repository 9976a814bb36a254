"""The Python blocks of README and docs as modules, for type checkers: `blocks.py FOLDER`.

A document is one module; its lines keep their numbers, so that a checker's message names the line
of the document. Of interactive blocks the examples that raise are left out: they show mistakes.
"""

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
    return written


if __name__ == "__main__":
    write_blocks(Path(sys.argv[1]))
