"""The optimizers: for each, its rule, its config and the arrays of its state."""

from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..core import dtypes
from ..core.backends import BACKENDS
from . import configs, quantise, rules, whole_rules
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
    """An optimizer that keeps discounted sums of gradients and of their squares."""

    started = {"step": 0, "beta1": 0.0, "beta2": 0.0}  # noqa: RUF012  (the base says what it is)

    def rescale(self, group: dict[str, Any], own: dict[str, Any]) -> None:
        for beta, names in _SUMS.items():
            if own["step"] and own[beta] != group[beta]:
                # As averages the sums do not change when β does.
                for name in [n for n in names if n in own]:
                    own[name] *= (1.0 - own[beta]) / (1.0 - group[beta])
            own[beta] = group[beta]


class SGD(Optimizer):
    """Stochastic gradient descent: p ← p − lr·(momentum of) g.

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

    def upgraded(self, own: dict[str, Any]) -> dict[str, Any]:
        begun = own.get("step", 0) if "momentum_buffer" in own else 0
        return {"momentum_step": begun, **own}


class Adam(_Moments):
    """Adam (Kingma and Ba, 2015); `weight_decay` is an L2 penalty.

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
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""

    Config = configs.AdamWConfig
    rule = staticmethod(rules.adamw)
    shaping = ("amsgrad",)
    switched_on = {"amsgrad": True}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p, group["amsgrad"])


class NAdam(_Moments):
    """Adam with Nesterov momentum (Dozat, 2016)."""

    Config = configs.NAdamConfig
    rule = staticmethod(rules.nadam)
    started = {**_Moments.started, "mu_product": 1.0}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p)

    def numbers(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        own["mu_product"] *= rules.nadam_mu(group["beta1"], group["momentum_decay"], own["step"])
        return {**super().numbers(group, own), "mu_product": own["mu_product"]}


class RAdam(_Moments):
    """Adam with a rectified variance (Liu et al., 2020)."""

    Config = configs.RAdamConfig
    rule = staticmethod(rules.radam)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p)


class RMSprop(Optimizer):
    """RMSprop (Hinton, 2012), centred and with momentum if asked for."""

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
    """Adagrad (Duchi, Hazan and Singer, 2011)."""

    Config = configs.AdagradConfig
    rule = staticmethod(rules.adagrad)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return {"sum": like(p, group["initial_accumulator_value"])}


class Lion(Optimizer):
    """Lion (Chen et al., 2023): one moment, and steps of the same size for all elements."""

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
    """LAMB (You et al., 2020): Adam's direction, in proportion to each parameter's norm."""

    Config = configs.LAMBConfig
    rule = staticmethod(whole_rules.lamb)

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return _moments(p)


class Adafactor(_Real):
    """Adafactor (Shazeer and Stern, 2018): the second moments of a matrix as rows and columns.

    With keywords only, PyTorch's defaults hold (`lr=1e-2`, `eps=(None, 1e-3)`, `d=1.0`,
    `beta2_decay=-0.8`); `AdafactorConfig` has the paper's.
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
    """Muon (Jordan et al., 2024): orthogonal steps, for matrices; other parameters need another
    optimizer beside it.
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
    """Adam with its moments in 8 bits (Dettmers et al., 2022): 2 bytes of state a parameter."""

    Config = configs.Adam8bitConfig

    def rule_of(self, own: Any) -> Any:
        return quantise.adam8bit if "exp_sum_codes" in own else rules.adam


class AdamW8bit(_Quantised):
    """AdamW with its moments in 8 bits."""

    Config = configs.AdamW8bitConfig

    def rule_of(self, own: Any) -> Any:
        return quantise.adamw8bit if "exp_sum_codes" in own else rules.adamw

    def numbers(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        return {**super().numbers(group, own), "correct_bias": True}
