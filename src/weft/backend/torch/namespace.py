"""PyTorch as a backend, on the CPU and on CUDA: names and dtypes fixed, nothing differentiated.

A name is looked up here, then in the modules beside this one, each of which fixes one family of
names, then among the names of PyTorch that are listed here. Others are an error.
"""

import operator
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch

from ... import errors
from ...core import dtypes, late
from ...core.backends import BACKENDS
from .. import reproducible
from ..shared import blocks
from ..shared.families import lookup
from .types import Array, Axes, Operand, Shape

R = TypeVar("R")

array_type = torch.Tensor
name = "torch"

_SELF = sys.modules[__name__]
_FAMILIES = (
    "elementwise",
    "index",
    "reduce",
    "linalg",
    "random",
    "neural",
    "norms",
    "losses",
    "convolve",
    "pool",
    "updates",
    "gradients",
)

# One call of ATen for several gradients is quicker than one for each.
joins_gradients = True

TO_TORCH: dict[np.dtype, torch.dtype] = {d: getattr(torch, d.name) for d in dtypes.ALL}
FROM_TORCH: dict[torch.dtype, np.dtype] = {t: d for d, t in TO_TORCH.items()}
dtypes.SPELLED.update(FROM_TORCH)
dtypes.RAW_INEXACT.update(t for t, d in FROM_TORCH.items() if dtypes.is_inexact(d))
dtypes.RAW_COMPLEX.update((torch.complex64, torch.complex128))
dtypes.RAW_BOOLEANS.add(torch.bool)


_LIBRARY = {
    torch: (
        "_foreach_copy_ abs acosh addmm arange argwhere asarray asin asinh atan atanh bool "
        "broadcast_to ceil complex128 complex64 concat concatenate cos cosh digamma erf erfc "
        "erfinv exp exp2 flip float32 float64 floor from_numpy i0 int64 isfinite isinf isnan "
        "log log10 log2 logical_not logit matmul real reciprocal relu rsqrt signbit sin sinc "
        "sinh sqrt square stack tan tanh tril triu trunc view_as_real where xlogy zeros_like "
    ),
    torch.special: "entr expit gammaln i0e i1 i1e ndtr xlog1py",
    torch.linalg: "vector_norm",
}
_find = lookup(globals(), _FAMILIES, _LIBRARY)
_hardshrink_backward = torch.ops.aten.hardshrink_backward.default


def __getattr__(attribute: str) -> Any:
    return _find(attribute)


def dtype_of(x: torch.Tensor) -> np.dtype:
    return FROM_TORCH[x.dtype]


def raw_dtype(dtype: np.dtype | torch.dtype) -> torch.dtype:
    """torch's own name of a dtype."""
    found = TO_TORCH.get(dtype)  # type: ignore[arg-type]
    if found is not None:
        return found
    return dtype if isinstance(dtype, torch.dtype) else TO_TORCH[dtypes.canonical(dtype)]


def device_of(x: torch.Tensor) -> str:
    """ "torch" on the CPU, else "cuda:0" and so on."""
    return device_name(x.device)


@lru_cache(maxsize=None)
def device_name(d: torch.device) -> str:
    """Weft's name of a PyTorch device."""
    return "torch" if d.type == "cpu" else f"{d.type}:{d.index}"


def whole(x: Any) -> torch.Tensor:
    return x if isinstance(x, torch.Tensor) else torch.as_tensor(x)


def all_finite(x: Array) -> bool:
    return bool(torch.isfinite(x).all())


def strong_product(g: Array, d: Array) -> Array:
    """g·d with an exact zero wherever either is zero."""
    return zero_where_zero(zero_where_zero(g * d, g), d)


def zero_where_zero(c: Array, g: Operand) -> Array:
    """c, a product with g, with an exact zero wherever g is zero."""
    if not isinstance(g, torch.Tensor):
        return c if g else torch.zeros_like(c)
    if c.is_cuda and c.dtype is g.dtype and c.shape == g.shape and c.is_floating_point():
        # c but where −0 ≤ g ≤ 0, in one kernel; the CPU's takes a NaN of g for a zero.
        return _hardshrink_backward(c, g, 0.0)
    return torch.where(g == 0, 0, c)


def cast(x: Array, dtype: np.dtype | torch.dtype) -> Array:
    raw = dtype if isinstance(dtype, torch.dtype) else raw_dtype(dtype)
    if x.dtype in dtypes.RAW_COMPLEX and raw not in dtypes.RAW_COMPLEX:
        x = x.real
    return x.to(raw)


def owner(x: torch.Tensor) -> int:
    """The identity of the memory of x."""
    return x.untyped_storage().data_ptr()


def owning(x: torch.Tensor) -> None:
    """None: the end of a PyTorch storage cannot be observed; it has few addresses."""
    return None


def freeze(x: torch.Tensor) -> torch.Tensor:
    """Mark memory as shared by two tensors: writers must copy first."""
    x.weft_shared = True  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    return x


def frozen_view(x: torch.Tensor) -> torch.Tensor:
    """A read-only view of x: writers must copy first."""
    return freeze(x.view_as(x))


def is_frozen(x: torch.Tensor) -> bool:
    """Whether x is marked, or a view of what is."""
    return getattr(x, "weft_shared", False) or getattr(x._base, "weft_shared", False)


def version(x: torch.Tensor) -> int:
    """How often the memory of x was written to."""
    return x._version


def nbytes(x: torch.Tensor) -> int:
    return x.nelement() * x.element_size()


def transpose(x: Array, axes: Axes) -> Array:
    return x.permute(axes)


BACKENDS[torch.Tensor] = _SELF
BACKENDS[torch.nn.Parameter] = _SELF
reproducible.set_torch()  # in a deterministic block that began before torch was loaded


def torch_device(device: str) -> torch.device:
    """torch's device for one of our names."""
    return torch.device("cpu" if device == "torch" else device)


def checked_device(name: str) -> str:
    """Our full name of a torch device, or an error if the machine has none such."""
    if name == "torch":
        return name
    if not torch.cuda.is_available():
        raise errors.DeviceError(f"device {name!r}: this machine has no CUDA device")
    index = int(name.partition(":")[2] or torch.cuda.current_device())
    if index >= torch.cuda.device_count():
        raise errors.DeviceError(
            f"device {name!r}: this machine has {torch.cuda.device_count()} CUDA device(s)"
        )
    return f"cuda:{index}"


def devices() -> list[str]:
    return ["torch", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]


def to_numpy(x: torch.Tensor) -> np.ndarray:
    host = x.detach().cpu()  # waits for the current stream only
    if late.TELLERS and x.is_cuda:
        late.raise_late()
    if host.dtype == torch.bfloat16:
        return host.view(torch.uint16).numpy().view(dtypes.bfloat16)
    return host.resolve_conj().resolve_neg().numpy()


def from_any(raw: Any, device: str) -> torch.Tensor:
    """A NumPy or torch array as a torch array on `device`."""
    target = torch_device(device)
    if isinstance(raw, torch.Tensor):
        return raw.to(target)
    raw = np.asarray(raw)  # rules may pass NumPy's scalars
    if target.type == "cuda" and raw.nbytes <= _PINNED:
        return upload(raw, target)
    if raw.dtype == dtypes.bfloat16:
        copied = torch.from_numpy(np.array(raw.view(np.uint16))).view(torch.bfloat16)
    else:
        copied = torch.from_numpy(np.array(raw))
    return copied.to(target)


def adopt(raw: np.ndarray, device: str) -> torch.Tensor:
    """A tensor with the memory of a writable array that nobody else has; on a GPU, a copy."""
    if raw.dtype == dtypes.bfloat16:
        host = torch.from_numpy(raw.view(np.uint16)).view(torch.bfloat16)
    else:
        host = torch.from_numpy(raw)
    return host.to(torch_device(device))


# The most bytes that go through pinned memory, which PyTorch keeps for the next time.
_PINNED = 1 << 28


def upload(raw: np.ndarray, target: torch.device) -> torch.Tensor:
    """A copy of a NumPy array on a GPU, for which nobody waits: pinned memory lies in between.

    PyTorch does not use that memory again before the copy is complete.
    """
    # A graph would read that memory again at each replay.
    if target.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("it brings numbers of the host's to the GPU")
    # Its axes lie as those of the array: kernels may depend on that, and give other bits.
    order = np.argsort([-np.abs(n) for n in raw.strides], kind="stable").tolist()
    host = pinned(tuple([raw.shape[i] for i in order]), raw_dtype(raw.dtype))
    host = host.permute([order.index(i) for i in range(raw.ndim)])
    if raw.dtype == dtypes.bfloat16:
        np.copyto(host.view(torch.uint16).numpy(), raw.view(np.uint16))
    else:
        np.copyto(host.numpy(), raw)
    return host.to(target, non_blocking=True)


def pinned(shape: Shape, dtype: torch.dtype) -> torch.Tensor:
    """Pinned host memory."""
    return torch.empty(shape, dtype=dtype, pin_memory=True)


def full(shape: Shape, value: complex, dtype: np.dtype, device: str = "torch") -> torch.Tensor:
    return torch.full(shape, value, dtype=raw_dtype(dtype), device=torch_device(device))


def empty(shape: Shape, dtype: np.dtype, device: str = "torch") -> torch.Tensor:
    return torch.empty(shape, dtype=raw_dtype(dtype), device=torch_device(device))


def overwrite(x: torch.Tensor, value: Operand) -> None:
    """Write into the memory of x."""
    x.copy_(torch.as_tensor(value))


# Python's operators, which are the kernels, and what writes their results into memory.
_INTO: dict[Callable[..., Any], Callable[..., Any]] = {
    operator.add: torch.add,
    operator.sub: torch.sub,
    operator.mul: torch.mul,
    operator.truediv: torch.true_divide,
    operator.neg: torch.neg,
    operator.eq: torch.eq,
    operator.ne: torch.ne,
    operator.lt: torch.lt,
    operator.le: torch.le,
    operator.gt: torch.gt,
    operator.ge: torch.ge,
}


def into(kernel: Callable[..., Array], args: Sequence[Operand], out: torch.Tensor) -> None:
    """Compute elementwise into the memory of `out`, which arguments may share."""
    args = [_apart(a, out) for a in args]
    if kernel in _INTO and isinstance(args[0], torch.Tensor):
        _INTO[kernel](*args, out=out)
    else:
        blocks.write(kernel, args, out, overwrite, 1 << 20)


def _apart(a: Operand, out: torch.Tensor) -> Operand:
    """a, copied if writing `out` would change parts of it that are still to be read."""
    if not isinstance(a, torch.Tensor) or owner(a) != owner(out):
        return a
    same = a.data_ptr() == out.data_ptr() and a.stride() == out.stride() and a.shape == out.shape
    return a if same else a.clone()


def copy(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def quiet() -> AbstractContextManager[None]:
    """A block without floating-point warnings: torch gives none."""
    return nullcontext()


def quietly(run: Callable[..., R], *args: Any) -> R:
    """`run(*args)`: torch gives no floating-point warnings."""
    return run(*args)


def owns(x: torch.Tensor) -> bool:
    """torch does not tell whether views of x exist, so writers always copy."""
    return False


def lies_in(x: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether x, which was made of the other tensor, is it or a view of its memory."""
    start = x.data_ptr()  # 0 for no elements
    return (start != 0 and start == other.data_ptr()) or owner(x) == owner(other)


def point(value: complex, dtype: torch.dtype) -> Array | None:
    """torch takes Python numbers as they are, but not those beyond its integers."""
    if type(value) is int and not 0 <= value < 2**7:
        if not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool:
            limits = torch.iinfo(dtype)
            if not limits.min <= value <= limits.max:
                raise errors.IntegerOutOfRange(f"the number {value} is out of bounds for {dtype}")
        elif not -(2**63) <= value < 2**63:
            return torch.tensor(float(value), dtype=dtype)
    return None
