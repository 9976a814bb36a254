"""Custom operations: a computation and a derivative that the user states."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import update_wrapper
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from ... import errors
from .rows import apply_custom
from .signature import CustomFunctions, Rule, check_batch

P = ParamSpec("P")
F = TypeVar("F", bound=Callable[..., Any])


class CustomOp(ABC):
    """An operation with a derivative of your own, as a class to derive from.

    forward(inputs)                the value, from a list of untracked tensors: computed with wf
                                   or, from x.numpy(), with anything else; a tensor or an array,
                                   or a tuple of them
    backward(grad_output, inputs)  one cotangent for each input, None where there is none; for a
                                   tuple of results grad_output is a tuple
    jvp(tangents, inputs)          the results' tangents; absent tangents are None
    batch                          what `vmap` does where forward is opaque, see `custom_op`

    Both rules may take the forward's result as one more parameter, `output`. One of them is
    enough: if it is linear in the (co)tangent, the other mode is derived from it.

    >>> import weft as wf
    >>> class ClipGradient(wf.CustomOp):
    ...     def forward(self, inputs):
    ...         return inputs[0]
    ...     def backward(self, grad_output, _inputs):
    ...         return grad_output.clamp(-1.0, 1.0)
    >>> x = wf.tensor([1.0, 2.0], requires_grad=True)
    >>> (ClipGradient()(x) * wf.tensor([0.5, 30.0])).sum().backward()[x].tolist()
    [0.5, 1.0]
    """

    _caches = ("_state", "_rules")  # not guarded by compiled functions
    batch: Callable[..., Any] | str | None = None
    _rules: tuple[Rule | None, Rule | None] = (None, None)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._rules = (_method_rule(cls, "vjp", "backward"), _method_rule(cls, "jvp", "jvp"))

    @abstractmethod
    def forward(self, inputs: Any) -> Any:
        """The operation's value.

        inputs  the tensors, untracked

        >>> import weft as wf
        >>> class Double(wf.CustomOp):
        ...     def forward(self, inputs):
        ...         return inputs[0] * 2.0
        ...     def backward(self, grad_output, _inputs):
        ...         return grad_output * 2.0
        >>> Double()(wf.tensor([3.0])).tolist()
        [6.0]
        """

    def __call__(self, *inputs: Any, **params: Any) -> Any:
        """The operation on tensors and numbers; keywords are constants that all rules get."""
        state = vars(self).setdefault("_state", {})
        return apply_custom(self._functions(), state, inputs, self._params(inputs, params))

    def _params(self, inputs, params: dict) -> dict:
        """The keywords of a call, with defaults for those left out."""
        return params

    def _functions(self) -> CustomFunctions:
        vjp, jvp = (None if r is None else r.bind(self) for r in self._rules)
        batch = check_batch(self.batch)
        return CustomFunctions(type(self).__name__, self.forward, vjp, jvp, batch, in_class=True)


def _method_rule(cls: type, kind: str, name: str) -> Rule | None:
    method = getattr(cls, name, None)
    return None if method is None else Rule.of(kind, method, skip=1)


class FunctionOp(CustomOp, Generic[P]):
    """What `custom_op` makes of a function."""

    if TYPE_CHECKING:

        def __call__(self, *inputs: P.args, **params: P.kwargs) -> Any: ...

    def __init__(
        self,
        f: Callable[P, Any],
        vjp: Callable[..., Any] | None = None,
        jvp: Callable[..., Any] | None = None,
        batch: Callable[..., Any] | str | None = None,
    ):
        update_wrapper(self, f)
        self._f, self._defaults = f, _defaults(f)
        pull, push = (
            None if rule is None else Rule.of(kind, rule)
            for kind, rule in (("vjp", vjp), ("jvp", jvp))
        )
        name = getattr(f, "__name__", type(f).__name__)
        self._current = CustomFunctions(name, self.forward, pull, push, check_batch(batch))

    def forward(self, inputs: Any, **params: Any) -> Any:
        return self._f(*inputs, **params)

    def _params(self, inputs, params: dict) -> dict:
        return {k: v for i, k, v in self._defaults if i >= len(inputs)} | params

    def __repr__(self) -> str:
        rules = [kind for kind in ("vjp", "jvp") if getattr(self._current, kind) is not None]
        return f"<custom_op {self._current.name}: {' and '.join(rules) or 'no derivative'}>"

    def def_vjp(self, rule: F) -> F:
        """Give the pull-back: vjp(g, inputs, output) -> one cotangent for each input."""
        return self._define(rule, vjp=Rule.of("vjp", rule))

    def def_jvp(self, rule: F) -> F:
        """Give the push-forward: jvp(tangents, inputs, output) -> the output's tangent."""
        return self._define(rule, jvp=Rule.of("jvp", rule))

    def def_batch(self, rule: F) -> F:
        """Give the forward for a batch: batch(inputs, mapped) -> the outputs, batch in front."""
        return self._define(rule, batch=check_batch(rule))

    def _define(self, rule: F, **part: Any) -> F:
        self._current = replace(self._current, **part)
        vars(self).pop("_state", None)  # the cached facts about the operation
        return rule

    def _functions(self) -> CustomFunctions:
        return self._current


def _defaults(f: Callable[..., Any]) -> list[tuple[float, str, object]]:
    """(position, name, default) of the optional parameters."""
    return [
        (float("inf") if p.kind is Parameter.KEYWORD_ONLY else i, p.name, p.default)
        for i, p in enumerate(signature(f).parameters.values())
        if p.default is not Parameter.empty
    ]


@overload
def custom_op(
    forward: Callable[P, Any],
    *,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | str | None = None,
) -> FunctionOp[P]: ...
@overload
def custom_op(
    forward: None = None,
    *,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | str | None = None,
) -> Callable[[Callable[P, Any]], FunctionOp[P]]: ...
def custom_op(
    forward: Callable[..., Any] | None = None,
    *,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    batch: Callable[..., Any] | str | None = None,
) -> Any:
    """Make a function an operation whose derivative you state.

    forward  (*inputs) -> a tensor or an array, or a tuple of them. Its inputs are untracked
             tensors: it may compute with wf or, from x.numpy(), with anything else
    vjp      (g, inputs, output) -> one cotangent for each input, None where there is none (a
             single one need not be in a tuple). For a tuple of outputs g is a tuple
    jvp      (tangents, inputs, output) -> the output's tangent; absent tangents are None
    batch    what `vmap` does; by default forward and rules run on the whole batch, which is
             right for code written with wf. "loop": they run on one element after the other. A
             function (inputs, mapped) -> outputs: forward for a batch, which is axis 0 of the
             inputs that are mapped, and of all outputs

    One rule is enough: if it is linear in the (co)tangent, which is tested, the other mode is
    derived from it; where it is not (a backward that clips) the other mode raises. Rules are
    ordinary code on tensors, so they are differentiated in their turn for higher orders; the
    trailing parameters may be left out, and what is left out (or has a name with a leading
    underscore) is not kept for the backward pass. Keywords of a call are constants that all
    functions get. Complex cotangents are conjugate, as everywhere.

    >>> import weft as wf
    >>> @wf.custom_op
    ... def cube(x):
    ...     return x.numpy() ** 3
    >>> @cube.def_vjp
    ... def _(g, inputs):
    ...     return 3 * inputs[0] ** 2 * g
    >>> wf.grad(cube)(wf.tensor(2.0)).item(), wf.grad(wf.grad(cube))(wf.tensor(2.0)).item()
    (12.0, 12.0)
    >>> wf.jvp(cube, (wf.tensor(2.0),), (wf.tensor(1.0),))[1].item()
    12.0
    """
    if forward is None:
        return lambda f: FunctionOp(f, vjp, jvp, batch)
    if not callable(forward):
        raise errors.ArgumentError(
            f"custom_op: got {type(forward).__name__}, expected a function; rules are keywords: "
            "@wf.custom_op(vjp=…)"
        )
    return FunctionOp(forward, vjp, jvp, batch)
