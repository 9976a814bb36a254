"""The tables of the oracle account for every op and every sample of torch's database."""

from fnmatch import fnmatchcase

import pytest

from . import unmapped
from .database import DTYPES, OPS, samples, takes
from .exclusions import EXCLUDED
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


@pytest.mark.parametrize("i", range(len(EXCLUDED)))
def test_every_exclusion_is_used(i):
    """For each op it names, an exclusion leaves out at least one sample that no other does."""
    e = EXCLUDED[i]
    assert e.reason
    idle = [name for name in e.ops if not _leaves_out(name, i)]
    assert not idle


def _leaves_out(name: str, i: int) -> bool:
    others = [e for e in EXCLUDED[:i] if name in e.ops]
    return any(
        EXCLUDED[i].when(s, d) and not any(e.when(s, d) for e in others)
        for d in DTYPES
        if takes(name, d)
        for s in samples(name, d)
    )


def test_every_mapped_op_has_samples_left():
    """No op is excluded as a whole, unless the table says so of the op itself."""
    from .exclusions import reason

    silent = [
        name
        for name in MAPPED
        if all(reason(name, s, d) for d in DTYPES if takes(name, d) for s in samples(name, d))
    ]
    assert silent == ["nextafter"]
