"""Parameter groups: by name pattern, and under the seeds' names."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar, overload

from .. import errors
from ..core.kinds import demand_iterable
from .configs import Config
from .ema import EMAOptimizer
from .like import OptimizerLike
from .optimizer import Optimizer
from .parameters import Gradients, ParameterGroup, Params, named_parameters

_R = TypeVar("_R")


def by_pattern(params: Params, patterns: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Groups of parameters by their names: each belongs to the first pattern that it matches.

    params    a module, a dict, or (name, parameter) pairs
    patterns  for each pattern (`*` and `?` stand for any characters), the options of its group

    Parameters that match none are the last group, with no options. A pattern that nothing is
    left for is an error.

    >>> import weft as wf
    >>> w, b = wf.Parameter.zeros((2, 2)), wf.Parameter.zeros((2,))
    >>> groups = wf.optim.by_pattern({"a.weight": w, "a.bias": b}, {"*.bias": {"weight_decay": 0}})
    >>> [group["params"][0][0] for group in groups]
    ['a.bias', 'a.weight']
    """
    pairs: list[tuple[Any, Any]] = list(named_parameters(params))
    if any(name is None for name, _ in pairs):
        raise errors.ArgumentError(
            "by_pattern: parameters without names; give (name, parameter) pairs or a module"
        )
    groups = []
    for pattern, options in patterns.items():
        found = [(name, p) for name, p in pairs if fnmatchcase(name, pattern)]
        if not found:
            names = ", ".join(name for name, _ in pairs[:10])
            raise errors.ArgumentError(
                f"by_pattern: {pattern!r} matches none of what is left: {names or 'nothing'}"
            )
        taken = {name for name, _ in found}
        pairs = [pair for pair in pairs if pair[0] not in taken]
        groups.append({"name": pattern, **options, "params": found})
    return [*groups, {"params": pairs}] if pairs else groups


class MultiGroupOptimizer:
    """An optimizer over groups whose learning rates are multiples of its own.

    base    an optimizer that has no parameters yet
    groups  `ParameterGroup`s

    >>> import weft as wf
    >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
    >>> groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], lr_scale=0.5)]
    >>> optimizer = wf.optim.MultiGroupOptimizer(wf.optim.SGD(lr=0.5), groups)
    >>> optimizer.step((p + q).sum().backward())
    >>> p.tolist(), q.tolist()
    ([0.5], [0.75])
    """

    def __init__(self, base: Optimizer, groups: list[ParameterGroup]):
        if not isinstance(base, Optimizer):
            raise errors.ArgumentError(
                f"MultiGroupOptimizer: base={base!r:.60}, expected an optimizer without "
                "parameters: MultiGroupOptimizer(Adam(AdamConfig()), groups)"
            )
        demand_iterable("MultiGroupOptimizer: groups", groups, "a list of ParameterGroup")
        if base.entries():
            raise errors.ArgumentError(
                "MultiGroupOptimizer: the optimizer has parameters already; make it without, as "
                "in Adam(AdamConfig())"
            )
        self.base_optimizer = base
        self.groups: list[ParameterGroup] = list(groups)
        for group in self.groups:
            base.add_param_group(group)
        base.takes_more = False

    @property
    def config(self) -> Config:
        """The base optimizer's config."""
        return self.base_optimizer.config

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The base optimizer's groups."""
        return self.base_optimizer.param_groups

    @overload
    def step(self, grads: Callable[[], _R]) -> _R: ...
    @overload
    def step(self, grads: "Gradients | None" = None) -> None: ...
    def step(self, grads: Any = None) -> Any:
        """One step of all groups.

        grads  as of `Optimizer.step`

        >>> import weft as wf
        >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        >>> groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], lr_scale=0.5)]
        >>> optimizer = wf.optim.MultiGroupOptimizer(wf.optim.SGD(lr=0.5), groups)
        >>> optimizer.step([wf.tensor([1.0]), wf.tensor([1.0])])
        >>> p.tolist(), q.tolist()
        ([0.5], [0.75])
        """
        return self.base_optimizer.step(grads)

    def set_lr(self, lr: float) -> None:
        """Set the learning rate that the groups' scales multiply.

        lr  the learning rate

        >>> import weft as wf
        >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        >>> groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], lr_scale=0.5)]
        >>> optimizer = wf.optim.MultiGroupOptimizer(wf.optim.SGD(lr=0.5), groups)
        >>> optimizer.set_lr(1.0)
        >>> optimizer.step((p + q).sum().backward())
        >>> p.tolist(), q.tolist()
        ([0.0], [0.5])
        """
        self.base_optimizer.set_lr(lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros.

        set_to_none  whether `.grad` becomes None; else zeros

        >>> import weft as wf
        >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        >>> groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], lr_scale=0.5)]
        >>> optimizer = wf.optim.MultiGroupOptimizer(wf.optim.SGD(lr=0.5), groups)
        >>> grads = (p + q).sum().backward()
        >>> optimizer.zero_grad()
        >>> p.grad is None
        True
        """
        self.base_optimizer.zero_grad(set_to_none)

    def reset(self) -> None:
        """Forget all state: the next step is a first one.

        >>> import weft as wf
        >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        >>> groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], lr_scale=0.5)]
        >>> optimizer = wf.optim.MultiGroupOptimizer(wf.optim.SGD(lr=0.5), groups)
        >>> optimizer.reset()
        >>> optimizer.state_dict()["state"]
        {}
        """
        self.base_optimizer.reset()

    def state_dict(self) -> dict[str, Any]:
        """The base optimizer's state.

        >>> import weft as wf
        >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        >>> groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], lr_scale=0.5)]
        >>> optimizer = wf.optim.MultiGroupOptimizer(wf.optim.SGD(lr=0.5), groups)
        >>> sorted(optimizer.state_dict())
        ['config', 'lr_ratios', 'optimizer', 'param_groups', 'state']
        """
        return self.base_optimizer.state_dict()

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        >>> groups = [wf.optim.ParameterGroup([p]), wf.optim.ParameterGroup([q], lr_scale=0.5)]
        >>> optimizer = wf.optim.MultiGroupOptimizer(wf.optim.SGD(lr=0.5), groups)
        >>> optimizer.load_state_dict(optimizer.state_dict())
        """
        self.base_optimizer.load_state_dict(saved)


# What scalers and trainers make steps with.
AnyOptimizer = Optimizer | EMAOptimizer | MultiGroupOptimizer | OptimizerLike
