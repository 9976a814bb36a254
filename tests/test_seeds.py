"""The documents' own programs: every twin runs, and the table accounts for every code block."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SEEDS = Path(__file__).parent.parent / "examples" / "seeds"
TWINS = sorted(SEEDS.glob("doc*.py"))


def table(heading: str) -> list[list[str]]:
    """The cells of the README's table under a heading."""
    text = (SEEDS / "README.md").read_text(encoding="utf-8")
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("path", TWINS, ids=lambda p: p.stem)
def test_twin(path):
    """In a process of its own: memory_stats() and clear_tape() look at everything that is alive."""
    where = os.pathsep.join([str(SEEDS.parent.parent / "src"), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        env={**os.environ, "PYTHONPATH": where},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stdout) == (0, ""), run.stderr


def test_table_lists_every_code_block():
    counts = {number: int(blocks) for number, _, blocks in table("The documents")}
    listed = [(number, int(block)) for number, block, *_ in table("The programs")]
    assert listed == [(n, i) for n, count in counts.items() for i in range(1, count + 1)]
    assert sorted(counts) == ["000", "001", "002", "003", "004"]


def test_every_block_has_a_twin_or_a_reason():
    for number, block, section, twin in table("The programs"):
        found = re.search(r"\((doc\d{3}_\w+\.py)\)", twin)
        if found is None:
            assert re.match(r"arrives with \w+|no program: \w+", twin), (number, block, twin)
            continue
        text = (SEEDS / found[1]).read_text(encoding="utf-8")
        docstring = " ".join(text.split('"""')[1].split())
        assert found[1].startswith(f"doc{number}") and docstring.startswith(number)
        assert section in docstring, (number, block, section)


def test_every_twin_is_in_the_table():
    named = {
        name for *_, twin in table("The programs") for name in re.findall(r"\((doc\S+)\)", twin)
    }
    assert named == {path.name for path in TWINS}
