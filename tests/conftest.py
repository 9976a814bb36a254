"""What all tests share: one thread a worker, since the workers themselves run in parallel."""

import gc
import os
import re
import signal
from importlib.util import find_spec
from zlib import crc32

# A shell that starts a job in the background has it ignore interrupts, and all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded
os.environ["SCIPY_ARRAY_API"] = "1"  # before SciPy is
# Some virtual machines announce AMX and end a process that uses it, as PyTorch does for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)

# What only tests need: with --light, those that compare with it are skipped where it is absent.
OTHERS = ("torch", "jax", "sklearn", "einops", "hypothesis", "matplotlib", "rich", "safetensors")
OTHERS += ("tensorboardX", "transformers", "autograd", "casadi", "expecttest", "diffusers", "peft")
OTHERS += ("PIL", "prodigyopt", "schedulefree", "typer")


def pytest_addoption(parser):
    parser.addoption("--one-in", type=int, default=1, help="run one test in so many")
    parser.addoption("--light", action="store_true", help="skip what needs absent libraries")


def pytest_collection_modifyitems(config, items):
    """With --one-in N: the first test of each file, and of the others those that N divides."""
    n, seen = config.getoption("--one-in"), set()

    def stays(item) -> bool:
        first = item.path not in seen
        seen.add(item.path)
        return first or crc32(item.nodeid.encode()) % n == 0

    items[:] = [item for item in items if stays(item)]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    report = yield
    absent = re.search(r"No module named '(\w+)", str(report.longrepr)) if report.failed else None
    if absent and absent[1] in OTHERS and collector.config.getoption("--light"):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"{absent[1]} is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except Exception as e:
        if not item.config.getoption("--light"):
            raise
        if isinstance(e, ModuleNotFoundError) and e.name in OTHERS:
            pytest.skip(f"{e.name} is not installed")
        if find_spec("torch") is None and "needs PyTorch" in str(e):
            pytest.skip("torch is not installed")
        raise


def pytest_collection_finish(session):
    """Thirty thousand tests are not looked through whenever Python collects garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    """A test that goes on counting memory changes what others measure."""
    from numpy._core.multiarray import get_handler_name

    result = yield
    assert get_handler_name() == "default_allocator", (
        "the test leaves another allocator of NumPy's arrays"
    )
    return result


@pytest.fixture(scope="module", autouse=True)
def old_objects_are_set_aside():
    """What earlier modules have left is not looked through by this one's collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_graphs():
    """For tests that count saved values: graphs that another library still holds are emptied."""
    import weft

    gc.collect()
    weft.clear_tape()
