"""Parts in their places on an emulated GPU: values as in eager mode, and few copies."""

import numpy as np
import pytest
from bench.gpu_cases import weft_side
from bench.gpu_cases.problems import OURS, OURS_COMPILED, PROBLEMS
from bench.gpu_cases.sides import Place

import weft as wf
from weft.compiler.cuda.flat import plan_flat
from weft.compiler.cuda.runtime.executable import CudaExecutable
from weft.compiler.ir.kernel import Kernel, Operand, Result
from weft.compiler.pipeline import using
from weft.compiler.raw.arrays import arrays_on

from ..fusion.test_parts import copies, gradients, program, rotated
from .emulated_gpu import emulated_target


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(arrays_on("torch"), "host_runtime", False)
    target = emulated_target()
    with using(target):
        yield target


def on_gpu(rng, *shape: int, dtype="float32"):
    return wf.tensor(rng.normal(size=shape).astype(np.float32)).to(dtype).to("torch")


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_of_parts(gpu, seed):
    rng = np.random.default_rng(seed)
    shapes = [[(4, 8)] * 3, [(2, 3, 8), (2, 5, 8), (2, 3, 8)]][seed % 2]
    arrays = [on_gpu(rng, *s) for s in shapes]
    f = gradients(program(seed)) if seed % 3 == 0 else program(seed)
    compiled = wf.compile(f)
    for _ in range(2):
        for a, b in zip(compiled(*arrays), f(*arrays), strict=True):
            a, b = a.numpy(), b.numpy()
            bound = 2e-4 * max(1.0, np.abs(b).max(initial=0))
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=bound)
    assert isinstance(compiled._last().executable, CudaExecutable)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("head", [16, 6])
def test_tokens_that_are_joined_and_turned(gpu, dtype, head):
    rng = np.random.default_rng(0)
    text, image = (on_gpu(rng, 2, n, head, dtype=dtype) for n in (8, 24))
    cosine, sine = (on_gpu(rng, 32, head // 2) for _ in range(2))

    def f(text, image):
        norm = wf.nn.functional.rms_norm
        q = wf.concat([norm(text, (head,)), norm(image, (head,))], axis=1)
        return rotated(q.to("float32"), cosine, sine).to(dtype)

    def loss(text, image):
        return (f(text, image).to("float32") ** 3).sum()

    for g in (f, wf.grad(loss, argnums=(0, 1))):
        compiled = wf.compile(g)
        found, want = (h(text, image) for h in (compiled, g))
        pairs = zip(found, want, strict=True) if isinstance(found, tuple) else [(found, want)]
        for a, b in pairs:
            a, b = a.to("float32").numpy(), b.to("float32").numpy()
            close = 1e-5 if dtype == "float32" else 2**-6
            np.testing.assert_allclose(a, b, rtol=close, atol=close * np.abs(b).max())
        if head == 16:  # shorter rows are not aligned
            assert not copies(compiled._last().executable.schedule)


def test_a_step_of_flux_has_few_copies(gpu, monkeypatch):
    """What is left: values of text and image that are slices of products, zeros, single numbers."""
    schedules, build = [], gpu.build

    def kept(schedule, plan, capture=True):
        schedules.append(schedule)
        return build(schedule, plan, capture)

    monkeypatch.setattr(gpu, "build", kept)
    place, problem = Place("torch", "cpu", True), PROBLEMS["lora"]
    data, made = problem.data(place), {}
    for way in (OURS, OURS_COMPILED):
        side = weft_side.side(problem, data, place, way)
        made[way] = side.results(side.call())
    for name, want in made[OURS].items():
        if name.startswith("gradient") or name == "result":  # a step of AdamW has their signs
            far = (made[OURS_COMPILED][name].double() - want.double()).norm()
            assert far <= 2e-2 * want.double().norm(), name
    (schedule,) = schedules
    arrays = [s for s in copies(schedule) if s.kernel.domain]
    assert len(arrays) <= 8, "\n".join(map(str, arrays))
    turned = [s for s in arrays if 2 in s.kernel.results[0].strides]
    assert not turned


@pytest.mark.parametrize("stride, lanes", [(1, 8), (2, 1), (3, 1), (-1, 1), (64, 8)])
def test_threads_write_interleaved_parts_side_by_side(stride, lanes):
    """Where neighbouring elements are in one sector, neighbouring threads write them."""
    half = np.dtype(np.float16)
    kernel = Kernel((1 << 12,), (Operand(half, (1,)),), (), (Result(0, (stride,)),))
    assert plan_flat(kernel, 16).lanes == lanes
