"""The passes that prepare a graph for the CPU, in order."""

from collections.abc import Callable

from ....graph.graph import Graph
from ...passes.algebra import algebra
from ...passes.bodies import bodies
from ...passes.common import common
from ...passes.contract import contract
from ...passes.dead import dead
from ...passes.expand import EXPANSIONS, expand
from ...passes.fold import fold
from ...passes.layout import layout
from ...passes.loops import loops
from ...passes.pooling import pooling
from ...passes.products import products
from ...passes.sink import sink
from ...target import Pass
from . import attend
from .convolve import windows
from .copies import apart, copies
from .scalarise import scalarise
from .tall import tall
from .thin import thin

# In order. Algebra runs again on what the expansions have written, and before equal equations are
# looked for, so that those that only look different are found.
PASSES: tuple[tuple[str, Pass], ...] = (
    ("dead", dead),
    ("loops", loops),
    ("fold", fold),
    ("pooling", pooling),
    ("windows", windows),
    ("expand", lambda graph: expand(graph, EXPANSIONS | attend.EXPANSIONS)),
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
