"""Signals that wait for the end of a step: all short sequences of them."""

import os
import signal
from itertools import product

import pytest

from weft.train.interrupts import Interrupts

KINDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Came(BaseException):
    """A signal took effect."""


@pytest.fixture
def handlers():
    def take_effect(number, frame):
        raise Came(number)

    before = {n: signal.signal(n, take_effect) for n in KINDS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("sequence", [s for n in (1, 2, 3) for s in product(KINDS, repeat=n)])
def test_the_first_waits_and_the_second_does_not_unless_it_is_a_hangup(handlers, sequence):
    """So a closed terminal, of which two may come, never stops a save."""
    first, *others = sequence
    sudden = [n for n in others if n != signal.SIGHUP]
    came: list[int] = []
    try:
        with Interrupts(True) as interrupts:
            for number in sequence:
                signal.raise_signal(number)
                came.append(number)
            assert interrupts.pending == first
            interrupts.deliver()
    except Came as e:
        assert e.args[0] == first  # what was deferred is delivered in any case
        expected = sequence[: sequence.index(sudden[0], 1)] if sudden else sequence
        assert tuple(came) == tuple(expected)
    else:
        raise AssertionError("no signal took effect")


@pytest.mark.parametrize("number", KINDS)
def test_what_is_ignored_stays_so(handlers, number):
    """As SIGHUP under nohup."""
    signal.signal(number, signal.SIG_IGN)
    with Interrupts(True, "saving") as interrupts:
        signal.raise_signal(number)
        assert interrupts.pending is None
    assert signal.getsignal(number) is signal.SIG_IGN


def test_a_terminal_that_is_gone_is_no_error(handlers, monkeypatch):
    def gone(fd, data):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "write", gone)
    with pytest.raises(Came), Interrupts(True, "saving") as interrupts:
        signal.raise_signal(signal.SIGHUP)
        assert interrupts.pending == signal.SIGHUP
