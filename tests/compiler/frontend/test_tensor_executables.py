"""The frontend with executables that take PyTorch's tensors themselves, as a GPU's will."""

import numpy as np
import pytest
from tests.amp.test_compiled import Run, _batches, _same
from tests.compiler.frontend import test_host_tensors as on_host
from tests.compiler.fuzz.oracle import check, mode_of
from tests.compiler.fuzz.writer import written
from tests.compiler.tensor_target import BY_TENSORS, ByTensors
from tests.compiler.test_jit_training import same_state, training

import weft as wf
from weft import errors
from weft.compiler.pipeline import using
from weft.compiler.raw.arrays import arrays_on

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def by_tensors(monkeypatch):
    """Executables get the tensors themselves, and no views of NumPy's."""
    monkeypatch.setattr(arrays_on("torch"), "host_runtime", False)
    with using(BY_TENSORS):
        yield


@pytest.mark.parametrize("batch", range(4))
def test_random_programs(batch):
    texts = [written(seed) for seed in range(3000 + batch, 3060, 4)]
    seen = [check(text, mode_of(text), device="torch") for text in texts]
    assert seen.count("same") >= 0.8 * len(seen), seen


@pytest.mark.parametrize("which", ["momentum", "AdamW"])
def test_a_training_step(which):
    compiled = training(which, device="torch")
    same_state(training(which, compiled=False, device="torch"), compiled)
    assert isinstance(compiled[3]._last().executable, ByTensors)


def test_a_scaler_whose_state_is_on_the_host():
    eager, compiled = Run("Adam", device="torch"), Run("Adam", device="torch")
    step = wf.compile(compiled.plain)
    given = [list(_batches(device="torch")) for _ in range(2)]
    _same(eager.go(eager.plain, given[0]), compiled.go(step, given[1]))


SAME = [
    on_host.test_gradients_take_the_memory_of_old_ones,
    on_host.test_parameters_are_changed_in_their_memory,
    on_host.test_a_parameter_of_another_layout_is_written_back,
    on_host.test_a_shared_parameter_is_copied_before_it_is_written,
    on_host.test_what_pytorch_changes_in_place_is_seen,
    on_host.test_shared_memory_is_refused_where_it_is_changed,
    on_host.test_arguments_of_any_layout,
    on_host.test_complex_numbers_and_lazy_conjugates,
    on_host.test_an_error_of_a_guard_changes_nothing,
]


@pytest.mark.parametrize("same", SAME, ids=lambda f: f.__name__)
def test_what_holds_for_views_holds_here(same):
    same()


@pytest.mark.parametrize("holder", on_host.HOLDERS)
def test_memory_that_somebody_holds_is_not_overwritten(holder):
    on_host.test_memory_that_somebody_holds_is_not_overwritten(holder)


def test_what_the_checks_of_a_call_say():
    w = wf.asarray(on_host.tensor())
    compiled = wf.compile(lambda x: w.copy_(w + x))
    compiled(wf.asarray(torch.ones(4, 3)))
    run = compiled._last().executable
    x = torch.ones(4, 3)
    for bad, error in (
        (x.double(), errors.DTypeError),
        (x[:2], errors.ShapeError),
        ("x", errors.DTypeError),
    ):
        with pytest.raises(error, match="compiled program: input"):
            run.run([x.clone(), bad])
    memory = torch.ones(5, 3)
    run.run([memory[1:], memory[:4]])
    assert any("shares memory" in c.reason for c in run.copies.values())
    np.testing.assert_array_equal(memory[:4].numpy(), np.full((4, 3), 2.0))
