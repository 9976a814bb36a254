"""How processes find each other: what launchers say in the environment, and torch's stores."""

import json
import os
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from time import monotonic, sleep
from typing import Any, TypeVar, cast

from .. import errors
from ..core.record import record

T = TypeVar("T")
# So long rank 0 keeps the store for the others when it leaves with an error, in seconds.
_FAREWELL = 3.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@record
class Place:
    """Where a process stands among those that a launcher started.

    rank, size  its number, and how many there are
    store       where they meet: the path of a file, or (host, port)
    agent       whether a launcher's own process serves the store, rather than rank 0
    """

    rank: int
    size: int
    store: str | tuple[str, int]
    agent: bool = False

    @property
    def host(self) -> str | None:
        """The host whose network the ranks share; None: they are on one machine."""
        host = None if isinstance(self.store, str) else self.store[0]
        return None if host in _LOOPBACK else host


def find_place(rendezvous: str | None, environment: Mapping[str, str]) -> Place | None:
    """The place that the environment gives a process; None: no launcher started it."""
    _refuse_other_launchers(environment)
    known = [name for name in ("RANK", "WORLD_SIZE") if environment.get(name)]
    if not known and rendezvous is None:
        return None
    if len(known) < 2:
        raise errors.RendezvousError(
            f"init: RANK and WORLD_SIZE must both be in the environment, and "
            f"{'only ' + known[0] if known else 'neither'} is; torchrun sets them"
        )
    rank, size = (_number(name, environment[name]) for name in ("RANK", "WORLD_SIZE"))
    if not 0 <= rank < size:
        raise errors.RendezvousError(
            f"init: RANK={rank} of WORLD_SIZE={size}: expected 0 ≤ rank < size"
        )
    agent = environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and rendezvous is None
    return Place(rank, size, _meeting(rendezvous, environment), agent)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise errors.RendezvousError(f"init: {name}={text!r} is no whole number") from None


def _meeting(rendezvous: str | None, environment: Mapping[str, str]) -> str | tuple[str, int]:
    if rendezvous is None:
        host, port = environment.get("MASTER_ADDR"), environment.get("MASTER_PORT")
        if not port:
            raise errors.RendezvousError(
                "init: RANK and WORLD_SIZE are in the environment, MASTER_PORT is not: set it (and "
                'MASTER_ADDR), or call wf.dist.init(rendezvous="file:///a/new/file")'
            )
        return host or "127.0.0.1", _port(port)
    if rendezvous.startswith("file://"):
        path = rendezvous.removeprefix("file://")
        if not os.path.isabs(path) or not os.path.isdir(os.path.dirname(path)):
            raise errors.RendezvousError(
                f"init: rendezvous={rendezvous!r}: expected file:///path of a new file in a "
                "directory that exists"
            )
        return path
    host, colon, port = rendezvous.rpartition(":")
    if not colon or not host or "/" in host:
        raise errors.RendezvousError(
            f"init: rendezvous={rendezvous!r}: expected 'file:///path' or 'host:port'"
        )
    return host.strip("[]"), _port(port)


def _port(text: str) -> int:
    port = _number("the port", text)
    if not 0 < port < 1 << 16:
        raise errors.RendezvousError(f"init: the port {port}: expected 1 to 65535")
    return port


def _refuse_other_launchers(environment: Mapping[str, str]) -> None:
    if environment.get("WORLD_SIZE"):
        return
    for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"):
        if environment.get(name, "1") not in ("", "1"):
            launcher = "srun" if name.startswith("SLURM") else "mpiexec"
            raise errors.RendezvousError(
                f"init: {launcher} started {environment[name]} processes ({name}), and engine="
                "'torch' finds no RANK and WORLD_SIZE: call wf.dist.init(engine='mpi'), or start "
                "the processes by torchrun"
            )


def bounded(action: Callable[[], T], seconds: float, what: str) -> T:
    """What an action of a library returns that may wait for longer than it promises."""
    result: list[T] = []
    failure: list[Exception] = []

    def run() -> None:
        try:
            result.append(action())
        except Exception as e:  # raised below
            failure.append(e)

    thread = threading.Thread(target=run, name="weft-rendezvous", daemon=True)
    thread.start()
    thread.join(seconds)
    if failure and isinstance(failure[0], errors.DistributedError):
        raise failure[0]
    if failure:
        raise errors.RendezvousError(f"init: {what}: {failure[0]}") from failure[0]
    if not result:
        raise errors.RendezvousError(f"init: {what}: no answer within {seconds:g} s")
    return result[0]


_served: dict[tuple[str, int], Any] = {}  # what this process serves or uses, until it ends


def open_store(place: Place, until: float) -> Any:
    """The store where the ranks of a place meet."""
    import torch.distributed

    c10d: Any = torch.distributed
    seconds = max(1.0, until - monotonic())
    if isinstance(place.store, str):
        store: Any = c10d.FileStore(place.store, -1)
    elif place.store in _served:
        store = _served[place.store]
    else:
        host, port = place.store
        _resolve(host, until)
        serves = place.rank == 0 and not place.agent
        what = (
            f"rank 0 cannot serve a store at {host}:{port}"
            if serves
            else f"rank {place.rank} finds no store at {host}:{port}, where rank 0 should serve it"
        )
        store = bounded(
            lambda: c10d.TCPStore(
                *(host, port, place.size, serves),
                timeout=timedelta(seconds=seconds),
                wait_for_workers=False,
                multi_tenant=True,
            ),
            seconds + 5.0,
            what,
        )
        _served[place.store] = store
    return c10d.PrefixStore("weft", store)


def _resolve(host: str, until: float) -> None:
    """Wait until a host's name is known: a cluster's may come up late."""
    while True:
        try:
            socket.getaddrinfo(host, None)
            return
        except OSError as e:
            if monotonic() > until:
                raise errors.RendezvousError(
                    f"init: the host {host!r} (MASTER_ADDR, or rendezvous) is not known: {e}"
                ) from e
            sleep(min(1.0, max(0.05, until - monotonic())))


def meet(store: Any, place: Place, card: dict[str, Any], until: float) -> tuple[Any, list[Any]]:
    """The store of this meeting, and the cards of all ranks.

    A launcher's store outlives the processes that it starts again, and a process may join several
    groups one after another. So each meeting has a number, which rank 0 gives to whoever comes.
    Raises if some rank is missing, there twice, or does not fit.
    """
    import torch.distributed

    answer = Doorkeeper(store, place.size) if place.rank == 0 else None
    number = answer.number if answer is not None else _numbered(store, place, until)
    own = cast(Any, torch.distributed).PrefixStore(f"meeting {number}", store)
    if own.add(f"claims of {place.rank}", 1) > 1:
        raise errors.RendezvousError(
            f"init: another process is rank {place.rank} of this group already: give each process "
            "a RANK of its own, and each start of the program a file or port of its own"
        )
    own.add("came", 1)
    own.set(f"card of {place.rank}", json.dumps(card))
    try:
        return own, _all_cards(own, place, card, until, answer)
    except errors.RendezvousError:
        own.add("told", 1)
        until = monotonic() + _FAREWELL
        while place.rank == 0 and monotonic() < until and own.add("told", 0) < own.add("came", 0):
            sleep(0.02)  # the store ends with this process, and others are still to read it
        raise


class Doorkeeper:
    """What rank 0 does at a meeting: it gives all tickets of other ranks its number."""

    def __init__(self, store: Any, size: int):
        self._store, self.number = store, store.add("meetings", 1)
        self._given = [0] * size

    def __call__(self) -> None:
        for r in range(1, len(self._given)):
            count = self._store.add(f"tickets of {r}", 0)
            for ticket in range(self._given[r] + 1, count + 1):
                key = f"ticket {ticket} of {r}"
                if not self._store.check([key]):  # else it is of an earlier meeting
                    self._store.set(key, str(self.number))
            self._given[r] = count


def _numbered(store: Any, place: Place, until: float) -> int:
    """The number of the meeting that rank 0 is at now."""
    key = f"ticket {store.add(f'tickets of {place.rank}', 1)} of {place.rank}"
    while not store.check([key]):
        if monotonic() > until:
            raise errors.RendezvousError(
                f"init: rank 0 of {place.size} did not come in time: start as many processes as "
                "WORLD_SIZE says, or give init a larger timeout"
            )
        sleep(0.01)
    return int(store.get(key))


def _all_cards(
    store: Any, place: Place, card: dict[str, Any], until: float, answer: Doorkeeper | None
) -> list[Any]:
    every = range(place.size)
    cards: dict[int, Any] = {}
    while True:
        if answer is not None:
            answer()
        for r in set(every) - {*cards}:
            if store.check([f"card of {r}"]):
                cards[r] = json.loads(store.get(f"card of {r}"))
                compare_cards(card, place.rank, cards[r], r)
        if len(cards) == place.size:
            return [cards[r] for r in every]
        if monotonic() > until:
            raise errors.RendezvousError(
                f"init: of {place.size} ranks only {sorted(cards)} came in time, "
                f"{sorted(set(every) - {*cards})} did not: start as many processes as WORLD_SIZE "
                "says, or give init a larger timeout"
            )
        sleep(0.01)


def compare_cards(mine: dict[str, Any], rank: int, other: dict[str, Any], r: int) -> None:
    """Refuse a rank that runs another Weft, or that was told something else about the group."""
    for name, what in (("weft", "Weft"), ("size", "WORLD_SIZE"), ("backend", "backend")):
        if mine[name] != other[name]:
            raise errors.RendezvousError(
                f"init: rank {rank} has {what} {mine[name]}, rank {r} has {what} {other[name]}: "
                "all ranks must have the same"
            )
