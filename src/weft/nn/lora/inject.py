"""Putting adapters into a model by the names of its layers, and merging all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ... import errors
from ..making import one_of
from .adapted import AdaptedLinear, is_base_layer
from .kronecker import LoKrLinear
from .lowrank import DoRALinear, LoRALinear

if TYPE_CHECKING:
    from ..module import Module

    Options = Mapping[str, Any]
    Patterns = str | Sequence[str] | Mapping[str, Options] | Sequence[tuple[str, Options]]

_OPTIONS = ("rank", "alpha", "dropout", "kind", "factor")
_KINDS: dict[str, type[Any]] = {"lora": LoRALinear, "dora": DoRALinear, "lokr": LoKrLinear}


def linear_layers(model: Module, duplicates: bool = False) -> Iterator[tuple[str, Any]]:
    """(name, layer) of what is adapted or can be; not the layers inside adapters."""
    inside: set[int] = {
        id(part)
        for m in model.modules()
        if isinstance(m, AdaptedLinear)
        for part in m.modules()
        if part is not m
    }
    for name, m in model.named_modules(remove_duplicate=not duplicates):
        if (isinstance(m, AdaptedLinear) or is_base_layer(m)) and id(m) not in inside:
            yield name, m


def adapted_layers(model: Module) -> dict[str, AdaptedLinear]:
    """The adapters of a model by name; one that is used twice comes once."""
    return {n: m for n, m in linear_layers(model) if isinstance(m, AdaptedLinear)}


def add_lora(
    model: Module,
    pattern: Patterns = "*",
    rank: int = 8,
    alpha: float = 16.0,
    dropout: float = 0.0,
    kind: str = "lora",
    factor: int = -1,
) -> list[str]:
    """Put adapters around the linear layers whose names match, freeze the rest; returns the names.

    model                 the module that is changed
    pattern               one, or several: `*` and `?` stand for any characters. A dict or pairs
                          (pattern, options) give a pattern its own `rank`, `alpha`, `dropout`,
                          `kind` or `factor`; the first pattern that a name matches counts
    rank, alpha, dropout  as of `LoRALinear`
    kind                  "lora", "dora" (`DoRALinear`) or "lokr" (`LoKrLinear`)
    factor                as of `LoKrLinear`

    Layers that have an adapter keep it, and another call adds to them: it freezes only the layers
    that it adapts.

    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(4, 8), wf.nn.ReLU(), wf.nn.Linear(8, 2))
    >>> wf.nn.add_lora(model, "2", rank=2)
    ['2']
    >>> wf.nn.add_lora(model, {"0": {"rank": 1, "kind": "dora"}})
    ['0']
    >>> [name for name, _ in model.lora_parameters()]
    ['0.lora_A', '0.lora_B', '0.lora_magnitude_vector', '2.lora_A', '2.lora_B']
    """
    common = {"rank": rank, "alpha": alpha, "dropout": dropout, "kind": kind, "factor": factor}
    patterns = _read_patterns(pattern, common)
    layers = list(linear_layers(model, duplicates=True))
    fresh = [(n, m) for n, m in layers if n and not isinstance(m, AdaptedLinear)]
    for p, _ in patterns:
        _check_matches(p, [n for n, _ in fresh], [n for n, _ in layers if n])
    places: list[tuple[str, Any, Options]] = []
    for name, m in fresh:
        found = next((options for p, options in patterns if fnmatchcase(name, p)), None)
        if found is not None:
            places.append((name, m, found))
    first = len(fresh) == len([n for n, _ in layers if n])
    made: dict[int, AdaptedLinear] = {}
    for _, m, options in places:
        if id(m) not in made:
            made[id(m)] = adapt(m, **options)
    replace_layers(model, [(name, made[id(m)]) for name, m, _ in places], first)
    return [name for name, _, _ in places]


def adapt(layer: Any, rank: int, alpha: float, dropout: float, kind: str, factor: int) -> Any:
    """An adapter of a kind around a layer."""
    one_of("add_lora", "kind", kind, tuple(_KINDS))
    if kind == "lokr":
        return LoKrLinear.from_linear(layer, rank, alpha, dropout, factor)
    if factor != -1:
        raise errors.ArgumentError(f"add_lora: factor={factor!r} for {kind!r}; only 'lokr' has one")
    return _KINDS[kind].from_linear(layer, rank, alpha, dropout)


def replace_layers(model: Module, new: list[tuple[str, AdaptedLinear]], first: bool) -> None:
    """Put adapters in the places of their layers; the first ones freeze the whole model."""
    if first:
        model.requires_grad_(False)
    for name, adapter in new:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, adapter)
        for n in adapter.adapters:
            getattr(adapter, n).requires_grad_(True)


def _read_patterns(pattern: Patterns, common: Options) -> list[tuple[str, dict[str, Any]]]:
    pairs: list[Any]
    if isinstance(pattern, str):
        pairs = [(pattern, {})]
    elif isinstance(pattern, Mapping):
        pairs = list(pattern.items())
    else:
        pairs = [(p, {}) if isinstance(p, str) else p for p in pattern]
    read = []
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise errors.ArgumentError(
                f"add_lora: pattern {pair!r}, expected a string, or a pair of a string and a dict"
            )
        name, options = pair
        unknown = [k for k in options if k not in _OPTIONS]
        if unknown:
            raise errors.ArgumentError(
                f"add_lora: {', '.join(map(repr, unknown))} for {name!r}, expected of "
                f"{', '.join(_OPTIONS)}"
            )
        read.append((name, {**common, **options}))
    return read


def _check_matches(pattern: str, fresh: list[str], names: list[str]) -> None:
    if any(fnmatchcase(n, pattern) for n in fresh):
        return
    if any(fnmatchcase(n, pattern) for n in names):
        raise errors.ArgumentError(
            f"add_lora: all layers that {pattern!r} matches have an adapter already"
        )
    from difflib import get_close_matches  # only for messages

    near = get_close_matches(pattern.replace("*", ""), names, n=5, cutoff=0.5)
    shown = near or names[:10]
    more = ", …" if len(names) > len(shown) else ""
    raise errors.ArgumentError(
        f"add_lora: {pattern!r} matches no Linear in the model; "
        f"{'near it' if near else 'there'} are {', '.join(shown) or 'none'}{more}"
    )


def merge_lora(model: Module) -> list[str]:
    """Merge the updates of all adapters into the weights; returns their names.

    model  the module

    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(4, 2))
    >>> names = wf.nn.add_lora(model)
    >>> wf.nn.merge_lora(model)
    ['0']
    """
    found = _adapters_for("merge_lora", model)
    waiting = {n: m for n, m in found.items() if not m.merged}
    refused = [n for n, m in waiting.items() if not m._is_dense()]
    if refused:
        waiting[refused[0]].merge()  # says why
    for m in waiting.values():
        m.merge()
    return list(waiting)


def unmerge_lora(model: Module) -> list[str]:
    """Put the weights of all merged adapters back, bit for bit; returns their names.

    model  the module

    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(4, 2))
    >>> names = wf.nn.add_lora(model), wf.nn.merge_lora(model)
    >>> wf.nn.unmerge_lora(model)
    ['0']
    """
    merged = {n: m for n, m in _adapters_for("unmerge_lora", model).items() if m.merged}
    for m in merged.values():
        m.unmerge()
    return list(merged)


def _adapters_for(what: str, model: Module) -> dict[str, AdaptedLinear]:
    found = adapted_layers(model)
    if not found:
        raise errors.ArgumentError(f"{what}: the model has no adapters; add some with add_lora()")
    return found
