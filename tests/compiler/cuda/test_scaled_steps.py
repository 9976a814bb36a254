"""Steps with a loss scale on a GPU: nothing waits, and all is as on the host."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch

import weft as wf
from weft.optim import norms

from .scaled_steps import STEPS, Run, Training

pytestmark = pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # infinite gradients
SEEDS = range(52)
# Sums of squares and roots may differ by roundings, and half products by those of their inputs.
TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1}


def compare(found: Run, expected: Run) -> None:
    a, b = found.arrays(), expected.arrays()
    assert set(a) == set(b)
    for name in a:
        far = TOLERANCE[found.plan.kind]
        np.testing.assert_allclose(a[name], b[name], rtol=far, atol=far, err_msg=name)
    for name in (n for n in a if n.startswith(("step", "momentum_step", "updates"))):
        assert a[name] == b[name], name


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_a_compiled_step_is_an_eager_one(gpu, seed):
    plan = Training(seed)
    runs = Run(plan, "torch", compiled=True), Run(plan, "cpu")
    for k in range(STEPS):
        for run in runs:
            run.advance(k)
        if k % 2 or seed % 4:  # reading in between must not matter
            assert runs[0].numbers() == runs[1].numbers(), k
            compare(*runs)
    assert runs[0].numbers() == runs[1].numbers()
    compare(*runs)


WAITS = ("item", "__bool__", "__float__", "__int__", "__index__", "tolist", "numpy", "cpu")


@pytest.fixture
def no_waiting(monkeypatch):
    """A function after whose call no value of a tensor can be read until `stop`."""

    class Reading(AssertionError):
        pass

    def refuse(*args, **kwargs):
        raise Reading("a value is read on the host")

    class Block:
        def __enter__(self):
            self.patched = pytest.MonkeyPatch()
            for name in WAITS:
                self.patched.setattr(torch.Tensor, name, refuse)

        def __exit__(self, *error):
            self.patched.undo()

    Block.Reading = Reading
    return Block


@pytest.mark.parametrize("seed", SEEDS[1::2])
def test_a_compiled_step_waits_for_nothing(gpu, seed, no_waiting):
    plan = Training(seed)
    found, expected = Run(plan, "torch", compiled=True), Run(plan, "cpu")
    data = [found.data(k) for k in range(STEPS)]
    for k in range(STEPS):
        expected.advance(k)
        found.schedule(k)
        if k < 2:  # compiled, captured
            found._step(*data[k])
            continue
        with no_waiting():
            found._step(*data[k])
    assert gpu.captured
    assert found.numbers() == expected.numbers()
    compare(found, expected)


@pytest.fixture
def asynchronous(monkeypatch):
    """Eager programs take PyTorch's arrays for those of a GPU."""
    monkeypatch.setattr(norms, "is_asynchronous", lambda device: device == "torch")


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_eager_step_waits_for_nothing(seed, late, no_waiting, request):
    if late:
        request.getfixturevalue("asynchronous")
    plan = Training(seed)
    found, expected = Run(plan, "torch"), Run(plan, "cpu")
    for k in range(STEPS):
        expected.advance(k)
        data = found.data(k)
        found.schedule(k)
        with no_waiting() if late else nullcontext():
            found.step(*data)
        if seed % 2 and k % 2:
            assert found.numbers() == expected.numbers()
            compare(found, expected)
    assert found.numbers() == expected.numbers()
    compare(found, expected)


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_eager_and_compiled_steps_take_turns(gpu, asynchronous, seed):
    plan = Training(seed)
    found, expected = Run(plan, "torch", compiled=True), Run(plan, "cpu")
    turns = np.random.default_rng(seed).random(STEPS) < 0.5
    for k, turn in enumerate(turns):
        expected.advance(k)
        found.schedule(k)
        found.advance(k) if turn else found.step(*found.data(k))
        if k == 3:  # on from a checkpoint
            for run in (found, expected):
                run.scaler.load_state_dict(run.scaler.state_dict())
                for o in run.optimizers:
                    o.load_state_dict(o.state_dict())
    assert found.numbers() == expected.numbers()
    compare(found, expected)


def test_the_check_finds_what_waits(gpu, no_waiting):
    x = wf.ones((3,), device="torch")
    with pytest.raises(no_waiting.Reading), no_waiting():
        x.sum().item()
