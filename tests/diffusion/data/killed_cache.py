"""A program that fills a cache until it is killed, again and again.

`python -m tests.diffusion.data.killed_cache DIRECTORY KILLS SEED` forks a process that caches the
images in DIRECTORY/images, ends it with SIGKILL after a random time, changes something now and
then, and at last lets one finish; it prints the kills, how many met an unfinished cache, and how
many files killed writers had left.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

from weft.diffusion.data import cache
from weft.io import disk

from .small_data import AUGMENTED, encoders, settings, write_images


def fill(root: Path):
    source = write_images(root / "images", 0)
    return cache([source], encoders(), settings(AUGMENTED), root / "cache")


def kill_once(root: Path, pause: float) -> bool:
    """Whether a process that fills the cache was killed before it was done."""
    pid = os.fork()
    if pid == 0:
        try:
            fill(root)
        finally:
            os._exit(0)
    time.sleep(pause)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def left(root: Path) -> int:
    return sum(1 for _ in root.rglob(".weft-*.tmp"))


def change(root: Path, draw: random.Random) -> None:
    """Swap two captions, or two images, or lose some entries."""
    a, b = draw.sample(sorted((root / "images").glob("*.txt")), 2)
    pair = (a, b) if draw.random() < 0.5 else (a.with_suffix(".png"), b.with_suffix(".png"))
    first, second = (p.read_bytes() for p in pair)
    pair[0].write_bytes(second)
    pair[1].write_bytes(first)
    for path in sorted((root / "cache").rglob("*.safetensors")):
        if draw.random() < 0.5:
            path.unlink()


def main(root: Path, kills: int, seed: int) -> None:
    disk.sync = lambda fd: None  # of no use against SIGKILL, and most of the time
    draw = random.Random(seed)
    write_images(root / "images", 8, masks=True)
    begin = time.perf_counter()
    fill(root)
    whole = time.perf_counter() - begin
    met = files = 0
    for _ in range(kills):
        if draw.random() < 0.5:
            change(root, draw)
        met += kill_once(root, draw.uniform(0, whole))
        files += left(root)
    fill(root)
    print(kills, met, files, left(root))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
