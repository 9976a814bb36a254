"""The Python blocks of README and docs as modules, for type checkers: `blocks.py FOLDER`.

A document is one module; its lines keep their numbers, so that a checker's message names the line
of the document.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


def module_text(document: str) -> str:
    """The lines of the Python blocks, and empty lines for all others."""
    lines, inside = [], False
    for line in document.splitlines():
        fence = line.startswith("```")
        lines.append(line if inside and not fence else "")
        inside = line == "```python" if fence else inside
    return "\n".join(lines) + "\n"


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
