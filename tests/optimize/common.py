"""Functions with known minima, and a look at what SciPy is called with."""

import numpy as np
import scipy.optimize

EPS = np.finfo(np.float64).eps

# method -> which second derivative it uses; all but the first four use the gradient.
NO_GRADIENT = ("Nelder-Mead", "Powell", "COBYLA", "COBYQA")
METHODS = {
    **dict.fromkeys(NO_GRADIENT),
    **dict.fromkeys((None, "CG", "BFGS", "L-BFGS-B", "TNC", "SLSQP")),
    **dict.fromkeys(("Newton-CG", "trust-ncg", "trust-krylov"), "hessp"),
    **dict.fromkeys(("dogleg", "trust-exact", "trust-constr"), "hess"),
}


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def valley(x, centre=2.0):
    """Convex, with its minimum 0 at x = centre."""
    y = x - centre
    return (y**2).sum() + (y**4).sum() + y.sum() ** 2


def blind(f):
    """f without its derivative: only a given one can lead to the minimum."""
    return lambda x, *args: f(x.detach(), *args)


class Seen:
    """What a SciPy solver was called with."""

    def __init__(self, monkeypatch, name):
        solver = getattr(scipy.optimize, name)

        def spy(f, x0, **options):
            self.f, self.x0, self.options = f, x0, options
            return solver(f, x0, **options)

        monkeypatch.setattr(scipy.optimize, name, spy)

    def __getitem__(self, name):
        return self.options.get(name)


def reaches(found, centre=2.0, atol=1e-4):
    np.testing.assert_allclose(found.x.numpy(), centre, atol=atol)
