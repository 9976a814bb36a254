"""The compiler's passes over graphs: each a function from a graph to one of the same values.

They hold for every target; which of them run, and in which order, a target says.
"""

from . import (  # their expansions are entered
    arrange,  # noqa: F401
    cells,  # noqa: F401
    classes,  # noqa: F401
    draw,  # noqa: F401
    extremes,  # noqa: F401
    indices,  # noqa: F401
    run,  # noqa: F401
)
