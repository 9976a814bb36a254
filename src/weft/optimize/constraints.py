"""Constraints and bounds on trees of tensors, as SciPy takes them."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors
from ..arrays.make import asarray
from ..transform.jacobian.jacobians import hessian
from .flat import FlatTree, array_of, host
from .matrices import (
    given_hessian,
    given_jacobian,
    plan_matrix,
    planned_jacobian,
    refuse_complex_steps,
)

NO_GRADIENT = ("nelder-mead", "powell", "cobyla", "cobyqa")


def constraints_of(flat: FlatTree, given: Any, method: str) -> Any:
    """Constraints on the objective's arguments, with exact derivatives."""
    from scipy.optimize import LinearConstraint, NonlinearConstraint

    if given is None:
        return ()
    kinds = dict | NonlinearConstraint | LinearConstraint
    return [_constraint(flat, c, method) for c in ([given] if isinstance(given, kinds) else given)]


def _constraint(flat: FlatTree, c, method: str):
    from scipy.optimize import NonlinearConstraint

    if isinstance(c, dict):
        return _of_dict(flat, c, method)
    if not isinstance(c, NonlinearConstraint):
        return c  # linear ones have no function
    # SciPy's defaults, "2-point" and BFGS, cannot be distinguished from the user's choice: both
    # are replaced by exact derivatives.
    jac = None if isinstance(c.jac, str) and c.jac == "2-point" else c.jac
    return _nonlinear(flat, c, _function(flat, c.fun, ()), jac, (), method)


def _function(flat: FlatTree, f: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    values = flat.function("minimize (constraint)", f, args)
    with flat.alone(values):
        return values


def _of_dict(flat: FlatTree, c: dict, method: str):
    from scipy.optimize import NonlinearConstraint

    kind = str(c.get("type")).lower()
    if kind not in ("eq", "ineq") or "fun" not in c:
        raise errors.ArgumentError(
            f"minimize: a constraint with {', '.join(map(repr, c)) or 'nothing'}; it needs "
            "'type' ('eq' or 'ineq') and 'fun', and may have 'jac' and 'args'"
        )
    args = tuple(c.get("args", ()))
    f, jac = _function(flat, c["fun"], args), c.get("jac")
    if method == "trust-constr":
        upper = 0.0 if kind == "eq" else np.inf
        whole = NonlinearConstraint(c["fun"], 0.0, upper)
        return _nonlinear(flat, whole, f, jac, args, method)
    made = {"type": kind, "fun": lambda x: host(f(flat.tensor(x)))}
    slopes = _slopes(flat, f, jac, args, method)
    return made if slopes is None else made | {"jac": slopes}


def _nonlinear(flat: FlatTree, c, f: Callable[..., Any], jac, args: tuple[Any, ...], method: str):
    from scipy.optimize import BFGS, NonlinearConstraint

    hess = c.hess
    refuse_complex_steps("minimize (constraint)", hess)
    if method == "trust-constr" and type(hess) is BFGS and not callable(jac):
        hess = _curvature(flat, f)
    elif callable(hess):
        hess = _given_curvature(flat, hess)
    slopes = _slopes(flat, f, jac, args, method)
    constraint: Any = NonlinearConstraint  # whose types know names of methods only
    return constraint(
        lambda x: host(f(flat.tensor(x))),
        c.lb,
        c.ub,
        jac="2-point" if slopes is None else slopes,
        hess=hess,
        keep_feasible=c.keep_feasible,
        finite_diff_rel_step=c.finite_diff_rel_step,
        finite_diff_jac_sparsity=c.finite_diff_jac_sparsity,
    )


def _slopes(flat: FlatTree, f: Callable[..., Any], jac, args: tuple[Any, ...], method: str):
    """The Jacobian of a constraint; None where the method uses none."""
    refuse_complex_steps("minimize (constraint)", jac)
    if callable(jac):
        return given_jacobian(flat, jac, args)
    if jac is not None:
        return jac
    sparse = method == "trust-constr"
    return None if method in NO_GRADIENT else planned_jacobian(flat, f, sparse)


def _curvature(flat: FlatTree, f: Callable[..., Any]) -> Callable[..., Any]:
    """(x, v) ↦ the Hessian of Σ vᵢ fᵢ(x), which trust-constr adds to the objective's."""
    start = flat.tensor(flat.x0)
    multipliers = flat.tensor(np.ones(f(start).shape))
    at = plan_matrix(hessian, lambda x, v: (f(x) * v).sum(), True, start, multipliers)
    return lambda x, v: at(flat.tensor(x), flat.tensor(v))


def _given_curvature(flat: FlatTree, hess: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, v: given_hessian(flat, hess, (asarray(np.array(v)),))(x)


def bounds_of(flat: FlatTree, given: Any) -> Any:
    """The bounds of `minimize`: SciPy's forms, or a (lower, upper) pair for each leaf of x0."""
    from scipy.optimize import Bounds

    bounds: Any = Bounds  # whose types know numbers only
    if given is None:
        return None
    if isinstance(given, Bounds):
        lower, upper = (flat.vector("bounds", end, True) for end in (given.lb, given.ub))
        return bounds(lower, upper, flat.vector("bounds", given.keep_feasible, True) > 0)
    pairs = None if flat.structure.is_leaf() else flat.leaves_of(given)
    if pairs is None:
        pairs = list(given)
        if len(pairs) != flat.size or any(len(p) != 2 for p in pairs):
            raise errors.ShapeError(
                f"minimize: {len(pairs)} bounds for {flat.size} unknowns; give each unknown a "
                "pair (lower, upper), or scipy.optimize.Bounds(lower, upper)"
            )
        return bounds(_ends(pairs, [()] * flat.size, 0), _ends(pairs, [()] * flat.size, 1))
    return bounds(_ends(pairs, flat.shapes, 0), _ends(pairs, flat.shapes, 1))


def _ends(pairs: list, shapes: list, side: int) -> np.ndarray:
    """The lower (side 0) or upper bounds of all elements; None means that there is none."""
    found = []
    for pair, shape in zip(pairs, shapes, strict=True):
        end = (-np.inf, np.inf)[side] if pair is None or pair[side] is None else pair[side]
        found.append(np.broadcast_to(array_of(end), shape).ravel())
    return np.concatenate(found)


def box_of(flat: FlatTree, given: Any) -> Any:
    """The bounds of `least_squares`: (lower, upper), each a number or in the form of x0."""
    from scipy.optimize import Bounds

    lower, upper = (given.lb, given.ub) if isinstance(given, Bounds) else given
    return flat.vector("bounds", lower, True), flat.vector("bounds", upper, True)
