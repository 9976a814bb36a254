"""NumPy's functions called on tensors: the calls turned into Weft's own, with the gradient."""

from inspect import Parameter
from typing import Any

import numpy as np

from .. import errors
from ..backend.device import as_numpy
from ..core.box import readable
from ..core.settings import current
from ..core.value import GROUND, TENSORS, read
from . import make, numpy_names
from .keywords import signature_of

# Filled by the namespace: public functions under NumPy's names, `linalg.` and `fft.` included.
FUNCTIONS: dict[str, object] = {}

_UFUNCS = {
    "absolute": "abs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "conjugate": "conj",
    "fabs": "abs",
    "float_power": "pow",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "true_divide": "divide",
}
_REDUCE = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_REDUCE |= {"logical_and": "all", "logical_or": "any", "logaddexp": "logsumexp"}
_ACCUMULATE = {"add": "cumsum", "multiply": "cumprod", "maximum": "cummax", "minimum": "cummin"}
_ACCUMULATE |= {"logaddexp": "logcumsumexp"}
_RENAMED: dict[str, str] = {"concatenate": "concat", "transpose": "permute_dims"}
_ARGUMENTS = {"a_min": "min", "a_max": "max", "ddof": "correction", "rcond": "rtol"}
_ARGUMENTS |= {"indices_or_sections": "sections"}
# How NumPy computes, or the kind of array it makes; no effect on the result's values.
_WITHOUT_EFFECT = {"assume_unique", "casting", "kind", "optimize", "overwrite_input", "subok"}
# Weft's functions of these names do something else.
_OTHERWISE = {"histogram", "put", "put_along_axis"}
# Their results have no derivative, so nothing is lost with the gradient.
_FLAT = set(
    """
    argpartition array2string array_equal array_equiv array_repr array_str diag_indices_from
    digitize flatnonzero iscomplexobj isrealobj lexsort may_share_memory min_scalar_type
    shares_memory tril_indices_from triu_indices_from
    """.split()
)
# These convert to an array, as `np.asarray` does; differentiated or batched values stay tensors.
_CONVERSIONS = {"atleast_1d", "atleast_2d", "atleast_3d", "copy"}


class _Unsupported(Exception):
    """Arguments that Weft's function does not support."""


def ufunc(
    self: Any,
    function: np.ufunc,
    method: str,
    *inputs: Any,
    out: tuple[Any, ...] | None = None,
    **options: Any,
) -> Any:
    """NumPy's `__array_ufunc__`: `np.sin(x)` and `array * x` are Weft's own operations."""
    name = function.__name__ if method == "__call__" else f"{function.__name__}.{method}"
    target = None if out is None else out[0]
    try:
        if method == "at" or (out is not None and len(out) > 1):
            raise _Unsupported
        options = _drop_defaults(options)
        if type(target) in TENSORS and "out" in signature_of(_counterpart(name)).parameters:
            return _apply(_counterpart(name), inputs, options | {"out": target})
        return _store(_call_ufunc(function, method, inputs, options), target, inputs)
    except _Unsupported:
        options |= {} if out is None else {"out": out}
        return _foreign(f"np.{name}", getattr(function, method), inputs, options)


def _drop_defaults(options: dict) -> dict:
    """The options without those that change nothing."""
    left = {k: v for k, v in options.items() if k not in _WITHOUT_EFFECT and k != "order"}
    if left.get("where", True) is True:
        left.pop("where", None)
    return left


def _counterpart(name: str) -> Any:
    known = numpy_names.FUNCTIONS.get(name) or FUNCTIONS.get(_UFUNCS.get(name, name))
    if known is None:
        raise _Unsupported
    return known


def is_known(function: np.ufunc) -> bool:
    """Whether a ufunc has a counterpart among Weft's functions."""
    name = function.__name__
    return name in numpy_names.FUNCTIONS or _UFUNCS.get(name, name) in FUNCTIONS


def _call_ufunc(function, method: str, inputs, options: dict):
    """A ufunc, or one of its methods, by Weft's functions."""
    name, dtype = function.__name__, options.pop("dtype", None)
    if dtype is not None:
        inputs = [make.asarray(x, dtype=dtype) for x in inputs]
    if method == "__call__":
        return _apply(_counterpart(name), inputs, options)
    if method == "outer" and not options:
        a, b = map(make.asarray, inputs)
        return _counterpart(name)(a.reshape((*a.shape, *(1,) * b.ndim)), b)
    tables: dict[str, dict[str, Any]] = {"reduce": _REDUCE, "accumulate": _ACCUMULATE}
    known = tables.get(method, {}).get(name)
    if known is None:
        raise _Unsupported
    return _apply(FUNCTIONS[known], inputs, {"axis": 0} | options)


def _apply(function, inputs, options: dict):
    """Call with options that the function has; the inputs of ufuncs are its first arguments."""
    known = signature_of(function).parameters
    options = {k: v for k, v in options.items() if v is not None or k == "axis"}
    if not set(options) <= set(known):
        raise _Unsupported
    return function(*inputs, **options)


def _store(result, target, inputs):
    """The result, or the array of NumPy's that it is to be written into."""
    if target is None:
        return result
    if current.get().grad and _any_tracked([result, *inputs]):
        raise errors.InterchangeError(
            "out=array: writing a tensor that is being differentiated into a NumPy array would "
            "drop its gradient; use x.detach()"
        )
    if type(target) in TENSORS:
        return target.copy_(result)
    target[...] = make.asarray(result).numpy()
    return target


def function(self: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's `__array_function__`: `np.sum(x)` is `wf.sum(x)`, with the gradient."""
    module = func.__module__.removeprefix("numpy").lstrip(".")
    prefix = f"{module}." if module in ("linalg", "fft") else ""
    own: str = func.__name__
    name = prefix + _RENAMED.get(own, own)
    if name in _CONVERSIONS and not any(map(_moves, args)):
        return func(*[a.numpy() if type(a) in TENSORS else a for a in args], **kwargs)
    if name in _FLAT:
        detached = [a.detach() if type(a) in TENSORS else a for a in args]
        return _on_arrays(f"np.{name}", func, detached, kwargs)
    known: Any = numpy_names.FUNCTIONS.get(name) or FUNCTIONS.get(name)
    try:
        if known is None or name in _OTHERWISE:
            raise _Unsupported
        positional, named, target = _translate(func, known, args, kwargs)
    except _Unsupported as e:
        return _foreign(f"np.{prefix}{func.__name__}{e}", func, args, kwargs)
    return _store(known(*positional, **named), target, positional)


def _translate(func: Any, known: Any, args: Any, kwargs: Any) -> tuple[list, dict, object]:
    """A call of NumPy's function as (positional, named) arguments of ours, and its `out`."""
    given: dict[str, Any] = _bind_arguments(func, known, args, kwargs)
    target = given.pop("out", None)
    ours = signature_of(known).parameters.values()
    fixed = [p.name for p in ours if p.kind is Parameter.POSITIONAL_ONLY]
    names = {p.name for p in ours if p.kind is not Parameter.POSITIONAL_ONLY}
    if any(p.kind is Parameter.VAR_POSITIONAL for p in ours) and "*" in given:
        positional = list(given.pop("*"))
    else:
        positional = [given.pop(k) for k in list(given)[: max(len(fixed), 1)]]
    if "dtype" in given and "dtype" not in names:
        positional[0] = _cast(positional[0], given.pop("dtype"))
    named: dict[str, Any] = {
        _ARGUMENTS.get(k, k) if k not in names else k: v for k, v in given.items()
    }
    unknown = set(named) - names
    if unknown and not any(p.kind is Parameter.VAR_KEYWORD for p in ours):
        raise _Unsupported(f"({', '.join(f'{k}=…' for k in sorted(unknown))})")
    return positional, named, target


def _cast(arrays, dtype):
    """One array, or each of a sequence, in another dtype."""
    if isinstance(arrays, list | tuple):
        return [make.asarray(a, dtype=dtype) for a in arrays]
    return make.asarray(arrays, dtype=dtype)


def _bind_arguments(func, known, args, kwargs) -> dict:
    """The arguments of a call by NumPy's names, without defaults and those without effect.

    `*` holds the arguments of a function that takes any number of them.
    """
    try:
        parameters = signature_of(func).parameters
        bound = signature_of(func).bind(*args, **kwargs)
    except ValueError:  # NumPy before 2.4 does not say the signature of functions written in C
        return dict(zip(signature_of(known).parameters, args, strict=False)) | kwargs
    out = {}
    for name, value in bound.arguments.items():
        kind, default = parameters[name].kind, parameters[name].default
        if kind is Parameter.VAR_POSITIONAL:
            out["*"] = value
        elif kind is Parameter.VAR_KEYWORD:
            out |= value
        elif not _is_default(value, default) and name not in _WITHOUT_EFFECT:
            out[name] = value
    return out


def _is_default(value, default) -> bool:
    plain = bool | int | float | str | tuple
    return value is default or (isinstance(value, plain) and value == default)


def _moves(value) -> bool:
    """Whether a tensor is recorded, boxed, or staged, not just values."""
    if type(value) not in TENSORS:
        return False
    return type(value) not in GROUND or value.requires_grad or current.get().staging is not None


def _any_tracked(values) -> bool:
    return any(
        v.requires_grad if type(v) in TENSORS else isinstance(v, list | tuple) and _any_tracked(v)
        for v in values
    )


def _as_array(value, use: str = "numpy()"):
    """Tensors, also in lists and tuples, as arrays; boxes that would lose a derivative are refused.

    Recorded tensors are converted; callers that must refuse them check that themselves.
    """
    if type(value) in TENSORS:
        return as_numpy(readable(read(value)._data, use))
    if isinstance(value, list | tuple):
        return type(value)([_as_array(v, use) for v in value])
    return value


def _on_arrays(use: str, func, args, kwargs):
    given = [_as_array(a, use) for a in args]
    return func(*given, **{k: _as_array(v, use) for k, v in kwargs.items()})


def _foreign(name: str, func, args, kwargs):
    """Call a NumPy function that Weft lacks; only on values that are not differentiated."""
    if current.get().grad and (_any_tracked(args) or _any_tracked(kwargs.values())):
        raise errors.InterchangeError(
            f"{name} has no differentiable counterpart in Weft and would drop the gradient; "
            "use x.detach() if that is meant"
        )
    if func.__name__ in _WRITERS and args and type(args[0]) in TENSORS:
        raise errors.InterchangeError(
            f"{name} writes into its argument, and NumPy cannot change a tensor in place: "
            "use x[i] = v or x.at[i].set(v)"
        )
    return _on_arrays(f"{name}, which has no counterpart in Weft,", func, args, kwargs)


_WRITERS = {"at", "copyto", "fill_diagonal", "place", "put", "put_along_axis", "putmask"}
