"""Compiled programs give the same bits for any number of threads."""

import os
import subprocess
import sys

import pytest
from tests.compiler.cpu.threaded import OWN, digest

from weft.compiler.cpu.runtime import thread_pool as threads


def told(width: int) -> dict[str, str]:
    """The digests of all programs in a process with so many threads."""
    env = {
        **os.environ,
        "OPENBLAS_NUM_THREADS": str(width),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "tests.compiler.cpu.threaded"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.split() for line in done.stdout.splitlines())


def test_whole_programs_in_processes_with_one_two_and_three_threads():
    one, two, three = map(told, (1, 2, 3))
    assert len(one) == 14
    assert one == two == three


@pytest.mark.parametrize("name", OWN)
def test_our_own_kernels_while_threads_come_and_go(monkeypatch, name):
    found = set()
    for width in (1, 2, 3, 1):
        monkeypatch.setattr(threads.blas, "available", lambda width=width: width)
        found.add(digest(OWN[name]()))
        assert threads.width() == width
    assert len(found) == 1
