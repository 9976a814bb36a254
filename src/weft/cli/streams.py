"""Output of commands whose reader may go away: a closed terminal, a pipe that has ended."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

# Nobody reads any more: a pipe or a socket without a reader, a terminal that was closed.
_GONE = (errno.EPIPE, errno.EIO, errno.ECONNRESET, errno.ENXIO)


class LastingStream:
    """A text stream that drops what its reader no longer takes.

    stream   what is written to
    dropped  further errors at which text is dropped
    """

    def __init__(self, stream: Any, dropped: tuple[int, ...] = ()):
        self._stream, self._dropped = stream, dropped

    def write(self, text: str) -> int:
        """Write text, or drop it."""
        with self._dropping():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is waiting, or drop it."""
        with self._dropping():
            self._stream.flush()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            if e.errno in _GONE:
                self._redirect()
            elif e.errno not in self._dropped:
                raise

    def _redirect(self) -> None:
        """Let the descriptor lead nowhere: what waits in buffers would be an error at the exit."""
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lasting_streams() -> Iterator[None]:
    """A block whose output never ends the work: results that a full disk does not take still do."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        out: Any = LastingStream(before[0] or nowhere)
        err: Any = LastingStream(before[1] or nowhere, (errno.ENOSPC, errno.EDQUOT))
        sys.stdout, sys.stderr = out, err
        try:
            yield
        finally:
            try:
                out.flush()
                err.flush()
            finally:
                sys.stdout, sys.stderr = before
