"""Masks of attention as PyTorch's kernels take them: finite numbers that are added to the scores.

The kernels differ in what they give for a query that sees no key, and some give NaN for −∞ or for
numbers near the largest. So they get none of these, and such queries are set right afterwards.

Numbers below a limit L become 2L, or L where they are the largest of their query. The weights stay
the same: L is so low that scores vanish beside it, and that 2L beside L has weight 0. In float16,
whose numbers end at 65504, that holds while scores differ by less than 30000.
"""

from math import inf

import torch

from ...core.record import record
from .types import Array, Shape

_LIMITS = {torch.float16: -3e4}
_LIMIT = -1e30
_ALIGNED = 16  # numbers; what the kernels' loads of a row of the bias may need
# The logarithm of a denominator beside which all weights are 0.
_NO_WEIGHT = 1e30


@record(eq=False)
class Mask:
    """A mask in the form of the kernels.

    bias   (batch or 1, heads or 1, queries or 1, keys)
    top    the largest number that is added to a score of each query; −∞ if it sees no key
    limit  those below were replaced
    """

    bias: Array
    top: Array
    limit: float

    def finish(self, out: Array, lse: Array) -> tuple[Array, Array]:
        """A kernel's results as they are for the mask itself; `out` is changed in place."""
        top = self.top.to(lse.dtype)
        out.masked_fill_((top == -inf).unsqueeze(-1), 0)
        return out, torch.where(top < self.limit, lse - self.limit + top, lse)

    def start_backward(self, lse: Array) -> Array:
        """The logarithms that belong to the bias; queries that see no key have weights of 0."""
        top = self.top.to(lse.dtype)
        lse = torch.where(top < self.limit, lse - top + self.limit, lse)
        return torch.where(top == -inf, _NO_WEIGHT, lse)


def is_taken(mask: Array, q: Array, lead: Shape) -> bool:
    """Whether a mask can be converted without a loss, and has no batch axes of its own."""
    if mask.ndim < 3:
        return False
    if mask.dtype != torch.bool and torch.promote_types(mask.dtype, q.dtype) != q.dtype:
        return False
    shape = mask.shape[:-3]
    fits = [n == 1 or n == m for n, m in zip(shape[::-1], lead[::-1], strict=False)]
    return len(shape) <= len(lead) and all(fits)


def converted(mask: Array, q: Array, keys: int, lead: Shape) -> Mask:
    """A mask (…, heads or 1, queries or 1, keys or 1) beside queries with the batch axes `lead`."""
    mask = _four_axes(mask, lead)
    limit = _LIMITS.get(q.dtype, _LIMIT)
    padded = keys + -keys % _ALIGNED
    bias = mask.new_zeros((*mask.shape[:3], padded), dtype=q.dtype)[..., :keys]
    if mask.dtype == torch.bool:
        bias.masked_fill_(~mask, 2 * limit)
        top = torch.where(mask.any(-1), 0.0, -inf)
        return Mask(bias, top, limit)
    top = mask.amax(-1)
    bias.copy_(mask)
    low = mask < limit  # not where it is NaN
    bias.masked_fill_(low, 2 * limit)
    bias.masked_fill_(low & (mask == top.unsqueeze(-1)), limit)
    return Mask(bias, top, limit)


def _four_axes(mask: Array, lead: Shape) -> Array:
    """The mask with its axes before the last three joined into one, or of length 1."""
    own = mask.shape[:-3]
    if own.numel() == 1:
        return mask.reshape((1, *mask.shape[-3:]))
    if tuple(own) != tuple(lead):
        mask = mask.expand(*lead, *mask.shape[-3:])
    return mask.reshape((-1, *mask.shape[-3:]))
