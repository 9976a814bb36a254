"""The names of a model's layers in adapter files: how they are grouped, and found again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ... import errors
from ...core.record import record

if TYPE_CHECKING:
    from ..module import Module

# What stands before names with dots. Those with underscores are no beginnings of such names.
_DOTTED = (
    *("", "transformer.", "diffusion_model.", "model.diffusion_model.", "unet."),
    *("base_model.model.", "base_model.model.transformer."),
)
_UNDERSCORED = ("lora_unet_", "lora_transformer_", "lycoris_")


@record
class AdapterGroup:
    """A layer of a file: the layers of the model that are its rows, from above.

    file   its name in the original layout, with dots
    parts  the names of the model's layers
    swap   whether the halves of its output are exchanged in the model
    """

    file: str
    parts: tuple[str, ...]
    swap: bool = False


class AdapterNames:
    """How the layers of a model are called in the original (kohya's) layout; here, as they are.

    names  the names of the model's linear layers

    A model whose layers are called otherwise has a method `adapter_names()` that gives one of a
    subclass, with its own `groups` and `unread`.
    """

    def __init__(self, names: Iterable[str]):
        self.names: tuple[str, ...] = tuple(names)
        self.groups: tuple[AdapterGroup, ...] = tuple(AdapterGroup(n, (n,)) for n in self.names)

    def unread(self, layout: str, kinds: Mapping[str, str], widths: Mapping[str, int]) -> list[str]:
        """What programs known to read a layout would not take as it is meant, one line for each.

        layout  "peft" or "kohya"
        kinds   the kind of each adapted layer: "lora", "dora" or "lokr"
        widths  the output width of each linear layer
        """
        return []

    def resolve(self, modules: Iterable[str], prefix: str | None) -> dict[str, AdapterGroup]:
        """The groups of a file's modules, those that are known.

        Names with dots have one prefix in the whole file.
        """
        known: dict[str, AdapterGroup] = {}
        rest = list(modules)
        if prefix is None:
            for p in _UNDERSCORED:
                known |= self._look_up(rest, p)
            rest = [m for m in rest if m not in known]
        tries = _DOTTED if prefix is None else (f"{prefix}.", f"{prefix}_", prefix)
        found = {p: self._look_up(rest, p) for p in dict.fromkeys(tries)}
        most = max(map(len, found.values()))
        best = {p: groups for p, groups in found.items() if len(groups) == most}
        if most and len(best) > 1:
            raise errors.ArgumentError(
                "load_lora: the names of the file are those of the model with either prefix of "
                f"{', '.join(map(repr, best))}; give the one that is meant: prefix=…"
            )
        return known | next(iter(best.values()))

    def _look_up(self, modules: list[str], prefix: str) -> dict[str, AdapterGroup]:
        index = self._index("_" if prefix.endswith("_") else ".")
        pairs = ((m, index.get(m.removeprefix(prefix))) for m in modules if m.startswith(prefix))
        return {m: group for m, group in pairs if group is not None}

    def _index(self, dot: str) -> dict[str, AdapterGroup | None]:
        """Groups by name, of the original layout and of the model; None where two have one."""
        index: dict[str, AdapterGroup | None] = {}
        own = (AdapterGroup(n, (n,)) for n in self.names)
        for name, group in [(g.parts[0], g) for g in own] + [(g.file, g) for g in self.groups]:
            key = name.replace(".", dot)
            known = index.setdefault(key, group)
            if known is not None and known.parts != group.parts:
                index[key] = None
        return index


def names_of(model: Module, layers: Iterable[str]) -> AdapterNames:
    """The names that a model gives, or its own."""
    given = getattr(model, "adapter_names", None)
    return AdapterNames(layers) if given is None else given()
