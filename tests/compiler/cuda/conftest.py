"""Random cases of routines have places of 32 and of 64 bits."""

import pytest

from weft.compiler.cuda.routines import threads


@pytest.fixture(autouse=True)
def far(request, monkeypatch) -> None:
    """One in four has places of 64 bits, as large arrays have."""
    case = getattr(request.node, "callspec", None)
    if case is not None and case.params.get("seed", 0) % 4 == 3:
        monkeypatch.setattr(threads, "FAR", 1)
