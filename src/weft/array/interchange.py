"""Speaking with other array libraries: NumPy's protocols, DLPack, the buffer protocol, copying."""

import numpy as np

from .. import errors
from ..backend.device import as_numpy
from ..core.backends import BACKENDS
from ..core.node import Node
from ..core.value import GROUND
from . import make

# Filled by the namespace: public functions under NumPy's names.
FUNCTIONS: dict[str, object] = {}

_UFUNC_NAMES = {
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
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "power": "pow",
    "right_shift": "bitwise_right_shift",
    "rint": "round",
    "true_divide": "divide",
    "vecdot": "vecdot",
}
_FUNCTION_NAMES = {
    "amax": "max",
    "amin": "min",
    "around": "round",
    "concatenate": "concat",
    "transpose": "permute_dims",
}
_RENAMED_ARGUMENTS = {"ddof": "correction", "a_min": "min", "a_max": "max"}
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


def to_array(self, dtype=None, copy=None) -> np.ndarray:
    """NumPy's `__array__`: refused where it would drop a gradient or move between devices."""
    out = self.numpy()
    if dtype is not None and out.dtype != dtype:
        if copy is False:
            raise ValueError(f"cannot give {self.dtype} as {dtype} without a copy")
        return out.astype(dtype)
    return out.copy() if copy else out


def _tracked(values) -> bool:
    return any(
        v.requires_grad if type(v) in GROUND else isinstance(v, list | tuple) and _tracked(v)
        for v in values
    )


def _as_arrays(value):
    if type(value) in GROUND:
        return value.numpy()
    if isinstance(value, list | tuple):
        return type(value)(_as_arrays(v) for v in value)
    return value


def array_ufunc(self, ufunc, method: str, *inputs, out=None, **options):
    """NumPy's `__array_ufunc__`: `np.sin(x)` and `array * x` are Weft's own operations."""
    name = _UFUNC_NAMES.get(ufunc.__name__, ufunc.__name__)
    if method == "reduce":
        name = _REDUCTIONS.get(ufunc.__name__)
        options.setdefault("axis", 0)
        options = {k: v for k, v in options.items() if v is not None or k == "axis"}
    function = FUNCTIONS.get(name) if method in ("__call__", "reduce") else None
    if out is not None and type(out[0]) not in GROUND:
        return _into_numpy(ufunc, method, inputs, out, options)
    if function is None or "where" in options:
        return _foreign(f"np.{ufunc.__name__}", getattr(ufunc, method), inputs, options)
    options.pop("casting", None)
    if out is not None:
        options["out"] = out[0]
    return function(*inputs, **options)


def _into_numpy(ufunc, method, inputs, out, options):
    if _tracked(inputs):
        raise errors.InterchangeError(
            f"np.{ufunc.__name__}(out=array): writing a tensor that is being differentiated into "
            f"a NumPy array would drop its gradient; use x.detach()"
        )
    return getattr(ufunc, method)(*map(_as_arrays, inputs), out=out, **options)


def array_function(self, func, types, args, kwargs):
    """NumPy's `__array_function__`: `np.sum(x)` is `wf.sum(x)`, with the gradient."""
    module = func.__module__.removeprefix("numpy").lstrip(".")
    name = _FUNCTION_NAMES.get(func.__name__, func.__name__)
    qualified = f"{module}.{name}" if module in ("linalg", "fft") else name
    function = FUNCTIONS.get(qualified)
    if function is None:
        return _foreign(f"np.{qualified}", func, args, kwargs)
    kwargs = {_RENAMED_ARGUMENTS.get(k, k): v for k, v in kwargs.items()}
    return function(*args, **kwargs)


def _foreign(name: str, func, args, kwargs):
    """A NumPy function that Weft does not have: only on values nobody differentiates."""
    if _tracked(args) or _tracked(kwargs.values()):
        raise errors.InterchangeError(
            f"{name} has no differentiable counterpart in Weft and would drop the gradient; "
            f"use x.detach() if that is meant"
        )
    return func(*map(_as_arrays, args), **{k: _as_arrays(v) for k, v in kwargs.items()})


def dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """Export the memory by DLPack; refused where it would drop a gradient."""
    self._refuse_if_tracked("__dlpack__")
    options = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
    options = {k: v for k, v in options.items() if v is not None}
    if stream is not None:
        options["stream"] = stream
    return self._data.__dlpack__(**options)


def dlpack_device(self) -> tuple[int, int]:
    return self._data.__dlpack_device__()


def buffer(self, flags: int) -> memoryview:
    """The buffer protocol (Python ≥ 3.12), read-only."""
    return memoryview(self.numpy())


def rebuild(cls: type, array: np.ndarray, device: str, requires_grad: bool):
    """Make a copied or unpickled tensor."""
    t = make.asarray(array, device=device)
    return t.requires_grad_(requires_grad) if cls is type(t) else cls(t, requires_grad)


def reduce_(self):
    """How `copy.deepcopy` and `pickle` take a tensor apart: values, device, requires_grad."""
    if self._node.__class__ is Node:
        raise errors.InterchangeError(
            f"a tensor made by {self._node.name} (at {self._node.line}) cannot be copied with its "
            f"graph; copy x.detach(), or x.clone() to stay connected"
        )
    array = np.array(as_numpy(self._data))
    return rebuild, (type(self), array, self.device, self.requires_grad)


def torch_tensor(self):
    """The values as a torch tensor, sharing memory where possible."""
    self._refuse_if_tracked("torch()")
    if self.device != "cpu":
        return self._data
    torch_ = make.namespace_for("torch")
    xp = BACKENDS[type(self._data)]
    raw = xp.copy(self._data) if xp.frozen(self._data) else self._data
    return torch_.from_numpy(raw) if raw.dtype.kind != "V" else torch_.from_any(raw, "torch")


PROTOCOLS = {
    "__array__": to_array,
    "__array_ufunc__": array_ufunc,
    "__array_function__": array_function,
    "__dlpack__": dlpack,
    "__dlpack_device__": dlpack_device,
    "__buffer__": buffer,
    "__reduce__": reduce_,
    "torch": torch_tensor,
}
