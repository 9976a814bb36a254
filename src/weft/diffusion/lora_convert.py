"""Adapter files of Flux models from one layout to another."""

from __future__ import annotations

from pathlib import Path

from .. import errors
from ..nn.lora.inject import linear_layers
from ..nn.lora.loading import assign, infinite_updates, warn_of_text
from ..nn.lora.reading import read_adapter
from ..nn.lora.saving import save_factors
from ..nn.making import one_of
from .flux import Flux
from .lora_sizes import sizes_of


def convert_adapter(source: str | Path, target: str | Path, layout: str) -> None:
    """Write the adapters of a file in another layout; no weights of a base are needed.

    source  the file, in any layout; the sizes of its model are those that its shapes tell
    target  the file to write
    layout  "peft" or "kohya"
    """
    one_of("convert", "layout", layout, ("peft", "kohya"))
    file = read_adapter(source)
    model = Flux(sizes_of(file), empty=True)
    layers, faults = dict(linear_layers(model)), list(file.faults)
    found = assign(file, model, layers, None, faults)
    faults += infinite_updates(found)
    if faults:
        raise errors.StateMismatch(
            f"{file.path} is not converted, nothing was written:\n  " + "\n  ".join(faults)
        )
    warn_of_text(file, "convert", "not written")
    ordered = {name: found[name] for name in layers if name in found}
    save_factors(ordered, model, layers, target, layout)
