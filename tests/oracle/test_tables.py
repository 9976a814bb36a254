"""The tables of the oracle account for every op and every sample of torch's database."""

from fnmatch import fnmatchcase

import pytest

from . import unmapped
from .battery import problems
from .database import DTYPES, OPS, described, samples, takes
from .exclusions import EXCLUDED, reason
from .mapping import MAPPED, spelling


def test_every_op_is_mapped_or_has_a_reason_not_to_be():
    without = [name for name, why in unmapped.unmapped(MAPPED).items() if not why]
    assert not without
    assert set(MAPPED) <= set(OPS)


def test_no_pattern_of_unmapped_ops_is_idle():
    names = unmapped.unmapped(MAPPED)
    assert not [p for p in unmapped.patterns() if not any(fnmatchcase(n, p) for n in names)]


def test_every_spelling_is_a_function():
    assert all(callable(spelling(name)) for name in MAPPED)


@pytest.mark.parametrize("e", EXCLUDED, ids=lambda e: e.reason)
def test_every_exclusion_is_needed(e):
    """Each op it names has samples it leaves out, and none of these would have agreed."""
    for name in e.ops:
        left_out = [s for d in DTYPES if takes(name, d) for s in samples(name, d) if e.when(s, d)]
        assert left_out, f"{name}: no such sample"
        agree = [described(s) for s in left_out if not problems(name, s)]
        assert not agree, f"{name}: would agree: {agree[:3]}"


def test_every_mapped_op_has_samples_left():
    """No op is excluded as a whole, unless the table says so of the op itself."""
    silent = [
        name
        for name in sorted({n for e in EXCLUDED for n in e.ops})
        if all(reason(name, s, d) for d in DTYPES if takes(name, d) for s in samples(name, d))
    ]
    assert silent == ["nextafter"]
