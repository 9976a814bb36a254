"""Whom a rank blames: pulses of ranks in this process, over pairs of sockets."""

import itertools
import json
import random
import re
import socket
import threading
from time import monotonic, sleep

import pytest

from weft import errors
from weft.dist import pulse as module
from weft.dist.links import Door, own_address
from weft.dist.pulse import Peer, Pulse


class Ranks:
    """Pulses of several ranks; `end` closes one's connections as the end of a process does."""

    def __init__(self, size, timeout=60.0):
        links = {r: {} for r in range(size)}
        for a, b in itertools.combinations(range(size), 2):
            links[a][b], links[b][a] = socket.socketpair()
        self._links = links
        self.pulses = [Pulse(r, links[r], timeout) for r in range(size)]

    def __getitem__(self, rank):
        return self.pulses[rank]

    def end(self, rank):
        for link in self._links[rank].values():
            link.shutdown(socket.SHUT_RDWR)

    def begin(self, number, what, of=None):
        for r in range(len(self.pulses)) if of is None else of:
            self[r].begin(number, what)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for p in self.pulses:
            p._over = True
            p._wake.send(b"!")
            p._thread.join()
            p._disconnect()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, seconds in {"BEAT": 0.05, "PATIENCE": 2.0, "GRACE": 0.1, "LINGER": 0.5}.items():
        monkeypatch.setattr(module, name, seconds)


def raised(pulse, seconds=5.0):
    """What `check` raises, in some seconds."""
    since = monotonic()
    while monotonic() - since < seconds:
        try:
            pulse.check(since)
        except errors.DistributedError as e:
            return e
        sleep(0.01)
    return None


def test_ranks_that_are_there_are_waited_for():
    with Ranks(3) as ranks:
        ranks.begin(4, "barrier")
        assert raised(ranks[0], 1.0) is None


def test_a_rank_that_ended():
    with Ranks(3) as ranks:
        ranks.begin(4, "all_reduce sum float32 (3,)")
        sleep(0.2)
        ranks.end(2)
        for r in (0, 1):
            e = raised(ranks[r])
            assert isinstance(e, errors.PeerLost) and e.ranks == (2,)
            said = (
                rf"^rank 2 has ended, and rank {r} waits in all_reduce sum float32 \(3,\) "
                r"\(number 4\)\. rank 2 was last seen in all_reduce sum float32 \(3,\) \(number 4\)"
            )
            assert re.search(said, str(e))


@pytest.mark.parametrize("quiet", [False, True])
def test_who_left_since_another_was_lost_is_not_blamed(quiet):
    """Rank 1 notices first that rank 2 is gone, and leaves; rank 0 comes later."""
    with Ranks(3) as ranks:
        ranks.begin(7, "barrier")
        sleep(0.1)
        if quiet:  # it does not run any more, and its connections stay
            ranks[2]._tell = lambda: None
        else:
            ranks.end(2)
        e = raised(ranks[1])
        assert e.ranks == (2,)
        ranks[1].fail(e)
        ranks[1].leave(7)
        e = raised(ranks[0])
        assert e.ranks == (2,) and "rank 2" in str(e) and "rank 1 failed" not in str(e), e
        ranks.pulses.pop(1)  # it has gone by itself


def test_a_rank_that_failed_by_itself_and_what_it_was():
    with Ranks(2) as ranks:
        ranks.begin(1, "barrier")
        ranks[1].fail(ValueError("no such file"))
        e = raised(ranks[0])
        assert e.ranks == (1,) and "rank 1 failed: ValueError: no such file" in str(e)


@pytest.mark.parametrize(("completed", "blamed"), [(3, True), (4, True), (5, False)])
def test_a_rank_that_left_after_its_part_was_done_is_not_blamed(completed, blamed):
    """Of transaction 4 its part is done if it has completed five."""
    with Ranks(2) as ranks:
        ranks.begin(4, "barrier")
        leaving = threading.Thread(target=ranks[1].leave, args=(completed,))
        leaving.start()
        e = raised(ranks[0], 0.4)
        assert (e is not None) == blamed
        if blamed:
            assert f"rank 1 has left the group after {completed} collectives" in str(e)
        with pytest.raises(errors.PeerLost, match="rank 1 has left"):
            ranks[0].explain(RuntimeError("connection closed"))  # the library's data did not come
        leaving.join()
        ranks.pulses.pop(1)
        assert "rank 1 has left" in str(raised(ranks[0])), "what has not come by now does not come"


def test_a_late_rank_and_arrays_that_do_not_arrive():
    with Ranks(3, timeout=0.3) as ranks:
        ranks.begin(9, "all_gather int8 (1,)")
        ranks.begin(8, "barrier", of=[2])
        sleep(0.1)
        e = raised(ranks[0])
        assert isinstance(e, errors.PeerLost) and e.ranks == (2,)
        assert "waited for 0.3 s in all_gather int8 (1,) (number 9)" in str(e)
        assert "rank 2 was last seen in barrier (number 8), and answers" in str(e)
        ranks.begin(9, "all_gather int8 (1,)", of=[2])
        sleep(0.1)
        e = raised(ranks[0])
        assert not isinstance(e, errors.PeerLost) and "arrays do not arrive" in str(e)


def test_an_error_of_the_library_while_all_ranks_answer():
    with Ranks(2) as ranks:
        ranks.begin(0, "barrier")
        with pytest.raises(
            errors.DistributedError, match="all ranks answer: broken pipe"
        ) as caught:
            ranks[0].explain(RuntimeError("broken pipe"))
        assert not isinstance(caught.value, errors.PeerLost)


def test_a_rank_that_blames_this_one():
    with Ranks(2) as ranks:
        ranks.begin(3, "barrier")
        lost = errors.PeerLost("rank 1 has waited for 5 s")
        lost.ranks = (0,)
        ranks[1].fail(lost)
        e = raised(ranks[0])
        assert e.ranks == (1,) and "rank 1 has given this rank up: PeerLost: rank 1 has" in str(e)


def test_lines_arrive_whole_however_little_fits():
    """A connection that takes a few bytes at a time, or none for a while."""
    a, b = socket.socketpair()
    for s in (a, b):
        s.setblocking(False)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    with a, b:
        sender, receiver, drawn = Peer(1, a), Peer(0, b), random.Random(0)
        for number in range(3000):
            told = {"number": number, "what": "x" * drawn.randrange(2000), "failed": None}
            sender.tell(json.dumps({**told, "lost": [], "left": None}).encode() + b"\n")
            if drawn.random() < 0.2:
                assert receiver.read()
        assert receiver.number > 1000


def test_doors_let_in_the_ranks_that_know_the_token_alone():
    doors = [Door("127.0.0.1") for _ in range(3)]
    cards = [d.card for d in doors]
    strangers = []
    for hello in (b"", b"GET / HTTP/1.1\r\n\r\n", b'{"rank": 1, "token": "guess"}\n', b"[]\n"):
        stranger = socket.create_connection(("127.0.0.1", cards[0]["port"]))
        stranger.sendall(hello)
        if hello != b"":
            strangers.append(stranger)
        else:
            stranger.close()
    found = [None] * 3

    def meet(r):
        found[r] = doors[r].links(r, cards, monotonic() + 20.0)

    threads = [threading.Thread(target=meet, args=(r,)) for r in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [sorted(links) for links in found] == [[1, 2], [0, 2], [0, 1]]
    for a, b in itertools.combinations(range(3), 2):
        found[a][b].sendall(b"ping")
        assert found[b][a].recv(10) == b"ping"
    for s in (*strangers, *(link for links in found for link in links.values())):
        s.close()


def test_the_address_of_this_machine():
    assert own_address(None) == "127.0.0.1"
    assert own_address("127.0.0.1").startswith("127.")
