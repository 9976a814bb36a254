"""An emulated GPU for programs; random cases of routines have places of 32 and of 64 bits."""

import pytest

from weft.compiler.cuda.routines import threads
from weft.compiler.pipeline import using
from weft.compiler.raw.arrays import arrays_on

from .emulated_gpu import emulated_target


@pytest.fixture(autouse=True)
def far(request, monkeypatch) -> None:
    """One in four has places of 64 bits, as large arrays have."""
    case = getattr(request.node, "callspec", None)
    if case is not None and case.params.get("seed", 0) % 4 == 3:
        monkeypatch.setattr(threads, "FAR", 1)


@pytest.fixture
def gpu(monkeypatch):
    """Functions of tensors of PyTorch's are compiled for an emulated GPU."""
    monkeypatch.setattr(arrays_on("torch"), "host_runtime", False)
    target = emulated_target()
    with using(target):
        yield target.gpu
