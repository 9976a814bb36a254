"""What only processes show: launchers, forks, signals, the library's own groups, long loops."""

import os
import signal
import sys
import time

import pytest

from .processes import MPIEXEC, Started, launch

needs_mpi = pytest.mark.skipif(not MPIEXEC, reason="no mpiexec")


def succeeded(outcomes):
    assert all(o.code == 0 for o in outcomes), outcomes
    return [o.out for o in outcomes]


TORCHRUN = """
import os, signal
import weft as wf
wf.dist.init(timeout=30)
rank, attempt = wf.dist.rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
total = wf.dist.all_reduce(wf.ones(1000))[0].item()
print(f"<rank {rank} of {wf.dist.size()}, attempt {attempt}: {total:g}>", flush=True)
if attempt == "0":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    wf.dist.barrier()
wf.dist.finalize()
"""


def test_torchrun_starts_the_ranks_again_after_one_was_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(TORCHRUN)
    args = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", script]
    env = {name: "" for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT", "MASTER_ADDR")}
    with Started(1, "torch.distributed.run", args, env=env) as started:
        (outcome,) = started.outcomes(60.0)
    assert outcome.code == 0, outcome
    for attempt in (0, 1):
        for r in (0, 1):
            assert f"<rank {r} of 2, attempt {attempt}: 2>" in outcome.out, outcome


BESIDE = """
import sys
import torch, torch.distributed as dist
import weft as wf

def own():
    dist.init_process_group("gloo")
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == 2
    return x

if sys.argv[1] == "before":
    own()
wf.dist.init(timeout=20)
assert wf.dist.all_reduce(wf.ones(1000))[0].item() == 2
if sys.argv[1] == "after":
    own()
for _ in range(3):
    y = torch.ones(4)
    dist.all_reduce(y)
    assert y[0] == 2 and wf.dist.all_reduce(wf.ones(1000))[0].item() == 2
wf.dist.finalize()
dist.barrier()
dist.destroy_process_group()
wf.dist.init(timeout=20)
wf.dist.barrier()
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_group_of_the_users_own_is_not_disturbed(when):
    succeeded(launch(2, BESIDE, [when]))


FORK = """
import os, sys, time
import weft as wf
wf.dist.init(engine=sys.argv[1], timeout=20)
wf.dist.barrier()
child = os.fork()
if child == 0:
    try:
        wf.dist.barrier()
        print("<joined>", flush=True)
    except wf.errors.DistributedError as e:
        print(f"<{e}>", flush=True)
    if sys.argv[1] == "mpi":
        os._exit(0)  # else MPI itself, which has been forked, waits for the others
    raise SystemExit
_, status = os.waitpid(child, 0)
assert status == 0, status
assert wf.dist.all_reduce(wf.ones(1000))[0].item() == 2
wf.dist.finalize()
print("<done>")
"""


@pytest.mark.parametrize("engine", ["torch", pytest.param("mpi", marks=needs_mpi)])
def test_a_forked_process_is_no_rank(engine):
    text = "".join(succeeded(launch(2, FORK, [engine], engine)))
    assert text.count("<this process was forked from rank") == 2, text
    assert text.count("<done>") == 2, text


LOOP = """
import os, sys, threading
import numpy as np
import weft as wf
from weft.dist.world import world

wf.dist.init(engine=sys.argv[1])
group, x = world(), np.ones(4, np.float32)

def pages():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1])

def some(count):
    for i in range(count):
        if i % 10:
            group.all_reduce(x)
        else:
            group.start("all_reduce", x).wait()

some(2000)
before = pages(), threading.active_count(), len(os.listdir("/proc/self/fd"))
some(int(sys.argv[2]))
after = pages(), threading.active_count(), len(os.listdir("/proc/self/fd"))
print(before, after)
assert after[1:] == before[1:]
assert (after[0] - before[0]) * os.sysconf("SC_PAGE_SIZE") < 4e6
wf.dist.finalize()
assert threading.active_count() == 1, threading.enumerate()
"""


@pytest.mark.parametrize("engine", ["torch", pytest.param("mpi", marks=needs_mpi)])
def test_many_small_collectives_keep_no_memory_threads_or_files(engine):
    count = 20_000 if os.environ.get("WEFT_SOAK") else 4000
    succeeded(launch(2, LOOP, [engine, count], engine, timeout=120.0))


SUSPENDED = """
import os, time
import weft as wf
from weft.dist import pulse
pulse.PATIENCE = 2.0
wf.dist.init(timeout=3.0)
print("<ready>", flush=True)
end = time.monotonic() + 8.0
while wf.dist.all_reduce(wf.tensor(float(time.monotonic() < end)))[()].item() == 2.0:
    pass
wf.dist.finalize()
"""


def test_a_job_that_was_suspended_as_a_whole_goes_on():
    with Started(2, SUSPENDED) as started:
        started.until(lambda s: all("<ready>" in s.text(i)[0] for i in range(2)))
        time.sleep(0.5)
        for p in started.processes:
            os.kill(p.pid, signal.SIGSTOP)
        time.sleep(4.5)
        for p in started.processes:
            os.kill(p.pid, signal.SIGCONT)
        succeeded(started.outcomes(30.0))


def test_importing_weft_loads_neither_library():
    program = (
        "import sys, weft.dist\nweft.dist.init()\nweft.dist.all_reduce([1.0])\n"
        "assert not {'torch', 'mpi4py'} & {*sys.modules}"
    )
    env = {name: "" for name in ("RANK", "WORLD_SIZE")}
    succeeded(launch(1, program, env=env))


@needs_mpi
def test_a_thread_level_of_mpi_that_is_too_low():
    program = """
import mpi4py
mpi4py.rc.thread_level = "funneled"
import weft as wf
try:
    wf.dist.init(engine="mpi")
except wf.errors.RendezvousError as e:
    print(e)
"""
    (text,) = succeeded(launch(1, program, engine="mpi"))
    assert "MPI was started with THREAD_FUNNELED" in text


def test_processes_that_are_killed_leave_no_children():
    """Of `Started` itself: whatever it started is gone when its block is left."""
    program = "import os, time\nos.write(1, f'{os.getpid()} '.encode())\ntime.sleep(60)\n"
    for engine in ("torch", "mpi") if MPIEXEC else ("torch",):
        with Started(2, program, engine=engine) as started:
            count = len(started.processes)
            started.until(lambda s, n=count: sum(len(s.text(i)[0].split()) for i in range(n)) == 2)
            found = [int(p) for i in range(count) for p in started.text(i)[0].split()]
        end = time.monotonic() + 10.0
        while any(os.path.exists(f"/proc/{p}") for p in found) and time.monotonic() < end:
            time.sleep(0.05)
        assert not any(os.path.exists(f"/proc/{p}") for p in found), (engine, sys.platform)
