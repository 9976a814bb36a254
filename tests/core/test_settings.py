"""Settings that are replaced for a block, when a signal handler interrupts the leaving of it."""

import gc

import pytest

from weft.core.settings import current, exactly, override_settings

KINDS = {"override": lambda: override_settings(anomaly=True), "exactly": exactly}


@pytest.mark.parametrize("inner", KINDS)
def test_a_block_that_is_abandoned_does_not_bring_settings_back(inner):
    """Its generator is closed once nothing refers to it: after the blocks around it have ended."""
    before = current.get()
    with override_settings(staging=object()):
        left = KINDS[inner]()
        left.__enter__()
    assert current.get() is before
    del left
    gc.collect()
    assert current.get() is before


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_that_is_abandoned_by_itself_ends(kind):
    before = current.get()
    left = KINDS[kind]()
    left.__enter__()
    del left
    gc.collect()
    assert current.get() is before


def test_a_block_within_a_generator_that_is_closed():
    before = current.get()

    def steps():
        with override_settings(anomaly=True):
            yield

    steps_ = steps()
    next(steps_)
    assert current.get().anomaly
    steps_.close()
    assert current.get() is before
