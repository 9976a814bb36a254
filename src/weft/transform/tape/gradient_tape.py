"""GradientTape: gradients of chosen targets with respect to chosen sources."""

from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any
from weakref import ref

from ... import errors
from ...arrays.tensor import Tensor
from ...core.backends import BACKENDS
from ...core.box import nodes_below
from ...core.checkpointing import CheckpointConfig
from ...core.node import Leaf, Node, Severed
from ...core.origin import Origin, line_of, origin
from ...core.settings import current, exactly, override_settings
from ...core.value import TENSORS, wrap
from ..checkpoint.choose import check_config, checkpointing
from ..jacobian.scheduling import SchedulerConfig
from ..modes import limited
from ..modes.backward import seed_for, visit
from ..modes.paths import nodes_reaching, not_recorded_error
from ..modes.reverse import sweep

if TYPE_CHECKING:
    from ...core.determinism import DeterministicConfig

_REMEDY = (
    "take it inside the block of the tape that is asked now, or by a GradientTape(persistent=True)"
)


class GradientTape:
    """Records what is computed from the tensors it watches.

    persistent  any number of `gradient()` calls, which are themselves recorded
    scheduler   how `jacobian()` chooses between forward, reverse and mixed sweeps
    amp         an `AmpConfig` for mixed precision: in the tape's block operations are cast, and
                `gradient()` scales the targets up for its sweep and the gradients down again. Each
                call is a step of the config's loss scale. After one that overflowed, `overflowed`
                is True, the gradients are as infinite as they came, `loss_scale` has backed off,
                and the step that they were for should be left out
    deterministic  a `DeterministicConfig`, which is at work in the tape's block and its sweeps
    checkpoint     a `CheckpointConfig`: which values are kept for the sweeps, and which are
                   computed again

    >>> import weft as wf
    >>> with wf.GradientTape() as tape:
    ...     x = tape.watch(wf.tensor([1.0, 2.0]))
    ...     y = (x * x).sum()
    >>> tape.gradient(y, x).tolist()
    [2.0, 4.0]
    """

    overflowed: bool  # whether the last gradients were not finite, for the loss scale
    # For `__del__` of a tape that was refused.
    _leaves: dict[int, tuple[ref[Tensor], Leaf]] = {}  # noqa: RUF012

    def __init__(
        self,
        persistent: bool = False,
        scheduler: SchedulerConfig | None = None,
        amp: Any = None,
        deterministic: "DeterministicConfig | None" = None,
        checkpoint: CheckpointConfig | None = None,
    ):
        self._persistent = persistent
        self._scheduler = SchedulerConfig() if scheduler is None else scheduler
        if amp is not None and not hasattr(amp, "autocast"):
            raise errors.DTypeError(
                f"GradientTape: amp is a {type(amp).__name__}, expected a wf.AmpConfig"
            )
        self._amp = amp
        self._determinism = _at_work(deterministic)
        self._determined: Any = None
        self._checkpoint = check_config("GradientTape", checkpoint)
        self.overflowed = False
        self._consumed_at: Origin | None = None
        self._leaves = {}
        self._block: Any = None

    @classmethod
    def with_scheduler_config(cls, config: SchedulerConfig) -> "GradientTape":
        """A tape whose `jacobian()` goes by a `SchedulerConfig`.

        config  a `SchedulerConfig`

        >>> import weft as wf
        >>> tape = wf.GradientTape.with_scheduler_config(wf.SchedulerConfig(strategy="reverse"))
        >>> x = tape.watch(wf.tensor([1.0, 2.0]))
        >>> tape.jacobian(x * x, x).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
        """
        return cls(scheduler=config)

    @classmethod
    def with_amp_config(cls, config: Any) -> "GradientTape":
        """A tape in the mixed precision of an `AmpConfig`.

        config  an `AmpConfig`

        >>> import weft as wf
        >>> with wf.GradientTape.with_amp_config(wf.AmpConfig(precision_mode="bfloat16")) as tape:
        ...     (wf.ones((2, 2)) @ wf.ones((2, 2))).dtype.name
        'bfloat16'
        """
        return cls(amp=config)

    @classmethod
    def with_deterministic_config(cls, config: "DeterministicConfig") -> "GradientTape":
        """A tape whose block and sweeps repeat bit for bit, by a `DeterministicConfig`.

        config  a `DeterministicConfig`

        >>> import weft as wf
        >>> with wf.GradientTape.with_deterministic_config(wf.DeterministicConfig(global_seed=1)):
        ...     first = wf.rand(2).tolist()
        >>> with wf.GradientTape.with_deterministic_config(wf.DeterministicConfig(global_seed=1)):
        ...     wf.rand(2).tolist() == first
        True
        """
        return cls(deterministic=config)

    @classmethod
    def with_checkpoint_config(cls, config: CheckpointConfig) -> "GradientTape":
        """A tape that keeps some values for its sweeps and computes others again.

        config  a `CheckpointConfig`

        >>> import weft as wf
        >>> config = wf.CheckpointConfig(strategy=wf.CheckpointStrategy.Full)
        >>> with wf.GradientTape.with_checkpoint_config(config) as tape:
        ...     x = tape.watch(wf.ones(1000))
        ...     y = wf.exp(wf.sin(x)).sum()
        >>> round(tape.gradient(y, x)[0].item(), 4)
        1.2534
        """
        return cls(checkpoint=config)

    def persistent(self) -> "GradientTape":
        """This tape, made persistent.

        >>> import weft as wf
        >>> tape = wf.GradientTape().persistent()
        >>> x = tape.watch(wf.tensor(2.0))
        >>> slope = tape.gradient(x**3, x)
        >>> tape.gradient(slope, x).item()
        12.0
        """
        self._persistent = True
        return self

    def __enter__(self) -> "GradientTape":
        self._determined = self._repeatably()
        amp = self._amp
        with ExitStack() as block:  # left at once if one of them refuses
            block.enter_context(self._determined)
            around = current.get()
            cast = amp.autocast if amp is not None and amp.enabled else around.autocast
            block.enter_context(override_settings(tapes=(*around.tapes, self), autocast=cast))
            block.enter_context(checkpointing(self._checkpoint))
            self._block = block.pop_all()
        return self

    def __exit__(self, *exc: Any) -> None:
        block, self._block = self._block, None
        block.__exit__(*exc)
        self._unwatch()

    def __del__(self) -> None:
        self._unwatch()

    def watch(self, tensor: Tensor) -> Tensor:
        """Mark a tensor, so that what is computed from it from now on is recorded; returns it.

        tensor  the tensor

        >>> import weft as wf
        >>> tape = wf.GradientTape()
        >>> x = tape.watch(wf.tensor(3.0))
        >>> tape.gradient(x * x, x).item()
        6.0
        """
        if type(tensor) not in TENSORS:
            raise errors.DTypeError(
                f"watch: expected a tensor, got {type(tensor).__name__}; wf.tensor(…) makes one "
            )
        self._refuse_if_consumed("watch")
        node = tensor._node
        if node is None or node.__class__ is Severed:
            tensor._node = node = tensor._new_leaf(requested=False)
        if node.__class__ is Leaf:
            node.watchers = (*node.watchers, ref(self))
            self._leaves[id(tensor)] = (ref(tensor), node)
        return tensor

    variable = watch

    def custom_op(self, op: Any, inputs: Any) -> Any:
        """`op` on a sequence of tensors, recorded as one step like every operation.

        op      a `CustomOp`, or what `wf.custom_op` made
        inputs  its tensors

        >>> import weft as wf
        >>> tape = wf.GradientTape()
        >>> x = tape.watch(wf.tensor(3.0))
        >>> double = wf.custom_op(lambda x: 2 * x, vjp=lambda g: 2 * g)
        >>> tape.gradient(tape.custom_op(double, [x]), x).item()
        2.0
        """
        from ..custom.custom_op import CustomOp  # whoever has an operation has loaded it

        self._refuse_if_consumed("custom_op")
        if not isinstance(op, CustomOp) or not isinstance(inputs, list | tuple):
            raise errors.ArgumentError(
                f"custom_op: got {op!r} and {type(inputs).__name__}, expected an instance of a "
                "wf.CustomOp, or what @wf.custom_op made, and a list of tensors"
            )
        return op(*inputs)

    def _unwatch(self) -> None:
        """Leave the watched tensors as they were; the graph that was recorded stays."""
        for tensor_ref, node in self._leaves.values():
            node.watchers = tuple(w for w in node.watchers if w() not in (self, None))
            tensor = tensor_ref()
            # A leaf that names no tensor is a function's, which is being differentiated.
            if tensor is not None and tensor._node is node and node.tensor is not None:
                if not node.requested and not node.watchers:
                    tensor._node = None

    def gradient(
        self, targets: Any, sources: Any, output_gradients: Any = None, unconnected: str = "none"
    ) -> Any:
        """∂targets/∂sources, summed over the targets.

        targets           a tensor or a sequence of them
        sources           a tensor (gives one gradient) or a sequence (gives a list)
        output_gradients  a cotangent for each target; by default ones
        unconnected       "none" or "zero": what a source gets that no target depends on

        >>> import weft as wf
        >>> with wf.GradientTape() as tape:
        ...     x, y = tape.watch(wf.tensor(3.0)), tape.watch(wf.tensor(4.0))
        ...     z = x * y
        >>> [g.item() for g in tape.gradient(z, [x, y])]
        [4.0, 3.0]
        """
        if unconnected not in ("none", "zero"):
            raise errors.ArgumentError(
                f"gradient: unconnected={unconnected!r}, expected 'none' or 'zero'"
            )
        self._refuse_if_consumed("gradient")
        many = isinstance(sources, list | tuple)
        wanted = list(sources) if many else [sources]
        self._refuse_without_block("gradient")
        with self._repeatably():
            found = self._scaled_gradients(_list_targets(targets), wanted, output_gradients)
        if not self._persistent:
            self._consumed_at = origin()
        if unconnected == "zero":
            found = [_zeros(s) if g is None else g for s, g in zip(wanted, found, strict=True)]
        return found if many else found[0]

    def forward_gradient(self, source: Any, target: Any) -> Any:
        """∂target/∂source, of shape target.shape + source.shape, by forward sweeps.

        source  what is differentiated by, a watched tensor
        target  what is differentiated

        The cost grows with the number of elements of the source, not of the target.

        >>> import weft as wf
        >>> with wf.GradientTape() as tape:
        ...     t = tape.watch(wf.tensor(2.0))
        ...     y = wf.stack([t**2, t**3])
        >>> tape.forward_gradient(t, y).tolist()
        [4.0, 12.0]
        """
        return self._jacobian(target, source, SchedulerConfig(strategy="forward"))

    def jacobian(self, target: Tensor, source: Tensor) -> Tensor:
        """∂target/∂source, of shape target.shape + source.shape; the scheduler chooses the mode.

        target  what is differentiated
        source  what is differentiated by, a watched tensor

        >>> import weft as wf
        >>> with wf.GradientTape() as tape:
        ...     x = tape.watch(wf.tensor([1.0, 2.0]))
        ...     y = x * x
        >>> tape.jacobian(y, x).tolist()
        [[2.0, 0.0], [0.0, 4.0]]
        """
        return self._jacobian(target, source, self._scheduler)

    def _jacobian(self, target, source, config: SchedulerConfig):
        from ..jacobian.tape_jacobian import (
            sweep_jacobian,  # with the planner's modules, which few programs need
        )

        self._refuse_if_consumed("jacobian")
        if type(target) not in TENSORS:
            raise errors.DTypeError(
                f"jacobian: the target must be one tensor, got {type(target).__name__}"
            )
        end, start = self._node_of(source), self._target_node(target)
        if end is None or start is None:
            raise errors.MissingGradient(
                "jacobian: the target was not computed from the source while the tape watched it"
            )
        _, leaves = nodes_reaching([start], {end})
        self._refuse_without_block("jacobian")
        with self._repeatably(), exactly():
            record = self._records(leaves)
            matrix = sweep_jacobian(config, start, end, target.detach(), record)
        if not self._persistent:
            self._consumed_at = origin()
        matrix = matrix.reshape((*target.shape, *source.shape))
        return matrix if record else wrap(matrix._data, _severed_mark(leaves | {end}))

    @property
    def loss_scale(self) -> float:
        """What the next `gradient()` multiplies its targets by."""
        scale = None if self._amp is None else self._amp.scale
        return 1.0 if scale is None else scale.value

    def _scaled_gradients(self, targets, sources, output_gradients):
        scale = None if self._amp is None else self._amp.scale
        if scale is None:
            return self._gradients(targets, sources, output_gradients)
        with exactly():
            found = self._gradients(targets, sources, output_gradients, scale.value)
            back = 1.0 / scale.value
            found = [None if g is None else g * back for g in found]
        self.overflowed = not all(
            [BACKENDS[type(g._data)].all_finite(g._data) for g in found if g is not None]
        )
        scale.update(self.overflowed)
        return found

    def _gradients(self, targets, sources, output_gradients, scale: float = 1.0):
        goals = [self._node_of(s) for s in sources]
        wanted = {n for n in goals if n is not None}
        _refuse_severed(targets, wanted)
        nodes = [self._target_node(t) for t in targets]
        # Seeds and copies of gradients count in a budget, too.
        asked = targets, sources, nodes, goals, output_gradients, scale
        if not limited.alive:
            return self._sweep(*asked)
        with limited.around_sweep(nodes) as keep:
            return keep(self._sweep(*asked))

    def _sweep(self, targets, sources, nodes, goals, output_gradients, scale: float):
        wanted = {n for n in goals if n is not None}
        seeds = _seeds(targets, nodes, output_gradients, scale)
        _refuse_from_below(targets, wanted)
        if not seeds or not wanted:
            return [None] * len(sources)
        useful, leaves = nodes_reaching(seeds, wanted)
        record = self._records(leaves)
        start = {n: g if record else g._data for n, g in seeds.items() if n in useful}
        reached = sweep(
            start, record=record, retain=record, useful=useful, goals=wanted, on_node=visit
        )
        if record:
            return [reached.get(n) for n in goals]
        found = [reached.get(n) for n in goals]
        reached.clear()
        return _detach(found, leaves | wanted)

    def _records(self, leaves) -> bool:
        """Whether an enclosing derivative or another tape may differentiate the gradient."""
        around = current.get()
        if self._persistent or around.enclosed or any(tape is not self for tape in around.tapes):
            return True
        return any(w() not in (self, None) for leaf in leaves for w in leaf.watchers)

    def _node_of(self, source):
        if type(source) not in TENSORS:
            raise errors.DTypeError(
                f"gradient: sources must be tensors, got {type(source).__name__}"
            )
        node = self._leaf_of(source) or source._node
        return node if node.__class__ in (Leaf, Node) else None

    def _target_node(self, target):
        """The node of a target; for a watched tensor its leaf, also after the block."""
        node = self._leaf_of(target) if target._node is None else target._node
        return node if node.__class__ in (Leaf, Node) else None

    def _leaf_of(self, tensor) -> Leaf | None:
        """The leaf that a watched tensor has on this tape."""
        watched, leaf = self._leaves.get(id(tensor), (None, None))
        # The id may have belonged to a tensor that has died.
        return leaf if watched is not None and watched() is tensor else None

    def _repeatably(self):
        """A block under the tape's `DeterministicConfig`, if it has one."""
        if self._determinism is None:
            return nullcontext()
        from ...arrays.determinism import applied

        return applied(self._determinism)

    def _refuse_without_block(self, what: str) -> None:
        if self._determinism is not None and self._determined is None:
            raise errors.ArgumentError(
                f"{what}: the tape's DeterministicConfig is at work in the tape's block, and there "
                "was none: write `with tape:` around the computation"
            )

    def _refuse_if_consumed(self, what: str) -> None:
        if self._consumed_at is not None:
            raise errors.TapeConsumed(
                f"{what}: this tape was used up by gradient() at {line_of(*self._consumed_at)}; "
                "make it GradientTape(persistent=True) for several calls"
            )


def _at_work(config):
    """The active form of a `DeterministicConfig`, with its random streams."""
    if config is None:
        return None
    from ...arrays.determinism import begin
    from ...core.determinism import DeterministicConfig

    if not isinstance(config, DeterministicConfig):
        raise errors.DTypeError(
            f"GradientTape: deterministic is a {type(config).__name__}, expected a "
            "wf.DeterministicConfig"
        )
    return begin(config)


def _list_targets(targets) -> list:
    targets = list(targets) if isinstance(targets, list | tuple) else [targets]
    for t in targets:
        if type(t) not in TENSORS:
            raise errors.DTypeError(f"gradient: targets must be tensors, got {type(t).__name__}")
    return targets


def _refuse_severed(targets, sources: set) -> None:
    """Refuse targets that were computed from a severed gradient which depends on a source."""
    for t in targets:
        if t._node.__class__ is Severed and any(map(t._node.concerns, sources)):
            raise not_recorded_error(t._node)


def _refuse_from_below(targets, sources: set) -> None:
    """Refuse a source that is below the level at which a target was computed from it.

    To that level it is a constant; a gradient of None would say that it has no influence.
    """
    for t in targets:
        below = nodes_below(t)
        if not nodes_reaching(below, sources)[0].isdisjoint(below):
            raise errors.GradientError(
                "gradient: inside vmap or jvp, the gradient by a tensor that is none of the "
                "function's arguments; use wf.grad there, with that tensor as an argument"
            )


def _seeds(targets, nodes, output_gradients, scale: float) -> dict:
    """The starting cotangents by node; targets that were not recorded have none."""
    given = [None] * len(targets) if output_gradients is None else _list_targets(output_gradients)
    if len(given) != len(targets):
        raise errors.ArgumentError(
            f"gradient: {len(given)} output_gradients for {len(targets)} targets"
        )
    seeds = {}
    for t, node, g in zip(targets, nodes, given, strict=True):
        if node is not None:
            xp = BACKENDS[type(t._data)]
            seed = wrap(xp.full(t.shape, 1, t.dtype, t.device)) if g is None else seed_for(t, g)
            if scale != 1:
                with xp.quiet():  # the scale may overflow a half type
                    seed = seed * scale
            seeds[node] = seeds[node] + seed if node in seeds else seed
    return seeds


def _severed_mark(of) -> Severed:
    """The mark of a gradient that a tape computed without recording it."""
    return Severed(origin(), {-n.id for n in of}, _REMEDY)


def _detach(raws, of) -> list:
    """Tensors in memory of their own, marked as gradients by `of` without a graph."""
    mark = _severed_mark(of)
    for i, r in enumerate(raws):  # in the list itself: so no more than one is there twice
        raws[i] = None if r is None else wrap(BACKENDS[type(r)].copy(r), mark)
    return raws


def _zeros(source):
    xp = BACKENDS[type(source._data)]
    return wrap(xp.full(source.shape, 0, source.dtype, source.device))
