"""Connections of every rank to every other one, for their pulses."""

import json
import secrets
import socket
from hmac import compare_digest
from time import monotonic
from typing import Any

from .. import errors


def own_address(towards: str | None) -> str:
    """The address of this machine that another one reaches it by; of no other: loopback."""
    if towards is None:
        return "127.0.0.1"
    kind, *_, where = socket.getaddrinfo(towards, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as s:
        s.connect(where)  # sends nothing: it chooses a route
        return s.getsockname()[0]


class Door:
    """Where higher ranks come to connect; they must know its token."""

    def __init__(self, address: str):
        kind = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(kind, socket.SOCK_STREAM)
        self._socket.bind((address, 0))
        self._socket.listen(1024)
        self.card: dict[str, Any] = {
            "address": address,
            "port": self._socket.getsockname()[1],
            "token": secrets.token_hex(16),
        }

    def links(self, rank: int, cards: list[dict[str, Any]], until: float) -> dict[int, Any]:
        """Connect to lower ranks by their cards, and let higher ones in, before a moment."""
        found: dict[int, socket.socket] = {}
        try:
            for r in range(rank):
                found[r] = _knock(cards[r], rank, max(1.0, until - monotonic()))
            while len(found) < len(cards) - 1:
                self._admit(found, rank, len(cards), until)
        except OSError as e:
            missing = sorted({*range(len(cards))} - {rank, *found})
            raise errors.RendezvousError(
                f"init: rank {rank} has no connection to the ranks {missing}: {e}. Let the "
                "machines reach each other on all TCP ports"
            ) from e
        finally:
            self._socket.close()
        for link in found.values():
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return found

    def _admit(self, found: dict[int, Any], rank: int, size: int, until: float) -> None:
        left = until - monotonic()
        if left <= 0:
            raise TimeoutError("they did not come in time")
        self._socket.settimeout(left)
        link, _ = self._socket.accept()
        link.settimeout(min(5.0, left))
        try:
            told = json.loads(_line(link))
            known = compare_digest(str(told["token"]), self.card["token"])
            r = int(told["rank"])
        except (OSError, ValueError, KeyError, TypeError):  # no rank of this group
            link.close()
            return
        if known and rank < r < size and r not in found:
            found[r] = link
        else:
            link.close()


def _knock(card: dict[str, Any], rank: int, seconds: float) -> socket.socket:
    link = socket.create_connection((card["address"], card["port"]), timeout=seconds)
    link.sendall(json.dumps({"rank": rank, "token": card["token"]}).encode() + b"\n")
    return link


def _line(link: socket.socket) -> bytes:
    """One line, and not a byte of what follows."""
    came = b""
    while not came.endswith(b"\n") and len(came) < 1000:
        byte = link.recv(1)
        if not byte:
            break
        came += byte
    return came
