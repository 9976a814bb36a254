"""Ranks that die, stop, leave, fall behind or differ: each other rank ends with an error that
names them."""

import os
import random
import signal
import time

import pytest

from .processes import MPIEXEC, Started, launch

SOAK = bool(os.environ.get("WEFT_SOAK"))
# The patience of tests of stopped ranks, in seconds: real runs' would make them longer.
SHORT = 4.0
needs_mpi = pytest.mark.skipif(not MPIEXEC, reason="no mpiexec")

# Collectives of all kinds, one after the other, until something happens: `it(number)` may make it
# happen. What a rank ends with is printed at once.
PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
import weft as wf
from weft.dist import pulse
from weft.dist.world import world

engine, patience, timeout, who, event = sys.argv[1:]
pulse.PATIENCE = float(patience)
wf.dist.init(engine=engine, timeout=60.0)
group, rng = world(), np.random.default_rng(0)
group._pulse._timeout = float(timeout)  # from now on, when all have come
print(f"<ready {group.rank} {os.getpid()}>", flush=True)
x = np.ones(120_000, np.float32)

def step(number):
    if number == 30 and group.rank == int(who):
        exec(event)  # of the test below
    kind = rng.integers(8)
    if kind == 0:
        group.all_reduce(x)
    elif kind == 1:
        group.all_gather(x[:7])
    elif kind == 2:
        group.start("all_reduce", x, "max").wait()
    elif kind == 3:
        group.agree("two")
        jobs = [group.run(lambda m: m.perform("all_reduce", x, "sum")) for _ in range(2)]
        for job in jobs:
            job.wait()
    elif kind == 4:
        group.reduce_scatter(x.reshape(group.size, -1)[:, :30_000])
    elif kind == 5:
        group.broadcast(x, group.size - 1)
    elif kind == 6:
        group.all_reduce(x.astype(np.float16))
    else:
        group.barrier()

try:
    for number in range(10**9 if who == "-1" else 60):
        step(number)
except wf.errors.DistributedError as e:
    lost = getattr(e, "ranks", ())
    print(f"<{group.rank}: {type(e).__name__} {lost} {e}>", flush=True)
    try:
        group.barrier()
    except wf.errors.DistributedError as again:
        print(f"<{group.rank}: {'the same' if again is e else again}>", flush=True)
    raise
"""


def start(size, engine, *, patience=12.0, timeout=60.0, who=-1, event=""):
    return Started(size, PROGRAM, [engine, patience, timeout, who, event], engine)


def printed(started):
    return "".join(started.text(i)[0] for i in range(len(started.processes)))


def pids(started, size):
    """The process of each rank, when all have joined the group."""
    started.until(lambda s: printed(s).count("<ready") == size)
    lines = [line for line in printed(started).split("<") if line.startswith("ready")]
    return {int(rank): int(pid.strip(">\n")) for _, rank, pid in map(str.split, lines)}


def check_message(text, rank, lost, engine):
    """A rank ended with an error that names those that are lost, and says so again."""
    said = [line for line in text.splitlines() if f"<{rank}: PeerLost" in line]
    assert said and f"({lost},)" in said[0] and f"rank {lost} " in said[0], text
    assert f"rank {rank} waits in" in said[0] and "(number " in said[0], text
    assert f"<{rank}: the same>" in text, text


def lose(size, engine, how, who, seed, patience):
    """Signal one rank at some moment; all others must end with PeerLost."""
    with start(size, engine, patience=patience) as started:
        found = pids(started, size)
        time.sleep(random.Random(seed).uniform(0.0, 1.0))
        os.kill(found[who], how)
        begin = time.monotonic()
        others = [r for r in range(size) if r != who]
        outcomes = started.outcomes(30.0, others if engine == "torch" else None)
        assert time.monotonic() - begin < 30.0
        assert all(o.code > 0 for o in outcomes), outcomes
        if engine == "mpi" and how == signal.SIGKILL:
            assert "BAD TERMINATION" in outcomes[0].out + outcomes[0].err  # mpiexec's own
            return
        for r in others:
            check_message(printed(started), r, who, engine)


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_a_rank_that_dies_or_stops_is_named_by_all_others(how, who):
    lose(3, "torch", signal.Signals[how], who, f"{how} {who}", SHORT)


@needs_mpi
@pytest.mark.parametrize(("how", "who"), [("SIGKILL", 1), ("SIGSTOP", 0)])
def test_of_mpi_too(how, who):
    lose(3, "mpi", signal.Signals[how], who, f"{how} {who}", SHORT)


@pytest.mark.skipif(not SOAK, reason="50 random losses, with the patience of real runs")
@pytest.mark.parametrize("seed", range(50))
def test_random_losses(seed):
    drawn = random.Random(seed)
    size = drawn.choice([2, 3, 4])
    engine = drawn.choice(["torch", "torch", "mpi"]) if MPIEXEC else "torch"
    how = drawn.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
    lose(size, engine, how, drawn.randrange(size), seed, 12.0)


ENDINGS = {
    "sys.exit()": "rank 1 has left the group after",
    "os._exit(0)": "rank 1 has ended",
    "1 / 0": "rank 1 failed: ZeroDivisionError: division by zero",
}


@pytest.mark.parametrize("event", ENDINGS)
def test_a_rank_that_leaves_while_others_wait(event):
    with start(3, "torch", who=1, event=event) as started:
        started.outcomes(30.0)
        for r in (0, 2):
            check_message(printed(started), r, 1, "torch")
            assert ENDINGS[event] in printed(started)


@needs_mpi
def test_a_rank_of_mpi_that_leaves_while_others_wait():
    with start(3, "mpi", who=1, event="1 / 0") as started:
        (outcome,) = started.outcomes(30.0)
        assert outcome.code, "mpiexec must not report success"
        for r in (0, 2):
            check_message(outcome.out, r, 1, "mpi")
        assert "ZeroDivisionError" in outcome.err


def test_a_slow_rank_is_waited_for_and_a_late_one_is_named():
    """Ranks whose Python is held, or that sleep, are alive; after `timeout` they are too late."""
    held = "import ctypes; ctypes.PyDLL(None).sleep(3)"
    for o in launch(2, PROGRAM, ["torch", 12.0, 60.0, 1, held]):
        assert o.code == 0, o.err
    with start(3, "torch", timeout=1.5, who=1, event="time.sleep(3)") as started:
        outcomes = started.outcomes(30.0)
        for r in (0, 2):
            assert f"<{r}: PeerLost (1,) rank {r} has waited for 1.5 s in" in outcomes[r].out
            assert "rank 1 was last seen in" in outcomes[r].out
        assert "rank 0 has given this rank up" in outcomes[1].out


# Several groups after one another in the same processes.
CYCLES = """
import os, signal, sys, threading, time
import numpy as np
import weft as wf
from weft.dist.world import world

x = np.ones(1000, np.float32)

def early(rank):
    "A rank leaves for good while the others are in a collective."
    if rank == 1:
        wf.dist.finalize()
    else:
        wf.dist.barrier()

def different(rank):
    wf.dist.all_reduce(wf.ones(1000 + rank))

def dtypes(rank):
    wf.dist.all_reduce(wf.ones(10, dtype="float64" if rank else "float32"))

def kinds(rank):
    wf.dist.barrier() if rank == 1 else wf.dist.all_gather(wf.ones(10))

def settings(rank):
    if rank == 1:
        with wf.deterministic():
            wf.dist.all_reduce(wf.ones(10))
    else:
        wf.dist.all_reduce(wf.ones(10))

def background(rank):
    world().agree("one" if rank else "two")
    world().run(lambda m: m.perform("all_reduce", x)).wait()

def interrupted(rank):
    "Ctrl-C in a collective of one rank."
    if rank == 0:
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            wf.dist.barrier()
        except KeyboardInterrupt:
            wf.dist.barrier()
    else:
        time.sleep(0.6)
        wf.dist.barrier()

def fine(rank):
    assert wf.dist.all_reduce(wf.ones(1000))[0].item() == wf.dist.size()

engine = sys.argv[1]
cases = [early, fine, different, dtypes, kinds, settings, background, interrupted, fine]
for case in [fine, different] if engine == "mpi" else cases:
    wf.dist.init(engine=engine, timeout=20)
    rank = wf.dist.rank()
    try:
        case(rank)
        print(f"<{rank} {case.__name__}: nothing>", flush=True)
    except wf.errors.DistributedError as e:
        print(f"<{rank} {case.__name__}: {type(e).__name__} {e}>", flush=True)
    wf.dist.finalize()
"""

EXPECTED = {
    "early": "PeerLost rank 1 has left the group after 0 collectives",
    "different": "RanksDiffer the ranks do different things: rank 0: all_reduce sum float32",
    "dtypes": "RanksDiffer the ranks do different things: rank 0: all_reduce sum float32 (10,)",
    "kinds": "RanksDiffer the ranks do different things: rank",
    "settings": "RanksDiffer the ranks do different things: rank",
    "background": "RanksDiffer the ranks do different things: rank",
    "interrupted": "",
    "fine": "nothing",
}


@pytest.mark.parametrize("engine", ["torch", pytest.param("mpi", marks=needs_mpi)])
def test_what_ranks_do_differently_in_groups_after_one_another(engine):
    outcomes = launch(3, CYCLES, [engine], engine)
    text = "".join(o.out for o in outcomes)
    if engine == "torch":
        assert [o.code for o in outcomes] == [0] * 3, outcomes
    for case, said in EXPECTED.items():
        if engine == "torch" or case in ("fine", "different"):
            for r in range(3):
                if (case, r) != ("early", 1):
                    assert f"<{r} {case}: {said}" in text, text
    if engine == "torch":
        assert "<0 interrupted: DistributedError a collective was left by KeyboardInterrupt" in text
