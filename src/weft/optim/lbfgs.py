"""L-BFGS: quasi-Newton steps from a short history of gradients."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from .. import errors
from ..arrays.inplace import own_memory, refuse_staging
from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.differences import differences
from ..core.reading import refuse_reading
from ..core.value import wrap
from ..transform.modes.backward import enable_grad
from . import configs, state
from .line_search import LineSearch, Trial
from .optimizer import Optimizer, check_step
from .parameters import ParameterEntry, Params, raw_gradient
from .walk import flat, working_dtype, write_flat

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike

_R = TypeVar("_R")

# Less curvature would leave the approximation of the inverse Hessian indefinite.
_CURVATURE = 1e-10
_NUMBERS = ("func_evals", "n_iter", "t", "scale")
_VECTORS = ("direction", "gradient")
_HISTORIES = ("changes", "moves")


class LBFGS(Optimizer):
    """L-BFGS: quasi-Newton steps from the last changes of parameters and gradients.

    params            tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config            an `LBFGSConfig` in place of the keywords, or a learning rate
    lr                the length of a step, where there is no line search
    max_iter          how many steps a call of `step` makes at most
    max_eval          how often it calls the function at most; None: 1.25·max_iter
    tolerance_grad    it ends when no element of the gradient is larger
    tolerance_change  it ends when steps or losses change by less
    history_size      how many changes are remembered
    line_search_fn    None, or "strong_wolfe"

    A step takes a function that computes the loss and its gradients, and may call it many times.

    >>> import weft as wf
    >>> p = wf.Parameter([4.0, -3.0])
    >>> optimizer = wf.optim.LBFGS([p], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((p - 1.0) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure).item()
    25.0
    >>> [round(x, 4) for x in p.tolist()]
    [1.0, 1.0]
    """

    can_skip = False
    _guarded = ("_memory", "_of_grouping")
    Config: ClassVar[type[configs.Config]] = configs.LBFGSConfig

    def __init__(
        self,
        params: "Params | configs.LBFGSConfig | None" = None,
        config: configs.LBFGSConfig | float | None = None,
        **options: Any,
    ):
        self._of_grouping: int | None = None
        super().__init__(params, config, **options)
        self._memory: dict[str, Any] = _empty()

    @property
    def memory(self) -> dict[str, Any]:
        """The history of steps."""
        refuse_reading("the history of an optimizer", "look at it outside of the function")
        return self._memory

    def add_param_group(self, group: Params) -> None:
        """The one group of parameters.

        group  a dict with "params", or parameters; there can be only one

        >>> import weft as wf
        >>> optimizer = wf.optim.LBFGS([wf.Parameter([1.0])])
        >>> len(optimizer.param_groups)
        1
        """
        if self._param_groups:
            raise errors.ArgumentError(
                "LBFGS: all parameters are in one group; make an optimizer for each of several"
            )
        super().add_param_group(group)
        self.entries()

    def entries(self) -> list[ParameterEntry]:
        """The parameters of the one group; if they changed, the history starts afresh."""
        found = super().entries()
        places = {e.param.device for e in found}
        if len(self._param_groups) > 1 or len(places) > 1:
            raise errors.ArgumentError(
                f"LBFGS: {len(self._param_groups)} groups of parameters, on {sorted(places)}; "
                "expected one group on one device: make an optimizer for each of several"
            )
        if self._of_grouping != self._grouping:
            self._memory, self._of_grouping = _empty(), self._grouping
        return found

    def step(self, closure: Callable[[], _R] | None = None) -> _R:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        """Minimise by up to `max_iter` quasi-Newton steps; returns the loss before them.

        closure  a function that computes the loss and its gradients, and returns the loss

        >>> import weft as wf
        >>> p = wf.Parameter([4.0])
        >>> optimizer = wf.optim.LBFGS([p], lr=0.5, max_iter=1)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = (p * p).sum()
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item()
        16.0
        """
        if not callable(closure):
            raise errors.ArgumentError(
                "LBFGS.step: expected a function that zeroes the gradients, computes the loss, "
                "calls backward() and returns the loss"
            )
        if not self.entries():
            raise errors.ArgumentError("LBFGS.step: there are no parameters; give them first")
        refuse_staging("LBFGS.step", "compile the closure instead, and step outside of it")
        self._check_groups()
        run = _Run(self, closure)
        run.minimise()
        self._changed: list[Tensor] = [e.param for e in self.entries()]
        return run.first

    def compute_update(self, grad: "ArrayLike", param: "Tensor | None" = None) -> "Tensor":
        """Refused: one gradient does not determine a step.

        grad, param  not looked at

        >>> import weft as wf
        >>> wf.optim.LBFGS([wf.Parameter([1.0])]).compute_update(wf.tensor([1.0]))
        Traceback (most recent call last):
            ...
        weft.errors.ArgumentError: LBFGS.compute_update: ...
        """
        raise errors.ArgumentError(
            "LBFGS.compute_update: a step needs several losses and gradients; call step(closure)"
        )

    # The parameters as one vector

    def flatten(self, gradients: bool) -> Any:
        """All parameters, or all gradients, as one flat array of real numbers."""
        if gradients:
            check_step(self, "step")
        dtype = dtypes.promote_all([working_dtype(e.param.dtype) for e in self.entries()])
        parts = [self._line(e, gradients, dtype) for e in self.entries()]
        return BACKENDS[type(parts[0])].concatenate(parts)

    def _line(self, entry, gradients: bool, dtype):
        p = entry.param
        xp = BACKENDS[type(p._data)]
        if gradients and p.grad is None:
            return xp.full((state.real_size(p._data),), 0, dtype, p.device)
        raw = raw_gradient("LBFGS.step", entry, p.grad) if gradients else p._data
        return xp.cast(flat(raw, xp), dtype)

    def place(self, vector: Any) -> None:
        """Write one flat array into all parameters."""
        start = 0
        for entry in self.entries():
            raw = own_memory(entry.param)
            stop = start + state.real_size(raw)
            write_flat(raw, vector[start:stop], BACKENDS[type(raw)])
            start = stop

    # State

    def reset(self) -> None:
        """Forget the history.

        >>> import weft as wf
        >>> optimizer = wf.optim.LBFGS([wf.Parameter([1.0])])
        >>> optimizer.reset()
        >>> optimizer.state_dict()["state"]
        {'*': {'func_evals': 0, 'n_iter': 0, 't': 0.0, 'scale': 1.0, 'curvatures': []}}
        """
        super().reset()
        self._memory = _empty()

    def state_dict(self) -> dict[str, Any]:
        """The history under the key "*", the group and the config.

        >>> import weft as wf
        >>> sorted(wf.optim.LBFGS([wf.Parameter([1.0])]).state_dict())
        ['config', 'lr_ratios', 'optimizer', 'param_groups', 'state']
        """
        saved, m = super().state_dict(), self._memory
        own = {name: m[name] for name in (*_NUMBERS, "curvatures")}
        own |= {name: wrap(_copy(m[name])) for name in _VECTORS if m[name] is not None}
        if m["moves"]:
            xp = BACKENDS[type(m["moves"][0])]
            own |= {name: wrap(xp.stack(m[name], 0)) for name in _HISTORIES}
        return {**saved, "state": {"*": own}}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; an error lists what differs, and then nothing changes.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> optimizer = wf.optim.LBFGS([wf.Parameter([1.0])])
        >>> optimizer.load_state_dict(optimizer.state_dict())
        """
        what = "LBFGS.load_state_dict"
        if not self.entries():
            raise errors.ArgumentError(f"{what}: give the optimizer its parameters first")
        state.check_form(what, self, saved)
        own = dict(saved["state"].get("*", {}))
        vector = state.like(self.flatten(False))
        table = state.like(
            self.flatten(False), shape=(len(own.get("curvatures", ())), *vector.shape)
        )
        slots = {name: vector for name in _VECTORS if name in own}
        slots |= {name: table for name in _HISTORIES if table.shape[0]}
        numbers = {name: _empty()[name] for name in (*_NUMBERS, "curvatures")}
        differences(numbers | slots, own).refuse(what)
        super().load_state_dict({**saved, "state": {}})
        taken = {n: state.take(v, slots[n]) if n in slots else v for n, v in own.items()}
        taken |= {n: list(taken[n]) for n in (*_HISTORIES, "curvatures") if n in taken}
        self._memory = _empty() | taken


def _empty() -> dict[str, Any]:
    """No history: counts, the last step length and scale, vectors, and the pairs (y, s) with
    their 1/y·s.
    """
    return {
        **{"func_evals": 0, "n_iter": 0, "t": 0.0, "scale": 1.0},
        **{"direction": None, "gradient": None},
        **{"changes": [], "moves": [], "curvatures": []},
    }


def _copy(raw):
    return BACKENDS[type(raw)].copy(raw)


def _largest(x) -> float:
    return float(abs(x).max()) if len(x) else 0.0


class _Run:
    """One call of `step`: the loss and gradient where the parameters are now."""

    def __init__(self, optimizer: LBFGS, closure):
        self.optimizer, self.closure = optimizer, closure
        self.options = optimizer._param_groups[0]
        self.rate = self.options["lr"] * self.options["lr_scale"]
        self._memory = optimizer._memory
        self.first: Any = None
        self.evaluations = 0
        self.loss, self.grad = self.evaluate()

    def evaluate(self):
        """The loss and the gradient at the parameters as they are."""
        with enable_grad():
            loss = self.closure()
        if self.first is None:
            self.first = loss
        self.evaluations += 1
        self._memory["func_evals"] += 1
        return float(loss), self.optimizer.flatten(True)

    def minimise(self) -> None:
        """Steps until one of the limits or tolerances is reached."""
        options, m = self.options, self._memory
        most = options["max_eval"] or options["max_iter"] * 5 // 4
        if _largest(self.grad) <= options["tolerance_grad"]:
            return
        for iteration in range(1, options["max_iter"] + 1):
            m["n_iter"] += 1
            direction = self.direction()
            m["direction"], m["gradient"], before = direction, self.grad, self.loss
            t = self.rate
            if m["n_iter"] == 1:
                t *= min(1.0, 1.0 / float(abs(self.grad).sum()))
            m["t"] = t
            slope = float(self.grad @ direction)
            if slope > -options["tolerance_change"]:
                return
            last = iteration == options["max_iter"]
            m["t"] = self.move(t, slope, most - self.evaluations, last)
            if last or self.evaluations >= most or self._has_converged(before):
                return

    def _has_converged(self, before: float) -> bool:
        """Whether the gradient, the step or the loss changed no more than tolerated."""
        small, m = self.options["tolerance_change"], self._memory
        return (
            _largest(self.grad) <= self.options["tolerance_grad"]
            or _largest(m["direction"] * m["t"]) <= small
            or abs(self.loss - before) < small
        )

    def direction(self):
        """−H·g, with H the approximate inverse Hessian of the history (two-loop recursion)."""
        m = self._memory
        if m["n_iter"] == 1:
            m.update(changes=[], moves=[], curvatures=[], scale=1.0)
            return -self.grad
        y, s = self.grad - m["gradient"], m["direction"] * m["t"]
        curvature = float(y @ s)
        if curvature > _CURVATURE:
            for name, value in (("changes", y), ("moves", s), ("curvatures", 1.0 / curvature)):
                m[name] = [*m[name], value][-self.options["history_size"] :]
            m["scale"] = curvature / float(y @ y)
        pairs = list(zip(m["changes"], m["moves"], m["curvatures"], strict=True))
        q, weights = -self.grad, []
        for y, s, inverse in reversed(pairs):
            weights.append(float(s @ q) * inverse)
            q = q - y * weights[-1]
        q = q * m["scale"]
        for (y, s, inverse), weight in zip(pairs, reversed(weights), strict=True):
            q = q + s * (weight - float(y @ q) * inverse)
        return q

    def move(self, t: float, slope: float, left: int, last: bool) -> float:
        """Go along the direction, by t or as far as the line search says; returns how far."""
        direction, start = self._memory["direction"], self.optimizer.flatten(False)
        if self.options["line_search_fn"] is None:
            self.optimizer.place(start + direction * t)
            if not last:
                self.loss, self.grad = self.evaluate()
            return t

        def trial(t: float) -> Trial:
            self.optimizer.place(start + direction * t)
            loss, grad = self.evaluate()
            return Trial(t, loss, grad, float(grad @ direction))

        search = LineSearch(
            trial,
            Trial(0.0, self.loss, self.grad, slope),
            _largest(direction),
            self.options["tolerance_change"],
        )
        found = search.find(t, left)
        self.optimizer.place(start + direction * found.t)
        self.loss, self.grad = found.loss, found.grad
        return found.t
