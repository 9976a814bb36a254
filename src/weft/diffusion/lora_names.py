"""The names of Flux's layers in adapter files of the original layout, which fuses some of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..nn.lora.inject import linear_layers
from ..nn.lora.names import AdapterGroup, AdapterNames
from ..nn.module import Module

_STEM = {
    "img_in": "x_embedder",
    "txt_in": "context_embedder",
    "time_in.in_layer": "time_text_embed.timestep_embedder.linear_1",
    "time_in.out_layer": "time_text_embed.timestep_embedder.linear_2",
    "guidance_in.in_layer": "time_text_embed.guidance_embedder.linear_1",
    "guidance_in.out_layer": "time_text_embed.guidance_embedder.linear_2",
    "vector_in.in_layer": "time_text_embed.text_embedder.linear_1",
    "vector_in.out_layer": "time_text_embed.text_embedder.linear_2",
    "final_layer.adaLN_modulation.1": "norm_out.linear",
    "final_layer.linear": "proj_out",
}
_DOUBLE = {
    "img_mod.lin": ("norm1.linear",),
    "txt_mod.lin": ("norm1_context.linear",),
    "img_attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
    "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
    "img_attn.proj": ("attn.to_out.0",),
    "txt_attn.proj": ("attn.to_add_out",),
    "img_mlp.0": ("ff.net.0.proj",),
    "img_mlp.2": ("ff.net.2",),
    "txt_mlp.0": ("ff_context.net.0.proj",),
    "txt_mlp.2": ("ff_context.net.2",),
}
_SINGLE = {
    "modulation.lin": ("norm.linear",),
    "linear1": ("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"),
    "linear2": ("proj_out",),
}
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
            AdapterGroup(f, (n,), swap=n == "norm_out.linear")
            for f, n in _STEM.items()
            if n in have
        ]
        for kind, i in sorted(blocks):
            original, table = (
                ("single_blocks", _SINGLE) if "single" in kind else ("double_blocks", _DOUBLE)
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
            f"diffusers {what}; for it, use layout='peft': {', '.join(names[:10])}"
            + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            for what, names in (
                ("passes over these layers in the layout 'kohya'", stem),
                ("drops the magnitudes of DoRA in the layout 'kohya'", dora),
                ("does not read LoKr in the layout 'kohya'", lokr),
                ("reads single blocks of width 3072 only in the layout 'kohya'", narrow),
            )
            if names
        ]
