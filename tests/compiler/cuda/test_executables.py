"""Programs of the CUDA target on an emulated GPU: values as in eager mode, captured or not."""

import sys
from contextvars import copy_context
from threading import Thread

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.compiler.cuda.runtime import executable
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


def test_threads_that_call_one_program(gpu, monkeypatch):
    """Each gets the results of its own arguments, whenever Python switches between them."""
    monkeypatch.setattr(executable, "_FEW", 0)
    f = wf.compile(lambda x: wf.sort(wf.tanh(x) * 2) + x.sum())
    f(wf.asarray(torch.ones(5)))
    before, wrong = sys.getswitchinterval(), []

    def work(seed):
        for n in range(20):
            raw = torch.tensor(np.random.default_rng([seed, n]).normal(size=5))
            expected = torch.sort(torch.tanh(raw) * 2)[0] + raw.sum()
            if not np.allclose(f(wf.asarray(raw)).numpy(), expected.numpy()):
                wrong.append((seed, n))
        wrong.remove(seed)

    wrong += range(3)  # until they are done
    contexts = [copy_context() for _ in range(3)]
    threads = [Thread(target=c.run, args=(work, k)) for k, c in enumerate(contexts)]
    sys.setswitchinterval(1e-6)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert not wrong


def test_an_argument_that_is_the_written_tensor_is_refused_or_right(gpu):
    """Memory that is read and written under two names."""
    w = wf.asarray(torch.ones(8, dtype=torch.float64))
    f = wf.compile(lambda x: w.copy_(x + 1))
    with pytest.raises(errors.StagingError, match="share"):
        f(w[:8] if w[:8] is not w else w.reshape((8,)))


def test_gradients_statistics_and_state_stay_where_they_are(gpu, monkeypatch):
    """Only the loss is new at each call: all else keeps its memory, in whatever shape it is."""
    monkeypatch.setattr(executable, "_FEW", 0)
    functions = wf.nn.functional
    w, scale, shift = (
        wf.Parameter(wf.asarray(torch.full(s, 0.5, dtype=torch.float64)))
        for s in ((4, 3), (4,), (4,))
    )
    averages = [wf.asarray(torch.ones(4, dtype=torch.float64)) for _ in range(2)]
    optimizer = wf.optim.SGD([w, scale, shift], lr=0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        y = functions.batch_norm((x @ w.T)[:, :, None], *averages, scale, shift, training=True)
        loss = (y * y * y).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled, places, held = wf.compile(step), [], []
    x = wf.asarray(torch.randn(8, 3, dtype=torch.float64))
    for _ in range(6):
        held.append(compiled(x))
        places.append([p.grad._data.data_ptr() for p in (w, scale, shift)])
    assert places[-1] == places[-2] == places[-3]
    assert len(compiled._last().executable._graph.own) == 1
    assert len({loss._data.data_ptr() for loss in held}) == len(held)


def test_inputs_in_the_memory_of_a_written_one(gpu):
    """What is read is what was there before; only arrays that are new to it are looked at."""
    w, x = (wf.asarray(torch.ones(8, dtype=torch.float64)) for _ in range(2))

    def f(x):
        y = x * 3
        w.copy_(w + wf.flip(x, axis=0))
        return y

    compiled = wf.compile(f)
    compiled(x)
    run = compiled._last().executable
    (written,) = run.signature.written
    rng, line, copied = np.random.default_rng(0), torch.zeros(64, dtype=torch.float64), 0
    parts = [line[2 * n : 2 * n + 8] for n in range(28)]  # kept, so that some come again
    for _ in range(200):
        line.copy_(torch.tensor(rng.normal(size=64)))
        a, b = (parts[n] for n in rng.integers(0, 28, 2))
        before = a.numpy().copy(), b.numpy().copy()
        values = [b, a] if written == 0 else [a, b]
        outputs = run.run(values)
        np.testing.assert_array_equal(b.numpy(), before[1] + before[0][::-1])
        np.testing.assert_array_equal(outputs[0].numpy(), 3 * before[0])
        copied += np.shares_memory(a.numpy(), b.numpy())
    assert sum([c.count for c in run.copies.values()]) == copied > 20
