"""The public names: functions gathered by name, and methods given to Tensor."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Never

from ..core import dtypes
from ..ops import complex_, structural
from . import (
    activations,
    augmented,
    dtype_functions,
    elementwise,
    fft,
    indexing,
    inplace,
    interchange,
    linalg,
    make,
    manipulation,
    numpy_calls,
    padding,
    random,
    reductions,
    selection,
    special,
    spellings,
)
from .arguments import axes_of, axis_of
from .indexing import At
from .keywords import checks_keywords, unexpected_keyword
from .tensor import Tensor

if TYPE_CHECKING:
    from .types import ArrayLike, Axes, DTypeLike


def _defined_in(module) -> dict:
    """The functions a module defines under names without an underscore."""
    return {
        name: value
        for name, value in vars(module).items()
        if callable(value)
        and not isinstance(value, type)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    }


def complex_number(re: ArrayLike, im: ArrayLike, /) -> Tensor:
    """The complex numbers re + i·im.

    re, im  real arrays or numbers, which broadcast

    >>> import weft as wf
    >>> wf.complex([1.0, 2.0], 3.0).tolist()
    [(1+3j), (2+3j)]
    """
    return complex_.complex_(make.asarray(re), make.asarray(im))


FUNCTIONS: dict[str, Callable[..., Any]] = {"complex": complex_number, "pad": padding.pad}
for _module in (manipulation, reductions, selection, activations, dtype_functions, elementwise):
    FUNCTIONS |= _defined_in(_module)
FUNCTIONS |= elementwise.FUNCTIONS
for _name in ("public", "set_default_dtype"):
    FUNCTIONS.pop(_name, None)
FUNCTIONS |= {n: getattr(random, n) for n in ("permutation", "rand", "randint", "randn")}
_LINALG = "cross dot einsum inner kron matmul outer tensordot trace vdot vecdot".split()
FUNCTIONS |= {n: getattr(linalg, n) for n in _LINALG}
_SPECIAL = "beta betaln digamma erf erfc erfinv gamma i0 i1 j0 j1 logit polygamma xlogy".split()
FUNCTIONS |= {n: getattr(special, n) for n in _SPECIAL}
FUNCTIONS |= {"lgamma": special.FUNCTIONS["gammaln"], "expit": special.FUNCTIONS["expit"]}
_MADE = """
    arange array asarray empty empty_like eye from_dlpack full full_like linspace ones ones_like
    tensor zeros zeros_like
""".split()
FUNCTIONS |= {n: getattr(make, n) for n in _MADE}
FUNCTIONS["__array_namespace_info__"] = dtype_functions.__array_namespace_info__


# NumPy's and PyTorch's ways to say the same, as methods

_AS_METHODS = """
    abs acos acosh all amax amin any argmax argmin argsort asin asinh atan atan2 atanh broadcast_to
    ceil chunk clamp clip clone conj cos cosh count_nonzero cross cummax cummin cumprod cumsum diag
    diagonal diff digamma div divide dot equal erf erfc erfinv exp exp2 expand_dims expm1 flatten
    flip floor floor_divide gather gelu greater greater_equal hypot index_add index_select isclose
    isfinite isinf isnan less less_equal lgamma log log10 log1p log2 log_softmax logaddexp
    logical_and logical_not logical_or logical_xor logit logsumexp matmul max maximum mean median
    min minimum moveaxis mul multiply neg nonzero norm not_equal outer permute_dims pow prod
    quantile reciprocal relu remainder repeat reshape roll round rsqrt scatter scatter_add sigmoid
    sign silu sin sinh softmax softplus sort split sqrt square squeeze std sub subtract sum swapaxes
    take tan tanh tile topk trace transpose tril triu trunc unstack var
""".split()


def _at(self) -> At:
    """`x.at[i].set(v)` and the like: changed copies."""
    return At(self)


def _transpose(self):
    """x with its axes reversed; `.mT` exchanges the last two."""
    return manipulation.permute_dims(self)


def _adjoint(self):
    """The conjugate of `.mT`."""
    return complex_.conj(manipulation.matrix_transpose(self))


@checks_keywords
def sum_dim(self: Tensor, axis: int, keepdims: bool = False) -> Tensor:
    """The sum Σ xᵢ along one axis.

    axis      the axis
    keepdims  whether it stays, with length 1

    >>> import weft as wf
    >>> wf.tensor([[1.0, 2.0], [3.0, 4.0]]).sum_dim(0).tolist()
    [4.0, 6.0]
    """
    return structural.sum_(self, (axis_of("sum_dim", self, axis),), keepdims)


def sum_method(
    self: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    dtype: DTypeLike | None = None,
    **unknown: Never,
) -> Tensor:
    if unknown:
        raise unexpected_keyword(sum_method, unknown)
    if dtype is not None:
        return reductions.sum(self, axis, dtype=dtype, keepdims=keepdims)
    return structural.sum_(self, axes_of("sum", self, axis), keepdims)


def mean_method(
    self: Tensor, axis: Axes = None, keepdims: bool = False, **unknown: Never
) -> Tensor:
    if unknown:
        raise unexpected_keyword(mean_method, unknown)
    return reductions.mean(self, axis, keepdims=keepdims)


# They differ from the functions in that keepdims may be given by position.
sum_method.__doc__, mean_method.__doc__ = reductions.sum.__doc__, reductions.mean.__doc__

# By the method's name: how it is written, and what it makes of [6.0, 8.0] and 2.
_ARITHMETIC = {
    "add": ("+", "[8.0, 10.0]"),
    "sub": ("−", "[4.0, 6.0]"),
    "mul": ("·", "[12.0, 16.0]"),
    "div": ("/", "[3.0, 4.0]"),
}
_SCALAR_DOC = """x {} value.

value  a number

>>> import weft as wf
>>> wf.tensor([6.0, 8.0]).{}_scalar(2.0).tolist()
{}
"""
_INTO_DOC = """x {} other, written into the memory of a tensor, which is returned.

other   an array or a number
buffer  a tensor of the result's shape and dtype, which no gradient depends on

>>> import weft as wf
>>> buffer = wf.zeros(2)
>>> wf.tensor([6.0, 8.0]).{}_into(wf.tensor(2.0), buffer) is buffer, buffer.tolist()
(True, {})
"""


def _into(name: str):
    op = elementwise.FUNCTIONS[name].op

    def method(self, other, buffer):
        return inplace.into(op, (self, other), buffer)

    return method


def array_namespace(self: Tensor, /, *, api_version: str | None = None) -> Any:
    """The namespace this tensor's functions live in: `weft`."""
    import weft

    return weft


METHODS: dict[str, Any] = {name: FUNCTIONS[name] for name in _AS_METHODS}
METHODS |= {
    "__getitem__": indexing.getitem,
    "__setitem__": indexing.setitem,
    "__array_namespace__": array_namespace,
    "T": property(_transpose),
    "imag": property(elementwise.FUNCTIONS["imag"]),
    "real": property(elementwise.FUNCTIONS["real"]),
    "mT": property(manipulation.matrix_transpose),
    "mH": property(_adjoint),
    "add": elementwise.FUNCTIONS["add"],
    "add_at_index": indexing.add_at_index,
    "add_scalar": lambda self, value: self + value,
    "add_into": _into("add"),
    "astype": dtype_functions.astype,
    "at": property(_at),
    "copy_": inplace.copy_,
    "div_into": _into("divide"),
    "div_scalar": lambda self, value: self / value,
    "from_array": staticmethod(make.tensor),
    "from_scalar": staticmethod(make.scalar),
    "from_vec": staticmethod(make.from_vec),
    "mean": mean_method,
    "ones": staticmethod(make.ones),
    "randn": staticmethod(random.randn),
    "zeros": staticmethod(make.zeros),
    "mul_into": _into("multiply"),
    "mul_scalar": lambda self, value: self * value,
    "permute": manipulation.permute_dims,
    "scalar": staticmethod(make.scalar),
    "sub_at_index": indexing.sub_at_index,
    "sub_into": _into("subtract"),
    "sub_scalar": lambda self, value: self - value,
    "sum": sum_method,
    "sum_dim": sum_dim,
    "view": manipulation.reshape,
}
for _name, (_symbol, _result) in _ARITHMETIC.items():
    METHODS[f"{_name}_scalar"].__doc__ = _SCALAR_DOC.format(_symbol, _name, _result)
    METHODS[f"{_name}_into"].__doc__ = _INTO_DOC.format(_symbol, _name, _result)
METHODS |= interchange.PROTOCOLS | augmented.METHODS


def give_methods() -> None:
    """Set the methods on Tensor."""
    for name, method in METHODS.items():
        setattr(Tensor, name, method)
        if getattr(method, "__name__", name) in ("<lambda>", "method", f"{name}_method"):
            method.__name__ = method.__qualname__ = name  # the name in Python's own errors
    Tensor.__getattr__ = spellings.attribute  # type: ignore[attr-defined]


numpy_calls.FUNCTIONS.update(FUNCTIONS)
numpy_calls.FUNCTIONS.update({f"linalg.{n}": getattr(linalg, n) for n in linalg.__all__})
numpy_calls.FUNCTIONS.update({f"fft.{n}": f for n, f in vars(fft).items() if callable(f)})

CONSTANTS: dict[str, Any] = {
    "bool": dtypes.bool_,
    "newaxis": None,
    "canonical_dtype": dtypes.canonical,
}
MODULES: dict[str, ModuleType] = {
    "linalg": linalg,
    "fft": fft,
    "special": special,
    "random": random,
}
