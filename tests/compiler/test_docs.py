"""The programs of docs/compile.md run, and do what it says."""

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs" / "compile.md"


def test_the_programs_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
            exec(compile(program, str(PAGE), "exec"), names)
    losses = names["losses"]
    assert losses[-1] < 0.9 * losses[0]
    assert "step: 1 of at most 8 programs" in printed.getvalue()
    assert abs(names["value"].item() - 2.302585) < 1e-5  # log 10
    assert names["gradient"].shape == (784, 10)
