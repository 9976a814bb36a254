"""Adapters of linear layers: LoRA, DoRA and LoKr, in models and in files of several layouts."""

from .adapted import AdaptedLinear, BaseLayer
from .inject import adapted_layers, add_lora, merge_lora, unmerge_lora
from .kronecker import LoKrLinear
from .lowrank import DoRALinear, LoRALinear

__all__ = [
    "AdaptedLinear",
    "BaseLayer",
    "DoRALinear",
    "LoKrLinear",
    "LoRALinear",
    "adapted_layers",
    "add_lora",
    "merge_lora",
    "unmerge_lora",
]
