"""Which attributes the methods of Weft's classes read."""

import datetime
import unicodedata

import pytest

import weft as wf
from weft.compiler.frontend.reachable.names import _methods
from weft.core.record import record


@pytest.mark.parametrize("method", ["__eq__", "__hash__", "__repr__"])
def test_methods_that_a_record_has_not_generated_yet(method):
    @record
    class Fresh:
        """A record that nobody has used."""

        first: int
        second: list[int]

    read = {code: names for code, names in _methods(Fresh)}
    function = getattr(Fresh, method)  # the one that runs from now on
    code = getattr(function, "__wrapped__", function).__code__
    assert {"first", "second"} <= read[code]


def test_functions_of_extensions_that_are_bound_to_capsules():
    """Those of optree before 0.17, by which loops take their carries apart."""
    bound = {"api": datetime.datetime_CAPI}

    @wf.compile
    def f(x):
        return 2 * x if bound["api"] is datetime.datetime_CAPI else 3 * x

    assert f(wf.tensor(1.0)).item() == 2
    bound["api"] = unicodedata._ucnhash_CAPI
    assert f(wf.tensor(1.0)).item() == 3
