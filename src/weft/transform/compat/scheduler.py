"""`HybridScheduler`: the planner under the seeds' name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..jacobian.jacobians import hessian, jacobian
from ..jacobian.plan import Plan
from ..jacobian.scheduling import SchedulerConfig

if TYPE_CHECKING:
    from ...arrays.types import ArgNums


class HybridScheduler:
    """Computes Jacobians in forward, reverse or mixed mode, as a `SchedulerConfig` says.

    config  a `SchedulerConfig`; None: its defaults

    >>> import weft as wf
    >>> scheduler = wf.HybridScheduler(wf.SchedulerConfig(strategy="forward"))
    >>> x = wf.tensor([1.0, 2.0])
    >>> scheduler.jacobian(lambda x: x**2, x).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    >>> scheduler.plan(lambda x: x**2, x).chosen.kind
    'forward'
    """

    config: SchedulerConfig

    def __init__(self, config: SchedulerConfig | None = None):
        self.config = config or SchedulerConfig()

    def plan(self, f: Callable[..., Any], *args: Any, argnums: ArgNums = 0) -> Plan:
        """The plan of a Jacobian: every way to compute it, each run and timed, and the one chosen.

        f        the function
        args     its arguments
        argnums  the position of the argument to differentiate by, or a tuple of positions

        >>> import weft as wf
        >>> wf.HybridScheduler().plan(lambda x: x.sum(), wf.ones(3)).chosen.kind
        'reverse'
        """
        return jacobian(f, argnums, scheduler=self.config).plan(*args)

    def jacobian(
        self, f: Callable[..., Any], *args: Any, argnums: ArgNums = 0, format: str = "dense"
    ) -> Any:
        """The Jacobian of f at these arguments.

        f        the function
        args     its arguments
        argnums  the position of the argument to differentiate by, or a tuple of positions
        format   "dense", "csr", "coo" or "operator", as of `wf.jacobian`

        >>> import weft as wf
        >>> wf.HybridScheduler().jacobian(lambda x: x**2, wf.tensor([1.0, 2.0])).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
        """
        return jacobian(f, argnums, format=format, scheduler=self.config)(*args)

    def hessian(
        self, f: Callable[..., Any], *args: Any, argnums: ArgNums = 0, format: str = "dense"
    ) -> Any:
        """The Hessian of f at these arguments.

        f        the function, which returns one number
        args     its arguments
        argnums  the position of the argument to differentiate by, or a tuple of positions
        format   "dense", "csr", "coo" or "operator", as of `wf.jacobian`

        >>> import weft as wf
        >>> wf.HybridScheduler().hessian(lambda x: (x**3).sum(), wf.tensor([1.0, 2.0])).tolist()
        [[6.0, 0.0], [0.0, 12.0]]
        """
        return hessian(f, argnums, format=format, scheduler=self.config)(*args)
