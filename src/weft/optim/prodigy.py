"""Prodigy: Adam whose learning rate is estimated from all parameters together."""

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import errors
from ..core import dtypes
from ..core.aval import Aval
from ..core.backends import BACKENDS
from ..core.differences import differences
from ..core.value import wrap
from ..ops.complex_ import abs_
from ..ops.elementwise import maximum, minimum, sqrt, where
from ..ops.structural import cast, stack, sum_
from ..transform.modes.backward import no_grad
from .conditional import choose_if_taken
from .free_configs import ProdigyConfig
from .late import LateNumber, is_late, make_cell
from .optimizer import Optimizer
from .parameters import ParameterEntry
from .rules import Array, Arrays, Number, penalise
from .state import Slot, like
from .walk import Job, walk, working_dtype

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor

# Settings of the estimate, of which there is one.
_JOINT = ("beta1", "beta2", "beta3", "d0", "d_coef", "growth_rate", "decouple")
_JOINT += ("use_bias_correction",)


class Estimate(NamedTuple):
    """What is estimated: the rate d, the largest estimate so far, a numerator, and steps.

    In a state these are numbers or cells of a device, in a step tensors of float64.
    """

    d: Any
    d_max: Any
    numerator: Any
    steps: Any


def thin(x: Array, every: int) -> Array:
    """Each `every`-th element of an array."""
    return x if every == 1 else x.reshape((-1,))[::every]


def distance(
    s: Array, g: Array, sums: Array, *, p: Array, p0: Array, ratio: Number, rate: Number,
    weight: Number, beta3: float, weight_decay: float, decouple: bool, slice_p: int
) -> Arrays:  # fmt: skip
    """The sum s of gradients; `sums` become d/d₀·γ·⟨g, p₀ − p⟩ and ‖s‖₁ in double precision."""
    p, g = cast(thin(p, slice_p), s.dtype), thin(g, slice_p)
    g = penalise(p, g, 0.0 if decouple else weight_decay, False)
    s = s * beta3 + g * (ratio * weight)
    axes = tuple(range(len(s.shape)))
    found = [sum_(x, axes, False) for x in (g * (cast(p0, s.dtype) - p), abs_(s))]
    along, size = [cast(x, dtypes.float64) for x in found]
    return s, stack([along * (ratio * rate), size], 0)


def prodigy(
    p: Array, g: Array, v: Array, m: Array = None, *, d: Number, new_d: Number, rate: Number,
    beta1: float, beta2: float, eps: float, weight_decay: float, decouple: bool
) -> Arrays:  # fmt: skip
    """Adam's step at the rate, with moments of gradients that are multiplied by d."""
    g = penalise(p, g, 0.0 if decouple else weight_decay, False)
    v = v * beta2 + g * g * (d * d * (1.0 - beta2))
    scaled = g * new_d if m is None else m * beta1 + g * (d * (1.0 - beta1))
    # 1 − rate·weight_decay would round to 1 while the rate is as small as d₀.
    p = p - p * (rate * weight_decay) if decouple and weight_decay else p
    p = p - scaled * rate / (sqrt(v) + new_d * eps)
    return (p, v) if m is None else (p, v, scaled)


def estimate_rate(now: Estimate, sums: Any, joint: dict[str, Any]) -> tuple[Estimate, Any]:
    """The next estimate from the sums of all parameters, and whether there is one.

    Where all gradients so far are 0, nothing changes.
    """
    moves = sums[1] > 0
    numerator = now.numerator * _beta3(joint) + sums[0]
    found = numerator * joint["d_coef"] / where(moves, sums[1], 1.0)
    d = where(now.d == joint["d0"], maximum(now.d, found), now.d)
    largest = maximum(now.d_max, found)
    new = Estimate(minimum(largest, d * joint["growth_rate"]), largest, numerator, now.steps + 1)
    return Estimate(*[where(moves, *both) for both in zip(new, now, strict=True)]), moves


def _beta3(joint: dict[str, Any]) -> float:
    return joint["beta2"] ** 0.5 if joint["beta3"] is None else joint["beta3"]


def _step_rate(now: Estimate, lr: Number, joint: dict[str, Any]) -> Any:
    """d·lr, corrected for moments that begin with 0."""
    rate = now.d * lr
    if not joint["use_bias_correction"]:
        return rate
    t = now.steps + 1
    return rate * sqrt(1.0 - joint["beta2"] ** t) / (1.0 - joint["beta1"] ** t)


class Prodigy(Optimizer):
    """Prodigy (Mishchenko and Defazio, 2024): Adam that estimates its learning rate.

    params               tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config               a `ProdigyConfig` in place of the keywords, or a learning rate
    lr                   what the estimated rate d is multiplied by; schedules change it
    beta1                how much of the mean m of gradients is kept
    beta2                how much of the mean v of squared gradients is kept
    beta3                how much of the sums in the estimate is kept; None: √beta2
    eps                  what is added to the root, so that nothing is divided by 0
    weight_decay         decoupled, or an L2 penalty
    decouple             whether the decay acts on the parameter, not through the gradient
    use_bias_correction  whether the step is corrected for moments that begin with 0
    safeguard_warmup     whether lr is left out of the estimate's denominator, for long warm-ups
    d0                   what the estimate d begins with
    d_coef               what estimates are multiplied by: the way to tune the method
    growth_rate          the largest factor by which d grows in a step
    slice_p              the estimate looks at each slice_p-th element only, which saves memory

    With γ = d·lr: r ← β₃·r + d/d₀·γ·⟨g, p₀ − p⟩, s ← β₃·s + d/d₀·γ·g, d̂ = d_coef·r/‖s‖₁, where
    products and norms go over all parameters, and d is the largest d̂ so far.
    m ← β₁·m + (1 − β₁)·d·g, v ← β₂·v + (1 − β₂)·d²·g²; p ← p − γ·m/(√v + d·eps).

    All groups share d, so that their learning rates are equal, or 0: such a group rests.

    >>> import weft as wf
    >>> p = wf.Parameter([1.0, -2.0])
    >>> optimizer = wf.optim.Prodigy([p])
    >>> for _ in range(200):
    ...     optimizer.step((p * p).sum().backward())
    >>> (p * p).sum().item() < 0.01, optimizer.d > 0.01
    (True, True)
    """

    _guarded = ("_estimate",)
    Config = ProdigyConfig
    rule = staticmethod(prodigy)
    shaping = ("beta1", "slice_p")
    switched_on = {"beta1": 0.9}  # noqa: RUF012
    apart = ("s", "p0")
    estimates_rate = True

    def __init__(self, params: Any = None, config: Any = None, **options: Any):
        self._estimate: Estimate | None = None  # numbers, or cells; None: none yet
        super().__init__(params, config, **options)

    @property
    def d(self) -> float:
        """The estimated learning rate, which `lr` multiplies."""
        return float(self._started().d)

    def _started(self) -> Estimate:
        if self._estimate is not None:
            return self._estimate
        groups = self._param_groups
        d0 = groups[0]["d0"] if groups else self.config.d0
        return Estimate(d0, d0, 0.0, 0.0)

    def _check_shape(self, key: str, p: "Tensor") -> None:
        if dtypes.is_complex(p.dtype):
            raise errors.DTypeError(
                f"{self._name}: the parameter {key!r} is {p.dtype}, expected real numbers; keep "
                "its real and imaginary parts as two parameters"
            )

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        every = group["slice_p"]
        shape = tuple(p.shape) if every == 1 else (-(-prod(p.shape) // every),)
        slots = {"exp_avg_sq": like(p), **({"exp_avg": like(p)} if group["beta1"] else {})}
        start = like(p, shape=shape, start=partial(thin, every=every))
        return {**slots, "s": like(p, shape=shape), "p0": start}

    # The estimate

    def _rates(self) -> list[float]:
        """The groups' learning rates, which are equal or 0."""
        rates = [group["lr"] * group["lr_scale"] for group in self._param_groups]
        if len({rate for rate in rates if rate}) > 1:
            raise errors.ArgumentError(
                f"{self._name}: the learning rates of the groups are {rates}, expected equal ones, "
                "or 0 for a group that rests: all share the estimate d; use an optimizer for each"
            )
        return rates

    def _rate(self) -> float:
        return max(self._rates())

    def _joint(self) -> dict[str, Any]:
        """The settings of the estimate."""
        first = self._param_groups[0]
        for name in _JOINT:
            found = [group[name] for group in self._param_groups]
            if any(value != first[name] for value in found):
                raise errors.ArgumentError(
                    f"{self._name}: {name} of the groups is {found}, expected one value: all "
                    "groups share the estimate d; use an optimizer for each"
                )
        return {name: first[name] for name in _JOINT}

    def _cells_on(self, device: str) -> Estimate:
        """The memory of the estimate, from now on a device's."""
        held = self._started()
        if not all([is_late(x) and BACKENDS[type(x)].device_of(x) == device for x in held]):
            held = self._estimate = Estimate(*[make_cell(float(x), device) for x in held])
        return held

    def _admit(
        self, pairs: list[tuple[ParameterEntry, Any]], staging: Any = None
    ) -> list[tuple[ParameterEntry, Any]]:
        rates = self._rates()
        if staging is not None:
            name = staging.name_of(self, self._name)
            label = f"which groups of {name} have learning rates"
            staging.depends(label, lambda: [bool(rate) for rate in self._rates()])
        resting = {id(g) for g, rate in zip(self._param_groups, rates, strict=True) if not rate}
        admitted = [(e, g) for e, g in pairs if id(e.group) not in resting]
        places = sorted({e.param.device for e, _ in admitted})
        if len(places) > 1:
            raise errors.DeviceError(
                f"{self._name}.step: parameters on {', '.join(places)}, expected one device: all "
                "share the estimate d; use an optimizer for each"
            )
        return admitted

    def _numbers(
        self, group: dict[str, Any], now: Estimate, rate: Any, joint: dict[str, Any]
    ) -> dict[str, Any]:
        """The numbers of `distance`."""
        names = ("weight_decay", "decouple", "slice_p")
        found = {"ratio": now.d / group["d0"], "rate": rate, "beta3": _beta3(joint)}
        found["weight"] = now.d if group["safeguard_warmup"] else rate
        return found | {name: group[name] for name in names}

    def _observe(
        self, given: list[tuple[ParameterEntry, Any, Any]], taken: Any = None
    ) -> dict[str, Any]:
        if not given:
            return {}
        joint, device = self._joint(), given[0][0].param.device
        cells = self._cells_on(device)
        jobs, every, plain = [], [], _raw if device != "cpu" else float
        with no_grad():
            now = Estimate(*[wrap(cell) for cell in cells])
            rate = _step_rate(now, self._rate(), joint)
            for entry, p, g in given:
                self._fit_slots(entry, p)
                own = self._state[entry.key]
                every.append(Slot((2,), dtypes.float64, device).allocate())
                numbers = self._numbers(entry.group, now, rate, joint)
                numbers = {n: plain(x) if hasattr(x, "_data") else x for n, x in numbers.items()}
                held = {"p": p, "p0": own["p0"]}
                columns = (own["s"], g, every[-1])
                jobs.append(Job(distance, columns, numbers | held, whole=True, taken=taken))
            walk(jobs)
            sums = sum_(stack([wrap(x) for x in every], 0), (0,), False)
            new, moves = estimate_rate(now, sums, joint)
            found = {"d": now.d, "new_d": new.d, "rate": where(moves, rate, 0.0)}
            common = {name: plain(x) for name, x in found.items()}
        # Numbers of this step may be the cells themselves, whose memory changes now.
        common["d"] = common["d"] if device == "cpu" else BACKENDS[type(cells.d)].copy(cells.d)
        for cell, x in zip(cells, new, strict=True):
            xp = BACKENDS[type(cell)]
            xp.overwrite(cell, x._data if taken is None else xp.where(taken, x._data, cell))
        return common

    def _observe_staged(
        self, given: list[tuple[ParameterEntry, Any]], read: Any, staging: Any
    ) -> dict[str, Any]:
        if not given:
            return {}
        joint, device = self._joint(), given[0][0].param.device
        places = staging.state(
            (id(self), "estimate"), partial(self._stage_cells, device, staging), self
        )
        now = Estimate(*[wrap(place.staged) for place in places])
        lr = staging.host(f"{staging.name_of(self, self._name)}.rate", self._rate)
        rate, every = _step_rate(now, lr, joint), []
        for entry, g in given:
            numbers = self._numbers(entry.group, now, rate, joint)
            numbers |= {n: LateNumber(numbers[n]) for n in ("ratio", "rate", "weight")}
            place, work = read(entry, "s"), working_dtype(entry.param.dtype)
            s, p, p0 = wrap(place.staged), entry.param.detach(), wrap(read(entry, "p0").staged)
            new, sums = distance(s.to(work), g.to(work), None, p=p, p0=p0, **numbers)
            place.staged = choose_if_taken(staging, new.to(s.dtype), s)._data
            every.append(sums)
        found, moves = estimate_rate(now, sum_(stack(every, 0), (0,), False), joint)
        for place, x, old in zip(places, found, now, strict=True):
            place.staged = choose_if_taken(staging, x, old)._data
        numbers = {"d": now.d, "new_d": found.d, "rate": where(moves, rate, 0.0)}
        return {name: LateNumber(x) for name, x in numbers.items()}

    def _stage_cells(self, device: str, staging: Any) -> list[Any]:
        """The places of the estimate in a program."""
        kind, name = Aval((), dtypes.float64, device), staging.name_of(self, self._name)
        return [
            staging.slot(f"{field} of {name}", kind, lambda k=k: self._cells_on(device)[k])
            for k, field in enumerate(Estimate._fields)
        ]

    # State

    def reset(self) -> None:
        """Forget all state, the estimate too: the next step is a first one.

        >>> import weft as wf
        >>> optimizer = wf.optim.Prodigy([wf.Parameter([1.0])], d0=0.5)
        >>> optimizer.step([wf.tensor([1.0])])
        >>> optimizer.reset()
        >>> optimizer.d
        0.5
        """
        super().reset()
        self._estimate = None

    def state_dict(self) -> dict[str, Any]:
        """The state by parameter, the groups, the config and the estimate.

        >>> import weft as wf
        >>> wf.optim.Prodigy([wf.Parameter([1.0])]).state_dict()["estimate"]["d"]
        1e-06
        """
        numbers = {n: float(x) for n, x in self._started()._asdict().items()}
        return {**super().state_dict(), "estimate": numbers}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Go on from a `state_dict`; an error lists what differs, and then nothing changes.

        saved  what `state_dict()` gave

        >>> import weft as wf
        >>> optimizer = wf.optim.Prodigy([wf.Parameter([1.0])])
        >>> optimizer.load_state_dict(optimizer.state_dict())
        """
        estimate = saved.get("estimate") if isinstance(saved, dict) else None
        found = estimate if isinstance(estimate, dict) else {}
        expected = dict.fromkeys(Estimate._fields, 0)
        what = f"{self._name}.load_state_dict: estimate"
        differences(expected, dict.fromkeys(found, 0)).refuse(what)
        super().load_state_dict(saved)
        self._estimate = Estimate(**{name: float(x) for name, x in found.items()})


def _raw(x: Any) -> Any:
    return x._data
