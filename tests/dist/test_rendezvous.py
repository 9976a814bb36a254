"""Processes that do not find each other, or do not fit: what each is told, within its time."""

import os
import socket
import threading

import pytest

import weft as wf
from weft import errors
from weft.dist import rendezvous
from weft.dist.rendezvous import Place, find_place

from .processes import MPIEXEC, free_port, launch

NOWHERE = {"RANK": "1", "WORLD_SIZE": "2"}
MASTER = {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500"}

PLACES = [
    ({}, None, None),
    (NOWHERE | MASTER, None, Place(1, 2, ("10.0.0.7", 29500))),
    (NOWHERE | {"MASTER_PORT": "1"}, None, Place(1, 2, ("127.0.0.1", 1))),
    (NOWHERE, "file:///tmp/meeting", Place(1, 2, "/tmp/meeting")),
    (NOWHERE | MASTER, "file:///tmp/meeting", Place(1, 2, "/tmp/meeting")),
    (NOWHERE, "there:77", Place(1, 2, ("there", 77))),
    (NOWHERE, "[::1]:77", Place(1, 2, ("::1", 77))),
    (
        NOWHERE | MASTER | {"TORCHELASTIC_USE_AGENT_STORE": "True"},
        None,
        Place(1, 2, ("10.0.0.7", 29500), agent=True),
    ),
    # torchrun by mpiexec or srun: what is nearest counts
    (NOWHERE | MASTER | {"PMI_SIZE": "4"}, None, Place(1, 2, ("10.0.0.7", 29500))),
    ({"PMI_SIZE": "1"}, None, None),
]


@pytest.mark.parametrize(("environment", "where", "place"), PLACES)
def test_the_place_that_an_environment_gives(environment, where, place):
    assert find_place(where, environment) == place


REFUSALS = [
    ({"RANK": "0"}, None, "only RANK is"),
    ({"WORLD_SIZE": "2"}, None, "only WORLD_SIZE is"),
    ({}, "file:///tmp/meeting", "neither is"),
    ({"RANK": "x", "WORLD_SIZE": "2"}, None, "RANK='x' is no whole number"),
    ({"RANK": "2", "WORLD_SIZE": "2"}, None, "RANK=2 of WORLD_SIZE=2"),
    ({"RANK": "-1", "WORLD_SIZE": "2"}, None, "RANK=-1 of WORLD_SIZE=2"),
    (NOWHERE, None, "MASTER_PORT is not"),
    (NOWHERE | {"MASTER_PORT": "http"}, None, "'http' is no whole number"),
    (NOWHERE | {"MASTER_PORT": "70000"}, None, "70000: expected 1 to 65535"),
    (NOWHERE, "file://here", "file:///path"),
    (NOWHERE, "file:///no/such/directory/meeting", "a directory that exists"),
    (NOWHERE, "tcp://10.0.0.7:29500", "expected 'file:///path' or 'host:port'"),
    (NOWHERE, "29500", "expected 'file:///path' or 'host:port'"),
    ({"PMI_SIZE": "4"}, None, r"mpiexec started 4 processes.*engine='mpi'"),
    ({"OMPI_COMM_WORLD_SIZE": "2"}, None, r"mpiexec started 2 processes.*engine='mpi'"),
    ({"SLURM_STEP_NUM_TASKS": "8"}, None, r"srun started 8 processes.*torchrun"),
]


@pytest.mark.parametrize(("environment", "where", "message"), REFUSALS)
def test_an_environment_that_says_too_little_or_something_wrong(environment, where, message):
    with pytest.raises(errors.RendezvousError, match=message):
        find_place(where, environment)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "smoke signals"}, "expected engine 'torch'"),
        ({"backend": "ucc"}, "expected engine 'torch' with backend 'gloo'"),
        ({"timeout": 0}, "timeout=0; expected a number of seconds > 0"),
        ({"timeout": float("inf")}, "timeout=inf"),
        ({"engine": "mpi", "backend": "gloo"}, "both must be None"),
        ({"engine": "mpi", "rendezvous": "there:1"}, "both must be None"),
    ],
)
def test_arguments_of_init(options, message):
    with pytest.raises(errors.ArgumentError, match=message):
        wf.dist.init(**options)


def test_init_twice_and_roots_out_of_range():
    wf.dist.init()
    try:
        with pytest.raises(errors.DistributedError, match=r"wf\.dist\.finalize\(\) first"):
            wf.dist.init()
        for root in (-1, 1, 0.5):
            with pytest.raises(errors.ArgumentError, match="expected 0 to 0"):
                wf.dist.broadcast([1.0], root=root)
    finally:
        wf.dist.finalize()


def gather(cards, timeout=1.0, claims=None, store=None):
    """What the ranks of threads make of each other's cards, by a store of this process."""
    store = pytest.importorskip("torch.distributed").HashStore() if store is None else store
    found = [None] * len(cards)

    def meet(index):
        rank = index if claims is None else claims[index]
        place = Place(rank, cards[index]["size"], "nowhere")
        until = rendezvous.monotonic() + timeout
        try:
            found[index] = rendezvous.meet(store, place, cards[index], until)[1]
        except errors.RendezvousError as e:
            found[index] = str(e)

    threads = [threading.Thread(target=meet, args=(i,)) for i in range(len(cards))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found


def card(**other):
    return {"weft": "1.0", "size": 3, "backend": "gloo"} | other


def test_cards_of_all_ranks():
    cards = [card(port=r) for r in range(3)]
    assert gather(cards) == [cards] * 3


def test_a_store_that_outlives_the_processes():
    """Meetings one after another, some of which some ranks did not come to, or came to twice."""
    store = pytest.importorskip("torch.distributed").HashStore()
    for time, came in enumerate([[0, 1, 2], [1, 2], [0, 1, 2], [0, 1], [0, 1, 2], [2], [0, 1, 2]]):
        cards = [card(port=10 * time + r) for r in came]
        found = gather(cards, 0.3, claims=came, store=store)
        if len(came) == 3:
            assert found == [cards] * 3
        else:
            assert all("in time" in text for text in found), found


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"weft": "1.1"}, ("has Weft 1.0", "has Weft 1.1")),
        ({"size": 4}, ("WORLD_SIZE 3", "WORLD_SIZE 4")),
        ({"backend": "nccl"}, ("backend gloo", "backend nccl")),
    ],
)
def test_ranks_that_do_not_fit_are_refused_by_all(odd, said):
    """Each rank that met another one's card says what differs; one more gives up in its time."""
    found = gather([card(), card(), card(**odd)])
    assert all(all(s in text for s in said) for text in found), found


def test_a_rank_that_is_missing_and_one_that_is_there_twice():
    found = gather([card(), card()])
    assert all("of 3 ranks only [0, 1] came in time, [2] did not" in text for text in found)
    found = gather([card(), card(), card()], claims=[0, 1, 1])
    assert sum("another process is rank 1 of this group already" in text for text in found) == 1
    assert sum("[2] did not" in text for text in found) == 2


# Ranks that are started as they should not be; each prints the error it ends with.
PROGRAM = """
import sys, time
import weft as wf
start = time.monotonic()
try:
    wf.dist.init(timeout=2.0, rendezvous=sys.argv[1] if len(sys.argv) > 1 else None)
    print("<joined>")
except wf.errors.RendezvousError as e:
    print(f"<{e}>", f"{time.monotonic() - start:.1f} s")
"""


def said(size, **env):
    outcomes = launch(size, PROGRAM, env=env)
    assert all(o.code == 0 for o in outcomes), outcomes
    return [o.out for o in outcomes]


def test_a_port_that_something_else_uses():
    """Rank 0 cannot have it, and what answers the others is no store."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        first, second = said(2, MASTER_PORT=port)
    assert f"rank 0 cannot serve a store at 127.0.0.1:{port}" in first
    assert f"rank 1 finds no store at 127.0.0.1:{port}" in second


def test_an_address_that_nobody_has_and_a_size_that_is_too_large():
    (text,) = said(1, MASTER_ADDR="no-such-host.invalid")
    assert "the host 'no-such-host.invalid'" in text and "is not known" in text
    for r, text in enumerate(said(2, WORLD_SIZE="3")):
        assert "of 3 ranks only [0, 1] came in time, [2] did not" in text, r
    (text,) = said(1, RANK="1", WORLD_SIZE="2")
    assert "rank 1 finds no store at 127.0.0.1" in text


def test_a_file_as_rendezvous(tmp_path):
    path = f"file://{tmp_path / 'meeting'}"
    outcomes = launch(2, PROGRAM, [path], env={"MASTER_PORT": ""})
    assert [o.out for o in outcomes] == ["<joined>\n"] * 2, outcomes


@pytest.mark.skipif(not MPIEXEC, reason="no mpiexec")
def test_launchers_of_the_other_engine():
    (outcome,) = launch(2, PROGRAM, engine="mpi")
    assert outcome.out.count("mpiexec started 2 processes") == 2, outcome
    program = PROGRAM.replace("timeout=2.0,", "timeout=2.0, engine='mpi',")
    for outcome in launch(2, program):
        assert "set WORLD_SIZE=2" in outcome.out and "engine='torch'" in outcome.out, outcome


@pytest.mark.skipif(not MPIEXEC, reason="no mpiexec")
def test_processes_of_mpi_that_do_not_all_join():
    program = """
import sys, time
from mpi4py import MPI
import weft as wf
if MPI.COMM_WORLD.Get_rank() == 0:
    try:
        wf.dist.init(engine="mpi", timeout=1.0)
    except wf.errors.RendezvousError as e:
        print(f"<{e}>", flush=True)
else:
    time.sleep(2.0)
"""
    (outcome,) = launch(2, program, engine="mpi")
    assert "not all of the 2 processes of mpiexec called wf.dist.init" in outcome.out, outcome


def test_without_mpi4py_it_says_what_to_install(tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('No module named mpi4py')")
    program = PROGRAM.replace("timeout=2.0,", "timeout=2.0, engine='mpi',")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    (outcome,) = launch(1, program, env={"PYTHONPATH": path})
    assert 'pip install "weft[dist]"' in outcome.out, outcome


def test_a_store_that_hangs_is_left():
    never = threading.Event()
    with pytest.raises(errors.RendezvousError, match=r"it: no answer within 0\.1 s"):
        rendezvous.bounded(never.wait, 0.1, "it")
    never.set()
    assert free_port() > 0
