"""The programs of docs/scaling.md run, and print what it says."""

import contextlib
import io
import re
from pathlib import Path

import weft as wf

PAGE = Path(__file__).parent.parent.parent / "docs" / "scaling.md"


def test_the_programs_of_the_page():
    page = PAGE.read_text()
    names: dict = {}
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
                exec(compile(program, str(PAGE), "exec"), names)
    finally:
        wf.dist.finalize()
    printed = out.getvalue()
    assert "done on 1 ranks" in printed and "PowerSGD(rank=4" in printed
    (shown,) = re.findall(r"```\n(10 Gbit/s.*?)```", page, re.DOTALL)
    assert shown.strip() in printed


def test_the_bytes_of_the_table():
    gradient = (wf.dist.GradientProfile((4096, 4096), 0.0),)
    profile = wf.dist.StepProfile(1.0, 0.0, 0.0, gradient)
    expected = {
        None: "67.1 MB",
        "bfloat16": "33.6 MB",
        wf.dist.PowerSGD(4): "0.13 MB",
        wf.dist.TopK(0.01): "1.3 MB",
    }
    page = PAGE.read_text()
    for compression, text in expected.items():
        options = {"compression": compression, "compression_seconds": 0.0}
        (p,) = wf.dist.simulate(profile, wf.dist.Link(1e-6, 1e9), [2], **options)
        digits = len(text.split()[0].partition(".")[2])
        assert f"{p.sent / 1e6:.{digits}f} MB" == text and f" {text} |" in page
