"""The table of eager mode on a GPU runs on the CPU too, and its checks can fail."""

import dataclasses
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2]))

from bench import gpu_eager


def test_every_case_is_checked_and_timed(capsys):
    ratios = gpu_eager.main(["--device", "torch", "--small", "--rounds", "1"])
    text = capsys.readouterr().out
    assert len(ratios) == len(gpu_eager.CASES) == 9 and all(r > 0 for r in ratios)
    assert "geometric mean" in text and text.count("bfloat16") == 4


def test_wrong_results_are_refused():
    place = gpu_eager.Place("torch", "cpu", True, 600)
    case = gpu_eager.chain(place)
    wrong = dataclasses.replace(case, tolerance=0.0)
    with pytest.raises(SystemExit, match="gradient of a chain"):
        gpu_eager.check(wrong)


@pytest.mark.skipif(gpu_eager.wf.cuda.is_available(), reason="there is a GPU")
def test_no_gpu():
    with pytest.raises(SystemExit, match="no GPU"):
        gpu_eager.main([])
