"""Which attributes the methods of Weft's classes read."""

import pytest

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
