"""Programs of the CUDA target on an emulated GPU: values as in eager mode, captured or not."""

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.compiler.cuda.runtime.executable import CudaExecutable
from weft.core.late import raise_late

from ..test_jit_training import same_state, training


def chain(x):
    for _ in range(2):
        x = wf.tanh(x) * wf.exp(-x * x) + wf.sin(x)
    return x.sum()


def test_a_gradient(gpu):
    x = wf.randn((1000,), dtype="float32").to("torch")
    expected = wf.grad(chain)(x)
    compiled = wf.compile(wf.grad(chain))
    for _ in range(3):
        found = compiled(x)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    assert isinstance(compiled._last().executable, CudaExecutable)


@pytest.mark.parametrize("which", ["momentum", "AdamW"])
def test_a_training_step(gpu, which):
    compiled = training(which, device="torch")
    same_state(training(which, compiled=False, device="torch"), compiled)
    assert isinstance(compiled[3]._last().executable, CudaExecutable)
    assert gpu.captured >= 1


# -- guards ----------------------------------------------------------------------------------


def test_a_guard_that_fails_tells_of_it_later(gpu):
    """Nothing waits for it: the error comes at the next call, and no input has changed since."""
    w = wf.asarray(torch.arange(15, dtype=torch.float64).reshape(3, 5))

    def f(i):
        w.copy_(w * 2)
        return wf.nn.functional.cross_entropy(w, i)

    compiled, before = wf.compile(f), w.to("cpu").numpy().copy()
    good, wrong = (wf.asarray(torch.tensor(i)) for i in ([0, 4, 2], [1, 7, 9]))
    compiled(good)
    doubled = w.to("cpu").numpy().copy()
    np.testing.assert_array_equal(doubled, 2 * before)
    for _ in range(3):
        compiled(wrong)
        with pytest.raises(errors.IndexingError, match="7") as told:
            compiled(good)
        assert "earlier call" in told.value.__notes__[-1]
        np.testing.assert_array_equal(w.to("cpu").numpy(), doubled)
    compiled(wrong)
    with pytest.raises(errors.IndexingError, match="7"):
        raise_late()  # where results are read
    raise_late()
    compiled(good)
    np.testing.assert_array_equal(w.to("cpu").numpy(), 2 * doubled)


# -- arrays of a call ------------------------------------------------------------------------


def step_of(w):
    """A step of many launches, which changes a tensor."""

    def f(x):
        y = x
        for n in range(12):
            y = wf.sort(y + n) * 1.5
        w.copy_(w + y.sum())
        return y

    return f


def test_arrays_that_move(gpu):
    """Arguments at other addresses, of other layouts, and results that the caller keeps."""
    seen = []
    for compiles in (False, True):
        w = wf.asarray(torch.ones(3, dtype=torch.float64))
        f = wf.compile(step_of(w)) if compiles else step_of(w)
        rng, results, held = np.random.default_rng(0), [], []
        for n in range(8):
            raw = torch.tensor(rng.normal(size=(4, 6)))
            x = wf.asarray(raw if n % 3 else raw.T.contiguous().T)
            held += [x] if n % 2 else []
            results.append(f(x))
        seen.append([r.to("cpu").numpy() for r in (*results, w)])
    for a, b in zip(*seen, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-12)
    assert gpu.captured >= 1


def test_an_argument_that_is_the_written_tensor_is_refused_or_right(gpu):
    """Memory that is read and written under two names."""
    w = wf.asarray(torch.ones(8, dtype=torch.float64))
    f = wf.compile(lambda x: w.copy_(x + 1))
    with pytest.raises(errors.StagingError, match="share"):
        f(w[:8] if w[:8] is not w else w.reshape((8,)))
