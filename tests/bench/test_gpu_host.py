"""The comparison of hosts' times: both sides compute the same, and each case gives a ratio."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2]))

from bench import gpu_host  # noqa: E402
from bench.gpu_cases.check import errors, judge  # noqa: E402
from bench.gpu_cases.sides import Place  # noqa: E402
from bench.gpu_cases.torch_side import reference  # noqa: E402

PLACE = Place("torch", "cpu", True, False)


@pytest.mark.parametrize("name", ["gpt", "scan"])
def test_both_sides_compute_the_same(name):
    problem = gpu_host.CASES[name]
    exact = reference(problem, problem.data(PLACE), PLACE)
    ours, theirs = (errors(s.results(s.call()), exact) for s in gpu_host.sides(name, PLACE))
    judge(ours, theirs, problem.tolerance)


def test_a_ratio_for_each_case(capsys):
    threads = torch.get_num_threads()
    try:
        ratios = gpu_host.main(["--rounds", "1", "mlp", "linear"])
        gpu_host.main(["--rounds", "1", "--profile", "resnet"])
    finally:
        torch.set_num_threads(threads)
    shown = capsys.readouterr().out
    assert list(ratios) == ["mlp", "linear"] and min(ratios.values()) > 0
    assert "geometric mean" in shown and "function calls" in shown
