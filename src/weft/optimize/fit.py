"""`curve_fit`: fitting a function of tensors to data, with the parameters' covariance."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors
from ..arrays.make import asarray
from ..arrays.tensor import Tensor
from ..core import dtypes
from ..transform.modes import trees
from .constraints import box_of
from .flat import FlatTree, array_of, host, refuse_bad_start, tensor_of
from .matrices import given_jacobian, planned_jacobian, refuse_complex_steps


def curve_fit(
    f: Callable[..., Any],
    xdata: Any,
    ydata: Any,
    p0: Any,
    sigma: Any = None,
    absolute_sigma: bool = False,
    bounds: Any = (-np.inf, np.inf),
    method: str | None = None,
    jac: Any = None,
    **options: Any,
) -> Any:
    """The parameters with which f(x, *parameters) fits the data best, and their covariance.

    f               a plain function of tensors, f(xdata, p1, p2, …)
    xdata           a tensor of any shape, or a tree of tensors; f gets it in float64
    ydata           what f should give, of its result's shape
    p0              the start values, one for each parameter
    sigma           the data's standard deviations, or their covariance matrix
    absolute_sigma  whether sigma is meant absolutely, and not only in proportion
    bounds          (lower, upper), each a number or one number for each parameter
    method          "lm", "trf" or "dogbox"; "lm" unless there are bounds
    jac             your own ∂f/∂p, a function like f that gives data × parameters
    options         SciPy's further arguments: ftol, xtol, gtol, maxfev, loss, full_output, …

    The covariance is (JᵀJ)⁻¹ with the exact Jacobian at the solution, times the residuals'
    variance unless `absolute_sigma`. Returns (parameters, covariance) as float64 tensors, and
    what SciPy adds to them with `full_output=True`.

    >>> import weft as wf
    >>> x = wf.linspace(0.0, 1.0, 20, dtype="float64")
    >>> best, covariance = wf.optimize.curve_fit(
    ...     lambda x, a, k: a * wf.exp(-k * x), x, 2.0 * wf.exp(-3.0 * x), [1.0, 1.0]
    ... )
    >>> [round(v, 6) for v in best.tolist()]
    [2.0, 3.0]
    """
    from scipy.optimize import curve_fit as scipy_curve_fit

    flat = FlatTree("curve_fit", np.atleast_1d(array_of(p0)))
    refuse_complex_steps("curve_fit", jac)
    _refuse_omission(options)
    data = _Data(xdata, ydata, sigma)
    model = flat.function("curve_fit", data.bind(f), ())
    with flat.alone(model):
        predicted = host(model(flat.tensor(flat.x0)))
        data.refuse_other_size(predicted.size)
        refuse_bad_start("curve_fit", predicted)
        if callable(jac):
            slopes = given_jacobian(flat, data.bind(jac), ())
        else:
            slopes = planned_jacobian(flat, model, sparse=False)
        best, covariance, *rest = scipy_curve_fit(
            lambda _, *parameters: host(model(flat.tensor(parameters))),
            data,
            data.y,
            flat.x0,
            data.sigma,
            absolute_sigma,
            bounds=box_of(flat, bounds),
            method=method,
            jac=jac if isinstance(jac, str) else lambda _, *parameters: slopes(parameters),
            **options,
        )
    return (asarray(best), asarray(covariance), *rest)


class _Data:
    """The data: x as tensors for the function, y and its deviations as flat arrays."""

    def __init__(self, xdata, ydata, sigma):
        # As SciPy reads them: a list or a tuple of predictors is one array.
        x = tensor_of("curve_fit (xdata)", xdata) if isinstance(xdata, list | tuple) else xdata
        leaves, rebuild = trees.flatten(x)
        leaves = [tensor_of("curve_fit (xdata)", leaf).detach() for leaf in leaves]
        for leaf in leaves:
            _refuse_nonfinite("xdata", leaf)
        self.x = rebuild([_double(leaf) for leaf in leaves])
        self.device = leaves[0].device if leaves else "cpu"
        y = tensor_of("curve_fit (ydata)", ydata).detach()
        if dtypes.is_complex(y.dtype):
            raise errors.DTypeError(
                f"curve_fit: ydata is {y.dtype}; fit its real and imaginary parts"
            )
        _refuse_nonfinite("ydata", y)
        self.y = host(y).ravel()
        self.sigma = None if sigma is None else array_of(sigma)
        if self.sigma is not None and self.sigma.size == self.y.size:
            self.sigma = self.sigma.ravel()

    def bind(self, f: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
        """f at the data as a function of one tensor of parameters."""
        return lambda parameters: f(self.x, *parameters.to(self.device))

    def refuse_other_size(self, size: int) -> None:
        if size != self.y.size:
            raise errors.ShapeError(
                f"curve_fit: the function returned {size} values for {self.y.size} "
                "data; return one value for each element of ydata"
            )


def _double(x: Tensor) -> Tensor:
    """Floats in double precision; integers, which may be indices, as they are."""
    if not dtypes.is_inexact(x.dtype):
        return x
    return x.to(dtypes.complex128 if dtypes.is_complex(x.dtype) else dtypes.float64)


def _refuse_nonfinite(name: str, x: Tensor) -> None:
    values = x.to("cpu").numpy()
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise errors.ArgumentError(
            f"curve_fit: {name} is {values.ravel()[bad[0]]} at flat index {bad[0]} ({bad.size} "
            "such); leave these data out"
        )


def _refuse_omission(options: dict) -> None:
    for name in ("nan_policy", "check_finite"):
        if name in options:
            raise errors.ArgumentError(
                f"curve_fit: {name} is not taken, data must be finite; leave the others out: "
                "keep = wf.isfinite(y)"
            )
