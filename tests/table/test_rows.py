"""Every row of the table: values, derivatives to third order, backends, layouts, precisions."""

import pytest

from weft.core.op import Op, Partials

from .check import check_row, report
from .probe import BACKEND_NAMES
from .reference import references
from .rows import EXEMPT, load, shapes

TABLE = load()
NAMES = sorted(TABLE)

# Rows that other rows' rules are made of, and that are used only where finite differences of
# these rows alone say nothing; the other rows' cases differentiate through them.
NEVER_SMOOTH = {
    "detach": "its derivative is zero by decree",
    "coupling": "its first argument says which eigenvalues are equal: eigh, svd",
    "divided": "likewise: eigh, svd",
    "extreme_share": "jumps where its arguments are equal, which is where it is used: amax, amin",
}


@pytest.mark.parametrize("backend", BACKEND_NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_row(name, backend):
    problems = check_row(TABLE[name], backend)
    assert problems == [], report(problems)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_has_a_sample(name):
    assert (TABLE[name].sample is None) == (name in EXEMPT)


def test_exemptions_name_rows():
    assert set(EXEMPT) | set(NEVER_SMOOTH) <= set(NAMES)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in EXEMPT])
def test_cases_reach_everything(name):
    """The checks are only as good as the cases: what each row's sample must contain."""
    missing = _missing(TABLE[name])
    assert not missing, f"{name}: its sample has no {', no '.join(missing)} case"


def _missing(op: Op) -> list[str]:
    probes = [r.probe for r in references(op)]
    found = {"non-empty": any(0 not in s for p in probes for s in shapes(p.case))}
    if op.rule is not None and op.name not in NEVER_SMOOTH:
        found["smooth non-empty"] = any(p.case.smooth and p.layout.size for p in probes)
    if isinstance(op.rule, Partials) and op.name not in NEVER_SMOOTH:
        found["0-d"] = any(() in shapes(p.case) for p in probes)
        found["0-size"] = any(0 in s for p in probes for s in shapes(p.case))
    if isinstance(op.rule, Partials) and any(len(shapes(p.case)) > 1 for p in probes):
        found["broadcast"] = any(len(set(shapes(p.case))) > 1 for p in probes)
    return [what for what, there in found.items() if not there]
