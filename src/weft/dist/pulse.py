"""The pulses of ranks: who is there, what each does, and for whom one waits in vain.

Every rank has a connection to every other one, over which a thread tells once a second what the
rank is doing. The system closes the connections of a process that ends; one that was stopped, or
whose machine is gone, falls silent. No collective is needed to find either out.
"""

import json
import os
import selectors
import socket
import threading
from time import monotonic, sleep
from typing import Any, NoReturn

from .. import errors

BEAT = 1.0  # seconds between two pulses
# So long may a rank be silent, in seconds. Native code that holds Python's lock is silent too.
PATIENCE = 12.0
# A thread that did not run for so long, in seconds, shows that its process was stopped.
_STOPPED = 3.0
# So long a collective may still come to its end by itself after a rank has left, in seconds.
GRACE = 1.0
# So long a rank that leaves waits for the others to leave, in seconds.
LINGER = 5.0
_RESTART = "Start the processes again, from the last checkpoint"


class Peer:
    """Another rank, as this one knows it.

    heard   when something came from it last
    number  of its latest transaction, and what that is
    failed  why its group is of no more use to it; lost: the ranks that it blames for that
    left    how many transactions it has completed, if it has left
    ended   whether its connection was closed
    since   when it failed, left or ended
    """

    def __init__(self, rank: int, link: socket.socket):
        self.rank, self.link = rank, link
        self.heard, self.number, self.what = monotonic(), -1, ""
        self.failed: str | None = None
        self.lost: tuple[int, ...] = ()
        self.left: int | None = None
        self.ended = False
        self.since: float | None = None
        self._unread = b""

    def read(self) -> bool:
        """Take in what has come; whether the connection is still open."""
        try:
            came = self.link.recv(1 << 16)
        except BlockingIOError:
            return True
        except OSError:
            came = b""
        self.heard = monotonic()
        if not came:
            self.ended, self.since = True, self.since or self.heard
            return False
        *lines, self._unread = (self._unread + came).split(b"\n")
        for line in lines:
            self._learn(json.loads(line))
        return True

    def _learn(self, told: dict[str, Any]) -> None:
        self.number, self.what = int(told["number"]), str(told["what"])
        self.lost = tuple(int(r) for r in told["lost"])
        self.failed = None if told["failed"] is None else str(told["failed"])
        self.left = None if told["left"] is None else int(told["left"])
        if self.failed is not None or self.left is not None:
            self.since = self.since or self.heard

    def seen(self) -> str:
        """What it was doing last."""
        if self.number < 0:
            return f"rank {self.rank} had not said yet what it does"
        return f"rank {self.rank} was last seen in {self.what} (number {self.number})"

    def trouble(self, number: int, now: float) -> str | None:
        """Why the transaction of a number will not have this rank; None: it may come."""
        if self.failed is not None:
            return None if self.lost else f"rank {self.rank} failed: {self.failed}"
        if self.left is not None:
            after = f"rank {self.rank} has left the group after {self.left} collectives"
            return after if self.left <= number else None
        if self.ended:
            return f"rank {self.rank} has ended"
        if now - self.heard > PATIENCE:
            return f"rank {self.rank} has not answered for {now - self.heard:.0f} s"
        return None


class Pulse:
    """This rank's pulse, and what it knows of the others.

    links    a connection to each other rank
    timeout  the seconds that a collective waits for ranks that are alive
    """

    def __init__(self, rank: int, links: dict[int, socket.socket], timeout: float):
        self.rank, self._timeout = rank, timeout
        self._peers = {r: Peer(r, link) for r, link in sorted(links.items())}
        self._state: dict[str, Any] = {"number": -1, "what": "", "failed": None, "lost": []}
        self._state["left"] = None
        self._wake, self._woken = socket.socketpair()
        self._over = False
        self._looked = self._awake = monotonic()  # last; and since when this process runs
        self._selector = selectors.DefaultSelector()
        for s in (self._woken, *links.values()):
            s.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        for peer in self._peers.values():
            self._selector.register(peer.link, selectors.EVENT_READ, peer)
        self._thread = threading.Thread(target=self._beat, name="weft-pulse", daemon=True)
        self._thread.start()

    # What this rank tells

    def begin(self, number: int, what: str) -> None:
        """Say with the next beats which transaction this rank is in."""
        self._state["number"], self._state["what"] = number, what

    def fail(self, error: BaseException) -> None:
        """Say at once that this rank does nothing more with the group."""
        self._state["lost"] = list(error.ranks) if isinstance(error, errors.PeerLost) else []
        self._state["failed"] = f"{type(error).__name__}: {error}"[:2000]
        if not self._over:
            self._wake.send(b"!")

    def leave(self, completed: int) -> None:
        """Say that this rank leaves, and wait a little for the others to leave or fail too."""
        self._state["left"] = completed
        self._wake.send(b"!")
        until = monotonic() + LINGER
        while monotonic() < until and self._thread.is_alive():
            now = monotonic()
            if all(p.since or now - p.heard > PATIENCE for p in self._peers.values()):
                break
            sleep(0.01)
        self._over = True
        self._wake.send(b"!")
        self._thread.join()
        self._disconnect()

    def _disconnect(self) -> None:
        self._selector.close()
        for s in (self._wake, self._woken, *(p.link for p in self._peers.values())):
            s.close()

    def forget(self) -> None:
        """In a forked process: let go of the connections, which are the parent's."""
        os.close(self._selector.fileno())  # not unregistered: the parent uses them
        for s in (self._wake, self._woken, *(p.link for p in self._peers.values())):
            s.close()

    # The thread

    def _beat(self) -> None:
        due = monotonic()
        while True:
            events = self._selector.select(max(0.0, due - monotonic()))
            now = monotonic()
            if now - self._looked > _STOPPED:  # and maybe the others were too
                self._awake = now
                for peer in self._peers.values():
                    peer.heard = now
            self._looked = now
            hurry = False
            for key, _ in events:
                if key.data is None:
                    self._woken.recv(64)
                    hurry = True
                elif not key.data.read():
                    self._selector.unregister(key.data.link)
            if now >= due or hurry:
                self._tell()
                due = now + BEAT
            if self._over:
                return

    def _tell(self) -> None:
        line = json.dumps(self._state).encode() + b"\n"
        for peer in self._peers.values():
            if not peer.ended:
                try:
                    peer.link.send(line)
                except OSError:
                    continue  # reading it tells whether it has ended or does not read any more

    # What this rank concludes

    def check(self, since: float) -> None:
        """Raise if nobody who is missing in a collective, in which it waits, will come.

        since  when the wait began, by `monotonic`
        """
        now = monotonic()
        if self._over:
            raise errors.DistributedError("this process has left the group")
        if now - self._looked > _STOPPED:
            return  # the thread has to run first, before anybody's silence says something
        waiting = [p for p in self._peers.values() if p.since is None or now - p.since > GRACE]
        troubles = self._troubles(waiting, now, self._state["number"])
        if troubles:
            self._lose(troubles)
        if now - max(since, self._awake) > self._timeout:
            self._late()

    def explain(self, error: Exception) -> NoReturn:
        """Raise what is behind the error of an engine: a rank that is lost, if there is one."""
        until = monotonic() + PATIENCE + 2 * BEAT
        while monotonic() < until:
            peers = list(self._peers.values())
            if self._troubles(peers, monotonic(), self._state["number"] + 1):
                sleep(BEAT / 4)  # who ended at the same time is named too
                self._lose(self._troubles(peers, monotonic(), self._state["number"] + 1), error)
            sleep(BEAT / 20)
        raise errors.DistributedError(
            f"{self._where()} failed, while all ranks answer: {error}. {_RESTART}"
        ) from error

    def _troubles(self, peers: list[Peer], now: float, number: int) -> dict[int, str]:
        """The ranks that are behind a collective that cannot end, and why."""
        found = {p.rank: t for p in peers if (t := p.trouble(number, now)) is not None}
        for p in peers:
            if self.rank in p.lost:
                found[p.rank] = f"rank {p.rank} has given this rank up: {p.failed}"
            for r in {*p.lost} - {self.rank}:
                found.setdefault(r, f"rank {p.rank} has lost rank {r}")
        return found

    def _where(self) -> str:
        return f"{self._state['what']} (number {self._state['number']})"

    def _lose(self, troubles: dict[int, str], cause: BaseException | None = None) -> NoReturn:
        seen = [self._peers[r].seen() for r in sorted(troubles) if r in self._peers]
        said = "; ".join(troubles[r] for r in sorted(troubles))
        lost = errors.PeerLost(
            f"{said}, and rank {self.rank} waits in {self._where()}. {'; '.join(seen)}. {_RESTART}"
        )
        lost.ranks = tuple(sorted(troubles))
        raise lost from cause

    def _late(self) -> NoReturn:
        number = self._state["number"]
        late = [p for p in self._peers.values() if p.number < number]
        waits = f"rank {self.rank} has waited for {self._timeout:g} s in {self._where()}"
        if not late:
            raise errors.DistributedError(
                f"{waits}; all ranks are in it, but their arrays do not arrive. Look at the links "
                f"between them, or give init a larger timeout. {_RESTART}"
            )
        lost = errors.PeerLost(
            f"{waits}: {'; '.join(p.seen() for p in late)}, and answers. Let all ranks call the "
            "same collectives, or give init a larger timeout"
        )
        lost.ranks = tuple(p.rank for p in late)
        raise lost
