"""The strength of adapters as PEFT and diffusers write it: beside the tensors, not among them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any

from ... import errors
from ...core.record import record
from ...io import strict_json

_KEY = "lora_adapter_metadata"  # of diffusers, in the file's own metadata
_CONFIG = "adapter_config.json"  # of PEFT, beside the file
_LARGEST = 1 << 24
_STARTS = ("gaussian", "orthogonal", "eva")  # ways to begin that leave the base as it is


@record(eq=False)
class Strength:
    """Configs of PEFT by the prefix of the modules that they are of."""

    configs: dict[str, Mapping[str, Any]]
    where: str

    def scale(self, module: str, rank: int | None) -> float:
        """The factor of a module's update, whose factors have this rank, or are whole (None)."""
        prefix = next((p for p in self.configs if p and module.startswith(f"{p}.")), "")
        config = self.configs.get(prefix)
        if config is None:
            raise errors.CheckpointError(f"{self.where} says nothing of its alpha")
        name = module.removeprefix(f"{prefix}.")
        largest = self._number(config, "r", "rank_pattern", name)
        if rank is not None and rank != largest:
            raise errors.CheckpointError(f"rank {rank}, but {self.where} says {largest}")
        field = "lora_alpha" if "lora_alpha" in config else "alpha"
        alpha = self._number(config, field, "alpha_pattern", name)
        return alpha / (sqrt(largest) if config.get("use_rslora") else largest)

    def _number(self, config: Mapping[str, Any], field: str, patterns: str, name: str) -> float:
        value = config.get(field)
        for pattern, other in (config.get(patterns) or {}).items():
            if _matches(pattern, name, self.where):
                value = other
                break
        if not isinstance(value, int | float) or isinstance(value, bool) or value == 0:
            raise errors.CheckpointError(
                f"{field} {value!r} in {self.where}, expected a number other than 0"
            )
        return value


def _matches(pattern: str, name: str, where: str) -> bool:
    """Whether PEFT applies a pattern to a module: it is its name or the end of it.

    PEFT reads patterns as regular expressions; only names are read here, as a file may hold one
    that takes for ever.
    """
    plain = pattern.removeprefix("^").removesuffix("$")
    if not re.fullmatch(r"[\w.]+", plain):
        raise errors.CheckpointError(f"the pattern {pattern!r} in {where}, expected a name")
    return name == plain or (not pattern.startswith("^") and name.endswith(f".{plain}"))


def read_strength(path: Path, metadata: Mapping[str, str]) -> Strength | None:
    """What says how strong the adapters of a file are; None if nothing does."""
    if _KEY in metadata:
        where = f"{_KEY} of {path.name}"
        configs: dict[str, dict[str, Any]] = {}
        for key, value in _object(metadata[_KEY], where).items():
            prefix, _, field = key.rpartition(".")
            configs.setdefault(prefix, {})[field] = value
        return Strength(dict(configs), where)
    beside = path.parent / _CONFIG
    if path.name != "adapter_model.safetensors" or not beside.is_file():
        return None
    if beside.stat().st_size > _LARGEST:
        raise errors.CheckpointError(f"{beside}: more than {_LARGEST} bytes")
    config = _object(beside.read_bytes(), str(beside))
    if config.get("peft_type") not in ("LORA", "LOKR"):
        raise errors.CheckpointError(
            f"{beside}: peft_type {config.get('peft_type')!r}, expected 'LORA' or 'LOKR'"
        )
    start = config.get("init_lora_weights", True)
    if isinstance(start, str) and start not in _STARTS:
        raise errors.CheckpointError(
            f"{beside}: init_lora_weights {start!r}, by which PEFT changes the base too; convert "
            "the adapter to a plain one with PEFT first"
        )
    return Strength({"": config, "base_model.model": config}, _CONFIG)


def _object(data: bytes | str, where: str) -> dict[str, Any]:
    value = strict_json.loads(data, where)
    if not isinstance(value, dict):
        raise errors.CheckpointError(f"{where}: {type(value).__name__}, expected an object")
    return value
