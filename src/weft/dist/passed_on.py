"""What a ShardedOptimizer leaves to the optimizer that it was made of: groups and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..optim.optimizer import Optimizer
from ..optim.parameters import ParameterEntry

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..optim.configs import Config
    from ..optim.parameters import Params


class PassesOn:
    """Passes questions of groups and settings on to an optimizer.

    optimizer  the optimizer
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer: Optimizer = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups, which may be changed in the same way on all ranks."""
        return self.optimizer.param_groups

    @property
    def config(self) -> Config:
        """The optimizer's config."""
        return self.optimizer.config

    @property
    def lr(self) -> float | None:
        """The learning rate, which groups scale; assigning it is `set_lr`."""
        return self.optimizer.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self.optimizer.set_lr(lr)

    def set_lr(self, lr: float) -> None:
        """Set the learning rate; groups with one of their own keep its ratio to this one.

        lr  the learning rate

        >>> import weft as wf
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([wf.Parameter([1.0])], lr=0.5))
        >>> optimizer.set_lr(0.25)
        >>> optimizer.param_groups[0]["lr"]
        0.25
        """
        self.optimizer.set_lr(lr)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros.

        set_to_none  whether `.grad` becomes None; else zeros

        >>> import weft as wf
        >>> p = wf.Parameter([1.0])
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([p]))
        >>> grads = (p * p).sum().backward()
        >>> optimizer.zero_grad()
        >>> p.grad is None
        True
        """
        self.optimizer.zero_grad(set_to_none)

    def add_param_group(self, group: Params) -> None:
        """Add parameters, with settings of their own; at the next step all are shared out anew.

        group  a dict with "params" and options, or a `ParameterGroup`

        >>> import weft as wf
        >>> p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
        >>> optimizer = wf.dist.ShardedOptimizer(wf.optim.SGD([p], lr=0.5))
        >>> optimizer.add_param_group({"params": [q], "lr": 0.25})
        >>> len(optimizer.param_groups)
        2
        """
        self.optimizer.add_param_group(group)

    def entries(self) -> list[ParameterEntry]:
        """The parameters with their keys and groups, in order."""
        return self.optimizer.entries()

    def entry_of(self, param: Tensor, name: str | None = None) -> ParameterEntry:
        """The entry of a parameter."""
        return self.optimizer.entry_of(param, name)
