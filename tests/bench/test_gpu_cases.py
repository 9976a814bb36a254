"""The programs of the GPU's table are the same in every library, and its checks can fail."""

import dataclasses
import json
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from bench import gpu
from bench.gpu_cases import check, report, torch_side, weft_side
from bench.gpu_cases.problems import CUDNN, EAGER, JAX, OURS, OURS_COMPILED, PROBLEMS
from bench.gpu_cases.sides import Data, Place
from bench.gpu_cases.worker import Contest, contest

HOST = Place("torch", "cpu", True)
NAMES = [name for name in PROBLEMS if not name.startswith("decode")] + ["decode-4-4096"]


@pytest.fixture(autouse=True)
def one_thread():
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


def in_float32(name: str):
    """A problem without half precision: what remains of its errors is rounding of 24 bits."""
    problem = PROBLEMS[name]

    def wide(named):
        return {k: v.float() if v.is_floating_point() else v for k, v in named.items()}

    def data(place):
        given = problem.data(place)
        cotangent = None if given.cotangent is None else given.cotangent.float()
        groups = wide(given.params), wide(given.inputs), wide(given.frozen), wide(given.buffers)
        return Data(*groups, cotangent, wide(given.grads))

    return dataclasses.replace(problem, data=data, autocast=False, tolerance=1e-4)


def entered(problem, ways) -> dict:
    """What contenders are told to have reached."""
    lines = []
    found = Contest(problem, HOST, lines.append)
    for way in ways:
        found.enter(way)
    return {line["way"]: line for line in lines}


@pytest.mark.parametrize("name", NAMES)
def test_weft_has_the_values_and_gradients_of_float64(name):
    lines = entered(in_float32(name), (EAGER, OURS, OURS_COMPILED))
    assert set(lines) == {EAGER, OURS, OURS_COMPILED}
    assert all("message" not in line for line in lines.values()), lines
    updates = PROBLEMS[name].update == "adamw"  # of a gradient near 0 they are hardly determined
    assert all(line["error"] < (2e-2 if updates else 2e-4) for line in lines.values()), lines


@pytest.mark.parametrize("name", ["layer_norm", "lora", "linear", "stack", "gpt", "resnet"])
def test_half_precision_is_as_exact_as_pytorch(name):
    lines = entered(PROBLEMS[name], (EAGER, OURS, OURS_COMPILED))
    assert all("message" not in line for line in lines.values()), lines


@pytest.mark.parametrize("name", ["chain", "adamw", "layer_norm", "scan", "decode-4-4096"])
def test_jax_has_the_same_results(name):
    pytest.importorskip("jax")
    lines = entered(PROBLEMS[name], (EAGER, JAX))
    assert "message" not in lines[JAX], lines


def test_numpy_arrays_and_the_loop_of_a_library():
    lines: list[dict] = []
    place = Place("cpu", "cpu", True)
    contest(PROBLEMS["scan"], place, lines.append, 1, (EAGER, OURS, OURS_COMPILED, CUDNN))
    timed = {line["way"] for line in lines if line.get("milliseconds", 0) > 0}
    assert timed == {EAGER, OURS, OURS_COMPILED, CUDNN}, lines


def test_a_sum_that_cancels_is_judged_by_the_rounding_of_its_terms():
    terms = torch.randn(1 << 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    bound = check.rounding_of_sum(terms)
    rounded = abs((terms.float().double().sum() - terms.sum()) / terms.sum()).item()
    assert 0 < rounded <= bound < 0.01
    check.judge({"result": bound}, {"result": 0.0}, 0.0, {"result": bound})
    for name, error in (("result", 1.01 * bound), ("gradient of x", bound)):
        with pytest.raises(check.Wrong, match="error"):
            check.judge({name: error}, {name: 0.0}, 0.0, {"result": bound})


@pytest.mark.parametrize("name", NAMES)
def test_one_wrong_array_is_refused(name):
    problem = in_float32(name)
    data = problem.data(HOST)
    exact = torch_side.reference(problem, data, HOST)
    torchs = check.errors(_results(torch_side.side(problem, data, HOST, EAGER)), exact)
    found = _results(weft_side.side(problem, data, HOST, OURS))
    check.judge(check.errors(found, exact), torchs, problem.tolerance)
    groups = {name.partition(" of ")[0]: name for name in found}
    for array in groups.values():
        wrong = {**found, array: found[array] * 2}
        with pytest.raises(check.Wrong, match="error"):
            check.judge(check.errors(wrong, exact), torchs, problem.tolerance)


def _results(side) -> dict:
    return side.results(side.call())


def test_a_missing_gradient_is_refused(monkeypatch):
    def without(problem, data, place, way):
        side = real(problem, data, place, way)
        kept = {"result"}
        return dataclasses.replace(
            side, results=lambda y: {k: v for k, v in side.results(y).items() if k in kept}
        )

    real = weft_side.side
    monkeypatch.setattr(weft_side, "side", without)
    lines = entered(PROBLEMS["chain"], (EAGER, OURS))
    assert lines[OURS]["message"] == "Wrong: no gradient of x"


def test_the_command_checks_times_and_prints(capsys):
    found = gpu.main(
        ["scan", "--device", "torch", "--tiny", "--quick", "--ways", "torch,weft.compile"]
    )
    lines = found["scan"]["lines"]
    assert all(lines[way]["milliseconds"] > 0 for way in (EAGER, OURS_COMPILED))
    text = capsys.readouterr().out
    assert "## Times" in text and "1000 steps of a 64-wide cell" in text


def test_a_worker_over_its_time_is_stopped(tmp_path):
    lines, failure = gpu.run_worker(["chain", "--device", "torch", "--tiny"], 0.2, tmp_path)
    case = gpu.gathered(["chain"], lines, failure)["chain"]
    assert {line["message"] for line in case["lines"].values()} == {"stopped after 0 s"}
    assert "chain, Weft compiled: stopped after 0 s" in report.written({"chain": case})


def _case(environment: str, **times: float) -> dict:
    ways = {EAGER: "eager", OURS_COMPILED: "ours"}
    lines = {way: {"milliseconds": times[key]} for way, key in ways.items() if key in times}
    return {"environment": environment, "lines": lines}


def test_new_lines_replace_those_of_their_cases(tmp_path, monkeypatch):
    old = {"chain": _case("A", eager=1.0, ours=0.9), "linear": _case("A", eager=2.0, ours=1.0)}
    (tmp_path / "RESULTS-GPU.json").write_text(json.dumps(old))
    monkeypatch.setattr(gpu, "_card_is_there", lambda: True)
    monkeypatch.setattr(gpu, "measured", lambda *_: {"chain": _case("B", eager=1.0, ours=0.3)})
    gpu.main(["chain", "--out", str(tmp_path)])
    kept = json.loads((tmp_path / "RESULTS-GPU.json").read_text())
    assert kept == {**old, "chain": _case("B", eager=1.0, ours=0.3)}
    text = (tmp_path / "RESULTS-GPU.md").read_text()
    assert "- B: chain" in text and "- A: linear" in text
    assert "**0.90**" not in text and "0.30" in text
    assert report.ratio("chain", old["chain"]) == 0.9 > PROBLEMS["chain"].goal
    assert "**0.90**" in report.written(old)


def test_a_contender_that_catches_its_time_limit_is_not_timed(monkeypatch):
    def slow(problem, data, place, way):
        try:
            time.sleep(30)
        except TimeoutError:
            return real(problem, data, place, way)

    real = weft_side.side
    monkeypatch.setattr(weft_side, "side", slow)
    problem = dataclasses.replace(PROBLEMS["scan"], seconds=(10, 1))
    found = Contest(problem, HOST, lambda _: None)
    lines: list[dict] = []
    found.tell = lines.append
    found.enter(OURS)
    assert lines[-1]["message"] == "TimeoutError: not built within 1 s" and not found.sides


def test_what_misses_is_in_bold():
    lines = {
        EAGER: {"milliseconds": 4.0, "peak": 3 << 20},
        JAX: {"milliseconds": 1.0},
        OURS_COMPILED: {"milliseconds": 1.25, "peak": 5 << 20},
    }
    text = report.written({"linear": {"environment": "A", "lines": lines}})
    assert "| 1.1 | 0.31 | 1.00 | 1.25 |" in text and "| **5** |" in text  # 1.15 · 1.1 > 1.25
    lines[OURS_COMPILED] = {"milliseconds": 4.5, "peak": 2 << 20}
    text = report.written({"linear": {"environment": "A", "lines": lines}})
    assert "| 1.1 | **1.12** | 1.00 | **4.50** |" in text and "| 2 |" in text


def test_unknown_contenders_are_named():
    with pytest.raises(SystemExit, match="no contender wetf; there are torch"):
        gpu.main(["--ways", "torch,wetf"])
    with pytest.raises(SystemExit, match="torch has to be there"):
        gpu.main(["--ways", "weft"])


def test_unknown_cases_are_named():
    with pytest.raises(SystemExit, match="no case chian; there are chain"):
        gpu.main(["chian"])
    assert [len(names) for names in gpu.groups(["decode", "mlp"])] == [1, 6]


@pytest.mark.skipif(gpu._card_is_there(), reason="there is a GPU")
def test_no_gpu():
    with pytest.raises(SystemExit, match="no GPU"):
        gpu.main([])
