"""Joining a group: the engine that a launcher's environment leads to, and the ranks' pulses."""

import os
from collections.abc import Mapping
from time import monotonic
from typing import Any

from .. import errors
from ..backend.fingerprint import fingerprint
from .alone import AloneEngine
from .engine import Engine
from .links import Door, own_address
from .pulse import Pulse
from .rendezvous import bounded, exchange_cards, find_place, open_store

# What is left of `timeout` to a library that does not watch pulses.
_SLACK = 30.0


def start_torch(
    backend: str | None, timeout: float, rendezvous: str | None, environment: Mapping[str, str]
) -> tuple[Engine, Pulse | None]:
    """The engine of torch.distributed; of one process that no launcher started, one of its own."""
    place = find_place(rendezvous, environment)
    if place is None:
        return AloneEngine(), None
    from . import torch_engine

    until = monotonic() + timeout
    store = open_store(place, until)
    door = Door(own_address(place.host))
    card = _card(door, place.size, _backend(backend, environment))
    cards = bounded(
        lambda: exchange_cards(store, place, card, until),
        timeout + _SLACK,
        f"rank {place.rank} did not read the cards of all ranks",
    )
    pulse = Pulse(place.rank, door.links(place.rank, cards, until), timeout)
    group = bounded(
        lambda: torch_engine.gloo(store, place.rank, place.size, card["address"], timeout + _SLACK),
        timeout + _SLACK,
        f"gloo did not connect rank {place.rank} with all ranks",
    )
    return torch_engine.TorchEngine(group, pulse), pulse


def _card(door: Door, size: int, backend: str) -> dict[str, Any]:
    return {**door.card, "weft": fingerprint()["weft"], "size": size, "backend": backend}


def _backend(backend: str | None, environment: Mapping[str, str]) -> str:
    return backend or "gloo"
