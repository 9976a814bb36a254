"""Problems in HIPS autograd."""

import autograd
import autograd.numpy as anp
import numpy as np

from .sides import Makers, Side


def _numpy(found) -> list[np.ndarray]:
    found = found if isinstance(found, tuple | list) else [found]
    return [np.asarray(a, np.float64) for a in found]


def _dispatch(data):
    f = autograd.grad(lambda x: anp.sum(x * anp.tanh(x)))
    return Side(lambda: f(data["x"]), _numpy)


def _chain(data):
    def loss(z):
        for _ in range(4):
            z = anp.tanh(z) * anp.exp(-z * z) + anp.log(1 + z * z)
        return anp.sum(z)

    f = autograd.grad(loss)
    return Side(lambda: f(data["x"]), _numpy)


def _scan(data):
    def loss(packed):
        c, a, b = packed
        for x in data["xs"]:
            c = c + 0.1 * (anp.tanh(a * c + b * x) - c)
        return anp.sum(c * c)

    f, packed = autograd.grad(loss), (data["start"], data["a"], data["b"])
    return Side(lambda: f(packed), _numpy)


def _bottleneck(data):
    inner, outer = data["inner"], data["outer"]
    f = autograd.jacobian(lambda x: anp.tanh(anp.dot(outer, anp.sin(anp.dot(inner, x)))))
    return Side(lambda: f(data["x"]), _numpy)


MAKERS: Makers = {
    "dispatch": _dispatch,
    "chain": _chain,
    "scan": _scan,
    "bottleneck": _bottleneck,
}


def side(name: str, contender: str, data) -> Side:
    """autograd's way."""
    return MAKERS[name](data)
