"""The passes that prepare a graph for a GPU, in order."""

from functools import partial

from ..cache import schedules
from ..passes.algebra import algebra
from ..passes.bodies import bodies
from ..passes.common import common
from ..passes.contract import contract
from ..passes.copies import apart, copies
from ..passes.dead import dead
from ..passes.expand import EXPANSIONS, expand
from ..passes.fission import fission
from ..passes.fold import fold
from ..passes.layout import layout
from ..passes.loops import loops
from ..passes.narrow import narrow
from ..passes.products import products
from ..passes.sink import sink
from ..target import Passes, optimise
from . import attend
from .channels_last import channels_last, last_row
from .computes import PRODUCT_DTYPES
from .padding import pad_products
from .repeat import repeat
from .routines.table import ROWS, readable
from .sums import sums

schedules.DERIVED |= {"last": last_row, "by_positions": attend.derived}
PASSES: Passes = (
    ("dead", dead),
    ("loops", loops),
    ("fission", fission),
    ("fold", fold),
    ("expand", lambda graph: expand(graph, EXPANSIONS | attend.EXPANSIONS)),
    ("contract", partial(contract, dtypes=PRODUCT_DTYPES)),
    ("algebra", algebra),
    ("layout", layout),
    ("fold again", fold),
    ("algebra again", algebra),
    ("narrow", narrow),
    ("common", common),
    ("dead again", dead),
    ("channels last", channels_last),
    ("bodies", lambda graph: bodies(graph, lambda inner: optimise(inner, BODY_PASSES))),
    ("sink", sink),
    ("padding", pad_products),
    ("copies", lambda graph: copies(graph, ROWS, readable, PRODUCT_DTYPES)),
    ("common again", common),
    ("repeat", repeat),
    ("products", partial(products, dtypes=PRODUCT_DTYPES)),
    ("sums", sums),
    ("dead at last", dead),
    ("apart", apart),
)
# Those of the bodies of loops and branches, whose products are parts of larger routines.
BODY_PASSES: Passes = tuple([one for one in PASSES if one[0] != "sums"])
