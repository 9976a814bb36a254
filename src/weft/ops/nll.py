"""Rows: the mean of negative log-probabilities at classes, some of which may not count.

The log-probabilities are (…, lines, classes). What is saved is how many lines count.
"""

from ..core.aval import Aval, broadcast
from ..core.op import Caller
from ..errors import ShapeError
from .axes import floating, real_only
from .batching import Stacked
from .positions import in_range, integers
from .rows import general, linear
from .samples import neural as samples
from .structural import unbroadcast


def _shape(logs: Aval, classes: Aval, ignored):
    real_only("mean_nll", logs)
    integers("mean_nll", classes)
    if logs.ndim < 2 or not logs.shape[-1] or logs.shape[-2:-1] != classes.shape[-1:]:
        raise ShapeError(
            f"mean_nll: log-probabilities {logs.shape} and classes {classes.shape}; expected "
            "(…, lines, classes), at least one class, and (…, lines)"
        )
    lead = broadcast("mean_nll", logs.shape[:-2], classes.shape[:-1])
    mean = logs.like(lead, floating(logs.dtype))
    return mean, mean


def _pull(gs, results, logs, classes, ignored):
    z = nll_gradient(gs[0] / results[1], classes, ignored, logs.shape[-1])
    return unbroadcast(z, logs.shape), None


# −Σ logs[line, class]/n over the lines whose class is not the ignored one; n is how many those
# are, or 1.
mean_nll: Caller = general(
    "mean_nll",
    compute=in_range("mean_nll", "cross_entropy"),
    shape=_shape,
    push=lambda tangents, results, logs, classes, ignored: (
        mean_nll(tangents[0], classes, ignored)[0],
        None,
    ),
    pull=_pull,
    reads="results classes",
    unread=(0,),
    arity=2,
    outputs=2,
    tracked=(0,),
    promote=(0,),
    floating=True,
    static=True,
    precision="single",
    batch=Stacked((2, 1)),
    sample=samples("mean_nlls"),
)


def _gradient_shape(g: Aval, classes: Aval, ignored, width):
    lead = broadcast("nll_gradient", g.shape, classes.shape[:-1])
    return g.like((*lead, classes.shape[-1], width))


def _gradient_transpose(u, g, classes, ignored, width):
    mean, n = mean_nll(u, classes, ignored)
    return unbroadcast(mean * n, g.shape)


# −g at the classes that are not the ignored one, else 0.
nll_gradient: Caller = linear(
    "nll_gradient",
    shape=_gradient_shape,
    transpose=[_gradient_transpose, None],
    reads="classes",
    promote=(0,),
    static=True,
    batch=Stacked((0, 1)),
    sample=samples("nll_gradients"),
)
