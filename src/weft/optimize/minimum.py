"""`minimize`: SciPy's minimizers with gradients, Hessians and Hessian products from Weft."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors
from ..transform.modes.backward import no_grad
from ..transform.modes.functional import grad, value_and_grad
from ..transform.modes.linearize import linearize
from .constraints import NO_GRADIENT, bounds_of, constraints_of
from .flat import FlatTree, host, remember_last, split_pair
from .matrices import given_hessian, planned_hessian, refuse_complex_steps
from .report import callback_of, result_of

_PRODUCTS = {"newton-cg", "trust-ncg", "trust-krylov"}
_HESSIANS = {"dogleg", "trust-exact", "trust-constr"}
_OWN = "_own"  # a method that the user gives as a function: it gets all derivatives


def minimize(
    f: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    method: str | Callable[..., Any] | None = None,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    callback: Callable[..., Any] | None = None,
    tol: float | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """The minimum of f, a plain function of tensors that returns one number.

    f            a plain function of tensors that returns one number
    x0           the start: a tensor, numbers, or a tree of tensors (a dict of parameters)
    args         further arguments of f
    method       as in `scipy.optimize.minimize`: the gradient is handed over, and the Hessian
                 (sparse where it is and the method takes that) or its products where they serve
    jac          your own gradient, a function like f; True: f returns (value, gradient);
                 "2-point" or "3-point": SciPy's finite differences
    hess, hessp  your own Hessian, hess(x, *args), or product, hessp(x, v, *args); hess may be
                 one of SciPy's quasi-Newton updates, too
    bounds       as in SciPy, in flat order; for a tree, a (lower, upper) pair for each leaf
    constraints  as in SciPy; their functions are functions of tensors like f, and SciPy's
                 defaults for their derivatives are replaced by exact ones
    callback     with SciPy's signature; x comes in the form of x0
    tol          SciPy's tolerance; None: the method's own
    options      SciPy's options of the method

    f is computed in float64, on the devices of x0. Returns SciPy's result with `x` in the form,
    dtype and on the device of x0; its other arrays are NumPy's, flat. The solution is a constant:
    no gradient goes through it.

    >>> import weft as wf
    >>> start = {"centre": wf.zeros(2), "height": wf.tensor(1.0)}
    >>> def f(p):
    ...     return ((p["centre"] - 3.0) ** 2).sum() + (p["height"] + 1.0) ** 2
    >>> found = wf.optimize.minimize(f, start, method="trust-exact")
    >>> found.x["centre"].tolist(), found.x["height"].item()
    ([3.0, 3.0], -1.0)
    """
    from scipy.optimize import minimize as scipy_minimize

    flat, args = FlatTree("minimize", x0), args if isinstance(args, tuple) else (args,)
    name = _OWN if callable(method) else (method or "").lower()
    refuse_complex_steps("minimize", jac, hess)
    scalar = flat.scalar((lambda *a: split_pair("minimize", f(*a))[0]) if jac is True else f, args)
    with flat.alone(scalar):
        objective, slope = _objective(flat, f, args, jac, name)
        found = scipy_minimize(
            objective,
            flat.x0,
            method=method,
            jac=slope,
            **_second_order(flat, scalar, args, hess, hessp, name),
            bounds=bounds_of(flat, bounds),
            constraints=constraints_of(flat, constraints, name),
            callback=callback_of(flat, callback),
            tol=tol,
            options=options,
        )
    return result_of(flat, found)


def _objective(
    flat: FlatTree, f: Callable[..., Any], args: tuple[Any, ...], jac, name: str
) -> tuple[Callable, Any]:
    """What SciPy is to minimize, and what it is to take for the gradient."""
    scalar = flat.scalar(f, args)

    def value(x: np.ndarray) -> float:
        return float(scalar(flat.tensor(x)).item())

    def with_own(x: np.ndarray):
        y, slope = split_pair("minimize", f(flat.argument(x), *args))
        return float(flat.scalar(lambda _: y, ())(flat.tensor(x)).item()), _gradient(flat, slope)

    both = value_and_grad(scalar)

    def with_exact(x: np.ndarray):
        with no_grad():  # of the function's own parameters
            y, slope = both(flat.tensor(x))
        return float(y.item()), host(slope)

    exact = jac is None or jac is False
    objective, slope = remember_last(value), None if exact else jac
    if jac is True or (exact and name not in NO_GRADIENT):
        objective, slope = remember_last(with_own if jac is True else with_exact), True
    elif callable(jac):
        slope = _given_gradient(flat, jac, args)
    _refuse_bad_start(objective(flat.x0))
    return objective, slope


def _given_gradient(
    flat: FlatTree, jac: Callable[..., Any], args: tuple[Any, ...]
) -> Callable[..., Any]:
    return lambda x: _gradient(flat, jac(flat.argument(x), *args))


def _gradient(flat: FlatTree, given) -> np.ndarray:
    """The gradient that a user's function returned."""
    return flat.vector("the given gradient", given)


def _refuse_bad_start(at_start) -> None:
    value, slope = at_start if isinstance(at_start, tuple) else (at_start, np.zeros(1))
    if np.isnan(value):
        raise errors.ArgumentError(
            "minimize: the function is nan at x0; start where it is defined, or find the "
            "operation with wf.detect_anomaly()"
        )
    bad = np.flatnonzero(~np.isfinite(slope))
    if bad.size:
        raise errors.ArgumentError(
            f"minimize: the gradient at x0 is {slope[bad[0]]} at flat index {bad[0]}, the value "
            f"is {value}; start elsewhere, or find the operation with wf.detect_anomaly()"
        )


def _second_order(
    flat: FlatTree,
    scalar: Callable[..., Any],
    args: tuple[Any, ...],
    hess: Any,
    hessp: Any,
    name: str,
) -> dict:
    """The Hessian, or its products, as SciPy's arguments: the user's own, else what serves."""
    given: dict[str, Any] = {}
    if hess is not None:
        own: Any = hess
        strategy = isinstance(hess, str) or hasattr(hess, "initialize")
        given["hess"] = hess if strategy else given_hessian(flat, own, args)
    if hessp is not None:
        given["hessp"] = lambda x, v: flat.vector(
            "the given Hessian product", hessp(flat.argument(x), flat.argument(v), *args)
        )
    if given:
        return given
    if name in _HESSIANS or name == _OWN:
        given["hess"] = planned_hessian(flat, scalar, sparse=name == "trust-constr")
    if name in _PRODUCTS or name == _OWN:
        given["hessp"] = _products(flat, scalar)
    return given


def _products(flat: FlatTree, scalar: Callable[..., Any]) -> Callable[..., Any]:
    """(x, v) ↦ the Hessian times v; the gradient is traced once for all v at the same x."""
    slope = grad(scalar)
    push_at = remember_last(lambda x: linearize(slope, flat.tensor(x))[1])

    def product(x: np.ndarray, v: np.ndarray) -> np.ndarray:
        with no_grad():
            return host(push_at(x)(flat.tensor(v)))

    return product
