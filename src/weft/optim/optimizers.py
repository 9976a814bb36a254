"""The optimizers: for each, its rule, its config and the arrays of its state."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..core import dtypes
from ..core.backends import BACKENDS
from . import configs, quantise, rules, whole_rules
from .late import is_late
from .optimizer import Optimizer
from .state import Slot, like, real_size

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor

# Parameters with fewer elements than this keep their moments in float32: they are few bytes, and
# the most sensitive.
UNQUANTISED = 4096


def _moments(p: Any, amsgrad: bool = False) -> dict[str, Slot]:
    names = ("exp_sum", "exp_sum_sq", *(("max_exp_sum_sq",) if amsgrad else ()))
    return {name: like(p) for name in names}


# The arrays of a state that are proportional to 1/(1 − β), for each β.
_SUMS = {
    "beta1": ("exp_sum", "exp_sum_scales"),
    "beta2": ("exp_sum_sq", "exp_sum_sq_scales", "max_exp_sum_sq"),
}


class _Moments(Optimizer):
    """An optimizer that keeps discounted sums of gradients and of their squares.

    A state says for which β its sums are: (1 − β) times a sum is the average. Averages themselves
    are sums for β = 0.
    """

    started = {"step": 0, "beta1": 0.0, "beta2": 0.0}  # noqa: RUF012  (the base says what it is)

    def rescale(self, group: dict[str, Any], own: dict[str, Any], averages: bool = False) -> None:
        for beta, names in _SUMS.items():
            wanted = 0.0 if averages else group[beta]
            if own[beta] != wanted and (is_late(own["step"]) or own["step"]):
                # As averages the sums do not change when β does.
                for name in [n for n in names if n in own]:
                    own[name] *= (1.0 - own[beta]) / (1.0 - wanted)
            own[beta] = wanted


class SGD(Optimizer):
    """Gradient descent with momentum: b ← momentum·b + (1 − dampening)·g; p ← p − lr·b.

    params        tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config        an `SGDConfig` in place of the keywords, or a learning rate
    lr            the learning rate
    momentum      how much of the former steps is kept
    weight_decay  L2 penalty: weight_decay·p is added to the gradient
    nesterov      whether the step looks one momentum ahead
    dampening     the share of a gradient that does not enter the momentum
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> p = wf.Parameter([1.0, 2.0])
    >>> optimizer = wf.optim.SGD([p], lr=0.25)
    >>> grads = (p * p).sum().backward()
    >>> optimizer.step(grads)
    >>> p.tolist()
    [0.5, 1.0]
    """

    Config = configs.SGDConfig
    rule = staticmethod(rules.sgd)
    started = {"step": 0, "momentum_step": 0}  # noqa: RUF012
    shaping = ("momentum",)
    switched_on = {"momentum": 0.9}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return {"momentum_buffer": like(p)} if group["momentum"] else {}

    def numbers(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        own["momentum_step"] += bool(group["momentum"])
        return {**super().numbers(group, own), "t": own["momentum_step"]}

    def upgrade_state(self, own: dict[str, Any]) -> dict[str, Any]:
        begun = own.get("step", 0) if "momentum_buffer" in own else 0
        return {"momentum_step": begun, **own}


class Adam(_Moments):
    """Adam (Kingma and Ba, 2015).

    params        tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config        an `AdamConfig` in place of the keywords, or a learning rate
    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  L2 penalty: weight_decay·p is added to the gradient
    amsgrad       whether the largest v so far takes the place of v
    maximize      whether the loss is to grow

    m ← β₁·m + (1 − β₁)·g, v ← β₂·v + (1 − β₂)·g²; p ← p − lr·m̂/(√v̂ + eps), where
    m̂ = m/(1 − β₁ᵗ) and v̂ = v/(1 − β₂ᵗ).

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> optimizer = wf.optim.Adam(wf.optim.AdamConfig(lr=0.5))
    >>> optimizer.step([(p.id, p, wf.tensor([3.0]))])
    >>> p.tolist()
    [0.5]
    """

    Config = configs.AdamConfig
    rule = staticmethod(rules.adam)
    shaping = ("amsgrad",)
    switched_on = {"amsgrad": True}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p, group["amsgrad"])


class AdamW(_Moments):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

    params        tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config        an `AdamWConfig` in place of the keywords, or a learning rate
    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  decoupled: p ← p·(1 − lr·weight_decay) before the step
    correct_bias  whether m and v are divided by 1 − β₁ᵗ and 1 − β₂ᵗ, as they begin with 0
    amsgrad       whether the largest v so far takes the place of v
    maximize      whether the loss is to grow

    m ← β₁·m + (1 − β₁)·g, v ← β₂·v + (1 − β₂)·g²; p ← p − lr·m̂/(√v̂ + eps), where
    m̂ = m/(1 − β₁ᵗ) and v̂ = v/(1 − β₂ᵗ).

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> wf.optim.AdamW([p], lr=0.1, weight_decay=0.5).step([wf.tensor([3.0])])
    >>> round(p.item(), 4)  # 1·(1 − 0.1·0.5) − 0.1
    0.85
    """

    Config = configs.AdamWConfig
    rule = staticmethod(rules.adamw)
    shaping = ("amsgrad",)
    switched_on = {"amsgrad": True}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p, group["amsgrad"])


class NAdam(_Moments):
    """Adam with Nesterov momentum (Dozat, 2016).

    params                  tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config                  an `NAdamConfig` in place of the keywords, or a learning rate
    lr                      the learning rate
    beta1                   how much of the mean m of gradients is kept
    beta2                   how much of the mean v of squared gradients is kept
    eps                     what is added to the root, so that nothing is divided by 0
    weight_decay            L2 penalty, unless it is decoupled
    momentum_decay          how fast the momentum comes up to beta1
    decoupled_weight_decay  whether the decay acts on the parameter, not through the gradient
    maximize                whether the loss is to grow

    The momentum of step t is μₜ = β₁·(1 − ½·0.96^(t·momentum_decay)).

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> optimizer = wf.optim.NAdam([p], lr=0.1)
    >>> optimizer.step([wf.tensor([2.0])])
    >>> 0.8 < p.item() < 1.0
    True
    """

    Config = configs.NAdamConfig
    rule = staticmethod(rules.nadam)
    started = {**_Moments.started, "mu_product": 1.0}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p)

    def numbers(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        own["mu_product"] *= rules.nadam_mu(group["beta1"], group["momentum_decay"], own["step"])
        return {**super().numbers(group, own), "mu_product": own["mu_product"]}


class RAdam(_Moments):
    """Adam with a rectified variance (Liu et al., 2020).

    params                  tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config                  an `RAdamConfig` in place of the keywords, or a learning rate
    lr                      the learning rate
    beta1                   how much of the mean m of gradients is kept
    beta2                   how much of the mean v of squared gradients is kept
    eps                     what is added to the root, so that nothing is divided by 0
    weight_decay            L2 penalty, unless it is decoupled
    decoupled_weight_decay  whether the decay acts on the parameter, not through the gradient
    maximize                whether the loss is to grow

    In the first steps, while the variance is not to be trusted, p ← p − lr·m̂.

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> wf.optim.RAdam([p], lr=0.1).step([wf.tensor([2.0])])
    >>> round(p.item(), 4)
    0.8
    """

    Config = configs.RAdamConfig
    rule = staticmethod(rules.radam)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p)


class RMSprop(Optimizer):
    """RMSprop (Hinton, 2012): v ← α·v + (1 − α)·g²; p ← p − lr·g/(√v + eps).

    params        tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config        an `RMSpropConfig` in place of the keywords, or a learning rate
    lr            the learning rate
    alpha         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  L2 penalty: weight_decay·p is added to the gradient
    momentum      how much of the former steps is kept
    centered      whether v is the variance: the squared mean gradient is taken off
    maximize      whether the loss is to grow

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> wf.optim.RMSprop([p], lr=0.1, alpha=0.75).step([wf.tensor([2.0])])
    >>> round(p.item(), 4)  # v is 1
    0.8
    """

    Config = configs.RMSpropConfig
    rule = staticmethod(rules.rmsprop)
    shaping = ("centered", "momentum")
    switched_on = {"centered": True, "momentum": 0.9}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        names = ["square_avg"]
        names += ["grad_avg"] * bool(group["centered"])
        names += ["momentum_buffer"] * bool(group["momentum"])
        return {name: like(p) for name in names}


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer, 2011): s ← s + g²; p ← p − lr·g/(√s + eps).

    params                     tensors, (name, tensor) pairs, a dict, a module, or a list of
                               groups
    config                     an `AdagradConfig` in place of the keywords, or a learning rate
    lr                         the learning rate
    lr_decay                   the rate of step t is lr/(1 + (t − 1)·lr_decay)
    weight_decay               L2 penalty: weight_decay·p is added to the gradient
    initial_accumulator_value  what the sum of squares begins with
    eps                        what is added to the root, so that nothing is divided by 0
    maximize                   whether the loss is to grow

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> wf.optim.Adagrad([p], lr=0.1).step([wf.tensor([2.0])])
    >>> round(p.item(), 4)
    0.9
    """

    Config = configs.AdagradConfig
    rule = staticmethod(rules.adagrad)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return {"sum": like(p, group["initial_accumulator_value"])}


class Lion(Optimizer):
    """Lion (Chen et al., 2023): p ← p − lr·sign(β₁·m + (1 − β₁)·g).

    params        tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config        a `LionConfig` in place of the keywords, or a learning rate
    lr            the learning rate
    beta1         how much of m enters the step
    beta2         how much of the mean m of gradients is kept
    weight_decay  decoupled: p ← p·(1 − lr·weight_decay) before the step
    maximize      whether the loss is to grow

    Then m ← β₂·m + (1 − β₂)·g: one moment, and steps of the same size for all elements.

    >>> import weft as wf
    >>> p = wf.Parameter([1.0, 1.0])
    >>> wf.optim.Lion([p], lr=0.25).step([wf.tensor([3.0, -0.5])])
    >>> p.tolist()
    [0.75, 1.25]
    """

    Config = configs.LionConfig
    rule = staticmethod(rules.lion)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return {"exp_avg": like(p)}


class _Real(Optimizer):
    """An optimizer of whole parameters, which must be real."""

    whole = True

    def _check_shape(self, key: str, p: "Tensor") -> None:
        if dtypes.is_complex(p.dtype):
            raise errors.DTypeError(
                f"{self._name}: the parameter {key!r} is {p.dtype}, expected real numbers; keep "
                "its real and imaginary parts as two parameters"
            )


class LAMB(_Moments, _Real):
    """LAMB (You et al., 2020): p ← p − lr·‖p‖/‖r‖·r for r = m̂/(√v̂ + eps) + weight_decay·p.

    params        tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config        a `LAMBConfig` in place of the keywords, or a learning rate
    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  how much of p is added to the direction r
    correct_bias  whether m and v are divided by 1 − β₁ᵗ and 1 − β₂ᵗ, as they begin with 0
    maximize      whether the loss is to grow

    Adam's direction, as long as the parameter; where a norm is 0 their ratio counts as 1.

    >>> import weft as wf
    >>> p = wf.Parameter([3.0, 4.0])
    >>> wf.optim.LAMB([p], lr=0.1, weight_decay=0.0).step([wf.tensor([2.0, 2.0])])
    >>> [round(v, 3) for v in p.tolist()]  # 0.1·5/√2 less
    [2.646, 3.646]
    """

    Config = configs.LAMBConfig
    rule = staticmethod(whole_rules.lamb)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p)


class Adafactor(_Real):
    """Adafactor (Shazeer and Stern, 2018): second moments as rows and columns, relative steps.

    params           tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config           an `AdafactorConfig` in place of the keywords, or a learning rate
    lr               the largest relative step (None: 10⁻², or 10⁻⁶·t with `warmup_init`); the
                     step itself where `relative_step` is off
    eps              added to squared gradients; None: a floor of the dtype's precision instead
    clip_threshold   the largest root mean square of an update
    decay_rate       β₂ at step t is 1 − t^decay_rate
    weight_decay     decoupled: p ← p·(1 − rate·weight_decay) before the step
    scale_parameter  whether steps are relative to the parameter's root mean square
    relative_step    whether steps are at most t^−½
    eps2             the smallest scale of a parameter
    beta1            momentum of the updates; None: none
    warmup_init      whether the first steps are small
    maximize         whether the loss is to grow

    With keywords only, PyTorch's defaults hold: `lr=1e-2`, `eps=None` and `eps2=1e-3` (PyTorch's
    pair `eps`), `clip_threshold=1.0` (`d`), `decay_rate=-0.8` (`beta2_decay`). PyTorch's names are
    accepted too. `AdafactorConfig` has the paper's defaults.

    >>> import weft as wf
    >>> p = wf.Parameter(wf.ones((4, 4)))
    >>> wf.optim.Adafactor([p]).step([wf.ones((4, 4))])
    >>> p[0, 0].item() < 1.0
    True
    """

    Config = configs.AdafactorConfig
    rule = staticmethod(whole_rules.adafactor)
    shaping = ("beta1",)
    switched_on = {"beta1": 0.9}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        shape = tuple(p.shape)
        if len(shape) > 1:
            slots = {
                "row_var": like(p, shape=(*shape[:-1], 1)),
                "col_var": like(p, shape=(*shape[:-2], 1, shape[-1])),
            }
        else:
            slots = {"variance": like(p)}
        return slots if group["beta1"] is None else {**slots, "exp_avg": like(p)}

    def numbers(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        floor = 0.0
        if group["eps"] is None:
            second = own["variance" if "variance" in own else "row_var"]
            floor = float(np.finfo(BACKENDS[type(second)].dtype_of(second)).eps)
        return {**super().numbers(group, own), "floor": floor}


class Muon(_Real):
    """Muon (Jordan et al., 2024): momentum made nearly orthogonal, for matrices.

    params           tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config           a `MuonConfig` in place of the keywords, or a learning rate
    lr               the learning rate
    weight_decay     decoupled: p ← p·(1 − lr·weight_decay) before the step
    momentum         how much of the former steps is kept
    nesterov         whether the step looks one momentum ahead
    ns_coefficients  a, b and c of the iteration X ← a·X + (b·A + c·A²)·X, A = X·Xᵀ
    eps              the least that a norm counts as
    ns_steps         how many iterations
    adjust_lr_fn     what the rate is multiplied by: None or "original": √max(1, rows/columns);
                     "match_rms_adamw": 0.2·√max(rows, columns)

    Parameters that are not matrices need another optimizer beside it.

    >>> import weft as wf
    >>> p = wf.Parameter(wf.zeros((2, 2)))
    >>> wf.optim.Muon([p], lr=0.1).step([wf.tensor([[3.0, 0.0], [0.0, 5.0]])])
    >>> p[0, 0].item() < -0.05, p[0, 1].item()
    (True, 0.0)
    """

    Config = configs.MuonConfig
    rule = staticmethod(whole_rules.muon)

    def _check_shape(self, key: str, p: "Tensor") -> None:
        super()._check_shape(key, p)
        if p.ndim != 2:
            raise errors.ShapeError(
                f"{self._name}: the parameter {key!r} has the shape {p.shape}, expected matrices; "
                "give the others to AdamW"
            )

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return {"momentum_buffer": like(p)}


class _Quantised(_Moments):
    """Adam's moments in 8 bits, except of small parameters."""

    traced = False
    shaping = ("block_size",)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        size, block = real_size(p), group["block_size"]
        if size < UNQUANTISED:
            return _moments(p)
        device = BACKENDS[type(p)].device_of(p)
        codes = Slot((size,), dtypes.uint8, device)
        scales = Slot((-(-size // block),), dtypes.float32, device, every=block)
        return {
            "exp_sum_codes": codes,
            "exp_sum_scales": scales,
            "exp_sum_sq_codes": codes,
            "exp_sum_sq_scales": scales,
        }


class Adam8bit(_Quantised):
    """Adam with its moments in 8 bits (Dettmers et al., 2022): 2 bytes of state a parameter.

    params        tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config        an `Adam8bitConfig` in place of the keywords, or a learning rate
    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  L2 penalty: weight_decay·p is added to the gradient
    block_size    how many elements share a scale
    maximize      whether the loss is to grow

    The moments are quantised in blocks; tensors of fewer than 4096 elements keep them in float32.

    >>> import weft as wf
    >>> p = wf.Parameter(wf.ones(8192))
    >>> wf.optim.Adam8bit([p], lr=0.1).step([wf.ones(8192)])
    >>> round(p[0].item(), 4)
    0.9
    """

    Config = configs.Adam8bitConfig

    def rule_of(self, own: Any) -> Any:
        return quantise.adam8bit if "exp_sum_codes" in own else rules.adam


class AdamW8bit(_Quantised):
    """AdamW with its moments in 8 bits: 2 bytes of state a parameter.

    params        tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config        an `AdamW8bitConfig` in place of the keywords, or a learning rate
    lr            the learning rate
    beta1         how much of the mean m of gradients is kept
    beta2         how much of the mean v of squared gradients is kept
    eps           what is added to the root, so that nothing is divided by 0
    weight_decay  decoupled: p ← p·(1 − lr·weight_decay) before the step
    block_size    how many elements share a scale
    maximize      whether the loss is to grow

    The moments are quantised in blocks; tensors of fewer than 4096 elements keep them in float32.

    >>> import weft as wf
    >>> p = wf.Parameter(wf.ones(8192))
    >>> wf.optim.AdamW8bit([p], lr=0.1, weight_decay=0.0).step([wf.ones(8192)])
    >>> round(p[0].item(), 4)
    0.9
    """

    Config = configs.AdamW8bitConfig

    def rule_of(self, own: Any) -> Any:
        return quantise.adamw8bit if "exp_sum_codes" in own else rules.adamw

    def numbers(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        return {**super().numbers(group, own), "correct_bias": True}
