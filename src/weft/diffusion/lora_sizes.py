"""The sizes of the Flux model that an adapter file was made for, from names and shapes in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import errors
from .config import FluxConfig
from .layout import DOUBLE, OUTSIDE, SINGLE

if TYPE_CHECKING:
    from ..nn.lora.reading import AdapterFile

_MOST = 1000  # blocks: an index beyond it is a damaged name
_BLOCK = re.compile(
    r"(?:^|[._])((?:single_)?transformer_blocks|double_blocks|single_blocks)[._](\d+)[._](.+)"
)
_WIDE = {"img_mlp.2": 4, "txt_mlp.2": 4, "linear2": 5}  # inputs of these layers, in widths
_INTO = ("final_layer.adaLN_modulation.1", "final_layer.linear")  # of those outside of blocks
# What the other side of a layer outside of blocks tells.
_OTHER = {
    "img_in": "in_channels",
    "txt_in": "joint_attention_dim",
    "vector_in.in_layer": "pooled_projection_dim",
    "final_layer.linear": "out_channels",
}


def _spelled(table: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """The original name of each layer by all names that files have for it, with underscores."""
    return {n.replace(".", "_"): f for f, parts in table.items() for n in (f, *parts)}


_INSIDE = {True: _spelled(SINGLE), False: _spelled(DOUBLE)}
_OUTSIDE = _spelled(OUTSIDE)


def sizes_of(file: AdapterFile) -> FluxConfig:
    """The sizes of the model; those that no layer of the file tells are 1.

    file  what `read_adapter` gave
    """
    widths: dict[int, str] = {}  # a module for each
    blocks = {False: 0, True: 0}
    told: dict[str, Any] = {"in_channels": 1, "joint_attention_dim": 1, "pooled_projection_dim": 1}
    for module, factors in file.modules.items():
        rows, columns = factors.shape
        inside = _BLOCK.search(module)
        if inside is not None:
            single, number = inside[1].startswith("single"), _number(file.path, module, inside[2])
            name = _INSIDE[single].get(inside[3].replace(".", "_"))
            if name is None:
                continue
            blocks[single] = max(blocks[single], number + 1)
            width = _divided(file.path, module, columns, _WIDE.get(name, 1))
        else:
            name = _outside(module)
            if name is None:
                continue
            width, other = (columns, rows) if name in _INTO else (rows, columns)
            if name in _OTHER:
                told[_OTHER[name]] = other
        widths.setdefault(width, module)
    return FluxConfig(
        num_layers=blocks[False],
        num_single_layers=blocks[True],
        num_attention_heads=1,
        guidance_embeds=True,
        **_widths(file.path, widths),
        **told,
    )


def _outside(module: str) -> str | None:
    """The original name of a layer outside of blocks, whatever stands before it."""
    flat = module.replace(".", "_")
    found = [name for name in _OUTSIDE if flat == name or flat.endswith(f"_{name}")]
    return _OUTSIDE[max(found, key=len)] if found else None


def _number(path: Path, module: str, digits: str) -> int:
    if int(digits) >= _MOST:
        raise errors.StateMismatch(
            f"{path}: {module:.200}: a block beyond the {_MOST} that models have at most; is the "
            "file damaged?"
        )
    return int(digits)


def _divided(path: Path, module: str, columns: int, by: int) -> int:
    if columns % by:
        raise errors.StateMismatch(
            f"{path}: {module}: {columns} inputs, expected {by} widths of a Flux transformer"
        )
    return columns // by


def _widths(path: Path, widths: dict[int, str]) -> dict[str, Any]:
    if not widths:
        raise errors.StateMismatch(
            f"{path}: no layer of a Flux transformer in it, such as transformer_blocks.0.attn.to_q "
            "or double_blocks.0.img_attn.qkv; only adapters of Flux models are converted"
        )
    if len(widths) > 1:
        listed = ", ".join(f"{width} ({module})" for width, module in widths.items())
        raise errors.StateMismatch(
            f"{path}: the width of the model would be {listed}: layers of several models, or of "
            "one that is not built as Flux is; expected one width"
        )
    (width,) = widths
    if width % 2:
        raise errors.StateMismatch(f"{path}: layers of width {width}, expected an even number")
    return {"attention_head_dim": width, "axes_dims_rope": (width,)}
