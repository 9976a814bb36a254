"""Activations in the library's products: when nothing else reads what they are applied to."""

from dataclasses import replace

import numpy as np
import pytest

import weft as wf
from weft.compiler.cuda import sums
from weft.compiler.explain.report import what_of
from weft.compiler.ir.schedule import GemmStep, KernelStep, Schedule, step_text
from weft.compiler.ir.verify import MalformedSchedule, verify
from weft.nn import functional as F

torch = pytest.importorskip("torch")
DEVICES = ["torch", *(["cuda"] if torch.cuda.is_available() else [])]
EPS = {"bfloat16": 2**-8, "float16": 2**-11, "float32": 2**-23}


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    """PyTorch's tensors on an emulated GPU, or on a real one; all products are large enough."""
    if request.param == "torch":
        request.getfixturevalue("gpu")
    monkeypatch.setattr(sums, "FLOPS", 0)
    monkeypatch.setenv("WEFT_CACHE_DIR", "")
    return request.param


def arrays(device: str, dtype: str, *lead: int):
    rng = np.random.default_rng(0)
    shapes = ((*lead, 6, 16), (24, 16), (24,))
    return [wf.tensor(rng.normal(size=s), dtype=dtype, device=device) for s in shapes]


def linear_gelu(x, w, b):
    return F.gelu(F.linear(x, w, b), approximate="tanh")


def schedule_of(compiled) -> Schedule:
    return compiled._last().executable.schedule


def found_in(compiled) -> tuple[list[str], int]:
    """The activations of products, and how many kernels compute one."""
    steps = schedule_of(compiled).steps
    kernels = [s for s in steps if isinstance(s, KernelStep)]
    return (
        [s.activation for s in steps if isinstance(s, GemmStep)],
        len([s for s in kernels if "gelu_tanh" in s.rows]),
    )


def wide(x) -> np.ndarray:
    return x.to("cpu").to("float64").numpy()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("lead", [(), (3,)], ids=["matrix", "batch"])
def test_a_layer_without_gradients_is_one_product(lead, dtype, device):
    given = arrays(device, dtype, *lead)
    exact = wide(linear_gelu(*(x.to("float64") for x in given)))
    compiled = wf.compile(linear_gelu)
    for _ in range(3):
        got = wide(compiled(*given))
        # One rounding of the result; eager rounds what GELU is applied to as well.
        np.testing.assert_allclose(got, exact, rtol=0, atol=2 * EPS[dtype] * np.abs(exact).max())
    assert found_in(compiled) == (["gelu_tanh"], 0)
    assert len(schedule_of(compiled).steps) == 1


def test_what_is_read_elsewhere_is_kept(device):
    given = arrays(device, "bfloat16")

    def both(x, w, b):
        y = F.linear(x, w, b)
        return F.gelu(y, approximate="tanh"), y

    compiled = wf.compile(both)
    for got, want in zip(compiled(*given), both(*given), strict=True):
        np.testing.assert_allclose(wide(got), wide(want), rtol=2**-7, atol=2**-7)
    assert found_in(compiled) == ([""], 1)


def test_a_training_step_keeps_what_its_backward_pass_reads(device):
    given = arrays(device, "bfloat16")
    f = wf.grad(lambda *args: linear_gelu(*args).sum(), argnums=(0, 1, 2))
    compiled = wf.compile(f)
    for got, want in zip(compiled(*given), f(*given), strict=True):
        top = np.abs(wide(want)).max()
        np.testing.assert_allclose(wide(got), wide(want), rtol=0, atol=2**-6 * top)
    assert set(found_in(compiled)[0]) == {""}


@pytest.mark.parametrize("case", ["float32", "exact", "two products", "twice"])
def test_what_the_library_does_not_compute(case, device):
    x, w, b = arrays(device, "float32" if case == "float32" else "bfloat16")

    def f(x, w, b):
        y = F.linear(x, w, b)
        y = y + x @ w.T if case == "two products" else y
        y = F.gelu(y, approximate="none" if case == "exact" else "tanh")
        return F.gelu(y, approximate="tanh") if case == "twice" else y

    compiled = wf.compile(f)
    got, want = wide(compiled(x, w, b)), wide(f(x, w, b))
    bound = 4 * EPS["float32" if case == "float32" else "bfloat16"] * np.abs(want).max()
    np.testing.assert_allclose(got, want, rtol=0, atol=bound)
    used = [a for a in found_in(compiled)[0] if a]
    assert used == (["gelu_tanh"] if case == "twice" else [])


def test_what_is_said_of_it_and_what_is_refused(gpu, monkeypatch):
    monkeypatch.setattr(sums, "FLOPS", 0)
    monkeypatch.setenv("WEFT_CACHE_DIR", "")
    compiled = wf.compile(linear_gelu)
    compiled(*arrays("torch", "bfloat16"))
    schedule = schedule_of(compiled)
    (step,) = schedule.steps
    assert isinstance(step, GemmStep)
    assert f"= gelu_tanh(b0·b{step.b}ᵀ + b{step.bias}) 6×24×16" in step_text(step)
    assert what_of(step).endswith("+ bias, gelu_tanh")
    for wrong in (replace(step, bias=None), replace(step, activation="sin")):
        with pytest.raises(MalformedSchedule, match="of a product"):
            verify(replace(schedule, steps=(wrong,)))
