"""Saving and loading: checkpoints of a run, optimizers, and plain safetensors files.

Files hold safetensors and strict JSON, nothing that could run. Everything is checked before it is
believed: sizes before memory is taken, digests before values are given out.

>>> import tempfile
>>> import weft as wf
>>> with tempfile.TemporaryDirectory() as run:
...     path = wf.save_checkpoint(run, wf.Checkpoint({"w": wf.ones(2)}, step=5))
...     wf.load_checkpoint(run).step
5
"""

from ..core.differences import Differences, differences
from .checkpoint import Checkpoint, latest, load_checkpoint, save_checkpoint
from .directory import steps
from .lock import locked
from .optimizer import load_optimizer, save_optimizer
from .reader import SafetensorsReader, open_safetensors
from .safetensors import load_safetensors, read_header, save_safetensors

__all__ = [
    "Checkpoint",
    "Differences",
    "SafetensorsReader",
    "differences",
    "latest",
    "load_checkpoint",
    "load_optimizer",
    "load_safetensors",
    "locked",
    "open_safetensors",
    "read_header",
    "save_checkpoint",
    "save_optimizer",
    "save_safetensors",
    "steps",
]


def __dir__() -> list[str]:
    return list(__all__)
