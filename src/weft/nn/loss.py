"""Losses as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from . import functional as F
from .making import one_of
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Reduction

_REDUCTIONS: tuple[str, ...] = ("none", "mean", "sum")


class _Loss(Module):
    """A loss whose options are its attributes; tensors among them are buffers.

    reduction  "mean" or "sum" of the losses, or "none"
    """

    reductions: tuple[str, ...] = _REDUCTIONS

    def __init__(
        self,
        reduction: Reduction | Literal["batchmean"],
        weights: dict[str, Tensor | None] | None = None,
        **options: float,
    ):
        super().__init__()
        name = type(self).__name__
        self.reduction: Any = one_of(name, "reduction", reduction, self.reductions)
        vars(self).update(options)
        for name, tensor in (weights or {}).items():
            self.register_buffer(name, tensor)
        self._options: tuple[str, ...] = tuple(options)

    def extra_repr(self) -> str:
        names = (*self._options, "reduction")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


class MSELoss(_Loss):
    """(x − t)².

    >>> import weft as wf
    >>> wf.nn.MSELoss()(wf.tensor([1.0, 3.0]), wf.tensor([0.0, 0.0])).item()
    5.0
    """

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__(reduction)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """|x − t|."""

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__(reduction)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.l1_loss(input, target, self.reduction)


class HuberLoss(_Loss):
    """(x − t)²/2 where |x − t| ≤ delta, delta·(|x − t| − delta/2) elsewhere."""

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0):
        super().__init__(reduction, delta=delta)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class SmoothL1Loss(_Loss):
    """The Huber loss divided by `beta`; with beta = 0 the loss |x − t|."""

    def __init__(self, reduction: Reduction = "mean", beta: float = 1.0):
        super().__init__(reduction, beta=beta)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class BCELoss(_Loss):
    """−t·log p − (1 − t)·log(1 − p), logarithms not below −100; `weight` broadcasts."""

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean"):
        super().__init__(reduction, {"weight": weight})

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """`BCELoss` of σ(x); the losses of t = 1 are multiplied by `pos_weight`."""

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: Reduction = "mean",
        pos_weight: Tensor | None = None,
    ):
        super().__init__(reduction, {"weight": weight, "pos_weight": pos_weight})

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        how = self.weight, self.reduction, self.pos_weight
        return F.binary_cross_entropy_with_logits(input, target, *how)


class CrossEntropyLoss(_Loss):
    """−log softmax(x) at the target: classes (N, …), or probabilities of the shape of x.

    weight           one number a class
    ignore_index     targets of this class do not count
    label_smoothing  the share of the target that is spread over all classes

    >>> import weft as wf
    >>> logits = wf.zeros((3, 4))
    >>> round(wf.nn.CrossEntropyLoss()(logits, wf.tensor([0, 1, 3])).item(), 4)  # log 4
    1.3863
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        label_smoothing: float = 0.0,
    ):
        options = {"ignore_index": ignore_index, "label_smoothing": label_smoothing}
        super().__init__(reduction, {"weight": weight}, **options)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        how = self.weight, self.ignore_index, self.reduction, self.label_smoothing
        return F.cross_entropy(input, target, *how)


class NLLLoss(_Loss):
    """−x at the target class, x log-probabilities; options as of `CrossEntropyLoss`."""

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction, {"weight": weight}, ignore_index=ignore_index)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class KLDivLoss(_Loss):
    """t·(log t − x), x log-probabilities, and t too with `log_target`.

    reduction  "batchmean", the divergence itself, divides by the length of the first axis
    """

    reductions: tuple[str, ...] = (*_REDUCTIONS, "batchmean")

    def __init__(
        self, reduction: Reduction | Literal["batchmean"] = "mean", log_target: bool = False
    ):
        super().__init__(reduction, log_target=log_target)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.kl_div(input, target, self.reduction, self.log_target)


class HingeEmbeddingLoss(_Loss):
    """x where t = 1, max(margin − x, 0) where t = −1."""

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction, margin=margin)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, self.reduction)


class HingeLoss(_Loss):
    """max(margin − t·x, 0), t ±1."""

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction, margin=margin)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.hinge_loss(input, target, self.margin, self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(−t·x)), t ±1."""

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__(reduction)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class MarginRankingLoss(_Loss):
    """max(margin − t·(x₁ − x₂), 0), t = 1 where x₁ should be the larger, else −1."""

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean"):
        super().__init__(reduction, margin=margin)

    def forward(self, input1: ArrayLike, input2: ArrayLike, target: ArrayLike) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 − cos(x₁, x₂) where t = 1, max(cos(x₁, x₂) − margin, 0) where t = −1."""

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean"):
        super().__init__(reduction, margin=margin)

    def forward(self, input1: ArrayLike, input2: ArrayLike, target: ArrayLike) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(_Loss):
    """max(‖a − p‖ − ‖a − n‖ + margin, 0), the norms with exponent `p`.

    swap  where p is nearer to n than a is, that distance counts
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction, margin=margin, p=p, eps=eps, swap=swap)

    def forward(self, anchor: ArrayLike, positive: ArrayLike, negative: ArrayLike) -> Tensor:
        how = self.margin, self.p, self.eps, self.swap, self.reduction
        return F.triplet_margin_loss(anchor, positive, negative, *how)


class CTCLoss(_Loss):
    """−log of the probability that frames (T, N, C) spell the labels, with blanks between.

    blank          the class that stands for no label
    zero_infinity  sequences that are too short for their labels have loss 0 in place of ∞
    """

    def __init__(self, blank: int = 0, reduction: Reduction = "mean", zero_infinity: bool = False):
        super().__init__(reduction, blank=blank, zero_infinity=zero_infinity)

    def forward(
        self,
        log_probs: ArrayLike,
        targets: ArrayLike,
        input_lengths: ArrayLike,
        target_lengths: ArrayLike,
    ) -> Tensor:
        how = self.blank, self.reduction, self.zero_infinity
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, *how)


class PoissonNLLLoss(_Loss):
    """eˣ − t·x, or x − t·log(x + eps) without `log_input`; `full`: with log t! by Stirling."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: Reduction = "mean",
    ):
        super().__init__(reduction, log_input=log_input, full=full, eps=eps)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.poisson_nll_loss(
            input, target, self.log_input, self.full, self.eps, self.reduction
        )


class GaussianNLLLoss(_Loss):
    """(log v + (x − t)²/v)/2 with a variance v not below `eps`; `full`: with log(2π)/2."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean"):
        super().__init__(reduction, full=full, eps=eps)

    def forward(self, input: ArrayLike, target: ArrayLike, var: ArrayLike) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class CosineSimilarity(Module):
    """x₁·x₂/(‖x₁‖·‖x₂‖) along the axis `dim`, the norms not below `eps`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: ArrayLike, x2: ArrayLike) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, eps={self.eps}"


class PairwiseDistance(Module):
    """‖x₁ − x₂ + eps‖ along the last axis, with exponent `p`."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: ArrayLike, x2: ArrayLike) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)

    def extra_repr(self) -> str:
        return f"p={self.norm}, eps={self.eps}, keepdim={self.keepdim}"
