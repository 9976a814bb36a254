"""Gradients of a model's parameters, reduced to their means over ranks during `backward()`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary, WeakMethod, finalize

import numpy as np

from .. import errors
from ..arrays.arguments import as_tensor
from ..core.backends import BACKENDS
from ..core.node import Leaf
from ..core.record import record
from ..core.settings import current, refuse_while_staging, traced
from ..core.value import wrap
from ..optim.optimizer import BEFORE_STEP
from ..transform.modes.watch import BEFORE, OVER, WATCHERS, LastUses, Visit, Watch
from .agreement import broadcast_by_rows, broadcast_values, compare_models
from .compression import Compression, compressor_of
from .layout import Layout, first_order
from .passes import HeldPass, ReducingPass, RowPass, mean_by_rows

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..core.communicator import Pending
    from .member import Member


# After how many calls of compiled programs parameters are compared.
_EVERY = 64


@record
class Sync:
    """A backward pass that has synchronised the gradients.

    step      its number, from 0
    included  how many backward passes its gradients are of, with itself
    """

    step: int
    included: int


class GradientReducer:
    """Makes `backward()` give the means over ranks of parameters' gradients.

    named_params  (name, parameter) pairs, the same on all ranks
    member        the group; its rank 0's values become everyone's
    bucket_mb     megabytes of gradients that one collective reduces
    compression   what is sent of them; None: everything
    buffers       further tensors that rank 0's values are given to
    changing      gives those of them that they are given to with each pass that synchronises

    It works while it is alive. Only `backward()` synchronises: gradients of `wf.grad`, of tapes
    and of vjps are this rank's own, as inside of the function that they differentiate.
    """

    _walked: ClassVar[tuple[str, ...]] = ()  # programs depend on none of its attributes

    def __init__(
        self,
        named_params: Iterable[tuple[str, Tensor]],
        member: Member,
        bucket_mb: float = 25,
        compression: Compression = None,
        buffers: Iterable[Tensor] = (),
        changing: Callable[[], Iterable[Tensor]] = tuple,
    ):
        self.member = member
        self._params: dict[str, Tensor] = _each_once(named_params)
        self.names = list(self._params)
        self.compression = compression
        self.compressor = compressor_of(compression)
        self.held: dict[int, Any] = {}  # by number of parameter, sums over waiting passes
        self.pending = 0
        self.last_sync: Sync | None = None
        self._synchronising = True
        self.steps = 0
        self._running = Lock()  # held while a pass is running
        self._forwards = 0  # calls of the model since the last pass that has synchronised
        self._unused: set[int] = set()  # warned about
        self.layout = Layout(self._params, _bucket_bytes(bucket_mb))
        compare_models(member, self.layout.specs, "models")
        self._changing = changing
        self._stepped: WeakKeyDictionary[Any, int] = (
            WeakKeyDictionary()
        )  # passes before the last step
        self._owned = {id(p) for p in self._params.values()}
        self._calls = 0  # of compiled programs
        values = [*self._params.values(), *buffers]
        broadcast_values(member, values, "the initial state", self.layout.nbytes)
        self._watch_passes()

    def _watch_passes(self) -> None:
        """Take part in backward passes and optimizers' steps as long as this object is alive."""
        pairs: Any = ((self._watch, WATCHERS), (self._check_step, BEFORE_STEP))
        for method, listed in pairs:
            weak = WeakMethod(method)

            def called(*args: Any, weak: Any = weak) -> Any:
                found = weak()
                return None if found is None else found(*args)

            listed.append(called)
            finalize(self, listed.remove, called).atexit = False

    def check_names(self, pairs: Iterable[tuple[str, Tensor]]) -> None:
        """Refuse parameters that have come or gone since the model was wrapped."""
        now = {name: p for name, p in pairs}
        if now.keys() != self._params.keys() or any(
            [p is not self._params[name] for name, p in now.items()]
        ):
            changed = [n for n, p in now.items() if self._params.get(n) is not p]
            gone = [n for n in self._params if n not in now]
            raise errors.DistributedError(
                f"wf.dist.DataParallel: the model has other parameters than when it was wrapped "
                f"(new: {', '.join(changed) or 'none'}; gone: {', '.join(gone) or 'none'}); wrap "
                "it again after such a change"
            )

    def note_forward(self) -> None:
        """Count a call of the model whose gradients are going to be synchronised."""
        if current.get().grad and current.get().staging is None:
            self._forwards += 1

    # State

    def state_dict(self) -> dict[str, Any]:
        """What this rank needs to go on to the bit: steps, order of buckets, compressor's arrays.

        Arrays are under "error.<name>" and "q.<name>", with the names of parameters; they are this
        rank's own.
        """
        self._refuse_waiting_state("state_dict")
        found: dict[str, Any] = {"steps": self.steps, "order": self.layout.order}
        for kind, arrays in self.compressor.state.items():
            for k, raw in arrays.items():
                found[f"{kind}.{self.names[k]}"] = wrap(BACKENDS[type(raw)].copy(raw))
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same rank of a group of the same size.

        state  what `state_dict` gave, with tensors or arrays
        """
        self._refuse_waiting_state("load_state_dict")
        numbers = {name: k for k, name in enumerate(self.names)}
        kinds: dict[str, dict[int, Any]] = {kind: {} for kind in self.compressor.state}
        for key, value in state.items():
            kind, _, name = key.partition(".")
            if key in ("steps", "order"):
                continue
            if kind not in kinds or name not in numbers:
                raise errors.StateMismatch(
                    f"GradientReducer.load_state_dict: {key!r} is not of this model or not of "
                    f"compression={self.compressor!r}; make both as when the state was saved"
                )
            own = self._params[name]._data
            xp = BACKENDS[type(own)]
            kinds[kind][numbers[name]] = xp.copy(as_tensor(value).to(xp.device_of(own))._data)
        self.compressor.state.update(kinds)
        order, self.steps = state["order"], int(state["steps"])
        self.layout.order = None if order is None else tuple(map(int, order))

    def _refuse_waiting_state(self, what: str) -> None:
        if self.pending:
            raise errors.DistributedError(
                f"GradientReducer.{what}: the gradients of {self.pending} backward passes in "
                "no_sync() wait, which are part of no state; save and load between two steps"
            )

    # Accumulation

    @property
    def synchronises(self) -> bool:
        """Whether backward passes synchronise now."""
        return self._synchronising

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """A block whose backward passes keep their gradients here, for the next one outside."""
        refuse_while_staging("no_sync() is entered")
        had, self._synchronising = self._synchronising, False
        try:
            yield
        finally:
            self._synchronising = had

    def hold(self, found: dict[int, Any]) -> None:
        """Add the gradients of a pass to those that wait."""
        for k, g in found.items():
            xp = BACKENDS[type(g)]
            have = self.held.get(k)
            self.held[k] = xp.copy(xp.whole(g)) if have is None else have + g
        self.pending += 1

    def drop(self) -> None:
        """Forget the gradients that wait."""
        self.held, self.pending = {}, 0

    def _check_step(self, optimizer: Any, what: str) -> None:
        """Refuse a step of these parameters that leaves out gradients that wait.

        Where no pass has synchronised since the last step, the ranks compare the parameters.
        """
        steps = what.endswith(".step") and current.get().staging is None
        if not self.pending and not (steps and self.member.size > 1 and self.member.is_connected):
            return
        if not any([id(e.param) in self._owned for e in optimizer.entries()]):
            return
        if self.pending:
            raise errors.DistributedError(
                f"{what}: the gradients of {self.pending} backward passes in no_sync() wait to "
                "be synchronised; run the last backward() of a step outside of no_sync(), or "
                "drop them by zero_grad() of the wf.dist.DataParallel"
            )
        before, self._stepped[optimizer] = self._stepped.get(optimizer, 0), self.steps
        if before == self.steps:
            self._compare_values(f"{what} without a synchronised backward()")

    def _compare_values(self, what: str) -> None:
        """Compare some of the parameters' values between ranks."""
        self._calls += 1
        try:
            self.member.compare(f"{what}, parameters {self.layout.sample(self._calls)}")
        except errors.RanksDiffer as e:
            raise errors.RanksDiffer(
                f"{e.message}. Where only the digests of parameters differ, these have become "
                "different on the ranks: gradients of tapes and of wf.grad are each rank's own; "
                "average them by wf.dist.all_reduce(g, 'mean') before a step"
            ) from None

    def share_buffers(self) -> None:
        """Give the buffers that change the values that they have on rank 0."""
        buffers = list(self._changing())
        if current.get().staging is None:
            broadcast_values(self.member, buffers, "buffers", 1 << 25)
        elif buffers:
            broadcast_by_rows(self.member, buffers)

    # Backward passes

    def _watch(self, uses: LastUses, by_rows: bool, visit: Visit) -> Watch | None:
        staging = current.get().staging
        leaves = [self._leaf(p, staging) for p in self._params.values()]
        if not any([leaf in uses for leaf in leaves if leaf is not None]):
            return None
        return self._begin_watch(leaves, uses, staging is not None or by_rows, visit)

    def _begin_watch(
        self, leaves: list[Leaf | None], uses: LastUses, by_rows: bool, visit: Visit
    ) -> Watch:
        self._begin_pass()
        try:
            self.layout.check_unmoved()
            trained = tuple([leaf is not None for leaf in leaves])
            if by_rows:
                return self._row_pass(trained, leaves, uses, visit)
            if not self._synchronising:
                return HeldPass(self, leaves, visit)
            return self._reducing_pass(trained, leaves, uses, visit)
        except BaseException:
            self._running.release()
            raise

    def _leaf(self, p: Tensor, staging: Any) -> Leaf | None:
        leaf = p._node
        if leaf.__class__ is not Leaf:
            return None
        return leaf if staging is None else staging.own_leaf(leaf)

    def _begin_pass(self) -> None:
        if not self._running.acquire(blocking=False):
            raise errors.DistributedError(
                "backward(): another backward pass through the same wf.dist.DataParallel model is "
                "running, in a hook or in another thread; ranks could not agree on their order"
            )

    def leave(self) -> None:
        """The running pass has ended."""
        self._running.release()

    def end_pass(self, failed: bool) -> None:
        """A pass that synchronises has ended; if it has failed, what waits goes on waiting."""
        if not failed:
            self.last_sync = Sync(self.steps, self.pending + 1)
            self.drop()
        self.steps += 1
        self._forwards = 0

    def _reducing_pass(self, trained, leaves, uses: LastUses, visit: Visit) -> Watch:
        header = self.member.agree(
            f"backward pass {self.steps} of {self.pending + 1} after {self._forwards} calls, "
            f"layout {self.layout.digest(trained)}, parameters {self.layout.sample(self.steps)}"
        )
        if self.layout.order is None:
            order = np.array(first_order(leaves, uses), np.int64)
            sent = self.member.run(lambda m: m.perform("broadcast", order, 0))
            self.wait_for_header(header)
            self.layout.order = tuple(sent.wait().tolist())
        return ReducingPass(self, self.layout.buckets(trained), header, leaves, uses, visit)

    def _row_pass(self, trained, leaves, uses: LastUses, visit: Visit) -> Watch:
        if not self._synchronising or self.pending:
            raise errors.DistributedError(
                "backward(): in a compiled function, and with create_graph=True, gradients cannot "
                "wait in no_sync(): run these passes without either, or add the losses of the "
                "micro-batches up in the function"
            )
        staging = current.get().staging
        if staging is not None:
            staging.state((id(self), "reducer"), lambda: self._depend_on_waiting(staging), self)
        # Programs are compiled on each rank at its own time: their layout follows from the model.
        return RowPass(self, self.layout.registered(trained), leaves, uses, visit)

    def _depend_on_waiting(self, staging: Any) -> None:
        """Refuse calls of the program that is traced while gradients wait."""
        staging.before.append(self._refuse_waiting)

    def _refuse_waiting(self) -> None:
        if self.pending or not self._synchronising:
            raise errors.DistributedError(
                f"a compiled function that runs backward() is called in no_sync(), or while the "
                f"gradients of {self.pending} backward passes wait; call it outside, and run the "
                "last pass of a step in the way of the others"
            )
        if self._calls % _EVERY == 0:
            self._compare_values("a compiled step")
        else:
            self._calls += 1

    def mean_by_rows(self, gradients: list[Any], what: str) -> list[Any]:
        """The means over ranks of gradients of one dtype, by rows.

        what  what the ranks compare before; empty: nothing
        """
        return mean_by_rows(gradients, self.member, self.compressor, what)

    def average(
        self, pairs: Iterable[tuple[str | Tensor, Tensor | None]]
    ) -> list[tuple[Tensor, Tensor]]:
        """(parameter, mean over ranks) of gradients that are given, with those that wait.

        pairs  (parameter or its name, this rank's gradient), which are not tracked on; None, and
               a parameter that is left out: no gradient here

        Parameters that have no gradient on any rank are left out. In a compiled function all ranks
        must give gradients of the same parameters.
        """
        staging = current.get().staging
        leaves = [self._leaf(p, staging) for p in self._params.values()]
        pending = self._given(pairs, leaves)
        uses = dict.fromkeys(pending, BEFORE)
        watch = self._begin_watch(leaves, uses, staging is not None, lambda leaf, g: g)
        try:
            watch.advance(OVER, pending)
            found = watch.finish()
        except BaseException as e:
            if watch.abort():
                watch.tell(e)
            raise
        params = zip(leaves, self._params.values(), strict=True)
        return [(p, wrap(found[leaf])) for leaf, p in params if leaf is not None and leaf in found]

    def _given(self, pairs: Iterable[tuple[Any, Any]], leaves: list[Leaf | None]) -> dict[Any, Any]:
        """The raw gradients of pairs, by leaf."""
        by_name = dict(zip(self._params, leaves, strict=True))
        known = {leaf for leaf in leaves if leaf is not None}
        found: dict[Any, Any] = {}
        for p, g in pairs:
            leaf = by_name.get(p) if isinstance(p, str) else p._node
            if leaf not in known:
                what = repr(p) if isinstance(p, str) else f"a tensor of shape {p.shape}"
                raise errors.ArgumentError(
                    f"GradientReducer.average: {what} is no parameter of the model that is trained"
                )
            if g is not None:
                found[leaf] = traced(g)._data
        return found

    def wait_for_header(self, header: Pending) -> None:
        """Wait until the ranks have compared what they do; raises if it is not the same."""
        try:
            header.wait()
        except errors.RanksDiffer as e:
            raise errors.RanksDiffer(
                f"backward(): {e.message}. Said of a pass are its number, how many passes it "
                "includes, how often the model was called for it, and digests of which parameters "
                "are trained and of some of their values: where only the last differs, the "
                "parameters have become different before"
            ) from None

    def note_unused(self, numbers: list[int]) -> None:
        """Warn of parameters that have no gradient on any rank, once of each."""
        new = sorted([k for k in numbers if k not in self._unused])
        if new:
            self._unused.update(new)
            names = ", ".join([repr(self.names[k]) for k in new[:10]])
            warnings.warn(
                f"parameters without a gradient on any rank: {names}"
                f"{f' and {len(new) - 10} others' if len(new) > 10 else ''}. The loss does not "
                "depend on them; freeze them with requires_grad_(False) if that is meant",
                UserWarning,
                stacklevel=2,
            )


def _each_once(pairs: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Parameters by name; one that has several names comes under the first."""
    found: dict[str, Tensor] = {}
    known: set[int] = set()
    for name, p in pairs:
        if id(p) not in known:
            known.add(id(p))
            found[name] = p
    if not found:
        raise errors.ArgumentError(
            "wf.dist.DataParallel: the model has no parameters, so there is nothing to reduce; "
            "use the model itself"
        )
    return found


def _bucket_bytes(bucket_mb: float) -> int:
    if not isinstance(bucket_mb, int | float) or not 0 < bucket_mb < float("inf"):
        raise errors.ArgumentError(
            f"wf.dist.DataParallel: bucket_mb={bucket_mb!r}; expected a number of megabytes > 0"
        )
    return max(1, int(bucket_mb * (1 << 20)))
