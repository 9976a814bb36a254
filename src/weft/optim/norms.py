"""The norm of gradients as one vector."""

from collections.abc import Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any

from .. import errors
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.kinds import demand_iterable, demand_number
from ..core.numbers import plain
from ..core.settings import current
from ..core.value import TENSORS, wrap
from . import staged

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor

PIECE = 1 << 16


def global_norm(grads: "Iterable[Tensor | None]", norm_type: float = 2.0) -> float:
    """The norm of all gradients as one vector; infinite or NaN if one of them is.

    grads      a `GradientMap`, a list of gradients, or parameters, whose `.grad` is meant
    norm_type  the exponent of the norm

    In a function that is being compiled the norm is a tensor. So it is for gradients on a GPU, for
    which nothing waits until the number is read: `float(norm)`.

    >>> import weft as wf
    >>> wf.optim.global_norm([wf.tensor([3.0]), wf.tensor([4.0])])
    5.0
    """
    demand_number("norm: norm_type", norm_type)
    demand_iterable("norm: grads", grads, "a GradientMap or a list of gradients or of parameters")
    if not norm_type > 0:
        raise errors.ArgumentError(f"norm: norm_type={norm_type}, expected a number > 0")
    given = [g for g in grads if g is not None]
    for g in given:
        if type(g) not in TENSORS:
            raise errors.DTypeError(f"norm: grads has a {type(g).__name__}, expected tensors")
    if current.get().staging is not None:
        return staged.norm_of(given, plain(norm_type))
    return joint_norm([g._data for g in given], norm_type)


def joint_norm(arrays: list[Any], kind: float) -> Any:
    """The norm of raw arrays: a number, or on a GPU a tensor."""
    norms, elsewhere = [], {}
    for raw in arrays:
        device = BACKENDS[type(raw)].device_of(raw)
        if device == "cpu":
            norms.append(array_norm(raw, kind))
        else:
            elsewhere.setdefault(device, []).append(raw)
    found = {d: BACKENDS[type(there[0])].joint_norm(there, kind) for d, there in elsewhere.items()}
    if not norms and len(found) == 1 and all(map(is_asynchronous, found)):
        return wrap(*found.values())
    return common_norm([*norms, *map(float, found.values())], kind)


def is_asynchronous(device: str) -> bool:
    """Whether reading a number waits for the device."""
    return device.startswith("cuda")


def common_norm(norms: list[float], norm_type: float) -> float:
    """The norm of the concatenation of vectors, from the norm of each."""
    if any(n != n for n in norms):
        return float("nan")
    if norm_type == inf or not norms:
        return max(norms, default=0.0)
    largest = max(norms)
    if largest == 0 or largest == inf:
        return largest
    return largest * sum((n / largest) ** norm_type for n in norms) ** (1.0 / norm_type)


def array_norm(raw: Any, kind: float) -> float:
    """The norm of one array; in double precision if its powers overflow in its own."""
    xp = BACKENDS[type(raw)]
    if xp.device_of(raw) != "cpu":
        return float(xp.joint_norm([raw], kind))
    dtype = raw.dtype
    with xp.quiet():
        if kind == inf:
            largest = [float(part.max()) for part in _parts(raw, kind, dtypes.accumulator(dtype))]
            return common_norm(largest, inf)
        found = _power_sum(raw, kind, dtypes.accumulator(dtype))
        if found == inf and dtypes.to_real(dtype) != dtypes.float64:
            found = _power_sum(raw, kind, _WIDEST[dtypes.is_complex(dtype)])
    return found ** (1.0 / kind)


_WIDEST = {False: dtypes.float64, True: dtypes.complex128}


def _parts(raw: Any, kind: float, dtype: Any) -> Iterator[Any]:
    """The elements in pieces, in another dtype; their magnitudes, unless they are only squared."""
    xp = BACKENDS[type(raw)]
    line = raw.reshape(-1)
    for start in range(0, len(line), PIECE):
        part = line[start : start + PIECE]
        part = part if raw.dtype == dtype else xp.cast(part, dtype)
        yield abs(part) if kind != 2 or dtypes.is_complex(dtype) else part


def _power_sum(raw: Any, kind: float, dtype: Any) -> float:
    """Σ |x|ᵏ, by blocks whose sums are added in double precision: the same for any thread count."""
    total = 0.0
    for part in _parts(raw, kind, dtype):
        total += float((part * part if kind == 2 else part**kind).sum())
    return total
