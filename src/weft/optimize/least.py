"""`least_squares` and `root`: SciPy's solvers of equations with planned Jacobians from Weft."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors
from .constraints import box_of
from .flat import FlatTree, host, refuse_bad_start, remember_last, split_pair
from .matrices import given_jacobian, planned_jacobian, refuse_complex_steps
from .report import callback_of, result_of

_WITH_JACOBIAN = ("hybr", "lm")  # of the methods of `root`


def least_squares(
    f: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    method: str = "trf",
    jac: Any = None,
    bounds: Any = (-np.inf, np.inf),
    x_scale: Any = None,
    callback: Callable[..., Any] | None = None,
    **options: Any,
) -> Any:
    """The minimum of ½ Σ ρ(fᵢ(x)²) for a plain function of tensors.

    f         a plain function of tensors: the residuals fᵢ, of any number and shape
    x0        the start: a tensor, numbers, or a tree of tensors (a dict of parameters)
    args      further arguments of f
    method    "trf", "dogbox" or "lm", as in `scipy.optimize.least_squares`
    jac       your own Jacobian, a function like f; "2-point" or "3-point": finite differences
    bounds    (lower, upper), each a number or in the form of x0
    x_scale   a number, in the form of x0, or "jac"
    callback  with SciPy's signature; x comes in the form of x0
    options   SciPy's further arguments: loss, f_scale, ftol, xtol, gtol, max_nfev, tr_solver, …

    The Jacobian is planned; "trf" and "dogbox" get it as a sparse matrix where there are many
    unknowns and few nonzeros. f is computed in float64, on the devices of x0. Returns SciPy's
    result with `x` in the form, dtype and on the device of x0; its other arrays are NumPy's,
    flat. The solution is a constant: no gradient goes through it.

    >>> import weft as wf
    >>> found = wf.optimize.least_squares(lambda x: wf.stack([x[1] - x[0]**2, 1 - x[0]]), [2, 2])
    >>> [round(v, 6) for v in found.x.tolist()]
    [1.0, 1.0]
    """
    from scipy.optimize import least_squares as scipy_least_squares

    flat, args = FlatTree("least_squares", x0), args if isinstance(args, tuple) else (args,)
    refuse_complex_steps("least_squares", jac)
    residuals = flat.function("least_squares", f, args)
    with flat.alone(residuals):
        values = remember_last(lambda x: host(residuals(flat.tensor(x))))
        refuse_bad_start("least_squares", values(flat.x0))
        if jac is None:
            sparse = method != "lm" and options.get("tr_solver") != "exact"
            jac = planned_jacobian(flat, residuals, sparse)
        elif callable(jac):
            jac = given_jacobian(flat, jac, args)
        if x_scale is not None:
            options["x_scale"] = (
                "jac" if _is_jac(x_scale) else flat.vector("x_scale", x_scale, True)
            )
        if callback is not None:
            options["callback"] = callback_of(flat, callback)
        found = scipy_least_squares(
            lambda x: values(x).copy(),  # SciPy scales it in place
            flat.x0,
            jac=jac,
            bounds=box_of(flat, bounds),
            method=method,
            **options,
        )
    return result_of(flat, found)


def _is_jac(x_scale) -> bool:
    return isinstance(x_scale, str) and x_scale == "jac"


def root(
    f: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    method: str = "hybr",
    jac: Any = None,
    tol: float | None = None,
    callback: Callable[..., Any] | None = None,
    options: dict[str, Any] | None = None,
) -> Any:
    """A zero of f, a plain function of tensors with as many results as unknowns.

    f         a plain function of tensors with as many results as unknowns
    x0        the start: a tensor, numbers, or a tree of tensors
    args      further arguments of f
    method    as in `scipy.optimize.root`; "hybr" and "lm" get the planned Jacobian, the others
              use none
    jac       your own Jacobian, a function like f; True: f returns (value, Jacobian)
    tol       SciPy's tolerance; None: the method's own
    callback  with SciPy's signature; x comes in the form of x0
    options   SciPy's options of the method

    f is computed in float64, on the devices of x0. Returns SciPy's result with `x` in the form,
    dtype and on the device of x0.

    >>> import weft as wf
    >>> round(wf.optimize.root(lambda x: wf.cos(x) - x, 1.0).x.item(), 6)
    0.739085
    """
    from scipy.optimize import root as scipy_root

    flat, args = FlatTree("root", x0), args if isinstance(args, tuple) else (args,)
    _refuse_transposed(options)
    value = (lambda *a: split_pair("root", f(*a))[0]) if jac is True else f
    residuals = flat.function("root", value, args)
    with flat.alone(residuals):
        values = remember_last(lambda x: host(residuals(flat.tensor(x))))
        refuse_bad_start("root", values(flat.x0))
        _refuse_other_size(flat.size, values(flat.x0).size, method)
        if jac is True:
            slopes: Any = given_jacobian(flat, lambda *a: f(*a)[1], args)
        elif jac is None or jac is False:
            with_jacobian = method.lower() in _WITH_JACOBIAN
            slopes = planned_jacobian(flat, residuals, sparse=False) if with_jacobian else None
        else:
            slopes = given_jacobian(flat, jac, args)
        found = scipy_root(
            lambda x: values(x).copy(),
            flat.x0,
            method=method,
            jac=slopes,
            tol=tol,
            callback=callback_of(flat, callback),
            options=options,
        )
    return result_of(flat, found)


def _refuse_transposed(options: dict[str, Any] | None) -> None:
    if options and options.get("col_deriv"):
        raise errors.ArgumentError(
            "root: col_deriv asks for a transposed Jacobian; leave it out, Weft's has a row for "
            "each result"
        )


def _refuse_other_size(n: int, m: int, method: str) -> None:
    if m != n and method.lower() != "lm":
        raise errors.ShapeError(
            f"root: {m} results for {n} unknowns; they must be as many, or use "
            "wf.optimize.least_squares"
        )
