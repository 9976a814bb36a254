"""Linear and bilinear maps with their weights."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.arguments import as_tensor
from ..arrays.inplace import copy_
from ..arrays.parameter import Parameter
from ..ops.contract import matmul
from ..ops.structural import reshape
from ..transform.modes.backward import no_grad
from . import functional as F
from . import init
from .making import parameter, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike


class Identity(Module):
    """x itself, whatever arguments it is made with.

    args, kwargs  not looked at, so that it can stand for any layer

    >>> import weft as wf
    >>> wf.nn.Identity(54, bias=False)(wf.tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, *args: object, **kwargs: object):
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Module):
    """x·Wᵀ + b for x (…, in_features). Also called `Dense`.

    in_features, out_features  the width before and after
    bias                       whether there is a b
    device, dtype              of the parameters

    W is (out_features, in_features). Both begin uniform in ±1/√in_features.

    >>> import weft as wf
    >>> layer = wf.nn.Linear(3, 2)
    >>> layer(wf.ones((5, 3))).shape
    (5, 2)
    """

    bias: Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        sizes("Linear", least=0, in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        self.weight: Parameter = parameter((out_features, in_features), device, dtype)
        self.register_parameter("bias", parameter((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: uniform in ±1/√in_features.

        >>> import weft as wf
        >>> layer = wf.nn.Linear(3, 2)
        >>> before = layer.weight.tolist()
        >>> layer.reset_parameters()
        >>> layer.weight.tolist() != before
        True
        """
        bound = 1 / sqrt(self.in_features) if self.in_features else 0.0
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def weights(self) -> Parameter:
        """The weight W.

        >>> import weft as wf
        >>> wf.nn.Linear(3, 2).weights().shape
        (2, 3)
        """
        return self.weight

    def set_weights(self, weights: ArrayLike) -> None:
        """Overwrite the values of the weight.

        weights  an array (out_features, in_features)

        >>> import weft as wf
        >>> layer = wf.nn.Linear(2, 1, bias=False)
        >>> layer.set_weights([[1.0, 10.0]])
        >>> layer(wf.tensor([2.0, 3.0])).tolist()
        [32.0]
        """
        new = as_tensor(weights)
        if new.shape != self.weight.shape:
            raise errors.ShapeError(
                f"set_weights: shape {new.shape}, expected {self.weight.shape}: "
                "(out_features, in_features)"
            )
        with no_grad():
            copy_(self.weight, new)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


Dense = Linear


class Bilinear(Module):
    """x₁ᵀ·W·x₂ + b, W one matrix for each output feature.

    in1_features, in2_features, out_features  the widths of x₁, x₂ and the result
    bias                                      whether there is a b
    device, dtype                             of the parameters

    >>> import weft as wf
    >>> wf.nn.Bilinear(3, 4, 2)(wf.ones((5, 3)), wf.ones((5, 4))).shape
    (5, 2)
    """

    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        sizes("Bilinear", in1_features=in1_features, in2_features=in2_features)
        sizes("Bilinear", out_features=out_features)
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight: Parameter = parameter(shape, device, dtype)
        self.register_parameter("bias", parameter((out_features,), device, dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: uniform in ±1/√in1_features.

        >>> import weft as wf
        >>> layer = wf.nn.Bilinear(3, 3, 2)
        >>> before = layer.weight.tolist()
        >>> layer.reset_parameters()
        >>> layer.weight.tolist() != before
        True
        """
        bound = 1 / sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: ArrayLike, input2: ArrayLike) -> Tensor:
        a, b = as_tensor(input1), as_tensor(input2)
        if a.shape != (*b.shape[:-1], self.in1_features) or b.shape[-1] != self.in2_features:
            raise errors.ShapeError(
                f"Bilinear: inputs {a.shape} and {b.shape}; expected (…, {self.in1_features}) and "
                f"(…, {self.in2_features})"
            )
        width, w = self.out_features * self.in2_features, self.weight
        # W as one matrix that takes x₁ to all rows (feature, ·), which x₂ then closes.
        closed = matmul(a, reshape(w.permute(1, 0, 2), (self.in1_features, width)))
        rows = reshape(closed, (*a.shape[:-1], self.out_features, self.in2_features))
        y = reshape(matmul(rows, reshape(b, (*b.shape, 1))), (*a.shape[:-1], self.out_features))
        return y if self.bias is None else y + self.bias

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
