"""One process as a member of a group: transactions that all ranks agree on, in order."""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from .. import errors
from ..core import settings
from ..core.backends import BACKENDS
from ..core.communicator import CONNECTED, Finished, Pending, Reduction, is_recorded
from . import reductions
from .channel import Channel
from .engine import Engine, GpuEngine
from .header import BYTES, Header, compare
from .pulse import Pulse

# Arrays of at most so many bytes travel beside their headers: one collective instead of two.
_BESIDE = 512
# So long the end of an abandoned collective is waited for, in seconds.
_LAST = 10.0


def _sums_in_order() -> bool:
    """Whether sums are to be in the order of ranks, here where the caller is."""
    return settings.current.get().determinism is not None


class Member:
    """A `Communicator` over an engine.

    A transaction is a header, which the ranks compare, and one collective or more that it stands
    for. So ranks that do different things are told so instead of mixing their arrays up. Under
    `wf.deterministic`, where a transaction begins, its sums are in the order of ranks.

    engine  what carries the arrays
    name    the group's name, by which rows of recorded and compiled programs find it
    pulse   of the ranks; None: all of them are in this process
    gpu     the engine, if it carries arrays on GPUs from there. While a stream is captured into a
            graph, a collective is put on it by this thread, without a header
    sent    by collective, the bytes of the arrays that this rank gave to it, without headers
    """

    _walked: ClassVar[tuple[str, ...]] = ("name", "rank", "size")  # what programs depend on

    def __init__(
        self,
        engine: Engine,
        name: str,
        pulse: Pulse | None = None,
        gpu: GpuEngine | None = None,
    ):
        self.engine, self.name, self._gpu = engine, name, gpu
        self.rank, self.size, self.pid = engine.rank, engine.size, os.getpid()
        self.sent: Counter[str] = Counter()
        self._pulse = pulse
        self._channel = Channel(name, pulse.fail if pulse is not None else lambda error: None)
        self._number = 0  # of transactions
        self._ordered = False  # the sums of the transaction that is under way
        CONNECTED[name] = self

    @property
    def is_connected(self) -> bool:
        """Whether this process still belongs to the group."""
        return CONNECTED.get(self.name) is self

    # Collectives, a transaction each

    def all_reduce(self, x: Any, kind: Reduction = "sum", out: Any = None) -> Any:
        """Elementwise over all ranks' arrays; `out`, x itself for instance, is overwritten."""
        return self._call("all_reduce", x, kind, *(() if out is None else (out,)))

    def all_gather(self, x: Any) -> Any:
        return self._call("all_gather", x)

    def reduce_scatter(self, x: Any) -> Any:
        return self._call("reduce_scatter", x)

    def broadcast(self, x: Any, root: int = 0) -> Any:
        return self._call("broadcast", x, root)

    def barrier(self) -> None:
        if not self._capturing():
            self._channel.call(partial(self._agree, "barrier", _sums_in_order()))

    def compare(self, what: str) -> None:
        if not self._capturing():
            self._channel.call(partial(self._agree, what, _sums_in_order()))

    def start(self, collective: str, x: Any, *rest: Any) -> Pending:
        if self._capturing():
            return Finished(self._call(collective, x, *rest))
        return self._start(self._transaction(collective, x, *rest))

    def _call(self, collective: str, x: Any, *rest: Any) -> Any:
        if self._capturing():
            self._ordered = _sums_in_order()
            return self.perform(collective, x, *rest)
        return self._channel.call(self._transaction(collective, x, *rest))

    def _transaction(self, collective: str, x: Any, *rest: Any) -> Callable[[], Any]:
        """A collective with its header, which says how things are here, where the caller is."""
        said = f"{collective} recorded" if is_recorded.get() else collective
        return partial(self._transact, _sums_in_order(), said, collective, x, *rest)

    def _start(self, action: Callable[[], Any]) -> Pending:
        return self._channel.start(self._gpu.on_this_stream(action) if self._gpu else action)

    def _capturing(self) -> bool:
        return self._gpu is not None and self._gpu.capturing()

    def _transact(self, ordered: bool, said: str, collective: str, x: Any, *rest: Any) -> Any:
        if collective == "all_reduce" and not rest:
            rest = ("sum",)
        xp = BACKENDS[type(x)]
        dtype, shape, device = xp.dtype_of(x), tuple(x.shape), xp.device_of(x)
        what = " ".join(map(str, (said, *rest[:1], dtype, shape)))
        on_gpu = reductions.lies_on_gpu(x)
        if on_gpu:
            what += " on a GPU"
        if self.size == 1 or xp.nbytes(x) > _BESIDE or on_gpu:
            self._agree(what, ordered)
            return self.perform(collective, x, *rest)
        self.sent[collective] += xp.nbytes(x)
        came = self._agree(what, ordered, xp.to_numpy(x).tobytes())
        every = np.frombuffer(came, dtype).reshape(self.size, *shape)
        y = xp.adopt(reductions.of_rows(every, self.rank, collective, *rest[:1]), device)
        if len(rest) < 2:
            return y
        xp.overwrite(rest[1], y)
        return rest[1]

    # Transactions of several collectives

    def agree(self, what: str) -> Pending:
        """Begin a transaction in the background: the ranks compare `what`.

        If they differ, the transaction and all later ones raise. What the header stands for is
        started next, by `run`.
        """
        if self._capturing():
            self._ordered = _sums_in_order()
            return Finished(None)
        return self._start(partial(self._agree, what, _sums_in_order()))

    def run(self, action: Callable[["Member"], Any]) -> Pending:
        """Run a part of a transaction in the background: `action(member)` calls `perform`."""
        return Finished(action(self)) if self._capturing() else self._start(partial(action, self))

    def _agree(self, what: str, ordered: bool, beside: bytes = b"") -> bytes:
        """Begin a transaction; what all ranks sent beside their headers."""
        said = f"{what}, sums in rank order" if ordered else what
        header = Header(self._number, said)
        if self._pulse is not None:
            self._pulse.begin(self._number, said)
        self._number += 1
        self._ordered = ordered
        if self.size == 1:
            return beside
        # All of one length, so that ranks that differ exchange their headers all the same.
        packed = bytearray(header.pack().ljust(BYTES + _BESIDE, b"\0"))
        packed[BYTES : BYTES + len(beside)] = beside
        rows = self.engine.all_gather(np.frombuffer(packed, np.uint8))
        compare(rows[:, :BYTES])
        return rows[:, BYTES : BYTES + len(beside)].tobytes()

    def perform(self, collective: str, x: Any, *rest: Any) -> Any:
        """A collective of a transaction that is under way, without a header of its own."""
        self.sent[collective] += BACKENDS[type(x)].nbytes(x)
        if collective == "all_reduce":
            return reductions.all_reduce(self.engine, x, *rest, ordered=self._ordered)
        if collective == "reduce_scatter":
            return reductions.reduce_scatter(self.engine, x)
        return getattr(self.engine, collective)(x, *rest)

    # The end

    def close(self, abandon: BaseException | bool = False) -> None:
        """Leave the group, after the collectives that were started.

        abandon  leave them unfinished: the error that ends this process, or True
        """
        if abandon:
            self._channel.abandon(abandon if isinstance(abandon, BaseException) else None)
        else:
            self._channel.finish()
        CONNECTED.pop(self.name, None)
        if self._pulse is not None:
            self._pulse.leave(self._number)
        self._channel.join(_LAST)  # a thread in a library's code at the interpreter's end aborts
        self.engine.close(self._channel.failure is not None)

    def disown(self) -> None:
        """In a forked process: let go of what is the parent's."""
        CONNECTED.pop(self.name, None)
        if self._pulse is not None:
            self._pulse.forget()
        # A new one: a thread that is not here may hold the lock of the old one.
        self._channel = Channel(self.name, lambda error: None)
        self._channel.fail(
            errors.DistributedError(
                f"this process was forked from rank {self.rank} and is no rank of the group "
                f"{self.name!r}: call collectives in the process that called wf.dist.init()"
            )
        )
