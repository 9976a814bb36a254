"""Errors of a part of a run, said of the key of the configuration that names the part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import weft as wf

from .config import refuse

if TYPE_CHECKING:
    from .config import TrainConfig
    from .contradictions import Place


@contextmanager
def blaming(config: TrainConfig, place: Place) -> Iterator[None]:
    """A block whose errors are said of a key of the configuration."""
    try:
        yield
    except (wf.errors.WeftError, OSError) as e:
        if isinstance(e, wf.errors.ConfigError | wf.errors.DiskFull):
            raise
        text = getattr(e, "message", None) or f"{e.filename}: {e.strerror}"  # type: ignore[union-attr]
        refuse(config, [(place, text)])
