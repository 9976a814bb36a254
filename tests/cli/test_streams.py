"""Output whose reader is gone, and output that cannot be written for another reason."""

import errno
import io
import os
import sys

import pytest

from weft.cli.streams import LastingStream, lasting_streams


def pipe_without_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", encoding="utf-8")


@pytest.mark.parametrize("size", [1, 100_000])
def test_text_for_nobody_is_dropped(size):
    """Also what waits in a buffer: closing it is no error any more."""
    with pipe_without_reader() as pipe:
        stream = LastingStream(pipe)
        for _ in range(3):
            assert stream.write("x" * size) == size
            stream.flush()
        assert stream.encoding == "utf-8" and not stream.isatty()


class Failing(io.StringIO):
    """A stream whose writes fail."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EBADF])
def test_results_that_are_not_written_are_an_error(number, monkeypatch):
    """Unless nobody reads them; progress on a full disk is dropped, too."""
    before = [Failing(number), Failing(number)]
    monkeypatch.setattr(sys, "stdout", before[0])
    monkeypatch.setattr(sys, "stderr", before[1])
    failed = []
    with lasting_streams():
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.write("x")
            except OSError:
                failed.append(stream)
        gone = number in (errno.EPIPE, errno.EIO)
        assert len(failed) == (0 if gone else 1 if number == errno.ENOSPC else 2)
    assert [sys.stdout, sys.stderr] == before


def test_streams_that_are_not_there(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with lasting_streams():
        print("x", file=sys.stderr)
    assert sys.stderr is None
