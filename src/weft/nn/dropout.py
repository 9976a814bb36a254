"""Dropout as modules."""

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
    """In training each element zero with probability p, the others divided by 1 − p.

    p  the probability

    After `eval()` everything passes as it is.

    >>> import weft as wf
    >>> layer = wf.nn.Dropout(0.5)
    >>> set(layer(wf.ones(100)).tolist()) == {0.0, 2.0}
    True
    >>> layer.eval()(wf.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.dropout(input, self.p, self.training)


class Dropout1d(_Dropout):
    """In training whole channels zero with probability p, the others divided by 1 − p.

    p  the probability

    Of (N, C, L) or (C, L).

    >>> import weft as wf
    >>> y = wf.nn.Dropout1d(0.5)(wf.ones((3, 2)))
    >>> set(y.flatten().tolist()) <= {0.0, 2.0}
    True
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.dropout1d(input, self.p, self.training)


class Dropout2d(_Dropout):
    """In training whole channels zero with probability p, the others divided by 1 − p.

    p  the probability

    Of images (N, C, H, W) or (C, H, W).

    >>> import weft as wf
    >>> y = wf.nn.Dropout2d(0.5)(wf.ones((3, 2, 2)))
    >>> set(y.flatten().tolist()) <= {0.0, 2.0}
    True
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.dropout2d(input, self.p, self.training)


class Dropout3d(_Dropout):
    """In training whole channels zero with probability p, the others divided by 1 − p.

    p  the probability

    Of volumes (N, C, D, H, W) or (C, D, H, W).

    >>> import weft as wf
    >>> y = wf.nn.Dropout3d(0.5)(wf.ones((3, 2, 2, 2)))
    >>> set(y.flatten().tolist()) <= {0.0, 2.0}
    True
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.dropout3d(input, self.p, self.training)


class AlphaDropout(_Dropout):
    """In training elements set to selu(−∞), then scaled so that mean 0 and variance 1 stay.

    p  the probability

    For networks of `SELU` (Klambauer et al. 2017).

    >>> import weft as wf
    >>> wf.nn.AlphaDropout(0.5).eval()(wf.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels: of all elements with the same first two indices.

    p  the probability

    >>> import weft as wf
    >>> wf.nn.FeatureAlphaDropout(0.5)(wf.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
