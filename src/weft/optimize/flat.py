"""Trees of tensors as the flat vectors that SciPy works on."""

from collections.abc import Callable
from math import prod
from numbers import Real
from typing import Any

import numpy as np

from .. import errors
from ..arrays.make import asarray
from ..arrays.manipulation import concat, reshape
from ..arrays.tensor import Tensor
from ..core import dtypes
from ..core.settings import current, override_settings
from ..core.value import GROUND
from ..transform.modes import trees


class FlatTree:
    """The structure of a start value: from a flat float64 vector to the tree and back.

    SciPy computes in float64 in host memory. The function too is evaluated in float64, since
    SciPy's tolerances are below float32's resolution, but on the devices of the start. The result
    has the devices and dtypes of the start.
    """

    def __init__(self, what: str, x0: Any):
        import optree

        self.what = what
        self.enclosed: bool = current.get().enclosed or bool(current.get().levels)
        given: Any = asarray(x0, dtype=dtypes.float64) if _is_numbers(x0) else x0
        leaves, structure = optree.tree_flatten(given)
        self.structure: Any = structure
        leaves = [_start(what, x) for x in leaves]
        self.shapes: list[tuple[int, ...]] = [x.shape for x in leaves]
        self.sizes: list[int] = [prod(s) for s in self.shapes]
        self.dtypes: list[np.dtype[Any]] = [x.dtype for x in leaves]
        self.devices: list[str] = [x.device for x in leaves]
        self.size: int = sum(self.sizes)
        if not self.size:
            raise errors.ArgumentError(f"{what}: x0 holds no number; give a start value")
        self.x0: np.ndarray[Any, Any] = np.concatenate([host(x).ravel() for x in leaves])
        _refuse_nonfinite(what, self.x0)

    def cut(self, vector: Any) -> list[Any]:
        """A flat vector (array or tensor) split into the parts of the leaves."""
        ends = np.cumsum(self.sizes).tolist()
        return [vector[e - s : e] for e, s in zip(ends, self.sizes, strict=True)]

    def tensor(self, x: Any) -> Tensor:
        """A flat tensor from SciPy's vector, which SciPy may overwrite later."""
        return asarray(np.array(x, np.float64).ravel())

    def tree(self, vector: Tensor) -> Any:
        """The function's argument, made of a flat tensor (differentiably)."""
        pieces = zip(self.cut(vector), self.shapes, self.devices, strict=True)
        return self.structure.unflatten(
            [reshape(x, shape).to(device) for x, shape, device in pieces]
        )

    def argument(self, x: np.ndarray) -> Any:
        """The function's argument in float64, made of SciPy's vector."""
        return self.tree(self.tensor(x))

    def result(self, x: np.ndarray) -> Any:
        """SciPy's vector in the form, the dtypes and on the devices of the start value."""
        pieces = zip(self.cut(np.array(x)), self.shapes, self.dtypes, self.devices, strict=True)
        return self.structure.unflatten(
            [asarray(v.reshape(s), dtype=dtype, device=device) for v, s, dtype, device in pieces]
        )

    def leaves_of(self, tree: Any) -> list[Any] | None:
        """The leaves of a tree with the start's structure; None if the structure differs."""
        try:
            return self.structure.flatten_up_to(tree)
        except (ValueError, TypeError):
            return None

    def vector(self, name: str, value: Any, spread: bool = False) -> np.ndarray[Any, Any]:
        """A flat vector of a value in the form of the start, or flat already.

        spread  whether a number stands for many equal ones, as NumPy broadcasts
        """
        leaves = self.leaves_of(value)
        if leaves is None or self.structure.is_leaf():
            array = self._array(name, value)
            if array.shape == (self.size,):
                return array
            if leaves is None and not (spread and array.size == 1):
                raise errors.ShapeError(
                    f"{self.what}: {name} has the shape {array.shape}, expected {self.size} "
                    "numbers, or the structure of x0"
                )
            leaves = [array] * len(self.shapes)
        pieces = [array_of(x) for x in leaves]
        for piece, shape in zip(pieces, self.shapes, strict=True):
            self._refuse_shape(name, piece, shape, spread)
        pairs = zip(pieces, self.shapes, strict=True)
        return np.concatenate([np.broadcast_to(_number(x), s).ravel() for x, s in pairs])

    def _array(self, name: str, value) -> np.ndarray:
        import optree

        if not _is_numbers(value) and not optree.tree_is_leaf(value):
            raise errors.ArgumentError(
                f"{self.what}: {name} has another structure than x0; give {self.size} numbers, or "
                "the structure of x0"
            )
        return array_of(value)

    def _refuse_shape(
        self, name: str, piece: np.ndarray, shape: tuple[int, ...], spread: bool
    ) -> None:
        came = _number(piece).shape
        ends = zip(came[::-1], shape[::-1], strict=False)
        fits = len(came) <= len(shape) and all(a in (1, b) for a, b in ends)
        if not fits or not (spread or came == _number(np.empty(shape)).shape):
            raise errors.ShapeError(
                f"{self.what}: {name} has the shape {piece.shape}, expected that of x0, {shape}"
                + (", or one number for all" if spread else "")
            )

    def alone(self, *functions: Callable[..., Any]) -> Any:
        """A block that refuses values of transformations around the solver.

        SciPy's solution is a constant: if the functions depended on values differentiated or
        batched outside, the result would silently lose that dependence.
        """
        results = [f(self.tensor(self.x0)) for f in functions] if self.enclosed else []
        if any(y.__class__ not in GROUND or y.requires_grad for y in results):
            raise errors.NotDifferentiable(
                f"{self.what}: the function depends on what a transformation around it "
                "differentiates or batches, and SciPy computes with numbers; detach it, or solve "
                "outside"
            )
        return override_settings(levels=())

    def function(
        self, what: str, f: Callable[..., Any], args: tuple[Any, ...]
    ) -> Callable[[Tensor], Tensor]:
        """f as a function of the flat tensor, its results flattened into one in host memory."""

        def flat(vector: Tensor) -> Tensor:
            outputs = _outputs(what, f(self.tree(vector), *args))
            _refuse_complex_results(what, outputs)
            parts = [reshape(y, (-1,)).to("cpu") for y in outputs]
            if not parts:
                raise errors.ArgumentError(f"{what}: the function returned an empty structure")
            return parts[0] if len(parts) == 1 else concat(parts)

        return flat

    def scalar(self, f: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[Tensor], Tensor]:
        """f as a function of the flat tensor that gives one number."""

        def flat(vector: Tensor) -> Tensor:
            outputs = _outputs(self.what, f(self.tree(vector), *args))
            if len(outputs) != 1 or outputs[0].size != 1:
                raise errors.NonScalarBackward(
                    f"{self.what}: the function must return one number, it returned "
                    f"{', '.join(str(y.shape) for y in outputs)}; reduce it (.sum()), or use "
                    "wf.optimize.least_squares"
                )
            _refuse_complex_results(self.what, outputs)
            return reshape(outputs[0], ()).to("cpu")

        return flat


def _is_numbers(x0) -> bool:
    """Whether x0 is a number, or nested lists and tuples of numbers: one float64 tensor."""
    if type(x0) in (list, tuple):
        return all(_is_numbers(x) for x in x0)
    return isinstance(x0, Real) and not isinstance(x0, bool)


def _start(what: str, leaf) -> Tensor:
    """A leaf of the start as a tensor of real numbers, without its history."""
    x = tensor_of(what, leaf)
    if x.__class__ not in GROUND:
        raise errors.NotDifferentiable(
            f"{what}: x0 is being differentiated or batched from outside, and SciPy computes with "
            "numbers; solve outside of the transformation"
        )
    if dtypes.is_complex(x.dtype):
        raise errors.DTypeError(
            f"{what}: x0 is {x.dtype}; make its real and imaginary parts the unknowns, and "
            "combine them in the function: wf.complex(re, im)"
        )
    if not dtypes.is_inexact(x.dtype):
        raise errors.DTypeError(
            f"{what}: x0 is {x.dtype}, and unknowns vary continuously; start from "
            "x0.to('float64'), or from Python numbers"
        )
    return x.detach()


def _refuse_nonfinite(what: str, x0: np.ndarray) -> None:
    bad = np.flatnonzero(~np.isfinite(x0))
    if bad.size:
        raise errors.ArgumentError(
            f"{what}: x0 is {x0[bad[0]]} at flat index {bad[0]} ({bad.size} such of {x0.size}); "
            "start from finite numbers"
        )


def _outputs(what: str, result) -> list[Tensor]:
    trees.refuse_none(what, result)
    return trees.tensors(what, result)[0]


def _refuse_complex_results(what: str, outputs) -> None:
    for y in outputs:
        if dtypes.is_complex(y.dtype):
            raise errors.DTypeError(
                f"{what}: the function returned {y.dtype}; return real numbers, such as the real "
                "and the imaginary part: (y.real, y.imag)"
            )


def refuse_bad_start(what: str, values: np.ndarray) -> None:
    """Refuse nonfinite results at the start."""
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        raise errors.ArgumentError(
            f"{what}: result {bad[0]} of {values.size} is {values[bad[0]]} at the start; start "
            "where the function is defined, or find the operation with wf.detect_anomaly()"
        )


def tensor_of(what: str, x: Any) -> Tensor:
    """Numbers as a float64 tensor, whatever the default float is; arrays and tensors as such."""
    return asarray(x, dtype=dtypes.float64) if _is_numbers(x) else trees.tensor(what, x)


def host(x: Tensor) -> np.ndarray[Any, Any]:
    """A result as a new float64 array in host memory, since SciPy works in place."""
    return np.array(x.detach().to("cpu").numpy(), np.float64)


def _number(x: np.ndarray) -> np.ndarray:
    """A one-element array as 0-d, since SciPy turns numbers into such arrays."""
    return x.reshape(()) if x.size == 1 else x


def array_of(x: Any) -> np.ndarray[Any, Any]:
    """Numbers of any kind as float64 in host memory."""
    return host(asarray(x, dtype=dtypes.float64))


def split_pair(what: str, result: Any) -> tuple[Any, ...]:
    """The (value, derivative) that a function returns with jac=True."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise errors.ArgumentError(
            f"{what}: with jac=True the function returns (value, derivative)"
        )
    return result


def remember_last(f: Callable[..., Any]) -> Callable[..., Any]:
    """f of SciPy's vector, with the result of the last call cached."""
    last: list = []

    def at(x: np.ndarray):
        if not last or not np.array_equal(last[0], x):
            last[:] = [np.array(x), f(x)]
        return last[1]

    return at
