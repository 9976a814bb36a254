"""Joining a group: the engine that a launcher's environment leads to, and the ranks' pulses."""

import socket
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from .. import errors
from ..backend.fingerprint import fingerprint
from .alone import AloneEngine
from .engine import Engine
from .links import Door, own_address
from .pulse import Pulse
from .rendezvous import bounded, compare_cards, exchange_cards, find_place, open_store

# What is left of `timeout` to a library that does not watch pulses.
_SLACK = 30.0
# What tells that a process manager of MPI started this process, in the environment.
_PROCESS_MANAGERS = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"}
# What tells machines of one name apart.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


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


def start_mpi(timeout: float, environment: Mapping[str, str]) -> tuple[Engine, Pulse | None]:
    """The engine of MPI; of a process that mpiexec did not start, one of its own."""
    if int(environment.get("WORLD_SIZE") or 1) > 1 and not _PROCESS_MANAGERS & {*environment}:
        raise errors.RendezvousError(
            f"init: torchrun, or what else set WORLD_SIZE={environment['WORLD_SIZE']}, started the "
            "processes: call wf.dist.init(engine='torch'), or start them by mpiexec"
        )
    try:
        from . import mpi_engine
    except ImportError as e:
        raise errors.RendezvousError(
            f"init: engine='mpi' needs mpi4py and an MPI library: pip install \"weft[dist]\" ({e})"
        ) from e
    until = monotonic() + timeout
    group = mpi_engine.join(timeout)
    rank, size = group.Get_rank(), group.Get_size()
    if size == 1:
        return AloneEngine(), None
    here = {
        "host": socket.gethostname(),
        "boot": _BOOT.read_text().strip() if _BOOT.exists() else "",
    }
    hosts = mpi_engine.exchange_cards(group, here, timeout)
    others = [h["host"] for h in hosts if h != here]
    door = Door(own_address(others[0] if others else None))
    card = _card(door, size, "mpi")
    cards = mpi_engine.exchange_cards(group, card, timeout)
    for r, other in enumerate(cards):
        compare_cards(card, rank, other, r)
    pulse = Pulse(rank, door.links(rank, cards, until), timeout)
    return mpi_engine.MpiEngine(group, pulse), pulse


def _card(door: Door, size: int, backend: str) -> dict[str, Any]:
    return {**door.card, "weft": fingerprint()["weft"], "size": size, "backend": backend}


def _backend(backend: str | None, environment: Mapping[str, str]) -> str:
    return backend or "gloo"
