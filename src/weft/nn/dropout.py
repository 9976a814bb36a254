"""Dropout as modules: what is set to zero at random while training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import functional as F
from .making import probability
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike


class _Dropout(Module):
    """Drops with probability `p` in training, and passes everything on in evaluation."""

    def __init__(self, p: float = 0.5):
        super().__init__()
        self.p: float = probability(type(self).__name__, p)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Dropout(_Dropout):
    """Elements, each zero with probability `p`; the others divided by 1 − p.

    >>> import weft as wf
    >>> layer = wf.nn.Dropout(0.5).eval()
    >>> layer(wf.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.dropout(input, self.p, self.training)


class Dropout1d(_Dropout):
    """Whole channels of (N, C, L) or (C, L)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.dropout1d(input, self.p, self.training)


class Dropout2d(_Dropout):
    """Whole channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.dropout2d(input, self.p, self.training)


class Dropout3d(_Dropout):
    """Whole channels of (N, C, D, H, W) or (C, D, H, W)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.dropout3d(input, self.p, self.training)


class AlphaDropout(_Dropout):
    """Elements set to selu(−∞), so that mean 0 and variance 1 stay (Klambauer et al. 2017)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
