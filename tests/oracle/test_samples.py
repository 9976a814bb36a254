"""Values and gradients of every op we share with torch, on all of torch's samples."""

import pytest

from .battery import run
from .database import DTYPES, takes
from .mapping import MAPPED

# What PyTorch's kernels are asked to repeat: the point there is the other backend, not the op.
FEW = 4

ALL = [(n, d) for n in MAPPED for d in DTYPES if takes(n, d)]


@pytest.mark.parametrize(("name", "dtype"), ALL, ids=[f"{n}-{d}" for n, d in ALL])
def test_agrees_with_torch(name, dtype):
    problems = run(name, dtype).problems
    assert not problems, _listed(problems)


@pytest.mark.parametrize("name", [n for n in MAPPED if takes(n, "float64")])
def test_agrees_with_torch_on_its_kernels(name):
    problems = run(name, "float64", device="torch", most=FEW).problems
    assert not problems, _listed(problems)


def _listed(problems: list[str]) -> str:
    more = f"\n… and {len(problems) - 8} more" if len(problems) > 8 else ""
    return "\n" + "\n".join(problems[:8]) + more
