"""Joining a group: the engine that a launcher's environment leads to, and the ranks' pulses."""

import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from .. import errors
from ..backend.fingerprint import fingerprint
from .alone import AloneEngine
from .links import Door, own_address
from .member import Member
from .pulse import Pulse
from .rendezvous import Place, bounded, compare_cards, find_place, meet, open_store, whole_number

# What is left of `timeout` to a library that does not watch pulses.
_SLACK = 30.0
_NAME = "world"
# What tells that a process manager of MPI started this process, in the environment.
_PROCESS_MANAGERS = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"}
# What tells machines of one name apart.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def start_torch(
    backend: str | None, timeout: float, rendezvous: str | None, environment: Mapping[str, str]
) -> Member:
    """A member of a group of torch.distributed; of one process, where no launcher started it."""
    place = find_place(rendezvous, environment)
    if place is None:
        return Member(AloneEngine(), _NAME)
    until = monotonic() + timeout
    store = open_store(place, until)
    door = Door(own_address(place.host))
    card = _card(door, place.size, _backend(backend, environment))
    own, cards = bounded(
        lambda: meet(store, place, card, until),
        timeout + _SLACK,
        f"rank {place.rank} did not read the cards of all ranks",
    )
    pulse = Pulse(place.rank, door.links(place.rank, cards, until), timeout)
    try:
        return _member(own, place, pulse, card, timeout + _SLACK)
    except errors.DistributedError as e:
        pulse.fail(e)
        pulse.leave(0)
        raise


def _member(store: Any, place: Place, pulse: Pulse, card: dict[str, Any], seconds: float) -> Member:
    """A member whose engine is connected within some seconds, while all ranks are there."""
    from . import torch_engine

    watch = partial(pulse.check, monotonic())
    group = bounded(
        lambda: torch_engine.gloo(store, place.rank, place.size, card["address"], seconds),
        seconds,
        f"gloo did not connect rank {place.rank} with all ranks",
        watch,
    )
    host = torch_engine.TorchEngine(group, pulse)
    if card["backend"] == "gloo":
        return Member(host, _NAME, pulse)
    from . import nccl_engine

    gpus = bounded(
        lambda: nccl_engine.nccl(store, place.rank, place.size, seconds),
        seconds,
        f"NCCL did not connect rank {place.rank} with all ranks",
        watch,
    )
    gpu = nccl_engine.NcclEngine(host, gpus, pulse)
    return Member(gpu, _NAME, pulse, gpu)


def start_mpi(timeout: float, environment: Mapping[str, str]) -> Member:
    """A member of a group of MPI; of one process, where mpiexec did not start it."""
    started = whole_number("WORLD_SIZE", environment.get("WORLD_SIZE") or "1")
    if started > 1 and not _PROCESS_MANAGERS & {*environment}:
        raise errors.RendezvousError(
            f"init: torchrun, or what else set WORLD_SIZE={started}, started the "
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
        return Member(AloneEngine(), _NAME)
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
    return Member(mpi_engine.MpiEngine(group, pulse), _NAME, pulse)


def _card(door: Door, size: int, backend: str) -> dict[str, Any]:
    return {**door.card, "weft": fingerprint()["weft"], "size": size, "backend": backend}


def _backend(backend: str | None, environment: Mapping[str, str]) -> str:
    """The backend that is asked for; else NCCL, where there is a GPU for each process."""
    import torch

    if backend is None:
        name = "LOCAL_WORLD_SIZE" if environment.get("LOCAL_WORLD_SIZE") else "WORLD_SIZE"
        processes = whole_number(name, environment[name])
        nccl = torch.distributed.is_nccl_available()
        backend = "nccl" if nccl and torch.cuda.device_count() >= processes else "gloo"
    if backend == "nccl":
        from . import nccl_engine

        nccl_engine.own_gpu(whole_number("LOCAL_RANK", environment.get("LOCAL_RANK") or "0"))
    return backend
