"""Every row of the table: values, derivatives to third order, backends, layouts, precisions."""

import numpy as np
import pytest

from weft.core.op import Op, Partials

from .check import check_row
from .probe import BACKEND_NAMES
from .reference import references
from .rows import EXEMPT, load

TABLE = load()
NAMES = sorted(TABLE)


@pytest.mark.parametrize("backend", BACKEND_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_row(name, backend):
    problems = check_row(TABLE[name], backend)
    assert not problems, "\n" + "\n".join(map(str, problems))


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_a_sample(name):
    assert (TABLE[name].sample is None) == (name in EXEMPT)


def test_exemptions_name_rows():
    assert set(EXEMPT) <= set(NAMES)
    assert all(EXEMPT.values())


@pytest.mark.parametrize("name", [n for n in NAMES if n not in EXEMPT])
def test_cases_reach_everything(name):
    """The checks are only as good as the cases: what each row's sample must contain."""
    missing = _missing(TABLE[name])
    assert not missing, f"{name}: its sample has no {', no '.join(missing)} case"


def _missing(op: Op) -> list[str]:
    cases = [r.probe for r in references(op)]
    shapes = [[a.shape for a in p.case.args if isinstance(a, np.ndarray)] for p in cases]
    found = {
        "non-empty": any(all(0 not in s for s in some) for some in shapes),
    }
    if op.rule is not None:
        found["smooth non-empty"] = any(p.case.smooth and p.layout.size for p in cases)
    if isinstance(op.rule, Partials):
        found["0-d"] = any(() in some for some in shapes)
        found["0-size"] = any(0 in s for some in shapes for s in some)
    if isinstance(op.rule, Partials) and len(op.rule.d) > 1:
        found["broadcast"] = any(len(set(some)) > 1 for some in shapes)
    return [what for what, there in found.items() if not there]
