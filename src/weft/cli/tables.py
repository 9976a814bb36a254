"""What the commands print as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..nn.lora.reading import LoRASummary


def adapter_table(found: LoRASummary) -> Group:
    """The modules of an adapter file."""
    table = Table(box=None, pad_edge=False)
    table.add_column("module", no_wrap=True)
    for name in ("kind", "shape", "rank", "alpha", "‖B·A‖"):
        table.add_column(name, no_wrap=True)
    for name, m in found.modules.items():
        rank = "–" if m.rank is None else f"{m.rank}"
        shape = f"{m.shape[0]}×{m.shape[1]}"
        table.add_row(name, m.kind, shape, rank, f"{m.alpha:g}", f"{m.norm:.3g}")
    lines = [f"layout {found.layout}, {len(found.modules)} modules, {', '.join(found.dtypes)}"]
    lines += [f"{key} = {value[:200]}" for key, value in found.metadata.items()]
    return Group(table, Text("\n".join(lines)))
