"""Adapters of linear layers: LoRA, DoRA and LoKr, in models and in files of several layouts."""

from .adapted import AdaptedLinear, BaseLayer
from .inject import adapted_layers, add_lora, merge_lora, unmerge_lora
from .kronecker import LoKrLinear
from .loading import load_lora
from .lowrank import DoRALinear, LoRALinear
from .names import AdapterGroup, AdapterNames
from .reading import AdapterSummary, LoRASummary, lora_summary
from .saving import save_lora

__all__ = [
    "AdaptedLinear",
    "AdapterGroup",
    "AdapterNames",
    "AdapterSummary",
    "BaseLayer",
    "DoRALinear",
    "LoKrLinear",
    "LoRALinear",
    "LoRASummary",
    "adapted_layers",
    "add_lora",
    "load_lora",
    "lora_summary",
    "merge_lora",
    "save_lora",
    "unmerge_lora",
]
