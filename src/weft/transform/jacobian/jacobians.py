"""`wf.jacobian`, `wf.hessian` and their kin: derivatives as matrices, planned once per program."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from ... import errors
from ...arrays.make import asarray
from ...arrays.manipulation import reshape
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.settings import exactly
from ..modes import trees
from ..modes.dual import to_tensor
from ..modes.functional import _positions, grad, jvp
from ..modes.trace import Traced, trace_of
from ..modes.vmap import vmap
from .compiler import compile_if_compiled
from .formats import JacobianLayout, operator_of
from .plan import Plan, make_plan
from .plan_check import check_plan, check_projection, refuse_verification, signature
from .scheduling import SchedulerConfig
from .sweeps import Sweeper

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArgNums

P = ParamSpec("P")


FORMATS = ("dense", "csr", "coo", "operator")
MODES = ("auto", "forward", "reverse", "mixed", "columns", "rows", "both", "star")
MEMORY_LIMIT = 1 << 30  # bytes that the seeds of one chunk may take, in all intermediate values

# The plans of each function, by the signature of its trace; the oldest goes when there are many.
_MOST_PLANS = 64
_PLANS: WeakKeyDictionary = WeakKeyDictionary()


class _Planned:
    """A function that computes the Jacobian of another, by a plan."""

    def __init__(
        self, name, f, argnums, mode, format, config, memory_limit, verify, has_aux, symmetric
    ):
        _one_of(name, "mode", mode, MODES)
        _one_of(name, "format", format, FORMATS)
        argnums = tuple(argnums) if isinstance(argnums, list) else argnums
        if memory_limit is not None and memory_limit <= 0:
            raise errors.ArgumentError(
                f"{name}: memory_limit={memory_limit}, expected a positive number of bytes"
            )
        self.name, self.f, self.argnums = name, f, argnums
        self.mode, self.format = mode, format
        self.config = config or SchedulerConfig()
        self.memory_limit = MEMORY_LIMIT if memory_limit is None else int(memory_limit)
        self.verify, self.has_aux, self.symmetric = verify, has_aux, symmetric
        self.inner = grad(f, argnums, has_aux) if symmetric else f
        self._plans = _plans_of(f).setdefault(self._choice(), {})

    def _choice(self) -> tuple:
        """The options that a plan depends on, beside the function and its trace."""
        sparse = self.format in ("csr", "coo")
        return self.argnums, self.mode, sparse, self.config, self.memory_limit, self.symmetric

    def __call__(self, *args, **kwargs):
        sweeper, layout = self._trace(args, kwargs)
        with exactly():
            found = self._compute(sweeper, layout)
        return (found, layout.aux) if self.has_aux else found

    def _compute(self, sweeper: Sweeper, layout: JacobianLayout):
        if self.format == "operator":
            return operator_of(sweeper, layout)
        plan = self._plan(sweeper)
        found = plan.run(sweeper)
        if self.verify:
            refuse_verification(self.name, found)
            check_projection(self.name, sweeper, plan, found)
        return layout.in_format(self.format, plan, found)

    def plan(self, *args, measure: bool = True, **kwargs) -> Plan:
        """The plan for these arguments; `measure` runs and times every way to compute it."""
        sweeper, _ = self._trace(args, kwargs)
        with exactly():
            plan = self._make(sweeper, measure)
            known = self._plans.get(signature(sweeper.trace), plan)
            plan.code = known.native.describe(sweeper)
            return plan

    def _trace(self, args, kwargs) -> tuple[Sweeper, JacobianLayout]:
        picked = _positions(self.name, self.argnums, args)
        chosen = tuple(args[i] for i in picked)
        leaves, rebuild = trees.differentiable_arguments(self.name, chosen, (args, kwargs))
        trees.differentiable(self.name, leaves)
        _refuse_complex(self.name, leaves)
        beside: list = []

        def inner(*parts):
            rest = list(args)
            for i, part in zip(picked, parts, strict=True):
                rest[i] = part
            out = self.inner(*rest, **kwargs)
            if not self.has_aux:
                return out
            if not isinstance(out, tuple) or len(out) != 2:
                raise errors.ArgumentError(f"{self.name}: with has_aux=True return (result, aux)")
            beside.append(out[1])
            return out[0]

        if not leaves:
            raise errors.ArgumentError(
                f"{self.name}: the argument holds no tensors to differentiate by"
            )
        traced = trace_of(self.name, inner, leaves, rebuild)
        _check_results(self.name, traced)
        layout = JacobianLayout(traced, rebuild, isinstance(self.argnums, int))
        layout.aux = _from_trace(traced, beside[0]) if beside else None
        return Sweeper(traced, self.memory_limit), layout

    def _plan(self, sweeper: Sweeper) -> Plan:
        key = signature(sweeper.trace)
        plan = self._plans.get(key)
        if plan is None:
            if len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            plan = self._make(sweeper, measure=False)
            check_plan(self.name, sweeper, plan)
            self._plans[key] = plan
        else:
            sweeper.structure = plan.structure
        return plan

    def _make(self, sweeper: Sweeper, measure: bool) -> Plan:
        kinds = None if self.mode == "auto" else (self.mode,)
        sparse = self.format in ("csr", "coo")
        return make_plan(
            sweeper,
            self.config,
            kinds=kinds,
            symmetric=self.symmetric,
            sparse=sparse,
            measure=measure,
        )


def _one_of(name: str, what: str, value, allowed) -> None:
    if value not in allowed:
        names = ", ".join(map(repr, allowed))
        raise errors.ArgumentError(f"{name}: {what}={value!r}, expected one of {names}")


def _plans_of(f: Callable[..., Any]) -> dict:
    """The cached plans of a function; an empty cache if it takes no weak reference."""
    try:
        return _PLANS.setdefault(f, {})
    except TypeError:
        return {}


def _refuse_complex(name: str, leaves) -> None:
    for x in leaves:
        if dtypes.is_complex(x.dtype):
            raise errors.NotDifferentiable(
                f"{name}: a complex argument has no single Jacobian; differentiate with respect "
                "to its real and imaginary parts, or use wf.jvp and wf.vjp"
            )


def _from_trace(traced: Traced, tree):
    """A tree with its traced tensors replaced by their values."""
    leaves, rebuild = trees.flatten(tree)
    return rebuild(
        [
            to_tensor(x._data.inner)
            if isinstance(x, Tensor) and getattr(x._data, "trace", None) is traced.trace
            else x
            for x in leaves
        ]
    )


def _check_results(name: str, traced: Traced) -> None:
    for i in traced.outputs:
        dtype = traced.trace.avals[i].dtype
        if not dtypes.is_inexact(dtype):
            raise errors.NotDifferentiable(
                f"{name}: the function returned a result of dtype {dtype}, which has no "
                "derivative; return floats, or the rest with has_aux=True"
            )
        if dtypes.is_complex(dtype):
            raise errors.NotDifferentiable(
                f"{name}: the function returned a complex result; return its real and imaginary "
                "parts, or use wf.jvp and wf.vjp"
            )


class PlannedFunction(Protocol[P]):
    """A derivative with the arguments of the function; `plan(*args)` says how it is computed."""

    plan: Callable[P, Plan]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...


def jacobian(
    f: Callable[P, Any],
    argnums: ArgNums = 0,
    mode: str = "auto",
    format: str = "dense",
    *,
    scheduler: SchedulerConfig | None = None,
    memory_limit: int | None = None,
    verify: bool = False,
    has_aux: bool = False,
) -> PlannedFunction[P]:
    """A function that gives the Jacobian of f, planned by itself.

    f             a function of tensors, or of trees of them
    argnums       the position of the argument to differentiate by, or a tuple of positions
    mode          "auto", or one kind of plan: "forward" and "reverse" (dense), "mixed" (cut at
                  the narrowest place), "columns", "rows" and "both" (compressed by colouring)
    format        "dense" (result.shape + argument.shape, trees of those for trees), "csr" and
                  "coo" (one SciPy matrix, flattened), or "operator" (a SciPy `LinearOperator`)
    scheduler     a `SchedulerConfig` that restricts the choice
    memory_limit  bytes that the seeds of one chunk may take
    verify        check every result against a random projection
    has_aux       f returns (result, aux), and the function (Jacobian, aux)

    Sparsity and bottlenecks are found in a trace of f, taken with the values at every call; the
    plan is made once for each program that the trace shows, and after some calls its sweeps are
    compiled. Of a compiled function the Jacobian is compiled as a whole, and so is
    `wf.compile(wf.jacobian(f))`.

    >>> import weft as wf
    >>> wf.jacobian(lambda x: x[1:] * x[:-1])(wf.tensor([1.0, 2.0, 3.0])).tolist()
    [[2.0, 1.0, 0.0], [0.0, 3.0, 2.0]]
    """
    planned = _Planned(
        "jacobian",
        f,
        argnums,
        mode,
        format,
        scheduler,
        memory_limit,
        verify,
        has_aux,
        symmetric=False,
    )
    return _as_function(f, planned)


def hessian(
    f: Callable[P, Any],
    argnums: ArgNums = 0,
    mode: str = "auto",
    format: str = "dense",
    *,
    scheduler: SchedulerConfig | None = None,
    memory_limit: int | None = None,
    verify: bool = False,
    has_aux: bool = False,
) -> PlannedFunction[P]:
    """A function that gives the Hessian of f, which returns one number.

    f                                                       a function of tensors, or of trees
                                                            of them, which returns one number
    argnums                                                 the position of the argument to
                                                            differentiate by, or a tuple of
                                                            positions
    mode, format, scheduler, memory_limit, verify, has_aux  as of `jacobian`

    Forward sweeps over the gradient's trace; sparse ones are compressed by star colouring. The
    arguments are those of `jacobian`.

    >>> import weft as wf
    >>> wf.hessian(lambda x: x[0] * x[1] ** 2)(wf.tensor([3.0, 2.0])).tolist()
    [[0.0, 4.0], [4.0, 6.0]]
    """
    planned = _Planned(
        "hessian",
        f,
        argnums,
        mode,
        format,
        scheduler,
        memory_limit,
        verify,
        has_aux,
        symmetric=True,
    )
    return _as_function(f, planned)


def _as_function(f: Callable[P, Any], planned: _Planned) -> PlannedFunction[P]:
    @wraps(f)
    def derivative(*args: P.args, **kwargs: P.kwargs) -> Any:
        return planned(*args, **kwargs)

    if planned.format == "dense" and not planned.verify:
        run = compile_if_compiled(f, derivative)
        if run is not derivative:
            return _as_plain(run, planned)
    function: Any = derivative
    function.plan = planned.plan
    return function


def _as_plain(run: Any, planned: _Planned) -> Any:
    """A compiled derivative as a plain function, with a `plan` attribute."""

    @wraps(run)
    def derivative(*args, **kwargs):
        return run(*args, **kwargs)

    derivative.plan, derivative.explain = planned.plan, run.explain  # type: ignore[attr-defined]
    return derivative


def plan_jacobian(f: Callable[..., Any], *args: Any, argnums: ArgNums = 0, **options: Any) -> Plan:
    """The plan of `jacobian(f, …)` for these arguments: every way to compute it, run and timed.

    f        the function
    args     its arguments
    argnums  the position of the argument to differentiate by, or a tuple of positions
    options  mode, format, scheduler and memory_limit, as of `jacobian`

    Printing the plan shows the sizes, the sparsity, the narrowest cut, the sweeps and the cost
    of each candidate, and why one was chosen.

    >>> import weft as wf
    >>> wf.plan_jacobian(lambda x: x.sum(), wf.ones(3)).chosen.kind
    'reverse'
    """
    return jacobian(f, argnums, **options).plan(*args)


def jacfwd(f: Callable[P, Any], argnums: ArgNums = 0) -> PlannedFunction[P]:
    """The Jacobian by forward mode: one tangent for each element of the argument.

    f        a function of tensors, or of trees of them
    argnums  the position of the argument to differentiate by, or a tuple of positions

    >>> import weft as wf
    >>> wf.jacfwd(lambda x: x**2)(wf.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return jacobian(f, argnums, mode="forward")


def jacrev(f: Callable[P, Any], argnums: ArgNums = 0) -> PlannedFunction[P]:
    """The Jacobian by reverse mode: one cotangent for each element of the result.

    f        a function of tensors, or of trees of them
    argnums  the position of the argument to differentiate by, or a tuple of positions

    >>> import weft as wf
    >>> wf.jacrev(lambda x: x**2)(wf.tensor([1.0, 2.0])).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    return jacobian(f, argnums, mode="reverse")


def laplacian(f: Callable[P, Any]) -> Callable[P, Tensor]:
    """A function that gives Σᵢ ∂²f/∂xᵢ², forward over forward, for each element of f's result.

    f  a function of tensors

    >>> import weft as wf
    >>> wf.laplacian(lambda x: (x**3).sum())(wf.tensor([1.0, 2.0])).item()
    18.0
    """

    run: Callable[..., Any] = f

    @wraps(f)
    def trace_of_hessian(x: Any, *args: Any, **kwargs: Any) -> Tensor:
        x = asarray(x)
        trees.differentiable("laplacian", [x])

        def second(v):
            def first(z):
                return jvp(lambda y: run(y, *args, **kwargs), (z,), (v,))[1]

            return jvp(first, (x,), (v,))[1]

        basis = reshape(asarray(np.eye(x.size), dtype=x.dtype, device=x.device), (x.size, *x.shape))
        return vmap(second)(basis).sum(0)

    return compile_if_compiled(f, trace_of_hessian)
