"""Values that an equation defines: `root`, `fixed_point` and `argmin`.

The solver runs on stopped values and is never differentiated. If r(x, θ) = 0 defines x, then
dx = −(∂r/∂x)⁻¹ (∂r/∂θ) dθ, whatever found x; all modes and orders follow from that line.
"""

from collections.abc import Callable
from typing import Any

from numpy import ndarray

from ... import errors
from ...arrays.linalg import solve
from ...arrays.tensor import Tensor
from ...backend.device import as_numpy
from ...core.backends import BACKENDS
from ...core.box import ground
from ...core.call import caller
from ...core.origin import here
from ...core.record import record
from ...core.settings import current, override_settings
from ...core.value import TENSORS
from ...graph.guard import GUARD
from ...ops.structural import reshape
from ..modes import trees
from ..modes.functional import grad, jvp
from ..modes.trace import trace_of
from . import solvers
from .packing import Packing, pack
from .replay import PureProgram, close_trace
from .solution import equilibrium

__all__ = ["argmin", "fixed_point", "root"]
_guarded = caller(GUARD, public=True)


def root(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: Callable[..., Any] | None = None,
    tol: float | None = None,
    max_steps: int = 100,
) -> Any:
    """x with f(x, *args) = 0, differentiable by the args and by whatever else f reads.

    f          as many numbers as x has, in any structure
    x0         where to start: a tensor, or a tree of tensors, whose form the result has. Which
               solution is found may depend on it; nothing is differentiated by it
    args       what f also depends on, and what the result is differentiated by
    solver     (f, x0) -> x, a solver of your own in place of Newton's method. Its f takes x
               only, and the args are constants to it; give SciPy's solvers in args, not by
               closure, what is being differentiated by
    tol        the last step's largest element beside that of x; where no step helps any more,
               the largest element that f keeps. Default: ε^¾ of the dtype, 2e-12 in double
               precision. What a solver of your own found is checked only if tol is given
    max_steps  raise `weft.errors.ConvergenceError` after so many steps

    The derivative solves one linear system with ∂f/∂x at the solution, which must be regular; it
    does not depend on the solver and keeps none of its steps. Works in both modes, to any order,
    inside vmap.

    >>> import weft as wf
    >>> sqrt = lambda a: wf.implicit.root(lambda x: x * x - a, wf.tensor(1.0))
    >>> a = wf.tensor(4.0)
    >>> sqrt(a).item(), wf.grad(sqrt)(a).item(), wf.grad(wf.grad(sqrt))(a).item()
    (2.0, 0.25, -0.03125)
    """
    task = _SolverCall("implicit.root", Packing("implicit.root", x0), tol)

    def residual(x: Tensor, args) -> Tensor:
        leaves, _ = trees.flatten_result(task.what, f(task.packing.tree(x), *args))
        r = pack(leaves, task.packing.dtype)
        if r.shape != x.shape:
            raise errors.ShapeError(
                f"implicit.root: f returned {r.shape[0]} numbers for {x.shape[0]} unknowns; as "
                "many equations as unknowns are needed"
            )
        return r

    def solution(x: Tensor, args):
        return solvers.newton(lambda x: residual(x, args), x, task.tolerance, max_steps)

    return task.differentiable_solution(residual, solution, solver, f, args)


def fixed_point(
    g: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: Callable[..., Any] | None = None,
    tol: float | None = None,
    max_steps: int = 1000,
) -> Any:
    """x with g(x, *args) = x, differentiable by the args and by whatever else g reads.

    g          a value of the structure and shapes of x
    x0         where to start; nothing is differentiated by it
    args       what g also depends on, and what the result is differentiated by
    solver     (g, x0) -> x, a solver of your own in place of accelerated iteration (Anderson)
    tol        the largest element that g(x) − x may keep, beside 1 + the largest of x. Default:
               ε^¾ of the dtype, 2e-12 in double precision
    max_steps  raise `weft.errors.ConvergenceError` after so many steps

    The derivative is that of `root` for g(x) − x.

    >>> import weft as wf
    >>> x = wf.implicit.fixed_point(lambda x: wf.cos(x), wf.tensor(1.0, dtype="float64"))
    >>> round(x.item(), 10)
    0.7390851332
    """
    task = _SolverCall("implicit.fixed_point", Packing("implicit.fixed_point", x0), tol)

    def mapped(x: Tensor, args) -> Tensor:
        return task.packing.vector(g(task.packing.tree(x), *args), "g(x)")

    def solution(x: Tensor, args):
        return solvers.anderson(lambda x: mapped(x, args), x, task.tolerance, max_steps)

    return task.differentiable_solution(
        lambda x, args: mapped(x, args) - x, solution, solver, g, args
    )


def argmin(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    solver: Callable[..., Any] | None = None,
    tol: float | None = None,
    max_steps: int = 100,
) -> Any:
    """x that makes f(x, *args) least, differentiable by the args and by whatever else f reads.

    f          one number; a local minimum near x0 is found
    x0         where to start; nothing is differentiated by it
    args       what f also depends on, and what the result is differentiated by
    solver     (f, x0) -> x, a solver of your own in place of Newton's method
    tol        the last step's largest element beside that of x; where no step helps any more,
               the largest element that the gradient keeps. Default: ε^¾ of the dtype
    max_steps  raise `weft.errors.ConvergenceError` after so many steps

    The derivative is that of `root` for ∂f/∂x, so the Hessian must be regular at the minimum.

    >>> import weft as wf
    >>> ridge = lambda c: wf.implicit.argmin(lambda x: (x - 3) ** 2 + c * x**2, wf.tensor(0.0))
    >>> ridge(wf.tensor(1.0)).item(), wf.grad(ridge)(wf.tensor(1.0)).item()
    (1.5, -0.75)
    """
    task = _SolverCall("implicit.argmin", Packing("implicit.argmin", x0), tol)

    def value(x: Tensor, args) -> Tensor:
        leaves, _ = trees.flatten_result(task.what, f(task.packing.tree(x), *args))
        if len(leaves) != 1 or leaves[0].size != 1:
            got = ", ".join(str(y.shape) for y in leaves)
            raise errors.NonScalarBackward(
                f"implicit.argmin: f must return one number, it returned {got}; reduce it (.sum())"
            )
        return reshape(leaves[0], ())

    def solution(x: Tensor, args):
        objective = _of(value, args)
        return solvers.newton_minimum(objective, x, task.tolerance, max_steps)

    return task.differentiable_solution(
        lambda x, args: grad(_of(value, args))(x), solution, solver, f, args
    )


def _of(value: Callable[..., Any], args) -> Callable[..., Any]:
    return lambda x: value(x, args)


class _SolverCall:
    """One call of a solver: the form of the unknown, and the tolerance."""

    def __init__(self, what: str, packing: Packing, tol: float | None):
        self.what, self.packing, self._tol = what, packing, tol
        self._line = here()

    @property
    def tolerance(self) -> float:
        if self._tol is not None:
            return self._tol
        return solvers.rounding(self.packing.dtype) ** 0.75

    def differentiable_solution(
        self,
        residual: Callable[..., Any],
        solution: Callable[..., Any],
        solver,
        f: Callable[..., Any],
        args: tuple,
    ):
        """The solution, differentiable by all values that the residual reads."""
        constant = _stop_gradients(args)
        x0 = pack([x.detach() for x in self.packing.start], self.packing.dtype)
        with override_settings(grad=False), BACKENDS[ndarray].quiet():
            if solver is None:
                x, good, size = solution(x0, constant)
                x = self._require_solved(x, good, size)
            else:
                tree = solver(lambda x: f(x, *constant), self.packing.tree(x0))
                x = self.packing.vector(_stop_gradients(tree), "the solver's result")
                if self._tol is not None:
                    size = solvers.size(residual(x, constant).detach())
                    x = self._require_solved(x, size <= self._tol, size)
        traced = trace_of(self.what, lambda x: residual(x, args), [x], lambda leaves: leaves)
        program, found = close_trace(traced, here_only=True)
        problem = Equilibrium(self.what, self._line, program)
        return self.packing.tree(equilibrium([x, *found], problem))

    def _require_solved(self, x: Tensor, good: Tensor, size: Tensor) -> Tensor:
        """x, if it is a solution; a compiled program checks that at each call, by a guard."""
        if current.get().staging is not None:
            message = (
                f"{self.what} (called at {self._line}): not solved to the tolerance "
                f"{self.tolerance:.3g}; start nearer to the solution (x0), or allow more max_steps "
                "or a larger tol"
            )
            return _guarded(x, good.all(), message, errors.ConvergenceError)
        self._check(as_numpy(ground(good)), size)
        return x

    def _check(self, reached: ndarray, size: Tensor) -> None:
        if not reached.all():
            worst = float(as_numpy(ground(size)).max())
            if worst <= self.tolerance:
                raise errors.ConvergenceError(
                    f"{self.what}: the gradient vanishes ({worst:.3g}) at a point that is no "
                    "minimum, a saddle or a maximum; start elsewhere (x0)"
                )
            many = f" for {(~reached).sum()} of {reached.size} problems" if reached.size > 1 else ""
            raise errors.ConvergenceError(
                f"{self.what}: not solved{many}: the residual is {worst:.3g}, the tolerance "
                f"{self.tolerance:.3g}; start nearer to the solution (x0), allow more max_steps or "
                "a larger tol, or give a solver of your own"
            )


def _stop_gradients(tree):
    """The same tree with its tensors detached."""
    leaves, rebuild = trees.flatten(tree)
    return rebuild([x.detach() if x.__class__ in TENSORS else x for x in leaves])


@record
class Equilibrium:
    """The problem that defines x: a residual, a program of x and of all else it reads, is zero."""

    what: str
    line: str
    residual: PureProgram

    def push(self, tangents: list[Tensor | None], y: Tensor, args: list[Tensor]) -> Tensor:
        """−(∂r/∂x)⁻¹ (∂r/∂θ) dθ."""
        others = args[1:]
        moving = [k for k, t in enumerate(tangents[1:]) if t is not None]

        def of_others(*moved):
            values = list(others)
            for k, v in zip(moving, moved, strict=True):
                values[k] = v
            return self.residual(y, *values)[0]

        here_and_there = [others[k] for k in moving], [tangents[1 + k] for k in moving]
        _, change = jvp(of_others, *here_and_there)
        slopes = solvers.columns(lambda x: self.residual(x, *others)[0], y)
        try:
            return -solve(slopes, change)
        except errors.LinAlgError as e:
            raise errors.LinAlgError(
                f"{self.what} (called at {self.line}): the derivative of the residual by x is "
                f"singular at the solution ({e.message}), so that x has no derivative there: the "
                "solution is not isolated, or two solutions meet"
            ) from None
