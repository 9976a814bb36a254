"""Linear layers whose weight is stored in 8 bits, and never changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .. import errors
from ..arrays.arguments import as_tensor
from ..arrays.make import zeros
from ..core import dtypes
from ..core.autocast import cast_ahead
from ..core.box import BOXED
from ..ops.affine import affine
from ..ops.arrange import pad
from ..ops.complex_ import abs_
from ..ops.contract import matmul
from ..ops.elementwise import maximum, round_
from ..ops.logic import isfinite
from ..ops.reduce import amax
from ..ops.slicing import narrow
from ..ops.structural import broadcast_to, cast, mT, reshape
from ..transform.custom.custom_op import CustomOp
from ..transform.modes.backward import no_grad
from . import init
from .linear import Linear
from .making import parameter, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.parameter import Parameter
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike

BLOCK = 128
_LEVELS = 127
_TINY = 2.0**-126  # the smallest normal number: a block of zeros has a scale too
_SCALES = (dtypes.bfloat16, dtypes.float32, dtypes.float64)


def quantise_rows(weight: Tensor, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """Codes (out, in) in int8 and scales (out, blocks) in bfloat16 of a weight (out, in)."""
    out, width = weight.shape
    count = -(-width // block)
    wide = cast(weight, dtypes.float32)
    if count * block != width:
        wide = pad(wide, ((0, 0), (0, count * block - width)), 0.0)
    blocks = reshape(wide, (out, count, block))
    largest = amax(abs_(blocks), (2,), True)
    # Rounding to bfloat16 makes a scale smaller by at most 2⁻⁸: no code is beyond 127.498.
    scales = cast(maximum(largest / _LEVELS, _TINY), dtypes.bfloat16)
    codes = cast(round_(blocks / cast(scales, dtypes.float32)), dtypes.int8)
    codes = reshape(codes, (out, count * block))
    if count * block != width:
        codes = narrow(codes, 1, 0, width).clone()  # in memory of its own, without the rest
    return codes, reshape(scales, (out, count))


def dequantise_rows(codes: Tensor, scales: Tensor, block: int, dtype: DTypeLike) -> Tensor:
    """The weight (out, in) that codes and scales stand for, each number rounded once."""
    own = dtypes.canonical(dtype)
    # Codes and scales are exact in every dtype but float16, whose exponents end before the scales'.
    wide = dtypes.float32 if own == dtypes.float16 else own
    (out, width), count = codes.shape, scales.shape[1]
    if count * block == width:
        # Codes are reshaped before the cast, so that one kernel reads them and writes W.
        blocks = cast(reshape(codes, (out, count, block)), wide)
        values = reshape(blocks * cast(reshape(scales, (out, count, 1)), wide), (out, width))
    else:
        spread = broadcast_to(reshape(cast(scales, wide), (out, count, 1)), (out, count, block))
        values = cast(codes, wide) * narrow(reshape(spread, (out, count * block)), 1, 0, width)
    return values if own == wide else cast(values, own)


class _Product(CustomOp):
    """x·Wᵀ, or back: x·W. W is computed for the moment, and not kept for the backward pass."""

    def __init__(self, codes: Tensor, scales: Tensor, block: int, back: bool = False):
        self.codes, self.scales, self.block, self.back = codes, scales, block, back

    def forward(self, inputs: list[Tensor]) -> Tensor:
        (x,) = inputs
        weight = dequantise_rows(self.codes, self.scales, self.block, x.dtype)
        return matmul(x, weight if self.back else mT(weight))

    def backward(self, grad_output: Tensor) -> Tensor:
        return _Product(self.codes, self.scales, self.block, not self.back)(grad_output)

    def jvp(self, tangents: list[Tensor]) -> Tensor:
        return self(tangents[0])


class Linear8bit(Module):
    """x·Wᵀ + b with a W that is stored in 8 bits and is not trained.

    in_features, out_features  the width before and after
    bias                       whether there is a b, which is frozen too
    block                      how many columns of a row share a scale
    device, dtype              of b; x's dtype is that of the computation

    A number of W is code·scale: the code an integer of −127 to 127, the scale the largest magnitude
    of its block divided by 127, rounded to bfloat16. It differs from the number that was stored
    by at most scale/2, that is largest/254·(1 + 2⁻⁸), and when x is in bfloat16 by the rounding to
    it. `codes` (out, in) and `scales` (out, blocks) take 1 + 2/block bytes a number.
    Autocast treats the layer as `Linear`.

    W in the dtype of x exists only while a product is computed, forth and back.

    >>> import weft as wf
    >>> layer = wf.nn.Linear(256, 4)
    >>> stored = wf.nn.Linear8bit.from_linear(layer)
    >>> stored.codes.dtype.name, stored.scales.shape
    ('int8', (4, 2))
    >>> error = abs(stored.dense_weight() - layer.weight).max()
    >>> bool(error <= abs(layer.weight).max() / 254 * (1 + 2**-8))
    True
    """

    bias: Parameter | None
    # Buffers that stay as they are: checkpoints of fine-tuning need not hold them.
    constant_buffers: ClassVar[tuple[str, ...]] = ("codes", "scales")
    codes: Tensor
    scales: Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        block: int = BLOCK,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        sizes("Linear8bit", least=0, in_features=in_features, out_features=out_features)
        sizes("Linear8bit", block=block)
        self.in_features = in_features
        self.out_features = out_features
        self.block = block
        shape, count = (out_features, in_features), -(-in_features // block)
        self.register_buffer("codes", zeros(shape, dtype=dtypes.int8, device=device))
        scales = zeros((out_features, count), dtype=dtypes.bfloat16, device=device)
        self.register_buffer("scales", scales)
        self.register_parameter("bias", parameter((out_features,), device, dtype) if bias else None)
        if self.bias is not None:
            init.zeros_(self.bias)
            self.bias.requires_grad_(False)

    @classmethod
    def from_linear(cls, linear: Linear, block: int = BLOCK) -> Linear8bit:
        """The layer with the weight of another one, rounded; it takes the bias itself.

        linear  the layer
        block   how many columns of a row share a scale

        >>> import weft as wf
        >>> wf.nn.Linear8bit.from_linear(wf.nn.Linear(8, 4)).out_features
        4
        """
        made = cls(0, 0, linear.bias is not None, block)
        made.in_features, made.out_features = linear.in_features, linear.out_features
        with no_grad():
            if not bool(isfinite(linear.weight).all()):
                raise errors.ArgumentError(
                    "Linear8bit: the weight holds NaN or infinity, which 8 bits cannot; look at "
                    "where it comes from"
                )
            made.codes, made.scales = quantise_rows(linear.weight.detach(), block)
        made.register_parameter("bias", linear.bias)
        if made.bias is not None:
            made.bias.requires_grad_(False)
        return made.train(linear.training)

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        if not x.ndim or x.shape[-1] != self.in_features:
            raise errors.ShapeError(
                f"Linear8bit: input of shape {x.shape}, expected (…, {self.in_features})"
            )
        scales, bias = self._exact_scales(), self.bias
        if bias is None:
            x = cast_ahead(matmul, x, x)
        else:
            x, bias = cast_ahead(affine, x, x, bias), cast_ahead(affine, bias, x, x)
        if any([w.__class__ in BOXED and not w._data.staged for w in (self.codes, scales)]):
            # Weights that a transformation maps or traces are operands like any others.
            y = matmul(x, mT(dequantise_rows(self.codes, scales, self.block, x.dtype)))
        else:
            y = _Product(self.codes, scales, self.block)(x)
        return y if bias is None else y + bias

    def dense_weight(self, dtype: DTypeLike = "float32") -> Tensor:
        """W in a dtype, in memory of its own.

        dtype  of the result

        >>> import weft as wf
        >>> wf.nn.Linear8bit(8, 4).dense_weight().shape
        (4, 8)
        """
        return dequantise_rows(self.codes, self._exact_scales(), self.block, dtype)

    def _exact_scales(self) -> Tensor:
        if self.scales.dtype not in _SCALES:
            raise errors.DTypeError(
                f"Linear8bit: scales in {self.scales.dtype}, which does not hold them exactly; "
                "convert the layer before its weight is quantised, or give it to another dtype"
            )
        return self.scales.detach()

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, block={self.block}"
        )
