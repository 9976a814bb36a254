"""The passes that prepare a graph for the CPU, in order."""

from functools import partial

from ...passes.algebra import algebra
from ...passes.bodies import bodies
from ...passes.common import common
from ...passes.contract import contract
from ...passes.copies import apart, copies
from ...passes.dead import dead
from ...passes.expand import EXPANSIONS, expand
from ...passes.fold import fold
from ...passes.layout import layout
from ...passes.loops import loops
from ...passes.pooling import pooling
from ...passes.products import products
from ...passes.sink import sink
from ...target import Passes, optimise
from ..blas import PRODUCT_DTYPES
from ..routines.table import MAKERS, readable
from . import attend
from .convolve import windows
from .scalarise import scalarise
from .tall import tall
from .thin import thin

# In order. Algebra runs again on the expansions, and before common subexpressions are
# eliminated, so that equations that only look different are found.
PASSES: Passes = (
    ("dead", dead),
    ("loops", loops),
    ("fold", fold),
    ("pooling", pooling),
    ("windows", windows),
    ("expand", lambda graph: expand(graph, EXPANSIONS | attend.EXPANSIONS)),
    ("contract", partial(contract, dtypes=PRODUCT_DTYPES)),
    ("algebra", algebra),
    ("layout", layout),
    ("fold again", fold),
    ("algebra again", algebra),
    ("common", common),
    ("dead again", dead),
    ("bodies", lambda graph: bodies(graph, lambda inner: optimise(inner, PASSES))),
    ("sink", sink),
    ("scalarise", scalarise),
    ("thin", thin),
    ("tall", tall),
    ("copies", lambda graph: copies(graph, MAKERS, readable, PRODUCT_DTYPES)),
    ("common again", common),
    ("products", partial(products, dtypes=PRODUCT_DTYPES)),
    ("dead at last", dead),
    ("apart", apart),
)
