"""A program that kills runs at every moment of theirs, and reads what TensorBoard would show.

`python -m tests.train.killed_events DIRECTORY EVERY` lets a run be killed at its first, second, …
moment (every EVERYth of them, before and after the event file is told), go on, and be killed once
more; in the end the rows must be those of a run that nobody killed. It prints how many were killed.

A kill is `os._exit` in a fork: what is in the process's memory, buffers of files included, is gone.
"""

import os
import struct
import sys
import traceback
import warnings
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tests.train.runs import loader, trainer

import weft as wf

MOMENTS = [name for name in vars(wf.train.Callback) if name.startswith("on_")]


class Kill(wf.train.Callback):
    """Ends the process at a moment."""

    def __init__(self, count: list):
        self.count = count

    def __getattribute__(self, name):
        if name in MOMENTS:
            return lambda *args: object.__getattribute__(self, "tick")()
        return object.__getattribute__(self, name)

    def tick(self):
        self.count[0] -= 1
        if self.count[0] == 0:
            os._exit(9)


def train(directory: Path, kill_at: int) -> None:
    count = [kill_at]
    board = wf.train.TensorBoard(directory / "events")
    run = trainer(directory / "run", save_every=2, callbacks=[Kill(count), board, Kill(count)])
    run.fit(loader(), epochs=2, validation=loader(shuffle=False), resume="auto")


def killed(directory: Path, kill_at: int) -> bool:
    """Let a fork begin or continue the run; whether it was killed."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            train(directory, kill_at)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    status = os.WEXITSTATUS(os.waitpid(pid, 0)[1])
    assert status in (0, 9), "the run failed"
    return status == 9


def shown(directory: Path) -> list[tuple[str, int, float]]:
    """The rows of all event files, less those that a later file declares void."""
    rows: list[tuple[str, int, float]] = []
    for path in sorted(directory.iterdir()):
        content, at = path.read_bytes(), 0
        while at + 12 <= len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            if at + 16 + length > len(content):
                break  # cut off while it was written
            event = Event.FromString(content[at + 12 : at + 12 + length])
            if event.session_log.status == SessionLog.START:
                rows = [row for row in rows if row[1] < event.step]
            rows += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
            at += 16 + length
    return sorted(rows)


def main(root: Path, every: int) -> None:
    warnings.simplefilter("error")
    train(root / "whole", -1)
    expected, kills = shown(root / "whole" / "events"), 0
    assert len(expected) == 14 * 5 + 2 * 2
    for moment in range(1, 1000, every):
        directory = root / str(moment)
        ended = not killed(directory, moment)
        kills += not ended
        killed(directory, 1 + moment % 7)
        assert not killed(directory, -1)
        found = shown(directory / "events")
        assert found == expected, (moment, sorted(set(found) ^ set(expected)), len(found))
        if ended:
            break
    print(kills)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
