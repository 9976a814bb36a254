"""Adapter files of Flux models from one layout to another."""

from __future__ import annotations

from pathlib import Path

import weft as wf

from .config import FluxConfig
from .flux import Flux


def convert_adapter(
    source: str | Path, target: str | Path, layout: str, config: FluxConfig | None = None
) -> None:
    """Write the adapters of a file in another layout; no weights of a base are needed.

    source  the file, in any layout
    target  the file to write
    layout  "peft" or "kohya"
    config  the sizes of the model; None: those of Flux
    """
    model = Flux(FluxConfig() if config is None else config, empty=True)
    wf.nn.load_lora(model, source)
    wf.nn.save_lora(model, target, layout)
