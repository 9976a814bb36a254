"""Repeatable runs: every field of the config, threads, processes, and what cannot be promised."""

import asyncio
import getpass
import inspect
import json
import os
import re
import socket
import subprocess
import sys
import threading
import warnings
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.backend import reproducible
from weft.backend.shared import blas, threads
from weft.core.determinism import OPERATIONS
from weft.core.settings import current
from weft.nn import functional as F

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Every test puts back what it set."""
    before = settings()
    yield
    assert settings() == before and current.get().determinism is None


def settings() -> tuple:
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        *(cudnn.deterministic, cudnn.benchmark, torch.get_num_threads()),
        *(blas.thread_count_functions(name)[0]() for name in ("numpy", "scipy")),
    )


@pytest.fixture(params=[1, 2])
def blas_threads(request):
    """BLAS given one thread, then two; the machine may have fewer cores, which changes nothing."""
    told = [
        (blas.thread_count_functions(name), blas.thread_count_functions(name)[0]())
        for name in ("numpy", "scipy")
    ]
    for (_, tell), _ in told:
        tell(request.param)
    yield request.param
    for (_, tell), count in told:
        tell(count)


# --- the config


def test_the_documents_defaults():
    config = wf.DeterministicConfig()
    assert asdict(config) == {
        "mode": wf.DeterministicMode.Strict,
        "global_seed": 42,
        "operation_seeds": True,
        "cudnn_deterministic": True,
    }
    with pytest.raises(FrozenInstanceError):
        config.global_seed = 1
    with pytest.raises(TypeError, match="unexpected keyword"):
        wf.DeterministicConfig(seed=1)


@pytest.mark.parametrize("mode", ["warn", wf.DeterministicMode.WARN, wf.DeterministicMode.Warn])
def test_modes_by_member_and_name(mode):
    assert wf.DeterministicConfig(mode).mode is wf.DeterministicMode.WARN


def test_the_config_keeps_seeds_of_its_own():
    seeds = {"rand": 1}
    config = wf.DeterministicConfig(operation_seeds=seeds)
    seeds["rand"] = 2
    assert config.operation_seeds == {"rand": 1}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "loose"}, "mode='loose', expected one of 'strict', 'warn'"),
        ({"mode": None}, "mode=None"),
        ({"global_seed": -1}, "seed: -1: expected an integer from 0"),
        ({"global_seed": 1.5}, "seed: 1.5"),
        ({"operation_seeds": {"relu": 1}}, "has 'relu', which is no random operation.*rand, "),
        ({"operation_seeds": {"rand": -1}}, "seed: -1"),
        ({"operation_seeds": ["rand"]}, "operation_seeds of type list"),
    ],
)
def test_bad_configs(fields, message):
    with pytest.raises(errors.ArgumentError, match=message):
        wf.DeterministicConfig(**fields)
    renamed = {"seed" if name == "global_seed" else name: value for name, value in fields.items()}
    with pytest.raises(errors.ArgumentError, match=message):
        wf.deterministic(**renamed)


# --- random streams

DRAWS = {
    "rand": lambda: wf.rand(5),
    "uniform": lambda: wf.random.uniform(-1.0, 1.0, 5),
    "randn": lambda: wf.randn(5),
    "normal": lambda: wf.random.normal(0.0, 1.0, 5),
    "randint": lambda: wf.randint(0, 1 << 40, 5),
    "bernoulli": lambda: wf.random.bernoulli(0.5, 64),
    "permutation": lambda: wf.permutation(30),
    "dropout": lambda: F.dropout(wf.ones(64)),
    "dropout1d": lambda: F.dropout1d(wf.ones((1, 64, 2))),
    "dropout2d": lambda: F.dropout2d(wf.ones((1, 64, 2, 1))),
    "dropout3d": lambda: F.dropout3d(wf.ones((1, 64, 2, 1, 1))),
    "alpha_dropout": lambda: F.alpha_dropout(wf.ones(64), training=True),
    "feature_alpha_dropout": lambda: F.feature_alpha_dropout(wf.ones((1, 64)), training=True),
    "scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(
        *(wf.ones((8, 4)),) * 3, dropout_p=0.5
    ),
}


def drawn(names=OPERATIONS) -> dict:
    return {name: DRAWS[name]().tolist() for name in names}


def under(names=OPERATIONS, **options) -> dict:
    with wf.deterministic(**options):
        return drawn(names)


def test_the_list_of_random_operations_is_complete():
    """Whatever takes a generator has a stream, except initialisers, which call these."""
    found = set()
    for module in (wf, wf.random, F):
        for name, f in vars(module).items():
            if inspect.isfunction(f) and "generator" in inspect.signature(f).parameters:
                found.add(name)
    public = {name for name in found if not name.startswith("_")}
    assert public - {"stream_for"} == set(OPERATIONS) == set(DRAWS)


def test_equal_seeds_give_equal_numbers():
    assert under(seed=5) == under(seed=5)
    one, two = under(seed=5), under(seed=6)
    assert all(one[name] != two[name] for name in OPERATIONS)


def test_without_streams_of_their_own_operations_share_the_seeds_stream():
    wf.random.seed(5)
    assert under(seed=5, operation_seeds=False) == drawn()


@pytest.mark.parametrize("seeds", [True, dict.fromkeys(OPERATIONS, 3)])
def test_a_stream_does_not_depend_on_how_often_others_draw(seeds):
    together = under(operation_seeds=seeds)
    for name in OPERATIONS:
        assert under([name], operation_seeds=seeds)[name] == together[name]
    again = under([*OPERATIONS, *OPERATIONS], operation_seeds=seeds)
    assert all(again[name] != together[name] for name in OPERATIONS)  # the streams go on


def test_streams_of_equal_seeds_are_not_equal():
    with wf.deterministic(operation_seeds={"rand": 1, "uniform": 1}):
        assert wf.rand(5).tolist() != wf.random.uniform(0.0, 1.0, 5).tolist()


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_seed_of_its_own_changes_one_operation_alone(name):
    one, two = (under(operation_seeds={name: seed}) for seed in (7, 8))
    assert one[name] != two[name]
    assert all(one[other] == two[other] for other in OPERATIONS if other != name)
    assert under(seed=1, operation_seeds={name: 7})[name] == one[name]


def test_explicit_generators_are_not_touched():
    with wf.deterministic(operation_seeds={"rand": 1}):
        assert wf.rand(3, generator=wf.random.Generator(9)).tolist() == (
            wf.rand(3, generator=wf.random.Generator(9)).tolist()
        )
        assert wf.rand(3).tolist() == under(["rand"], operation_seeds={"rand": 1})["rand"][:3]


def test_numbers_outside_are_as_if_there_had_been_no_block():
    wf.random.seed(1)
    expected = wf.rand(4).tolist(), wf.rand(4).tolist()
    wf.random.seed(1)
    first = wf.rand(4).tolist()
    under()
    assert (first, wf.rand(4).tolist()) == expected


def test_no_seed_goes_on_where_the_default_generator_is():
    wf.random.seed(3)
    wf.rand(7)
    state = wf.random.get_state()
    expected = drawn()
    wf.random.set_state(state)
    assert under(seed=None, operation_seeds=False) == expected
    wf.random.seed(3)
    one = under(seed=None)
    wf.random.seed(4)
    assert under(seed=None) != one


@pytest.mark.parametrize("seeds", [True, False, {"rand": 1, "dropout": 2}])
def test_the_state_holds_every_stream(seeds):
    with wf.deterministic(operation_seeds=seeds):
        drawn()
        state = json.loads(json.dumps(wf.random.get_state()))
        expected = drawn()
    with wf.deterministic(seed=1, operation_seeds=seeds):
        wf.random.set_state(state)
        assert drawn() == expected
        wf.random.seed(42)
        first = drawn()
    assert first == under(operation_seeds=seeds)


def test_states_of_other_streams():
    with wf.deterministic(operation_seeds={"rand": 1}):
        state = wf.random.get_state()
    with pytest.raises(errors.StateMismatch, match=r"under wf\.deterministic"):
        wf.random.set_state(state)
    with wf.deterministic(operation_seeds={"randn": 1}):
        with pytest.raises(errors.StateMismatch, match=r"streams for \['rand'\].*\['randn'\]"):
            wf.random.set_state(state)
    with wf.deterministic(), pytest.raises(errors.StateMismatch, match="streams for"):
        wf.random.set_state(wf.random.Generator(0).state_dict())


def test_checkpoints_and_batches_draw_from_the_streams():
    def f(x):
        return (F.dropout(x) * wf.rand(x.shape)).sum()

    x = wf.ones(50, requires_grad=True)
    gradients = []
    for call in (f, wf.checkpoint(f)):
        with wf.deterministic():
            gradients.append(call(x).backward()[x].tolist())
    with wf.deterministic():
        noisy = wf.vmap(lambda x: x + wf.rand(()))(wf.zeros(50)).tolist()
    assert gradients[0] == gradients[1] and noisy == under(["rand"])["rand"] + noisy[5:]


# --- the ways to ask for it


def test_a_plain_call_holds_until_it_is_closed():
    mode = wf.deterministic(seed=9)
    try:
        assert wf.rand(5).tolist() == under(["rand"], seed=9)["rand"]
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        mode.close()
    mode.close()
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_plain_call_outlives_its_object():
    program = """
import gc, weft as wf
wf.deterministic(seed=9)
gc.collect()
print(wf.rand(5).tolist(), wf.random.get_state()["randn.position"])
"""
    expected = under(["rand"], seed=9)["rand"]
    assert ran(program) == f"{expected} 0"


def test_a_block_can_be_entered_again_and_nested():
    mode = wf.deterministic(seed=2, mode="warn")
    with mode:
        first = wf.rand(5).tolist()
        with wf.deterministic(seed=3):
            assert current.get().determinism.config.mode is wf.DeterministicMode.STRICT
            assert wf.rand(5).tolist() == under(["rand"], seed=3)["rand"]
        assert current.get().determinism.config.mode is wf.DeterministicMode.WARN
        with mode:
            assert wf.rand(5).tolist() == first
        assert wf.rand(5).tolist() != first
    with mode:
        assert wf.rand(5).tolist() == first


def test_decorated_functions_generators_and_coroutines():
    expected = under(["rand"], seed=4)["rand"]

    @wf.deterministic(seed=4)
    def function():
        return wf.rand(5).tolist()

    @wf.deterministic(seed=4)
    def steps():
        yield wf.rand(2).tolist()
        yield wf.rand(2).tolist()

    @wf.deterministic(seed=4)
    async def coroutine():
        await asyncio.sleep(0)
        return wf.rand(5).tolist()

    assert current.get().determinism is None
    assert function() == function() == asyncio.run(coroutine()) == expected
    made = steps()
    first = next(made)
    assert current.get().determinism is None
    second = next(made)
    assert first == expected[:2] != second
    assert list(steps()) == [first, second]


def test_an_exception_ends_the_block():
    with pytest.raises(ZeroDivisionError):
        with wf.deterministic():
            1 / 0  # noqa: B018


def test_threads_have_streams_and_modes_of_their_own():
    both, found = threading.Barrier(2), {}

    def run(seed):
        with wf.deterministic(seed=seed):
            both.wait(timeout=20)
            values = [wf.rand(3).tolist() for _ in range(50)]
            both.wait(timeout=20)
        found[seed] = values

    workers = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    for seed, values in found.items():
        with wf.deterministic(seed=seed):
            assert [wf.rand(3).tolist() for _ in range(50)] == values


def test_settings_hold_until_the_last_block_of_any_thread_ends():
    begun, end = threading.Event(), threading.Event()

    def run():
        with wf.deterministic():
            begun.set()
            end.wait(timeout=20)

    worker = threading.Thread(target=run)
    with wf.deterministic():
        worker.start()
        begun.wait(timeout=20)
    assert torch.are_deterministic_algorithms_enabled()
    end.set()
    worker.join()
    assert not torch.are_deterministic_algorithms_enabled()


# --- threads

AWKWARD = [(7, 5, 3), (300, 1000, 33), (513, 777, 1025), (1, 4096, 1000), (64, 20000, 3)]


def matrices(m, k, n, dtype):
    rng = np.random.default_rng(0)
    return (wf.asarray(rng.normal(size=s).astype(dtype)) for s in ((m, k), (k, n)))


PINNED: dict = {}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", AWKWARD, ids=str)
def test_products_do_not_depend_on_the_threads(sizes, dtype, blas_threads):
    with wf.deterministic():
        a, b = matrices(*sizes, dtype)
        assert (
            blas.thread_count_functions("numpy")[0]()
            == blas.thread_count_functions("scipy")[0]()
            == 1
        )
        same_as_with_other_threads((sizes, dtype), [a @ b])
    assert blas.thread_count_functions("numpy")[0]() == blas_threads


def test_linear_algebra_does_not_depend_on_the_threads(blas_threads):
    a, b = matrices(400, 400, 400, "float64")
    with wf.deterministic():
        spd = a @ a.mT + 400 * wf.eye(400, dtype="float64")
        results = [
            *(wf.linalg.solve(a, b), wf.linalg.inv(a), wf.linalg.cholesky(spd)),
            *(*wf.linalg.qr(a), *wf.linalg.eigh(spd), *wf.linalg.svd(a)),
            *(wf.linalg.expm(a / 100), wf.linalg.det(a / 20), *wf.linalg.lu(a)),
        ]
        same_as_with_other_threads("linalg", results)


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_layers_and_optimizers_do_not_depend_on_the_threads(device, blas_threads, monkeypatch):
    monkeypatch.setattr(threads, "ENOUGH", 1)
    torchs = torch.get_num_threads()
    torch.set_num_threads(blas_threads)
    with wf.deterministic(seed=1):
        assert threads.cores() == blas_threads  # our own kernels may still share their work
        assert torch.get_num_threads() == 1
        x = wf.randn((4, 3, 33, 31), device=device, requires_grad=True)
        w = wf.Parameter(wf.randn((16, 3, 3, 3), device=device))
        q, k, v = (wf.randn((2, 2, 150, 16), device=device, requires_grad=True) for _ in range(3))
        targets = wf.randint(0, 500, 64, device=device)
        logits = wf.randn((64, 500), device=device, requires_grad=True)
        optimizer = wf.optim.AdamW([w], lr=0.1)
        y = F.max_pool2d(F.conv2d(x, w, padding=1), 2)
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        y = F.layer_norm(F.gelu(y), y.shape[1:])
        loss = (y * y).sum() + (z * z * z).sum() + F.cross_entropy(logits, targets)
        grads = loss.backward()
        optimizer.step(grads)
        made = [y, z, loss, w, *(grads[t] for t in (x, w, q, k, v, logits))]
    assert torch.get_num_threads() == blas_threads
    torch.set_num_threads(torchs)
    same_as_with_other_threads(f"layers on {device}", made)


def test_steps_of_optimizers_do_not_depend_on_the_threads(blas_threads, monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: blas_threads)
    results = []
    for kind in (wf.optim.AdamW, wf.optim.Adam8bit, wf.optim.LAMB, wf.optim.Adafactor):
        with wf.deterministic():
            p = wf.Parameter(wf.randn((700, 1000)))
            optimizer = kind([p], lr=0.01)
            for _ in range(2):
                optimizer.step([wf.randn(p.shape)])
            results.append(p)
    same_as_with_other_threads("optimizers", results)


def same_as_with_other_threads(what, tensors) -> None:
    """The same bits as the same test had with another number of threads."""
    found = [(t.dtype, t.shape, t.detach().to("cpu").numpy().tobytes()) for t in tensors]
    assert found == PINNED.setdefault(what, found)


def test_a_blas_that_cannot_be_pinned(monkeypatch):
    monkeypatch.setattr(reproducible.blas, "thread_count_functions", lambda package: None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with pytest.raises(errors.NotDeterministic, match=r"matmul: NumPy's BLAS \(scipy-openblas\)"):
        wf.deterministic()
    with pytest.warns(errors.NotDeterministicWarning, match="OMP_NUM_THREADS=1"):
        with wf.deterministic(mode="warn"):
            pass
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with wf.deterministic():
        pass
    monkeypatch.undo()


# --- what cannot be promised


@pytest.fixture
def unrepeatable(monkeypatch):
    """Row `flip` computed by a kernel that PyTorch refuses."""
    from weft.backend.torch import namespace as torch_
    from weft.core.backends import bind_again

    def flip(x, axes):
        return x.clone().put_(torch.tensor([0]), torch.tensor([5.0]))

    monkeypatch.setattr(torch_, "flip", flip)
    bind_again(torch.Tensor)
    yield wf.tensor([1.0, 2.0, 3.0], device="torch", requires_grad=True)
    monkeypatch.undo()
    bind_again(torch.Tensor)


def test_strict_refuses_and_names_op_line_and_alternative(unrepeatable):
    assert wf.flip(unrepeatable).tolist() == [5.0, 2.0, 3.0]
    with wf.deterministic():
        line = inspect.currentframe().f_lineno + 2
        with pytest.raises(errors.NotDeterministic) as caught:
            wf.flip(unrepeatable)
    message = str(caught.value)
    assert message.startswith("flip: PyTorch has no deterministic kernel for it (put_)")
    assert "x.to('cpu')" in message and "mode='warn'" in message
    assert message.endswith(f"(at test_determinism.py:{line})")
    assert wf.flip(unrepeatable).tolist() == [5.0, 2.0, 3.0]


def test_a_backward_pass_is_held_to_it_too(unrepeatable):
    y = wf.flip(unrepeatable).sum()  # outside; the derivative of flip flips
    with wf.deterministic(), pytest.raises(errors.NotDeterministic, match="flip"):
        y.backward(retain_graph=True)
    assert y.backward()[unrepeatable].tolist() == [5.0, 1.0, 1.0]


def test_warn_warns_once_of_each_operation(unrepeatable):
    with wf.deterministic(mode="warn"):
        with pytest.warns(errors.NotDeterministicWarning, match=r"flip: .*put_.*\.py:\d+\)") as met:
            for _ in range(3):
                assert wf.flip(unrepeatable).tolist() == [5.0, 2.0, 3.0]
        assert len(met) == 1
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()


def test_a_thread_that_did_not_ask_is_left_alone(unrepeatable):
    found = []
    with wf.deterministic():
        worker = threading.Thread(target=lambda: found.append(wf.flip(unrepeatable).tolist()))
        worker.start()
        worker.join()
    assert found == [[5.0, 2.0, 3.0]]


def test_other_errors_of_torch_stay_what_they_are():
    with wf.deterministic():
        with pytest.raises(errors.ShapeError, match="matmul"):
            wf.ones((2, 3), device="torch") @ wf.ones((2, 3), device="torch")


def test_cublas_that_was_used_too_early():
    reason = reproducible._reason(
        "Deterministic behavior was enabled with ..., but this operation is not deterministic "
        "because it uses CuBLAS ... CUBLAS_WORKSPACE_CONFIG=:4096:8"
    )
    assert "before the first product" in reason
    assert reproducible._reason("mat1 and mat2 shapes cannot be multiplied") is None


def test_a_seed_from_the_operating_system():
    with wf.deterministic():
        with pytest.raises(errors.NotDeterministic, match=r"Generator: .*give it a seed"):
            wf.random.Generator()
    with wf.deterministic(mode="warn"):
        with pytest.warns(errors.NotDeterministicWarning, match="Generator") as met:
            assert wf.random.Generator().key != wf.random.Generator().key
        assert len(met) == 1


def test_a_default_generator_that_nobody_has_seeded():
    program = """
import weft as wf
from weft.errors import NotDeterministic
with wf.deterministic(seed=None, operation_seeds={"randn": 1}):
    wf.randn(3)
    try:
        wf.rand(3)
    except NotDeterministic as e:
        print(e)
    wf.random.seed(1)
    print(wf.rand(3).shape)
"""
    first, second = ran(program).splitlines()
    assert first.startswith("rand: the default generator has no seed; give a global_seed, or call")
    assert second == "(3,)"


def test_workers_that_would_draw_in_whatever_order_they_come():
    def careless(x, generator):
        return x + wf.rand(()).item()

    def careful(x, generator):
        return x + wf.rand((), generator=generator).item()

    def run(workers, transform, mode="strict"):
        with wf.deterministic(mode=mode):
            loader = wf.train.DataLoader(range(6), 2, workers=workers, transform=transform)
            return [b.tolist() for b in loader]

    assert run(0, careful) == run(2, careful)
    assert run(0, careless) == run(0, careless)
    with pytest.raises(errors.NotDeterministic, match="rand: workers draw in whatever order"):
        run(2, careless)
    with pytest.warns(errors.NotDeterministicWarning, match="generator="):
        run(1, careless, "warn")


# --- PyTorch's settings


def test_torch_is_set_and_put_back():
    cudnn = torch.backends.cudnn
    with cudnn.flags(enabled=True, benchmark=True):
        with wf.deterministic(cudnn_deterministic=False):
            assert torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() == 1
            assert (cudnn.deterministic, cudnn.benchmark) == (0, 1)
            with wf.deterministic(cudnn_deterministic=True):
                assert cudnn.deterministic and not cudnn.benchmark
        assert (cudnn.deterministic, cudnn.benchmark) == (0, 1)


def test_torchs_frozen_settings():
    """torch.testing, for one, has PyTorch refuse to set the flags of cuDNN one by one."""
    lines = (
        "import torch, weft as wf",
        "torch.backends.disable_global_flags()",
        "with wf.deterministic(cudnn_deterministic=True):",
        "    print(torch.backends.cudnn.deterministic)",
        "print(torch.backends.cudnn.deterministic)",
    )
    assert ran("\n".join(lines)).split() == ["True", "False"]


def test_what_torchs_user_had_set_comes_back():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with wf.deterministic():
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_torch_loaded_inside_the_block():
    program = """
import sys, weft as wf
with wf.deterministic():
    assert "torch" not in sys.modules
    x = wf.ones(3, device="torch")
    torch = sys.modules["torch"]
    cudnn = torch.backends.cudnn
    print(torch.are_deterministic_algorithms_enabled(), torch.get_num_threads())
    print(cudnn.deterministic, cudnn.benchmark)
print(torch.are_deterministic_algorithms_enabled(), cudnn.deterministic)
"""
    assert ran(program).split() == "True 1 True False False False".split()


def test_cublas_is_told_before_it_starts(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with wf.deterministic():
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with wf.deterministic():
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@cuda
def test_on_a_gpu_what_pytorch_has_no_kernel_for_is_refused():
    x = wf.ones((1, 1, 4, 4, 4), device="cuda", requires_grad=True)
    y = F.avg_pool3d(x, 2).sum()
    with wf.deterministic():
        with pytest.raises(errors.NotDeterministic, match=r"spread_pool: .*avg_pool3d_backward"):
            y.backward(retain_graph=True)
    with wf.deterministic(mode="warn"), pytest.warns(errors.NotDeterministicWarning) as met:
        for _ in range(3):
            y.backward(retain_graph=True)
    assert len(met) == 1


@cuda
def test_on_a_gpu_runs_repeat():
    """Gathers with many equal indices, whose gradients atomics would add up in any order."""

    def run():
        with wf.deterministic(seed=1):
            x = wf.randn((50, 64), device="cuda", requires_grad=True)
            index = wf.randint(0, 50, 200_000, device="cuda")
            w = wf.randn((200_000, 64), device="cuda")
            image = wf.randn((8, 3, 64, 64), device="cuda", requires_grad=True)
            kernel = wf.randn((16, 3, 3, 3), device="cuda", requires_grad=True)
            q = wf.randn((4, 8, 256, 32), device="cuda", requires_grad=True)
            conv = F.conv2d(image, kernel, padding=1)
            attention = F.scaled_dot_product_attention(q, q, q, is_causal=True, dropout_p=0.1)
            loss = (x[index] * w).sum() + (conv * conv).sum() + (attention * attention).sum()
            grads = loss.backward()
            return [loss.item(), *(grads[t].to("cpu").numpy() for t in (x, image, kernel, q))]

    first = run()
    for _ in range(5):
        assert all(np.array_equal(a, b) for a, b in zip(first, run(), strict=True))


# --- on a tape


@pytest.mark.parametrize(
    "make", [wf.GradientTape.with_deterministic_config, lambda c: wf.GradientTape(deterministic=c)]
)
def test_a_tape_repeats(make):
    def run(**fields):
        with make(wf.DeterministicConfig(**fields)) as tape:
            assert torch.get_num_threads() == 1
            x = tape.watch(wf.ones(64))
            y = (F.dropout(x) * wf.rand(64)).sum()
        return tape.gradient(y, x).tolist()

    assert run() == run() != run(global_seed=1)
    assert run(operation_seeds={"dropout": 1}) != run(operation_seeds={"dropout": 2})
    assert run(operation_seeds=False) != run()


def test_the_sweep_of_a_tape_is_held_to_its_config(unrepeatable):
    x = unrepeatable
    tapes = []
    for mode in ("strict", "warn"):
        with wf.GradientTape(deterministic=wf.DeterministicConfig(mode)) as tape:
            y = wf.cumsum(tape.watch(x), axis=0).sum()  # the derivative of cumsum flips
        tapes.append((tape, y, inspect.currentframe().f_lineno - 1))
    assert current.get().determinism is None
    tape, y, line = tapes[0]
    with pytest.raises(errors.NotDeterministic, match="flip") as caught:
        tape.gradient(y, x)
    place = f"in the backward pass of cumsum (at test_determinism.py:{line})"
    assert caught.value.__notes__ == [place]
    tape, y, _ = tapes[1]
    with pytest.warns(errors.NotDeterministicWarning, match="flip"):
        tape.gradient(y, x)


def test_a_tapes_streams_go_on_in_its_next_block():
    tape = wf.GradientTape(deterministic=wf.DeterministicConfig(operation_seeds=False))
    values = []
    for _ in range(2):
        with tape:
            values += wf.rand(4).tolist()
    with wf.deterministic(operation_seeds=False):
        assert values == [*wf.rand(4).tolist(), *wf.rand(4).tolist()]


def test_a_tape_whose_block_never_ran():
    tape = wf.GradientTape(deterministic=wf.DeterministicConfig())
    x = tape.watch(wf.ones(3))
    with pytest.raises(errors.ArgumentError, match="with tape:"):
        tape.gradient(x.sum(), x)
    with pytest.raises(errors.ArgumentError, match="with tape:"):
        tape.jacobian(x * x, x)
    with pytest.raises(errors.DTypeError, match=r"deterministic is a dict.*DeterministicConfig"):
        wf.GradientTape(deterministic={"mode": "strict"})


# --- fresh processes


def ran(program: str, **environment) -> str:
    made = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


TRAINING = """
import hashlib
import numpy as np
import weft as wf
from weft.nn import functional as F

wf.deterministic(seed=7)
data = wf.train.TensorDataset(wf.randn((96, 1, 12, 12)), wf.randint(0, 5, 96))
loader = wf.train.DataLoader(data, 16, shuffle=True, seed=3, workers=2,
                             transform=lambda s, g: (s[0] + 0.1 * wf.randn((), generator=g), s[1]))
shapes = {"conv": (8, 1, 3, 3), "key": (8, 8), "query": (8, 8), "value": (8, 8), "out": (5, 288)}
params = wf.ParameterDict()
for name, shape in shapes.items():
    params.insert(name, wf.Parameter(0.2 * wf.randn(shape)))
optimizer = wf.optim.AdamW(params.named_parameters(), lr=0.01)
digest = hashlib.sha256()
for epoch in range(2):
    for x, y in loader:
        h = F.max_pool2d(F.gelu(F.conv2d(x, params.get("conv"), padding=1)), 2)
        tokens = h.reshape((16, 8, 36)).permute((0, 2, 1))
        q, k, v = (tokens @ params.get(n) for n in ("query", "key", "value"))
        h = F.dropout(F.scaled_dot_product_attention(q, k, v, dropout_p=0.1), 0.2)
        loss = F.cross_entropy(h.reshape((16, -1)) @ params.get("out").mT, y)
        optimizer.step(loss.backward())
        digest.update(np.asarray(loss.detach()).tobytes())
for p in params.parameters():
    digest.update(p.detach().numpy().tobytes())
print(digest.hexdigest())
"""


def test_two_processes_give_the_same_bits():
    runs = {
        ran(TRAINING, PYTHONHASHSEED=seed, OPENBLAS_NUM_THREADS=threads)
        for seed, threads in (("1", "1"), ("2", "1"), ("3", "2"))
    }
    assert len(runs) == 1
    assert ran(TRAINING.replace("seed=7", "seed=8")) not in runs


# --- fingerprints


def test_a_fingerprint_is_plain_json_without_names_of_anyone():
    found = wf.fingerprint()
    text = json.dumps(found)
    assert json.loads(text) == found == wf.fingerprint()
    assert found["numpy"] == np.__version__ and found["weft"] == wf.__version__
    assert found["torch"]["version"] == torch.__version__
    assert found["python"].endswith(".".join(map(str, sys.version_info[:3])))
    assert found["blas"]["kernels"] and found["cpu_features"]
    words = set(re.findall(r"[\w.-]+", text))
    assert not {getpass.getuser(), socket.gethostname()} & words and "/" not in text


def test_what_changes_a_fingerprint(monkeypatch):
    before = wf.fingerprint()
    assert wf.fingerprint_differences(before, before) == []
    wf.set_default_dtype("float64")
    try:
        assert wf.fingerprint_differences(before, wf.fingerprint()) == [
            "default_dtype: 'float32', then 'float64'"
        ]
    finally:
        wf.set_default_dtype("float32")
    monkeypatch.setattr(threads, "cores", lambda: 7)
    torch.set_num_threads(2)
    lines = wf.fingerprint_differences(before, wf.fingerprint())
    torch.set_num_threads(1)
    assert lines == [f"threads: {before['threads']}, then 7", "torch.threads: 1, then 2"]


def test_differences_are_readable():
    one = {"a": 1, "list": ["x", "y"], "only": 2, "deep": {"p": 1, "q": 2}}
    two = {"a": 2, "list": ["y", "z"], "deep": {"p": 1, "q": 3}, "new": None}
    assert wf.fingerprint_differences(one, two) == [
        "a: 1, then 2",
        "list: x only before, z only then",
        "only: 2, then None",
        "deep.q: 2, then 3",
    ]
    with pytest.raises(errors.ArgumentError, match="got list"):
        wf.fingerprint_differences([], {})


def test_a_fingerprint_loads_nothing():
    program = (
        "import sys, weft as wf; f = wf.fingerprint(); "
        "print([m for m in ('torch', 'scipy', 'llvmlite') if m in sys.modules], f['torch'])"
    )
    assert ran(program) == "[] None"


def test_the_mode_does_not_change_the_fingerprint():
    """A run saved outside a block goes on in one without a word about threads."""
    before = wf.fingerprint()
    with wf.deterministic():
        inside = wf.fingerprint()
    assert {**inside, "torch": 0} == {**before, "torch": 0}


def test_no_warning_comes_of_a_deterministic_run():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        under()
