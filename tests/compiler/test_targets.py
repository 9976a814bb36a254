"""Tests that run for a target compile for it."""

import weft as wf

from .interpreter import INTERPRETER, Interpreted


def test_programs_are_compiled_for_the_target_of_the_test(target):
    f = wf.compile(lambda x: wf.tanh(x) + 1)
    f(wf.ones(3))
    assert target in (None, INTERPRETER)
    assert isinstance(f._last().executable, Interpreted) == (target is INTERPRETER)
