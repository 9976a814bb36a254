"""The compiler's passes over graphs: each maps a graph to an equivalent one.

They hold for every target; the target chooses which run, and in which order.
"""

from . import (  # imported to register their expansions
    arrange,  # noqa: F401
    cells,  # noqa: F401
    classes,  # noqa: F401
    draw,  # noqa: F401
    extremes,  # noqa: F401
    indices,  # noqa: F401
    run,  # noqa: F401
)
