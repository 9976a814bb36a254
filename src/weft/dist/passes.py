"""Backward passes of a model whose gradients are reduced: what each does with the cotangents."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from .. import errors
from ..core.backends import BACKENDS
from ..core.communicator import Pending
from ..core.node import Leaf
from ..ops import collective as rows
from ..ops.slicing import narrow
from ..ops.structural import concat, reshape
from ..transform.modes.watch import BEFORE, END, OVER, LastUses, Visit
from .agreement import gather_texts
from .buckets import Bucket, digest

if TYPE_CHECKING:
    from .compression import Compressor
    from .member import Member
    from .reducer import GradientReducer


def take_cotangent(leaf: Leaf, pending: dict[Any, Any], visit: Visit) -> Any:
    """The final cotangent of a leaf, after its hooks; None if there is none."""
    g = pending.pop(leaf, None)
    return g if g is None or leaf.extra is None else visit(leaf, g)


class _Pass:
    """What all passes have: a reducer, which knows of one at a time, and parameters' leaves."""

    due = END

    def __init__(self, reducer: GradientReducer, leaves: list[Leaf | None], visit: Visit):
        self._reducer, self._leaves, self._visit = reducer, leaves, visit
        self._left = False

    def leave(self) -> None:
        """The pass is over, unless it was before."""
        if not self._left:
            self._left = True
            self._reducer.leave()

    def abort(self) -> bool:
        self.leave()
        return False

    def tell(self, error: BaseException) -> None:
        return None


class HeldPass(_Pass):
    """A pass in `no_sync`: the gradients wait in the reducer for one that synchronises."""

    def __init__(self, reducer: GradientReducer, leaves: list[Leaf | None], visit: Visit):
        super().__init__(reducer, leaves, visit)
        self._found: dict[int, Any] = {}

    def advance(self, at: int, pending: dict[Any, Any]) -> None:
        for k, leaf in enumerate(self._leaves):
            g = None if leaf is None else take_cotangent(leaf, pending, self._visit)
            if g is not None:
                self._found[k] = g
        self.due = OVER

    def finish(self) -> dict[Leaf, Any]:
        self._reducer.hold(self._found)
        self.leave()
        return {}


class ReducingPass(_Pass):
    """A pass whose gradients are reduced in buckets, each as soon as it is complete.

    Buckets are sent in one order on all ranks, whatever order their gradients come in.
    """

    def __init__(
        self,
        reducer: GradientReducer,
        buckets: tuple[Bucket, ...],
        header: Pending,
        leaves: list[Leaf | None],
        uses: LastUses,
        visit: Visit,
    ):
        super().__init__(reducer, leaves, visit)
        self._buckets, self._header = buckets, header
        self._held = reducer.held
        self._jobs: list[Pending] = []
        self._dues: list[int] = []
        latest = BEFORE
        for bucket in buckets:
            own = [leaves[k] for k in bucket.members]
            latest = max([latest, *[BEFORE if x is None else uses.get(x, BEFORE) for x in own]])
            self._dues.append(latest)
        self._dues.append(OVER)
        self.due = self._dues[0]

    def advance(self, at: int, pending: dict[Any, Any]) -> None:
        while self.due < at:
            self._start(self._buckets[len(self._jobs)], pending)
            self.due = self._dues[len(self._jobs)]

    def _start(self, bucket: Bucket, pending: dict[Any, Any]) -> None:
        """Copy a bucket's gradients into a new flat array, and reduce that in the background."""
        flat = self._reducer.layout.empty(bucket)
        flat[bucket.size :] = 0
        for n, (k, _, start, end) in enumerate(bucket.parts()):
            leaf, held = self._leaves[k], self._held.get(k)
            g = None if leaf is None else take_cotangent(leaf, pending, self._visit)
            given = [x for x in (g, held) if x is not None]
            flat[bucket.size + n] = bool(given)
            flat[start:end] = given[0].reshape(-1) if given else 0
            for x in given[1:]:
                flat[start:end] += x.reshape(-1)
        self._send(bucket, flat)

    def _send(self, bucket: Bucket, flat: Any) -> None:
        reduce, step = self._reducer.compressor.reduce, self._reducer.steps
        action = partial(reduce, bucket=bucket, flat=flat, step=step)
        self._jobs.append(self._reducer.member.run(action))

    def finish(self) -> dict[Leaf, Any]:
        found = self._wait()
        self.leave()
        self._reducer.end_pass(failed=False)
        reached: dict[Leaf, Any] = {}
        unused: list[int] = []
        for bucket, (mean, used) in zip(self._buckets, found, strict=True):
            for n, (k, shape, start, end) in enumerate(bucket.parts()):
                leaf = self._leaves[k]
                if not used[n]:
                    unused.append(k)
                elif leaf is not None:
                    reached[leaf] = mean[start:end].reshape(shape)
        self._reducer.note_unused(unused)
        self._reducer.share_buffers()
        return reached

    def _wait(self) -> list[tuple[Any, list[bool]]]:
        """Each bucket's means, and which of its members have a gradient on some rank."""
        self._reducer.wait_for_header(self._header)
        means = [job.wait() for job in self._jobs]
        tails = [_tail(b, mean) for b, mean in zip(self._buckets, means, strict=True)]
        if any([t[-1] != t[-1] for t in tails]):
            self._raise_failure()
        return [(mean, [c != 0 for c in t[:-1]]) for mean, t in zip(means, tails, strict=True)]

    def abort(self) -> bool:
        """Send NaN in the place of what is missing: the other ranks wait for it."""
        missing = self._buckets[len(self._jobs) :]
        for bucket in missing:
            flat = self._reducer.layout.empty(bucket)
            flat[:] = float("nan")
            self._send(bucket, flat)
        if not self._left:
            self.leave()
            self._reducer.end_pass(failed=True)
        return bool(missing)

    def tell(self, error: BaseException) -> None:
        told = self._exchange(f"{type(error).__name__}: {error}")
        if isinstance(error, Exception):  # an interrupted rank does not wait for others
            with suppress(errors.DistributedError):  # what the pass has raised is raised
                told.wait()

    def _exchange(self, reason: str) -> Pending:
        """The reasons of all ranks for which the pass has failed there; empty: it has not."""
        return self._reducer.member.run(lambda m: gather_texts(m, reason))

    def _raise_failure(self) -> None:
        reasons = self._exchange("").wait()
        failed = [f"rank {r}: {reason}" for r, reason in enumerate(reasons) if reason]
        raise errors.DistributedError(
            f"backward(): there are no gradients, as the pass has failed elsewhere "
            f"({'; '.join(failed)}); see the message of that rank"
        )


def _tail(bucket: Bucket, mean: Any) -> list[float]:
    """The counts of a bucket, and its last element."""
    tail = mean[bucket.size :]
    found = BACKENDS[type(tail)].to_numpy(tail)
    return [float(v.real) for v in found.tolist()]


class RowPass(_Pass):
    """A pass that is recorded or traced: means are computed by rows, bucket after bucket.

    So means can be differentiated, and a compiled program has the collectives in it.
    """

    def __init__(
        self,
        reducer: GradientReducer,
        buckets: tuple[Bucket, ...],
        leaves: list[Leaf | None],
        uses: LastUses,
        visit: Visit,
    ):
        super().__init__(reducer, leaves, visit)
        self._buckets = [
            (max([uses[leaf] for leaf in own]), own)
            for own in [_reached(b, leaves, uses) for b in buckets]
            if own
        ]
        self._ended = 0
        names = [reducer.names[k] for b in buckets for k in b.members if leaves[k] in uses]
        self._said = f"backward pass of {len(names)} parameters {digest(*names)}"
        self._found: dict[Leaf, Any] = {}
        self.due = self._next()

    def _next(self) -> int:
        dues = [due for due, _ in self._buckets[: self._ended + 1]]
        return OVER if self._ended == len(self._buckets) else max(dues)

    def advance(self, at: int, pending: dict[Any, Any]) -> None:
        while self.due < at:
            leaves = self._buckets[self._ended][1]
            given = [(leaf, take_cotangent(leaf, pending, self._visit)) for leaf in leaves]
            given = [(leaf, g) for leaf, g in given if g is not None]
            if given:
                means = self._reducer.mean_by_rows([g for _, g in given], self._said)
                self._said = ""
                self._found |= {leaf: m for (leaf, _), m in zip(given, means, strict=True)}
            self._ended += 1
            self.due = self._next()

    def finish(self) -> dict[Leaf, Any]:
        self.leave()
        return self._found


def _reached(bucket: Bucket, leaves: list[Leaf | None], uses: LastUses) -> list[Leaf]:
    found = [leaves[k] for k in bucket.members]
    return [leaf for leaf in found if leaf is not None and leaf in uses]


def mean_by_rows(
    gradients: list[Any], member: Member, compressor: Compressor, what: str = ""
) -> list[Any]:
    """The means over ranks of gradients of one dtype, by one collective.

    what  what the ranks compare before; empty: nothing
    """
    shapes = [tuple(g.shape) for g in gradients]
    flat = concat([reshape(g, (prod(g.shape),)) for g in gradients], 0)
    if what:
        flat = rows.compare(flat, member.name, member.size, what)
    mean = compressor.mean_by_rows(member, flat)
    found, at = [], 0
    for shape in shapes:
        n = prod(shape)
        found.append(reshape(narrow(mean, 0, at, at + n), shape))
        at += n
    return found
