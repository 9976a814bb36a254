"""A disk that forgets: what was not flushed when the power went is lost, in part or in whole.

The operations run on real files. Beside them the disk keeps, for each directory, how to undo the
changes of names since its last flush, and which files have content that was not flushed. A power
cut undoes these changes, or some of them in any combination, and cuts the content short.
"""

import os
import random
import shutil
from errno import EIO, ENOSPC
from pathlib import Path

from weft.io import disk

OPERATIONS = "create write sync close rename remove make_directory remove_directory sync_directory"
TAKES_SPACE = ("create", "write", "sync", "make_directory", "close")


class PowerCut(BaseException):
    """The machine stops: nothing after this runs."""


class VolatileDisk:
    """Stands in for `weft.io.disk`; its operation number `fault[0]` goes wrong as `fault[1]` says.

    cut         the power goes before it is done
    short       if it is a write, only half of it is done
    short, cut  and then the power goes
    ENOSPC, EIO it fails
    full        it fails, and so does all that takes space from then on
    """

    def __init__(self, fault: tuple[int, str] = (-1, "")):
        self.real = {name: getattr(disk, name) for name in OPERATIONS.split()}
        self.at, self.kind = fault
        self.called: list[str] = []
        self.full = False
        self.open: dict[int, Path] = {}
        self.unflushed: set[Path] = set()
        self.changes: dict[Path, list] = {}

    def install(self, monkeypatch) -> None:
        for name in self.real:
            monkeypatch.setattr(disk, name, lambda *a, name=name: self.operate(name, *a))

    def operate(self, name: str, *args):
        here = len(self.called) == self.at
        self.called.append(name)
        if here and self.kind == "cut":
            raise PowerCut
        if (here and self.kind in ("ENOSPC", "full")) or (self.full and name in TAKES_SPACE):
            self.full = self.kind == "full"
            self._close_anyway(name, args)
            raise OSError(ENOSPC, "No space left on device")
        if here and self.kind == "EIO":
            self._close_anyway(name, args)
            raise OSError(EIO, "Input/output error")
        if here and name == "write" and self.kind.startswith("short"):
            args = (args[0], bytes(args[1])[: max(1, len(args[1]) // 2)])
        out = getattr(self, name)(*args)
        if here and name == "write" and self.kind == "short, cut":
            raise PowerCut
        return out

    def _close_anyway(self, name: str, args) -> None:
        if name == "close":  # a descriptor is gone even if closing it fails
            self.close(*args)

    def create(self, path):
        fd = self.real["create"](path)
        self.open[fd] = Path(path)
        self._changed(path, lambda: Path(path).unlink(missing_ok=True))
        self.unflushed.add(Path(path))
        return fd

    def write(self, fd, data):
        self.unflushed.add(self.open[fd])
        return self.real["write"](fd, data)

    def sync(self, fd):
        self.unflushed.discard(self.open[fd])

    def close(self, fd):
        self.open.pop(fd)
        self.real["close"](fd)

    def rename(self, old, new):
        undo = self._restores(new)

        def back():
            if Path(new).exists():
                os.replace(new, old)
            undo()

        self.real["rename"](old, new)
        if Path(old) in self.unflushed:
            self.unflushed.remove(Path(old))
            self.unflushed.add(Path(new))
        self._changed(new, back)

    def remove(self, path):
        undo = self._restores(path)
        self.real["remove"](path)
        self._changed(path, undo)

    def make_directory(self, path):
        self.real["make_directory"](path)
        self._changed(path, lambda: shutil.rmtree(path, ignore_errors=True))

    def remove_directory(self, path):
        self.real["remove_directory"](path)
        self._changed(path, lambda: os.makedirs(path, exist_ok=True))

    def sync_directory(self, path):
        self.changes.pop(Path(path), None)

    def _restores(self, path):
        content = Path(path).read_bytes() if Path(path).exists() else None
        return lambda: None if content is None else Path(path).write_bytes(content)

    def _changed(self, path, undo) -> None:
        self.changes.setdefault(Path(path).parent, []).append(undo)

    def cut_power(self, loss: str | int) -> None:
        """Lose what was not flushed: `all`, `all but the last` change of each directory, or what
        a random number generator of this seed says."""
        rng = random.Random(loss)
        for path in sorted(self.unflushed):
            if path.exists():
                os.truncate(path, 0 if loss == "all" else rng.randint(0, path.stat().st_size))
        for directory in sorted(self.changes, key=lambda p: -len(p.parts)):
            changes = self.changes[directory]
            lost = changes if loss == "all" else changes[:-1]
            if isinstance(loss, int):
                lost = [c for c in changes if rng.random() < 0.5]
            for undo in reversed(lost):
                if directory.is_dir():
                    undo()
        self.changes.clear()
        self.unflushed.clear()
