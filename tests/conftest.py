"""What all tests share: one thread a worker, since the workers themselves run in parallel."""

import gc
import os
import signal

# A shell that starts a job in the background has it ignore interrupts, and all that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is loaded
os.environ["SCIPY_ARRAY_API"] = "1"  # before SciPy is
# Some virtual machines announce AMX and end a process that uses it, as PyTorch does for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import pytest
import torch

torch.set_num_threads(1)


def pytest_collection_finish(session):
    """Thirty thousand tests are not looked through whenever Python collects garbage."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_graphs():
    """For tests that count saved values: graphs that another library still holds are emptied."""
    import weft

    gc.collect()
    weft.clear_tape()
