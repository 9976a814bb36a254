"""Jacobians and Hessians in the form that SciPy's solvers take."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors
from ..arrays.tensor import Tensor
from ..transform.jacobian.jacobians import hessian, jacobian
from ..transform.modes.backward import no_grad
from .flat import FlatTree, array_of, host

MANY = 200  # unknowns; below, dense factorizations are as fast and more accurate
SPARSE = 0.2  # of the entries; a denser matrix is passed as dense


def plan_matrix(
    transform: Callable[..., Any], f: Callable[..., Any], sparse: bool, *start: Tensor
) -> Callable[..., Any]:
    """The planned matrix of f as an array, or as a CSR array where that is allowed and pays.

    start where the sparsity is determined
    """
    if sparse and start[0].size >= MANY:
        compressed = transform(f, format="csr")
        with no_grad():  # of the function's own parameters
            plan = compressed.plan(*start, measure=False)
        m, n = plan.shape
        if plan.pattern is not None and plan.pattern.nnz < SPARSE * m * n:
            return _without_recording(compressed, lambda found: found.astype(np.float64))
    return _without_recording(transform(f), host)


def _without_recording(
    derivative: Callable[..., Any], converted: Callable[..., Any]
) -> Callable[..., Any]:
    def at(*args: Tensor):
        with no_grad():
            return converted(derivative(*args))

    return at


def planned_jacobian(flat: FlatTree, f: Callable[..., Any], sparse: bool) -> Callable[..., Any]:
    """x ↦ the Jacobian of f, a function of the flat tensor."""
    at = plan_matrix(jacobian, f, sparse, flat.tensor(flat.x0))
    return lambda x: at(flat.tensor(x))


def planned_hessian(flat: FlatTree, f: Callable[..., Any], sparse: bool) -> Callable[..., Any]:
    """x ↦ the Hessian of f, a function of the flat tensor."""
    at = plan_matrix(hessian, f, sparse, flat.tensor(flat.x0))
    return lambda x: at(flat.tensor(x))


def given_jacobian(
    flat: FlatTree, jac: Callable[..., Any], args: tuple[Any, ...]
) -> Callable[..., Any]:
    """The user's own Jacobian, a function like the one it belongs to.

    It may return a matrix of any library, dense or sparse, a `LinearOperator`, or blocks in
    the form of the start, as `wf.jacobian` gives them.
    """
    return lambda x: jacobian_matrix(flat, jac(flat.argument(x), *args))


def given_hessian(
    flat: FlatTree, hess: Callable[..., Any], args: tuple[Any, ...]
) -> Callable[..., Any]:
    """The user's own Hessian: a matrix, or a tree of trees of blocks, as `wf.hessian` gives it."""

    def at(x: np.ndarray):
        found = hess(flat.argument(x), *args)
        rows = None if _is_matrix(found) or flat.structure.is_leaf() else flat.leaves_of(found)
        if rows is None:
            return jacobian_matrix(flat, found)
        return np.concatenate([jacobian_matrix(flat, row) for row in rows])

    return at


def jacobian_matrix(flat: FlatTree, found: Any) -> Any:
    """A user's Jacobian as a matrix with one column for each unknown."""
    if _is_matrix(found):
        return found
    alone = flat.structure.is_leaf()
    blocks = None if alone else flat.leaves_of(found)
    if blocks is None:
        array = array_of(found)
        if array.ndim == 2 and array.shape[1] == flat.size:
            return array
        if not alone:
            raise errors.ShapeError(
                f"{flat.what}: the given derivative has the shape {array.shape}; return a matrix "
                f"with {flat.size} columns, or blocks in the form of x0"
            )
        blocks = [array]
    return np.concatenate(
        [_columns(flat, array_of(b), s) for b, s in zip(blocks, flat.shapes, strict=True)], axis=1
    )


def _is_matrix(found) -> bool:
    """Whether this is one of SciPy's sparse matrices or linear operators."""
    from scipy.sparse import issparse
    from scipy.sparse.linalg import LinearOperator

    return issparse(found) or isinstance(found, LinearOperator)


def _columns(flat: FlatTree, block: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    lead = block.ndim - len(shape)
    if lead < 0 or block.shape[lead:] != shape:
        raise errors.ShapeError(
            f"{flat.what}: the given derivative has the shape {block.shape}, which does not end "
            f"in that of x0, {shape}; return results × unknowns, as wf.jacobian does"
        )
    return block.reshape(-1, int(np.prod(shape)))


def refuse_complex_steps(what: str, *schemes: Any) -> None:
    """Refuse SciPy's differences along imaginary steps: the function gets float64 only."""
    for scheme in schemes:
        if isinstance(scheme, str) and scheme == "cs":
            raise errors.ArgumentError(
                f"{what}: 'cs' would call the function with complex numbers; leave it out, the "
                "derivatives are exact"
            )
