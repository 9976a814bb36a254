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
    """The squared error (x − t)².

    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.MSELoss()(wf.tensor([1.0, 3.0]), wf.tensor([0.0, 0.0])).item()
    5.0
    """

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__(reduction)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """The absolute error |x − t|.

    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.L1Loss()(wf.tensor([1.0, 3.0]), wf.tensor([0.0, 0.0])).item()
    2.0
    """

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__(reduction)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.l1_loss(input, target, self.reduction)


class HuberLoss(_Loss):
    """(x − t)²/2 where |x − t| ≤ delta, delta·(|x − t| − delta/2) elsewhere.

    reduction  "mean" over all losses, "sum", or "none" for each
    delta      where the square ends

    >>> import weft as wf
    >>> wf.nn.HuberLoss("none")(wf.tensor([1.0, 3.0]), wf.tensor([0.0, 0.0])).tolist()
    [0.5, 2.5]
    """

    def __init__(self, reduction: Reduction = "mean", delta: float = 1.0):
        super().__init__(reduction, delta=delta)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.huber_loss(input, target, self.reduction, self.delta)


class SmoothL1Loss(_Loss):
    """(x − t)²/(2·beta) where |x − t| < beta, |x − t| − beta/2 elsewhere.

    reduction  "mean" over all losses, "sum", or "none" for each
    beta       where the square ends; 0 gives |x − t|

    >>> import weft as wf
    >>> wf.nn.SmoothL1Loss("none", 2.0)(wf.tensor([1.0, 3.0]), wf.tensor([0.0, 0.0])).tolist()
    [0.25, 2.0]
    """

    def __init__(self, reduction: Reduction = "mean", beta: float = 1.0):
        super().__init__(reduction, beta=beta)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.smooth_l1_loss(input, target, self.reduction, self.beta)


class BCELoss(_Loss):
    """−t·log p − (1 − t)·log(1 − p) for probabilities p; logarithms end at −100.

    weight     what each loss is multiplied by; broadcasts
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> round(wf.nn.BCELoss()(wf.tensor([0.5, 0.5]), wf.tensor([1.0, 0.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, reduction: Reduction = "mean"):
        super().__init__(reduction, {"weight": weight})

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross-entropy of σ(x), without overflow: (1 − t)·x + log(1 + e⁻ˣ).

    weight      what each loss is multiplied by; broadcasts
    reduction   "mean" over all losses, "sum", or "none" for each
    pos_weight  what the losses of t = 1 are multiplied by; broadcasts

    >>> import weft as wf
    >>> round(wf.nn.BCEWithLogitsLoss()(wf.tensor([0.0, 0.0]), wf.tensor([1.0, 0.0])).item(), 4)
    0.6931
    """

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

    weight           one number for each class; a mean is then divided by the sum of the
                     targets' weights
    ignore_index     a class whose targets do not count
    reduction        "mean" over the targets that count, "sum", or "none"
    label_smoothing  the share of a target that is spread evenly over all classes

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
    """−x at the target class, for log-probabilities x (N, C, …) or (C,).

    weight        one number for each class; a mean is then divided by the sum of the targets'
                  weights
    ignore_index  a class whose targets do not count
    reduction     "mean" over the targets that count, "sum", or "none"

    >>> import weft as wf
    >>> x = wf.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    >>> wf.nn.NLLLoss()(x, wf.tensor([0, 1])).item()
    2.5
    """

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
    """t·(log t − x) for log-probabilities x, where 0·log 0 = 0.

    reduction   "mean" over all elements, "batchmean", the divergence itself, over the first
                axis, "sum" or "none"
    log_target  whether the target is given as log t

    >>> import weft as wf
    >>> p = wf.tensor([[0.5, 0.5]])
    >>> wf.nn.KLDivLoss("batchmean")(wf.log(p), p).item()
    0.0
    """

    reductions: tuple[str, ...] = (*_REDUCTIONS, "batchmean")

    def __init__(
        self, reduction: Reduction | Literal["batchmean"] = "mean", log_target: bool = False
    ):
        super().__init__(reduction, log_target=log_target)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.kl_div(input, target, self.reduction, self.log_target)


class HingeEmbeddingLoss(_Loss):
    """x where t = 1, max(0, margin − x) where t = −1.

    margin     the distance x from which on different things cost nothing
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> loss = wf.nn.HingeEmbeddingLoss(reduction="none")
    >>> loss(wf.tensor([0.25, 0.25]), wf.tensor([1.0, -1.0])).tolist()
    [0.25, 0.75]
    """

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction, margin=margin)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, self.reduction)


class HingeLoss(_Loss):
    """max(0, margin − t·x) for t = ±1.

    margin     from which t·x on there is no loss
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.HingeLoss(reduction="none")(wf.tensor([0.5, 0.5]), wf.tensor([1.0, -1.0])).tolist()
    [0.5, 1.5]
    """

    def __init__(self, margin: float = 1.0, reduction: Reduction = "mean"):
        super().__init__(reduction, margin=margin)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.hinge_loss(input, target, self.margin, self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(−t·x)) for t = ±1.

    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> round(wf.nn.SoftMarginLoss()(wf.tensor([0.0]), wf.tensor([1.0])).item(), 4)
    0.6931
    """

    def __init__(self, reduction: Reduction = "mean"):
        super().__init__(reduction)

    def forward(self, input: ArrayLike, target: ArrayLike) -> Tensor:
        return F.soft_margin_loss(input, target, self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, margin − t·(x₁ − x₂)): t = 1 where x₁ should be the larger, else −1.

    margin     by how much it should be larger
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.MarginRankingLoss()(wf.tensor([1.0]), wf.tensor([3.0]), wf.tensor([1.0])).item()
    2.0
    """

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean"):
        super().__init__(reduction, margin=margin)

    def forward(self, input1: ArrayLike, input2: ArrayLike, target: ArrayLike) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 − cos(x₁, x₂) where t = 1, max(0, cos(x₁, x₂) − margin) where t = −1.

    margin     the cosine up to which different things cost nothing
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> a, b = wf.tensor([[1.0, 0.0]]), wf.tensor([[0.0, 2.0]])
    >>> wf.nn.CosineEmbeddingLoss()(a, b, wf.tensor([1.0])).item()
    1.0
    """

    def __init__(self, margin: float = 0.0, reduction: Reduction = "mean"):
        super().__init__(reduction, margin=margin)

    def forward(self, input1: ArrayLike, input2: ArrayLike, target: ArrayLike) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, ‖a − p‖ − ‖a − n‖ + margin) for an anchor a, a positive p and a negative n.

    margin     by how much the negative should be further away
    p          the exponent of the norms
    eps        what is added to differences, so that their norm is differentiable
    swap       where p is nearer to n than a is, that distance counts
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> a, p, n = wf.tensor([[0.0, 0.0]]), wf.tensor([[3.0, 4.0]]), wf.tensor([[0.0, 2.0]])
    >>> round(wf.nn.TripletMarginLoss()(a, p, n).item(), 4)
    4.0
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
    reduction      "mean" divides each loss by its number of labels first; "sum" or "none"
    zero_infinity  whether sequences that are too short for their labels have loss 0 in place of
                   ∞

    >>> import weft as wf
    >>> frames = wf.log(wf.full((2, 1, 2), 0.5))
    >>> loss = wf.nn.CTCLoss()(frames, wf.tensor([[1]]), wf.tensor([2]), wf.tensor([1]))
    >>> round(loss.exp().item(), 4)  # of the 4 paths 3 spell the label
    1.3333
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
    """−log of the Poisson probability of t, up to log t!: eˣ − t·x.

    log_input  False: x is the rate itself, and the loss x − t·log(x + eps)
    full       whether Stirling's approximation of log t! is added where t > 1
    eps        what is added to a rate
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> wf.nn.PoissonNLLLoss()(wf.tensor([0.0]), wf.tensor([3.0])).item()
    1.0
    """

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
    """(log v + (x − t)²/v)/2 for the variance v; called as loss(x, t, v).

    full       whether log(2π)/2 is added
    eps        the least that v counts as
    reduction  "mean" over all losses, "sum", or "none" for each

    >>> import weft as wf
    >>> x, t, v = wf.tensor([1.0]), wf.tensor([3.0]), wf.tensor([1.0])
    >>> wf.nn.GaussianNLLLoss()(x, t, v).item()
    2.0
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: Reduction = "mean"):
        super().__init__(reduction, full=full, eps=eps)

    def forward(self, input: ArrayLike, target: ArrayLike, var: ArrayLike) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class CosineSimilarity(Module):
    """x₁·x₂/(max(‖x₁‖, eps)·max(‖x₂‖, eps)) along an axis.

    dim  the axis of the vectors
    eps  the least that a norm counts as

    >>> import weft as wf
    >>> a, b = wf.tensor([[1.0, 0.0]]), wf.tensor([[3.0, 4.0]])
    >>> round(wf.nn.CosineSimilarity()(a, b).item(), 4)
    0.6
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: ArrayLike, x2: ArrayLike) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, eps={self.eps}"


class PairwiseDistance(Module):
    """‖x₁ − x₂ + eps‖ₚ along the last axis.

    p        the exponent of the norm
    eps      what is added to the difference, so that its norm is differentiable
    keepdim  whether the last axis stays, with length 1

    >>> import weft as wf
    >>> a, b = wf.tensor([[0.0, 0.0]]), wf.tensor([[3.0, 4.0]])
    >>> wf.nn.PairwiseDistance(eps=0.0)(a, b).tolist()
    [5.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: ArrayLike, x2: ArrayLike) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)

    def extra_repr(self) -> str:
        return f"p={self.norm}, eps={self.eps}, keepdim={self.keepdim}"
