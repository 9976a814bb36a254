"""Ranks as processes: a program started several times, and what became of each."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
# What launchers leave in the environment; a program that is started here has none of it.
_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "GROUP_", "ROLE_", "TORCHELASTIC_")
_MPI = ("PMI_", "PMIX_", "OMPI_", "MPI_", "HYDI_", "HYDRA_", "SLURM_")


class Outcome(NamedTuple):
    """What a process returned and printed; `code` is negative for a signal."""

    code: int
    out: str
    err: str


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def environment(**more: str) -> dict[str, str]:
    """This process's environment without launchers' names, where the tree's own packages come
    first, and one thread computes."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith((*_LAUNCHERS, *_MPI))}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def command(script: str, args: Sequence[object]) -> list[str]:
    """How Python runs a file, a module, or a program given as text (of several lines)."""
    how = [script] if script.endswith(".py") else ["-m", script]
    if "\n" in script:
        how = ["-c", script]
    return [sys.executable, *how, *map(str, args)]


class Started:
    """Processes that run; leaving the `with` block kills those that are left.

    processes  one for each rank; under mpiexec that one alone
    """

    def __init__(
        self,
        size: int,
        script: str,
        args: Sequence[object] = (),
        engine: str = "torch",
        env: Mapping[str, str] | None = None,
        ranks: Sequence[int] | None = None,
    ):
        """ranks: of torch, those that are started, where some are to be missing."""
        self._folder = tempfile.TemporaryDirectory(prefix="weft-ranks-")
        self.processes: list[subprocess.Popen] = []
        self._files: list[tuple] = []
        run = command(script, args)
        more = dict(env or {})
        if engine == "mpi":
            if MPIEXEC is None:
                raise FileNotFoundError("there is no mpiexec")
            self._start([MPIEXEC, "-n", str(size), *run], environment(**more))
            return
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        for r in range(size) if ranks is None else ranks:
            own = {"RANK": str(r), "WORLD_SIZE": str(size), "LOCAL_RANK": str(r)}
            self._start(run, environment(**{**meeting, **own, **more}))

    def _start(self, run: list[str], env: dict[str, str]) -> None:
        number = len(self.processes)
        paths = [Path(self._folder.name) / f"{name}-{number}" for name in ("out", "err")]
        out, err = (p.open("wb") for p in paths)
        # A session of its own, so that all of its children can be killed with it.
        process = subprocess.Popen(
            run, env=env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            start_new_session=True,
        )  # fmt: skip
        out.close()
        err.close()
        self.processes.append(process)
        self._files.append(paths)

    def text(self, index: int) -> tuple[str, str]:
        """What a process has printed so far."""
        return tuple(p.read_text(errors="replace") for p in self._files[index])

    def until(self, true: Callable[["Started"], bool], timeout: float = 60.0) -> None:
        """Wait until something holds."""
        end = time.monotonic() + timeout
        while not true(self):
            if time.monotonic() > end or all(p.poll() is not None for p in self.processes):
                printed = [self.text(i) for i in range(len(self.processes))]
                raise TimeoutError(f"it did not come to that: {printed}")
            time.sleep(0.01)

    def outcomes(self, timeout: float = 60.0, of: Sequence[int] | None = None) -> list[Outcome]:
        """Wait for the processes, all of them or those `of` some indices, to end by themselves."""
        end = time.monotonic() + timeout
        found = []
        for i in range(len(self.processes)) if of is None else of:
            try:
                code = self.processes[i].wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                printed = [self.text(i) for i in range(len(self.processes))]
                raise TimeoutError(f"process {i} runs after {timeout} s: {printed}") from None
            found.append(Outcome(code, *self.text(i)))
        return found

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *exc: object) -> None:
        for p in self.processes:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for p in self.processes:
            p.wait()
        self._folder.cleanup()


def launch(
    size: int,
    script: str,
    args: Sequence[object] = (),
    engine: str = "torch",
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> list[Outcome]:
    """Run a program on several ranks: (code, out, err) of each; of mpiexec's, of all together.

    script  a file's path (….py), a module's name, or the program's text, of several lines
    env     more for the environment
    """
    with Started(size, script, args, engine, env) as started:
        return started.outcomes(timeout)
