"""The compiler's passes over graphs: each a function from a graph to one of the same values."""

from collections.abc import Callable

from ...graph.graph import Graph
from . import (  # their expansions are entered
    arrange,  # noqa: F401
    attend,  # noqa: F401
    cells,  # noqa: F401
    classes,  # noqa: F401
    draw,  # noqa: F401
    extremes,  # noqa: F401
    indices,  # noqa: F401
    run,  # noqa: F401
)
from .algebra import algebra
from .bodies import bodies
from .common import common
from .contract import contract
from .convolve import windows
from .copies import apart, copies
from .dead import dead
from .expand import expand
from .fold import fold
from .layout import layout
from .loops import loops
from .pooling import pooling
from .products import products
from .scalarise import scalarise
from .sink import sink
from .tall import tall
from .thin import thin

Pass = Callable[[Graph], Graph]

# In order. Algebra runs again on what the expansions have written, and before equal equations are
# looked for, so that those that only look different are found.
PASSES: tuple[tuple[str, Pass], ...] = (
    ("dead", dead),
    ("loops", loops),
    ("fold", fold),
    ("pooling", pooling),
    ("windows", windows),
    ("expand", expand),
    ("contract", contract),
    ("algebra", algebra),
    ("layout", layout),
    ("fold again", fold),
    ("algebra again", algebra),
    ("common", common),
    ("dead again", dead),
    ("bodies", lambda graph: bodies(graph, optimised)),
    ("sink", sink),
    ("scalarise", scalarise),
    ("thin", thin),
    ("tall", tall),
    ("copies", copies),
    ("common again", common),
    ("products", products),
    ("dead at last", dead),
    ("apart", apart),
)


def optimised(graph: Graph, check: Callable[[Graph], None] | None = None) -> Graph:
    """The graph after all passes; `check` is called with the graph after each of them."""
    for _, apply in PASSES:
        graph = apply(graph)
        if check is not None:
            check(graph)
    return graph
