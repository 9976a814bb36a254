"""The names of Flux's layers in adapter files of the original layout, which fuses some of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..nn.lora.inject import linear_layers
from ..nn.lora.names import AdapterGroup, AdapterNames
from ..nn.module import Module
from .layout import DOUBLE, OUTSIDE, SINGLE, SWAPPED

# Its pipelines refuse LoKr in any layout, their transformers do not.
_LOKR = "pipe.transformer.load_lora_adapter(file)"
_BLOCK = re.compile(r"((?:single_)?transformer_blocks)\.(\d+)\.")


class FluxAdapterNames(AdapterNames):
    """The original names of the layers of a Flux model that are named as in diffusers.

    names  the names of the model's linear layers
    """

    def __init__(self, names: Iterable[str]):
        super().__init__(names)
        have = set(self.names)
        blocks = {(m[1], int(m[2])) for n in self.names if (m := _BLOCK.match(n))}
        groups = [
            AdapterGroup(file, parts, swap=SWAPPED in parts)
            for file, parts in OUTSIDE.items()
            if have.issuperset(parts)
        ]
        for kind, i in sorted(blocks):
            original, table = (
                ("single_blocks", SINGLE) if "single" in kind else ("double_blocks", DOUBLE)
            )
            for file, parts in table.items():
                inner = tuple(f"{kind}.{i}.{p}" for p in parts)
                if have.issuperset(inner):
                    groups.append(AdapterGroup(f"{original}.{i}.{file}", inner))
        self.groups = tuple(groups)

    @classmethod
    def of(cls, model: Module) -> FluxAdapterNames:
        """The names of a model's layers, adapted or not: what its `adapter_names()` gives."""
        return cls(name for name, _ in linear_layers(model))

    def unread(self, layout: str, kinds: Mapping[str, str], widths: Mapping[str, int]) -> list[str]:
        """What diffusers would not take from a file of kohya's layout as it is meant."""
        if layout != "kohya":
            return []
        stem = [n for n, k in kinds.items() if not _BLOCK.match(n) and k != "lokr"]
        dora = [n for n, k in kinds.items() if k == "dora"]
        lokr = [n for n, k in kinds.items() if k == "lokr"]
        narrow = [
            n
            for n, k in kinds.items()
            if k != "lokr"
            and n.startswith("single_")
            and n.endswith(("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"))
            and widths[n] != (12288 if n.endswith("proj_mlp") else 3072)
        ]
        return [
            f"diffusers {what}; for it, use layout='peft'{how}: {', '.join(names[:10])}"
            + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            for what, how, names in (
                ("passes over these layers in the layout 'kohya'", "", stem),
                ("drops the magnitudes of DoRA in the layout 'kohya'", "", dora),
                ("does not read LoKr in the layout 'kohya'", f" and {_LOKR}", lokr),
                ("reads single blocks of width 3072 only in the layout 'kohya'", "", narrow),
            )
            if names
        ]
