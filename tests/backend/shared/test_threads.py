"""Threads that share pieces: how many there are, and what BLAS does meanwhile."""

import os
from pathlib import Path

import pytest

from weft.backend.shared import blas, threads


@pytest.fixture
def other_blas(monkeypatch):
    """NumPy as it is with a BLAS that has no number of threads to ask for."""
    monkeypatch.setattr(blas, "thread_count_functions", lambda package: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_without_openblas_the_process_says_how_many_threads(other_blas, monkeypatch):
    assert threads.cores() == threads.LIMIT
    for asked, given in (("2", 2), ("0", 1), ("many", threads.LIMIT)):
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
        assert threads.cores() == given
    with blas.alone():
        assert threads.cores() == 1


@pytest.mark.skipif(
    blas.thread_count_functions("scipy") is None, reason="SciPy's BLAS is not OpenBLAS"
)
def test_threads_of_a_library_that_is_loaded_soon_sleep(monkeypatch):
    library, name = blas.openblas("scipy"), "OPENBLAS_THREAD_TIMEOUT"
    assert name.encode() in Path(library._name).read_bytes()
    seen = []

    def load(path):
        seen.append(os.environ.get(name))
        if path == "no library":
            raise OSError(path)
        return library

    monkeypatch.setattr(blas, "CDLL", load)
    monkeypatch.delenv(name, raising=False)
    blas.openblas.__wrapped__("scipy")
    with pytest.raises(OSError):
        blas._load("no library")
    assert name not in os.environ
    monkeypatch.setenv(name, "26")  # as a user may
    blas.openblas.__wrapped__("scipy")
    assert seen == ["20", "20", "26"] and os.environ[name] == "26"


@pytest.mark.skipif(
    blas.thread_count_functions("numpy") is None, reason="NumPy's BLAS is not OpenBLAS"
)
def test_threads_are_those_of_blas():
    ask, tell = blas.thread_count_functions("numpy")
    before = ask()
    try:
        for count in (1, 2):
            tell(count)
            assert threads.cores() == count
        blas.pin()  # as for `wf.deterministic`
        try:
            assert ask() == 1 and threads.cores() == 2
            with blas.alone():
                assert ask() == 1 and threads.cores() == 1
            assert ask() == 1 and threads.cores() == 2
        finally:
            blas.unpin()
        assert ask() == 2
    finally:
        tell(before)


@pytest.mark.skipif(
    blas.thread_count_functions("numpy") is None, reason="NumPy's BLAS is not OpenBLAS"
)
def test_blas_works_alone_while_pieces_are_shared(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    ask, seen = blas.thread_count_functions("numpy")[0], []
    before = ask()
    threads.share(range(6), lambda: lambda piece: seen.append(ask()), threads.ENOUGH)
    assert seen == [1] * 6 and ask() == before


@pytest.mark.skipif(
    blas.thread_count_functions("numpy") is None, reason="NumPy's BLAS is not OpenBLAS"
)
def test_blas_has_its_threads_for_one_large_piece_only():
    ask, seen = blas.thread_count_functions("numpy")[0], []
    before = ask()
    for pieces, operations in ((2, 1), (1, 1), (1, threads.ENOUGH)):
        threads.share(range(pieces), lambda: lambda piece: seen.append(ask()), operations)
    assert seen == [1, 1, 1, before]
