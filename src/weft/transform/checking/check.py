"""Checking the derivatives of functions against finite differences."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import errors
from ...arrays.make import asarray
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.record import field, record
from .differences import CheckProblem, Comparison, problem_of
from .ridders import Estimate

MODES = {"fwd": "forward mode", "rev": "reverse mode"}


def check_grads(
    f: Callable[..., Any], args: Any, order: int = 2, modes: Sequence[str] = ("fwd", "rev")
) -> None:
    """Check f's derivatives up to an order, in forward and reverse mode, element by element.

    f      a function of trees of tensors
    args   a tuple of arguments (anything else is the only one): trees of tensors. Those in
           floating point are differentiated by, and taken in float64; the others stay
    order  2 checks the derivatives of the derivatives too, each mode over each
    modes  "fwd", "rev" or both

    The yardstick is extrapolated central differences with their own estimate of their error;
    there is no tolerance to choose. Raises `errors.GradientCheckError` with the worst element
    if a derivative is wrong, or if differences cannot tell (at a kink or a pole).

    >>> import weft as wf
    >>> wf.check_grads(lambda x: wf.sin(x) * x, (wf.tensor([0.5, 1.0]),))
    >>> wf.check_grads(lambda x: x.detach() * x, (wf.tensor([0.5, 1.0]),))
    Traceback (most recent call last):
    ...
    weft.errors.GradientCheckError: check_grads: forward mode: argument 0[1] → result 0[1]: ...
    """
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    if not modes or not set(modes) <= set(MODES) or order < 1:
        raise errors.ArgumentError(
            f"check_grads: order={order}, modes={modes}, expected an order from 1 on and modes "
            "among 'fwd' and 'rev'"
        )
    args = args if isinstance(args, tuple) else (args,)
    with np.errstate(all="ignore"):  # differences step out of domains
        _check(problem_of("check_grads", f, args), order, modes, ())


def _check(
    problem: CheckProblem, order: int, modes: tuple[str, ...], path: tuple[str, ...]
) -> None:
    estimate = problem.estimate()
    for mode in modes:
        compare_mode(problem, estimate, mode, path)
    if order > 1:
        for mode in modes:
            _check(problem.derivative_problem(mode), order - 1, modes, (mode, *path))


def compare_mode(
    problem: CheckProblem, estimate: Estimate, mode: str, path: tuple[str, ...] = ()
) -> Comparison:
    """Compare a mode's Jacobian with the differences; raises where they disagree."""
    compared = problem.compare(mode, estimate)
    if not compared.holds:
        way = " over ".join(MODES[m] for m in (mode, *path))
        raise _contradiction(problem, compared, way)
    return compared


def _contradiction(problem: CheckProblem, compared: Comparison, way: str):
    i, j = at = compared.worst
    k, out_index, out_part = problem.range.place(i)
    n, index, part = problem.domain.place(j)
    analytical, numerical = compared.analytical[at], compared.numerical[at]
    element = f"{problem.names[n]}{_index_text(index)}{part}"
    where = f"{element} → result {k}{_index_text(out_index)}{out_part}"
    numbers = f"analytical {analytical:.9g}, numerical {numerical:.9g} ± {compared.allowed[at]:.1e}"
    if compared.resolved:
        wrong = int(compared.wrong.sum())
        tail = f"error {compared.error[at]:.3g} ({wrong} of {compared.wrong.size} elements wrong)"
    else:
        tail = "which is too vague to tell: a kink, a pole or noise; check at another point"
    error = errors.GradientCheckError(f"{problem.what}: {way}: {where}: {numbers}, {tail}")
    error.argument, error.index = problem.names[n], index
    error.analytical, error.numerical = float(analytical), float(numerical)
    error.error = float(compared.error[at])
    return error


def _index_text(index: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, index))}]" if index else ""


@record
class ValidationResult:
    """A gradient beside finite differences, of shape results' + argument's shape.

    is_valid     every element agrees, within the error of the differences as it was estimated
    max_error    the largest difference; `mean_error` the average, `worst_index` its place
    analytical   what differentiation gives, `numerical` what differences give
    tolerance    how far apart the two may be, for each element
    is_resolved  whether the differences are sharp enough to tell at all
    """

    is_valid: bool
    max_error: float
    mean_error: float
    worst_index: tuple[int, ...]
    analytical: Tensor = field(repr=False)
    numerical: Tensor = field(repr=False)
    tolerance: Tensor = field(repr=False)
    is_resolved: bool

    def __bool__(self) -> bool:
        return self.is_valid


class NumericalChecker:
    """Compares the gradient of a function of one tensor with finite differences, in float64.

    >>> import weft as wf
    >>> result = wf.NumericalChecker().check_gradient_central(lambda x: x**3, wf.ones(5))
    >>> result.is_valid, result.worst_index, result.max_error < 1e-9
    (True, (0, 0), True)
    """

    def check_gradient_central(self, f: Callable[..., Any], x: Any) -> ValidationResult:
        """∂f/∂x by reverse mode beside central differences.

        f  a function of one tensor
        x  where it is checked

        >>> import weft as wf
        >>> wf.NumericalChecker().check_gradient_central(wf.sin, wf.tensor([0.5, 1.0])).is_valid
        True
        """
        return _validate("check_gradient_central", f, x, one_sided=False)

    def check_gradient_forward(self, f: Callable[..., Any], x: Any) -> ValidationResult:
        """∂f/∂x by reverse mode beside differences between x and x + h: at a domain's edge.

        f  a function of one tensor
        x  where it is checked

        >>> import weft as wf
        >>> wf.NumericalChecker().check_gradient_forward(wf.sin, wf.tensor([0.5, 1.0])).is_valid
        True
        """
        return _validate("check_gradient_forward", f, x, one_sided=True)


def _validate(what: str, f: Callable[..., Any], x, one_sided: bool) -> ValidationResult:
    with np.errstate(all="ignore"):
        problem = problem_of(what, f, (x,), one_sided)
        if len(problem.domain.avals) != 1 or len(problem.range.avals) != 1:
            raise errors.ArgumentError(
                f"{what}: expected a function of one tensor to one tensor; wf.check_grads takes "
                "others"
            )
        (y,) = problem.range.avals
        if dtypes.is_complex(y.dtype):
            raise errors.DTypeError(f"{what}: the result is complex; wf.check_grads takes that")
        compared = problem.compare("rev", problem.estimate())
        analytical, numerical, tolerance = (
            problem.domain.unflatten(part.reshape((*y.shape, problem.domain.size)))
            for part in (compared.analytical, compared.numerical, compared.allowed)
        )
        error = np.nan_to_num(np.abs(analytical - numerical), nan=np.inf)
    worst = np.unravel_index(error.argmax(), error.shape) if error.size else ()
    return ValidationResult(
        is_valid=compared.holds,
        max_error=float(error.max(initial=0.0)),
        mean_error=float(error.mean()) if error.size else 0.0,
        worst_index=tuple(map(int, worst)),
        analytical=asarray(analytical),
        numerical=asarray(numerical),
        tolerance=asarray(tolerance),
        is_resolved=compared.resolved,
    )
