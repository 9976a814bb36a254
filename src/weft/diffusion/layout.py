"""The original names of Flux's weights, and which of their rows each weight of diffusers' is.

The original stacks queries, keys and values in one weight, in single blocks with the first layer
of the feed-forward network too, and has the two halves of the last modulation the other way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

import weft as wf

from .. import errors

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor

Layout = Literal["diffusers", "original"]
Shape = tuple[int, ...]

OUTSIDE = {
    "img_in": ("x_embedder",),
    "txt_in": ("context_embedder",),
    "time_in.in_layer": ("time_text_embed.timestep_embedder.linear_1",),
    "time_in.out_layer": ("time_text_embed.timestep_embedder.linear_2",),
    "guidance_in.in_layer": ("time_text_embed.guidance_embedder.linear_1",),
    "guidance_in.out_layer": ("time_text_embed.guidance_embedder.linear_2",),
    "vector_in.in_layer": ("time_text_embed.text_embedder.linear_1",),
    "vector_in.out_layer": ("time_text_embed.text_embedder.linear_2",),
    "final_layer.adaLN_modulation.1": ("norm_out.linear",),
    "final_layer.linear": ("proj_out",),
}
DOUBLE = {
    "img_mod.lin": ("norm1.linear",),
    "txt_mod.lin": ("norm1_context.linear",),
    "img_attn.qkv": ("attn.to_q", "attn.to_k", "attn.to_v"),
    "txt_attn.qkv": ("attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj"),
    "img_attn.norm.query_norm": ("attn.norm_q",),
    "img_attn.norm.key_norm": ("attn.norm_k",),
    "txt_attn.norm.query_norm": ("attn.norm_added_q",),
    "txt_attn.norm.key_norm": ("attn.norm_added_k",),
    "img_attn.proj": ("attn.to_out.0",),
    "txt_attn.proj": ("attn.to_add_out",),
    "img_mlp.0": ("ff.net.0.proj",),
    "img_mlp.2": ("ff.net.2",),
    "txt_mlp.0": ("ff_context.net.0.proj",),
    "txt_mlp.2": ("ff_context.net.2",),
}
SINGLE = {
    "modulation.lin": ("norm.linear",),
    "linear1": ("attn.to_q", "attn.to_k", "attn.to_v", "proj_mlp"),
    "linear2": ("proj_out",),
    "norm.query_norm": ("attn.norm_q",),
    "norm.key_norm": ("attn.norm_k",),
}
# Prefixes of diffusers, prefixes of the original, original names and the names stacked in them.
_PLACES = (
    ("", "", OUTSIDE),
    ("transformer_blocks.", "double_blocks.", DOUBLE),
    ("single_transformer_blocks.", "single_blocks.", SINGLE),
)
_NAME = re.compile(r"(?:(?P<blocks>(?:single_)?transformer_blocks\.)(?P<i>\d+)\.)?(?P<module>.+)\.")
SWAPPED = "norm_out.linear"


class Rows(NamedTuple):
    """Rows `begin` to `end` of a stored weight."""

    source: str
    begin: int
    end: int


def _original(name: str) -> tuple[str, int]:
    """The original weight that has a weight of diffusers' name in it, and at which place."""
    match = _NAME.match(name)
    blocks, module = (match["blocks"] or "", match["module"]) if match else ("", "")
    for ours, theirs, stacks in _PLACES:
        for stack, modules in stacks.items():
            if match and ours == blocks and module in modules:
                where = f"{theirs}{match['i']}.{stack}" if blocks else stack
                last = "scale" if stack.endswith("_norm") else name.rpartition(".")[2]
                return f"{where}.{last}", modules.index(module)
    raise errors.ArgumentError(f"{name!r:.80} is no weight of a Flux transformer")


def stored_rows(shapes: Mapping[str, Shape], layout: Layout) -> dict[str, list[Rows]]:
    """Which rows of stored weights, one after the other, each weight consists of.

    shapes  of the weights by their names in diffusers
    """
    if layout == "diffusers":
        return {name: [Rows(name, 0, shape[0])] for name, shape in shapes.items()}
    stacks: dict[str, dict[int, str]] = {}
    for name in shapes:
        source, place = _original(name)
        stacks.setdefault(source, {})[place] = name
    found: dict[str, list[Rows]] = {}
    for source, names in stacks.items():
        at = 0
        for _, name in sorted(names.items()):
            end, half = at + shapes[name][0], at + shapes[name][0] // 2
            found[name] = [Rows(source, at, end)]
            if name.startswith(SWAPPED):
                found[name] = [Rows(source, half, end), Rows(source, at, half)]
            at = end
    return found


def stored_shapes(shapes: Mapping[str, Shape], layout: Layout) -> dict[str, Shape]:
    """The shapes of the stored weights by their names.

    shapes  of the weights by their names in diffusers
    """
    found: dict[str, Shape] = {}
    for name, parts in stored_rows(shapes, layout).items():
        for part in parts:
            rows = max(part.end, found.get(part.source, (0,))[0])
            found[part.source] = (rows, *shapes[name][1:])
    return found


def to_original(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights under the original's names, stacked as it stacks them.

    weights  by their names in diffusers, as `state_dict()` of a `Flux` gives them

    >>> import weft as wf
    >>> q, k, v = (wf.full((1, 1), float(n)) for n in range(3))
    >>> where = "transformer_blocks.0.attn.to_"
    >>> stacked = {f"{where}q.weight": q, f"{where}k.weight": k, f"{where}v.weight": v}
    >>> {n: w.tolist() for n, w in wf.diffusion.to_original(stacked).items()}
    {'double_blocks.0.img_attn.qkv.weight': [[0.0], [1.0], [2.0]]}
    """
    shapes = {name: w.shape for name, w in weights.items()}
    pieces: dict[str, list[tuple[int, Tensor]]] = {}
    for name, parts in stored_rows(shapes, "original").items():
        at = 0
        for part in parts:
            rows = weights[name][at : at + part.end - part.begin]
            pieces.setdefault(part.source, []).append((part.begin, rows))
            at += part.end - part.begin
    return {
        source: wf.concat([rows for _, rows in sorted(found, key=lambda pair: pair[0])], axis=0)
        for source, found in pieces.items()
    }


def layout_of(names: Iterable[str], where: str) -> Layout:
    """Whose names these are."""
    parts = {name.partition(".")[0] for name in names}
    original = bool(parts & {"double_blocks", "single_blocks", "img_in"})
    diffusers = bool(parts & {"transformer_blocks", "single_transformer_blocks", "x_embedder"})
    if original == diffusers:
        some = ", ".join(sorted(parts)[:8])
        raise errors.StateMismatch(
            f"{where}: weights of {'both layouts' if original else 'something else'}; expected a "
            "Flux transformer's, in the layout of diffusers (x_embedder, transformer_blocks.0.…) "
            f"or of the original (img_in, double_blocks.0.…), found {some[:300]}"
        )
    return "original" if original else "diffusers"
