"""Initial values of parameters, under PyTorch's names; each fills a tensor's memory in place.

`generator` is a `wf.random.Generator`; None: the default one. Every function returns the tensor.
"""

from math import ceil, erf, prod, sqrt
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from .. import errors
from ..arrays import random
from ..arrays.inplace import check_writable, copy_
from ..arrays.linalg import diagonal, qr
from ..arrays.make import asarray, eye, zeros_like
from ..core import dtypes
from ..core.value import TENSORS
from ..ops.complex_ import sign
from ..ops.elementwise import clip, where
from ..ops.logic import less
from ..ops.order import argsort
from ..ops.special import erfinv
from ..ops.structural import cast, mT, reshape
from ..transform.modes.backward import no_grad

__all__ = """
    calculate_gain constant_ dirac_ eye_ kaiming_normal_ kaiming_uniform_ normal_ ones_ orthogonal_
    sparse_ trunc_normal_ uniform_ xavier_normal_ xavier_uniform_ zeros_
""".split()

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..core.counter import Generator

_T = TypeVar("_T", bound="Tensor")

_GAINS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "sigmoid"), 1.0),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), 1.0),
    "tanh": 5 / 3,
    "relu": sqrt(2),
    "selu": 3 / 4,
}


def _shape(name: str, tensor: "Tensor") -> tuple[int, ...]:
    if type(tensor) not in TENSORS:
        raise errors.DTypeError(f"{name}: got a {type(tensor).__name__}, expected a tensor to fill")
    return tensor.shape


def _fill(name: str, tensor: _T, values: "Tensor") -> _T:
    with no_grad():
        check_writable(tensor, name)
        return copy_(tensor, values)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By what a nonlinearity makes normal numbers smaller: the factor that makes up for it.

    nonlinearity  "linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", or a convolution's
                  name
    param         the slope of `leaky_relu` below 0, 0.01 if it is None

    >>> import weft as wf
    >>> wf.nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        return sqrt(2 / (1 + (0.01 if param is None else float(param)) ** 2))
    if nonlinearity not in _GAINS:
        raise errors.ArgumentError(
            f"calculate_gain: {nonlinearity!r}, expected leaky_relu or one of {', '.join(_GAINS)}"
        )
    return _GAINS[nonlinearity]


def uniform_(
    tensor: _T, a: float = 0.0, b: float = 1.0, generator: "Generator | None" = None
) -> _T:
    """Uniform in [a, b).

    tensor     what is filled, in place; it is returned
    a, b       the bounds
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.nn.init.uniform_(wf.zeros(100), -1.0, 1.0)
    >>> -1.0 <= x.min().item() < x.max().item() < 1.0
    True
    """
    shape = _shape("uniform_", tensor)
    drawn = random.uniform(a, b, shape, tensor.dtype, tensor.device, generator=generator)
    return _fill("uniform_", tensor, drawn)


def normal_(
    tensor: _T, mean: float = 0.0, std: float = 1.0, generator: "Generator | None" = None
) -> _T:
    """Normal with density exp(−(x − mean)²/(2·std²)) / (std·√(2π)).

    tensor     what is filled, in place; it is returned
    mean, std  the mean and the standard deviation
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.nn.init.normal_(wf.zeros(10000), std=2.0)
    >>> 1.9 < x.std().item() < 2.1
    True
    """
    shape = _shape("normal_", tensor)
    drawn = random.normal(mean, std, shape, tensor.dtype, tensor.device, generator=generator)
    return _fill("normal_", tensor, drawn)


def trunc_normal_(
    tensor: _T,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: "Generator | None" = None,
) -> _T:
    """Normal, given that it lies in [a, b]: Φ⁻¹ of uniform numbers, in float64.

    tensor     what is filled, in place; it is returned
    mean, std  of the normal distribution before it is cut
    a, b       the bounds
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.nn.init.trunc_normal_(wf.zeros(100))
    >>> -2.0 <= x.min().item() < x.max().item() <= 2.0
    True
    """
    shape = _shape("trunc_normal_", tensor)
    if not a < b or not std > 0:
        raise errors.ArgumentError(
            f"trunc_normal_: a={a}, b={b}, std={std}; expected a < b and std > 0"
        )
    low, high = (erf((x - mean) / (std * sqrt(2))) for x in (a, b))
    if not low < high:
        raise errors.ArgumentError(
            f"trunc_normal_: [{a}, {b}] is so far from the mean {mean} (std {std}) that a normal "
            "number is never there; take limits nearer to it"
        )
    drawn = random.uniform(low, high, shape, "float64", tensor.device, generator=generator)
    drawn = clip(erfinv(drawn) * (std * sqrt(2)) + mean, a, b)
    return _fill("trunc_normal_", tensor, cast(drawn, tensor.dtype))


def constant_(tensor: _T, val: float) -> _T:
    """Everywhere `val`.

    tensor  what is filled, in place; it is returned
    val     a number

    >>> import weft as wf
    >>> wf.nn.init.constant_(wf.zeros(2), 0.5).tolist()
    [0.5, 0.5]
    """
    _shape("constant_", tensor)
    return _fill("constant_", tensor, asarray(val, dtype=tensor.dtype, device=tensor.device))


def ones_(tensor: _T) -> _T:
    """Everywhere 1.

    tensor  what is filled, in place; it is returned

    >>> import weft as wf
    >>> wf.nn.init.ones_(wf.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return constant_(tensor, 1.0)


def zeros_(tensor: _T) -> _T:
    """Everywhere 0.

    tensor  what is filled, in place; it is returned

    >>> import weft as wf
    >>> wf.nn.init.zeros_(wf.ones(2)).tolist()
    [0.0, 0.0]
    """
    return constant_(tensor, 0.0)


def eye_(tensor: _T) -> _T:
    """The identity matrix.

    tensor  a matrix that is filled, in place; it is returned

    >>> import weft as wf
    >>> wf.nn.init.eye_(wf.zeros((2, 3))).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    shape = _shape("eye_", tensor)
    if len(shape) != 2:
        raise errors.ShapeError(f"eye_: a tensor of shape {shape}, expected a matrix")
    return _fill("eye_", tensor, eye(*shape, dtype=tensor.dtype, device=tensor.device))


def dirac_(tensor: _T, groups: int = 1) -> _T:
    """Weights (O, C, …) of a convolution that hands channels on: 1 in the middle of kernel (i, i).

    tensor  what is filled, in place; it is returned
    groups  so many groups of channels are handed on, each to itself

    >>> import weft as wf
    >>> wf.nn.init.dirac_(wf.zeros((1, 1, 3))).tolist()
    [[[0.0, 1.0, 0.0]]]
    """
    shape = _shape("dirac_", tensor)
    if len(shape) not in (3, 4, 5):
        raise errors.ShapeError(f"dirac_: a tensor of shape {shape}, expected 3, 4 or 5 axes")
    if groups < 1 or shape[0] % groups:
        raise errors.ArgumentError(
            f"dirac_: {shape[0]} channels in {groups} groups; groups must divide the channels"
        )
    each = shape[0] // groups
    middle = tuple(n // 2 for n in shape[2:])
    values = zeros_like(tensor.detach())
    for g in range(groups):
        for i in range(min(each, shape[1])):
            values[(g * each + i, i, *middle)] = 1.0
    return _fill("dirac_", tensor, values)


def _fans(name: str, tensor: "Tensor") -> tuple[int, int]:
    """How many numbers each output of a weight (O, C, …) is summed from, and the reverse."""
    shape = _shape(name, tensor)
    if len(shape) < 2:
        raise errors.ShapeError(
            f"{name}: a tensor of shape {shape}; inputs and outputs are counted along two axes or "
            "more"
        )
    field = prod(shape[2:])
    return shape[1] * field, shape[0] * field


def xavier_uniform_(tensor: _T, gain: float = 1.0, generator: "Generator | None" = None) -> _T:
    """Uniform of variance gain²·2/(fan_in + fan_out) (Glorot and Bengio 2010).

    tensor     what is filled, in place; it is returned
    gain       see `calculate_gain`
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.nn.init.xavier_uniform_(wf.zeros((3, 3)))
    >>> wf.max(wf.abs(x)).item() <= 1.0  # √(3·2/6)
    True
    """
    bound = gain * sqrt(6 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: _T, gain: float = 1.0, generator: "Generator | None" = None) -> _T:
    """Normal of variance gain²·2/(fan_in + fan_out) (Glorot and Bengio 2010).

    tensor     what is filled, in place; it is returned
    gain       see `calculate_gain`
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.nn.init.xavier_normal_(wf.zeros((100, 100)))
    >>> 0.09 < x.std().item() < 0.11
    True
    """
    return normal_(tensor, 0.0, gain * sqrt(2 / sum(_fans("xavier_normal_", tensor))), generator)


def _kaiming_std(name: str, tensor: "Tensor", a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise errors.ArgumentError(f"{name}: mode {mode!r}, expected 'fan_in' or 'fan_out'")
    fan = _fans(name, tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(fan) if fan else 0.0


def kaiming_uniform_(
    tensor: _T,
    a: float = 0.0,
    mode: Literal["fan_in", "fan_out"] = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: "Generator | None" = None,
) -> _T:
    """Uniform of variance gain²/fan (He et al. 2015).

    tensor        what is filled, in place; it is returned
    a             the slope below 0, for `leaky_relu`
    mode          "fan_in" keeps the variance of values, "fan_out" that of gradients
    nonlinearity  what follows the layer: see `calculate_gain`
    generator     a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.nn.init.kaiming_uniform_(wf.zeros((4, 6)), nonlinearity="relu")
    >>> wf.max(wf.abs(x)).item() <= 1.0  # √(3·2/6)
    True
    """
    bound = sqrt(3) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: _T,
    a: float = 0.0,
    mode: Literal["fan_in", "fan_out"] = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: "Generator | None" = None,
) -> _T:
    """Normal of variance gain²/fan (He et al. 2015).

    tensor        what is filled, in place; it is returned
    a             the slope below 0, for `leaky_relu`
    mode          "fan_in" keeps the variance of values, "fan_out" that of gradients
    nonlinearity  what follows the layer: see `calculate_gain`
    generator     a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.nn.init.kaiming_normal_(wf.zeros((100, 200)), nonlinearity="relu")
    >>> 0.09 < x.std().item() < 0.11
    True
    """
    std = _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity)
    return normal_(tensor, 0.0, std, generator)


def orthogonal_(tensor: _T, gain: float = 1.0, generator: "Generator | None" = None) -> _T:
    """gain·Q, Q of orthonormal rows or columns, all equally likely; axes after the first as one.

    tensor     what is filled, in place; it is returned
    gain       the length of rows or columns
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> q = wf.nn.init.orthogonal_(wf.zeros((2, 2)))
    >>> wf.allclose(q @ q.mT, wf.eye(2), atol=1e-5)
    True
    """
    shape = _shape("orthogonal_", tensor)
    if len(shape) < 2:
        raise errors.ShapeError(f"orthogonal_: a tensor of shape {shape}, expected two axes")
    if not tensor.size:
        return tensor
    rows, columns = shape[0], tensor.size // shape[0]
    tall = (max(rows, columns), min(rows, columns))
    dtype = dtypes.accumulator(tensor.dtype)
    with no_grad():
        q, r = qr(random.randn(tall, dtype=dtype, device=tensor.device, generator=generator))
        q = q * sign(diagonal(r))  # else Q depends on how qr is computed
        q = (mT(q) if rows < columns else q) * gain
        return _fill("orthogonal_", tensor, cast(reshape(q, shape), tensor.dtype))


def sparse_(
    tensor: _T, sparsity: float, std: float = 0.01, generator: "Generator | None" = None
) -> _T:
    """Normal, with the share `sparsity` of every column zero (Martens 2010).

    tensor     a matrix that is filled, in place; it is returned
    sparsity   the share of zeros
    std        the standard deviation of the others
    generator  a `wf.random.Generator`; None: the default one

    >>> import weft as wf
    >>> x = wf.nn.init.sparse_(wf.zeros((4, 3)), 0.5)
    >>> wf.count_nonzero(x, axis=0).tolist()
    [2, 2, 2]
    """
    shape = _shape("sparse_", tensor)
    if len(shape) != 2:
        raise errors.ShapeError(f"sparse_: a tensor of shape {shape}, expected a matrix")
    if not 0 <= sparsity <= 1:
        raise errors.ArgumentError(f"sparse_: sparsity={sparsity}, expected 0 to 1")
    made: dict[str, Any] = {"device": tensor.device, "generator": generator}
    values = random.normal(0.0, std, shape, tensor.dtype, **made)
    order = argsort(random.rand(shape, "float64", **made), 0, False)
    zero = less(order, ceil(sparsity * shape[0]))
    return _fill("sparse_", tensor, where(zero, 0.0, values))


def __dir__() -> list[str]:
    return list(__all__)
