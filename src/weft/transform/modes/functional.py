"""Derivatives of functions: `grad`, `vjp`, `jvp`, and transformations composed of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Integral
from typing import TYPE_CHECKING, Any, ParamSpec

from ... import errors
from ...arrays.make import ones_like, zeros_like
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.box import Level, Tag, innermost, level_of, refuse_inner
from ...core.node import Leaf, Node, Severed
from ...core.recording import inexact
from ...core.settings import current, override_settings
from ...core.value import TENSORS, wrap
from ...ops.structural import alias
from . import trees
from .backward import no_graph_error, visit
from .dual import Dual, matching_tangent, primal_of, tangent_of, to_tensor, unwrap_if_plain
from .paths import nodes_between
from .reverse import sweep

if TYPE_CHECKING:
    from ...arrays.types import ArgNums

P = ParamSpec("P")


def _fresh_input(x: Tensor) -> Tensor:
    """A new tensor with the value of x, to differentiate with respect to.

    It is lifted to the level of the innermost transformation, on which the graph is recorded.
    """
    level = innermost()
    if level is not None and level_of(x) < level.tag:
        x = wrap(level.kind.lift(level, unwrap_if_plain(x)))
    if x._node is None or x._node.__class__ is Severed:
        x = wrap(x._data)
        x._node = Leaf(x._data.shape, x._data.dtype, None, False)
        return x
    return alias(x)


def _positions(what: str, argnums, args: tuple) -> tuple[int, ...]:
    """The positions that `argnums` names, all of which must be there."""
    picked = tuple(argnums) if isinstance(argnums, list | tuple) else (argnums,)
    picked = tuple([int(i) if isinstance(i, Integral) else i for i in picked])
    for i in picked:
        if not isinstance(i, int) or not -len(args) <= i < len(args):
            raise errors.ArgumentError(
                f"{what}: argnums={argnums!r} with {len(args)} positional arguments; give the "
                "position of one of them, or a tuple of positions"
            )
    places = tuple(i % len(args) for i in picked)
    if len(set(places)) < len(places):
        raise errors.ArgumentError(f"{what}: argnums={argnums!r} names an argument twice")
    return places


class _RecordedCall:
    """A function's results, recorded from fresh inputs."""

    def __init__(
        self, what: str, f: Callable, given: tuple, kwargs: dict, picked: Any, has_aux: bool
    ):
        self.what = what
        args = list(given)
        chosen = tuple(args[i] for i in picked)
        leaves, self.rebuild_inputs = trees.differentiable_arguments(what, chosen, (args, kwargs))
        trees.differentiable(what, leaves)
        with override_settings(grad=True, enclosed=True):
            self.inputs = [_fresh_input(x) for x in leaves]
            # Taken before the call: if f assigns into its arguments, they get other nodes.
            self.goals = [x._node for x in self.inputs]
            for i, part in zip(picked, self.rebuild_inputs(self.inputs), strict=True):
                args[i] = part
            out = f(*args, **kwargs)
        out, self.aux = _split_aux(what, out, self._value) if has_aux else (out, None)
        self.outputs, self.rebuild_outputs = trees.flatten_result(what, out)
        if self.inputs:
            self._refuse_levels_above()

    def _refuse_levels_above(self) -> None:
        """Refuse results on a level above the inputs: their nodes do not lead to the inputs."""
        top = max(map(level_of, self.inputs))
        for y in self.outputs:
            if level_of(y) > top:
                raise errors.ArgumentError(
                    f"{self.what}: the function uses a DualTensor that was made outside of it, so "
                    "its result is one, too; return its .value or its .tangent, or use wf.jvp"
                )

    def pull(self, seeds: list, retain: bool) -> list:
        """The inputs' cotangents for the outputs'."""
        start: dict = {}
        for y, g in zip(self.outputs, seeds, strict=True):
            if y._node.__class__ is Severed:
                raise no_graph_error(y)
            if y._node is not None:
                start[y._node] = start[y._node] + g if y._node in start else g
        goals = self.goals
        useful, outside = nodes_between(start, set(goals))
        # An enclosing transformation or backward() may differentiate the result.
        tracked = outside or any(g.requires_grad for g in start.values())
        record = current.get().grad and tracked
        start = {n: g if record else g._data for n, g in start.items() if n in useful}
        found = sweep(
            start,
            record=record,
            retain=retain or record,
            useful=useful,
            goals=set(goals),
            on_node=visit,
        )
        cotangents = [found.get(n) for n in goals]
        return [
            zeros_like(_lower(x)) if c is None else to_tensor(c)
            for x, c in zip(self.inputs, cotangents, strict=True)
        ]

    def values(self):
        """The function's result, without the nodes of this recording."""
        return self.rebuild_outputs([self._value(y) for y in self.outputs])

    def _value(self, y: Tensor) -> Tensor:
        """y without the nodes that lead to the fresh inputs only."""
        if y._node is None or (current.get().grad and self.is_tracked_outside(y)):
            return y
        return wrap(y._data)

    def is_tracked_outside(self, y: Tensor) -> bool:
        if y._node.__class__ not in (Leaf, Node):
            return True
        return nodes_between([y._node], set(self.goals), refuse=False)[1]


def _split_aux(what: str, out, seen: Callable[..., Any]):
    """(result, aux) of a function with `has_aux`; `seen` is applied to the tensors of aux."""
    if not isinstance(out, tuple) or len(out) != 2:
        raise errors.ArgumentError(f"{what}: with has_aux=True return (result, aux)")
    result, aux = out
    leaves, put = trees.flatten(aux)
    return result, put([seen(a) if a.__class__ in TENSORS else a for a in leaves])


def _lower(x: Tensor) -> Tensor:
    return wrap(x._data)


def value_and_grad(
    f: Callable[P, Any], argnums: ArgNums = 0, has_aux: bool = False
) -> Callable[P, tuple[Any, Any]]:
    """A function that gives f's value and its gradient.

    f        a function of tensors, or of trees of them, which returns one number
    argnums  the position of the argument to differentiate by, or a tuple of positions
    has_aux  f returns (value, aux); the result is then ((value, aux), gradient)

    >>> import weft as wf
    >>> value, slope = wf.value_and_grad(lambda x: x**3)(wf.tensor(2.0))
    >>> value.item(), slope.item()
    (8.0, 12.0)
    """

    @wraps(f)
    def both(*args: P.args, **kwargs: P.kwargs) -> tuple[Any, Any]:
        run = _RecordedCall("grad", f, args, kwargs, _positions("grad", argnums, args), has_aux)
        loss = _scalar(run)
        value = run.values()
        grads = run.rebuild_inputs(run.pull([ones_like(_lower(loss))], retain=has_aux))
        grads = grads[0] if isinstance(argnums, int) else grads
        return ((value, run.aux), grads) if has_aux else (value, grads)

    return both


def _scalar(run: _RecordedCall) -> Tensor:
    outputs = run.outputs
    if len(outputs) != 1 or outputs[0].shape != ():
        got = ", ".join(str(y.shape) for y in outputs)
        raise errors.NonScalarBackward(
            f"grad: the function must return one number, it returned {got}; reduce it "
            "(.sum()), or use wf.vjp or wf.jacobian"
        )
    if not inexact(outputs[0]):
        raise errors.NotDifferentiable(
            f"grad: the function returned {outputs[0].dtype}, which has no derivative; compute "
            "the result in floating point"
        )
    if dtypes.is_complex(outputs[0].dtype):
        raise errors.NotDifferentiable(
            "grad: the function returned a complex number; return its real part, its modulus, or "
            "use wf.vjp"
        )
    return outputs[0]


def grad(f: Callable[P, Any], argnums: ArgNums = 0, has_aux: bool = False) -> Callable[P, Any]:
    """A function that gives the gradient ∂f/∂xᵢ of f, which returns one number.

    f        a function of tensors, or of trees of them
    argnums  the position of the argument to differentiate by, or a tuple of positions
    has_aux  f returns (value, aux), and the function (gradient, aux)

    Trees of tensors give trees of gradients.

    >>> import weft as wf
    >>> wf.grad(wf.grad(lambda x: x**3))(wf.tensor(2.0)).item()
    12.0
    """
    both = value_and_grad(f, argnums, has_aux)

    @wraps(f)
    def gradient(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return gradient


def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """f's result, and the function u ↦ uᵀJ that pulls cotangents back to the arguments.

    f        a function of tensors, or of trees of them
    primals  its arguments
    has_aux  f returns (result, aux), and this (result, function, aux)

    The second function gives a tuple with one cotangent for each argument. With `has_aux` a
    third value is what f returned beside its result.

    >>> import weft as wf
    >>> y, pull = wf.vjp(lambda a, b: a * b, wf.tensor(2.0), wf.tensor(5.0))
    >>> [g.item() for g in pull(wf.tensor(1.0))]
    [5.0, 2.0]
    """
    run = _RecordedCall("vjp", f, primals, {}, tuple(range(len(primals))), has_aux)
    result = run.values()

    def pull(cotangents):
        seeds, _ = trees.tensors("vjp", cotangents)
        if len(seeds) != len(run.outputs):
            raise errors.ArgumentError(
                f"vjp: {len(seeds)} cotangents for {len(run.outputs)} results; give each result "
                "one, in the structure of the results"
            )
        trees.same_structure("vjp (results and cotangents)", result, cotangents)
        seeds = [_matching_seed(y, g) for y, g in zip(run.outputs, seeds, strict=True)]
        return run.rebuild_inputs(run.pull(seeds, retain=True))

    return (result, pull, run.aux) if has_aux else (result, pull)


def _matching_seed(y: Tensor, g: Tensor) -> Tensor:
    if g.shape != y.shape:
        raise errors.ShapeError(
            f"vjp: a cotangent of shape {g.shape} for a result of shape {y.shape}; they must be "
            "equal"
        )
    if g.device != y.device:
        raise errors.DeviceError(
            f"vjp: the cotangent is on {g.device!r}, the result on {y.device!r}; move it with .to()"
        )
    return g if g.dtype == y.dtype else g.to(y.dtype)


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> Any:
    """f's result, and its derivative J·v along the tangents, in one forward sweep.

    f         a function of tensors, or of trees of them
    primals   its arguments
    tangents  v, one for each argument
    has_aux   f returns (result, aux), and this (result, derivative, aux)

    >>> import weft as wf
    >>> y, dy = wf.jvp(lambda x: x**3, (wf.tensor(2.0),), (wf.tensor(1.0),))
    >>> y.item(), dy.item()
    (8.0, 12.0)
    """
    _check_tuples("jvp", primals, tangents)
    values, rebuild = trees.differentiable_arguments("jvp", tuple(primals))
    directions, _ = trees.tensors("jvp", tuple(tangents))
    if len(values) != len(directions):
        raise errors.ArgumentError(
            f"jvp: {len(directions)} tangents for {len(values)} arguments; give wf.zeros_like(x) "
            "for one that does not move"
        )
    trees.same_structure("jvp (primals and tangents)", tuple(primals), tuple(tangents))
    trees.differentiable("jvp", values)
    with Tag("jvp") as tag:
        duals = [
            wrap(Dual(tag, unwrap_if_plain(x), unwrap_if_plain(matching_tangent("jvp", x, t))))
            for x, t in zip(values, directions, strict=True)
        ]
        with override_settings(levels=(*current.get().levels, Level(Dual, tag))):
            out = f(*rebuild(duals))
        return _unpack_duals(out, tag, has_aux)


def _check_tuples(name: str, primals: Any, tangents: Any) -> None:
    if not isinstance(primals, list | tuple) or not isinstance(tangents, list | tuple):
        raise errors.ArgumentError(
            f"{name}: primals and tangents are tuples with one entry for each argument: "
            f"wf.{name}(f, (x,), (v,))"
        )
    if len(primals) != len(tangents):
        raise errors.ArgumentError(
            f"{name}: {len(tangents)} tangents for {len(primals)} arguments; give "
            "wf.zeros_like(x) for one that does not move"
        )


def _unpack_duals(out, tag: float, has_aux: bool):
    """(result, derivative), or with aux a third, from what a function of duals returned."""
    out, aux = _split_aux("jvp", out, lambda a: primal_of(a, tag)) if has_aux else (out, None)
    outputs, put = trees.flatten_result("jvp", out)
    for y in outputs:
        refuse_inner("jvp", y, tag)
    result = put([primal_of(y, tag) for y in outputs])
    derivative = put([tangent_of(y, tag) for y in outputs])
    return (result, derivative, aux) if has_aux else (result, derivative)


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of f times a vector, H·v, forward over reverse.

    f         a function that returns one number
    primals   its arguments
    tangents  v, one for each argument

    >>> import weft as wf
    >>> x, v = wf.tensor([1.0, 2.0]), wf.tensor([1.0, 0.0])
    >>> wf.hvp(lambda x: (x**3).sum(), (x,), (v,)).tolist()
    [6.0, 0.0]
    """
    _check_tuples("hvp", primals, tangents)
    every = tuple(range(len(primals)))
    gradient = grad(f, every if len(every) > 1 else 0)
    return jvp(gradient, primals, tangents)[1]
