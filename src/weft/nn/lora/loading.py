"""Loading an adapter file of any layout into a model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ...arrays.inplace import copy_
from ...arrays.make import asarray
from ...transform.modes.backward import no_grad
from .adapted import AdaptedLinear
from .factors import Factors, Kronecker, LowRank, split, split_rows
from .inject import adapt, linear_layers, replace_layers
from .kronecker import LoKrLinear
from .names import AdapterGroup, names_of
from .reading import AdapterFile, listed, read_adapter

if TYPE_CHECKING:
    from os import PathLike

    from ..module import Module


def load_lora(model: Module, path: str | PathLike[str], prefix: str | None = None) -> list[str]:
    """Load adapters from a file of any layout; returns the names of the layers.

    model   the module. If it has no adapters, those of the file are added, of its ranks and
            alphas, and the rest is frozen; else the file has to have the same ones. They keep
            their alpha: the factors are scaled to it
    path    a safetensors file of PEFT's, diffusers', kohya's or LyCORIS' layout, or a folder with
            one and PEFT's `adapter_config.json`
    prefix  what comes before the names in the file; None: one of the usual ones

    Alphas may be tensors of the file, or metadata as PEFT and diffusers write it; without one,
    the strength is 1. An error lists everything that does not fit, and then nothing was changed.
    Layers of text encoders in the file of a transformer are left out, with an `AdapterWarning`.

    >>> import tempfile
    >>> import weft as wf
    >>> first, second = (wf.nn.Sequential(wf.nn.Linear(4, 2)) for _ in range(2))
    >>> names = wf.nn.add_lora(first, rank=1)
    >>> first[0].lora_B = wf.Parameter(wf.ones((2, 1)))
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.nn.save_lora(first, f"{here}/a.safetensors", layout="kohya")
    ...     wf.nn.load_lora(second, f"{here}/a.safetensors")
    ['0']
    """
    file = read_adapter(path)
    layers = dict(linear_layers(model))
    faults = list(file.faults)
    found = assign(file, model, layers, prefix, faults)
    faults += infinite_updates(found)
    present = {n: m for n, m in layers.items() if isinstance(m, AdaptedLinear)}
    if present:
        faults += _misfits(present, found)
    if faults:
        raise errors.StateMismatch(
            f"load_lora: {file.path} does not fit {type(model).__name__}, nothing was loaded:\n  "
            + "\n  ".join(faults)
        )
    warn_of_text(file, "load_lora", "not loaded")
    if not present:
        present = _add(model, layers, found)
    with no_grad():
        for name, factors in found.items():
            _fill(present[name], factors)
    return list(found)


def assign(
    file: AdapterFile,
    model: Module,
    layers: dict[str, Any],
    prefix: str | None,
    faults: list[str],
) -> dict[str, Factors]:
    """The update of each layer of the model that a file has one for; what is wrong is appended."""
    groups = names_of(model, layers).resolve(file.modules, prefix)
    text = set(file.text_modules) - groups.keys()
    unknown = [m for m in file.modules if m not in groups and m not in text]
    if unknown:
        faults.append(f"unexpected modules: {', '.join(unknown)}")
    elif text and not groups:
        faults.append(f"layers of text encoders only: {listed(sorted(text))}")
    found: dict[str, Factors] = {}
    for module, group in groups.items():
        absent = [p for p in group.parts if p not in layers]
        if absent:
            faults.append(f"{module}: the model has no {', '.join(absent)}")
            continue
        try:
            parts = _parts(file.modules[module], group, layers)
        except errors.CheckpointError as e:  # all of them are reported together
            faults.append(f"{module}: {e.message}")
            continue
        faults += [f"{module}: another module is {p} too" for p in parts if p in found]
        found |= parts
    return found


def infinite_updates(found: Mapping[str, Factors]) -> list[str]:
    """A line about updates that are not finite, if there are any."""
    bad = [name for name, factors in found.items() if not isfinite(factors.norm())]
    return [f"an update that is NaN or infinite: {listed(bad)}"] if bad else []


def warn_of_text(file: AdapterFile, what: str, becomes: str) -> None:
    """Warn of layers of text encoders beside others.

    what     is done
    becomes  what becomes of these layers
    """
    text, others = file.text_modules, len(file.modules) - len(file.text_modules)
    if text and others:
        warnings.warn(
            f"{what}: {file.path}: {len(text)} layers of text encoders are {becomes}; the {others} "
            f"others are. Left out: {listed(text)}",
            errors.AdapterWarning,
            stacklevel=3,
        )


def _parts(factors: Factors, group: AdapterGroup, layers: dict[str, Any]) -> dict[str, Factors]:
    rows = [layers[p].out_features for p in group.parts]
    expected = sum(rows), layers[group.parts[0]].in_features
    if factors.shape != expected:
        raise errors.CheckpointError(f"an update of shape {factors.shape}, expected {expected}")
    parts: list[Any]
    if isinstance(factors, LowRank):
        factors = factors.swapped() if group.swap else factors
        parts = [factors] if len(rows) == 1 else split(factors, rows)
    else:
        parts = _kronecker_parts(factors, group, rows)
    return {n: p for n, p in zip(group.parts, parts, strict=True) if p is not None}


def _kronecker_parts(whole: Kronecker, group: AdapterGroup, rows: list[int]) -> list[Kronecker]:
    if len(rows) == 1 and not group.swap:
        return [whole]
    if group.swap:
        halves = split_rows(whole, [rows[0] // 2, rows[0] - rows[0] // 2])
        parts = None if halves is None else _joined(halves[1], halves[0])
    else:
        parts = split_rows(whole, rows)
    if parts is None:
        raise errors.CheckpointError(
            f"a LoKr whose rows {' and '.join(group.parts)} have; as w2 has {whole.rows[1]} rows, "
            "their parts of it are no Kronecker products. Convert the file to the layout of the "
            "model's own names with the program that made it"
        )
    return parts


def _joined(upper: Kronecker, lower: Kronecker) -> list[Kronecker]:
    return [Kronecker(np.concatenate((upper.w1, lower.w1)), upper.w2, upper.scale)]


def _misfits(present: dict[str, AdaptedLinear], found: dict[str, Factors]) -> list[str]:
    """What of a file is not in the adapters that a model has, and the reverse."""
    faults = []
    missing = [n for n in present if n not in found]
    added = [n for n in found if n not in present]
    if missing:
        faults.append(f"adapters of the model that the file has not: {', '.join(missing)}")
    if added:
        faults.append(f"adapters of the file that the model has not: {', '.join(added)}")
    for name, f in found.items():
        if name in present:
            layer, given = present[name], factor_arrays(f)
            shapes = {n: tuple(getattr(layer, n).shape) for n in layer.adapters}
            got = {n: x.shape for n, x in given.items()}
            if got != shapes:
                faults.append(f"{name}: {_text(got)}, the model has {_text(shapes)}")
    return faults


def _text(shapes: dict[str, tuple[int, ...]]) -> str:
    return " ".join(f"{n} {s}" for n, s in shapes.items())


def factor_arrays(f: Factors) -> dict[str, Any]:
    """Arrays by the names of an adapter's parameters, in their order."""
    if isinstance(f, LowRank):
        pair = {"lora_A": f.a, "lora_B": f.b}
        return pair if f.magnitude is None else pair | {"lora_magnitude_vector": f.magnitude}
    names = ("lokr_w2",) if len(f.w2) == 1 else ("lokr_w2_a", "lokr_w2_b")
    return {"lokr_w1": f.w1, **dict(zip(names, f.w2, strict=True))}


def _add(model: Module, layers: dict[str, Any], found: dict[str, Factors]) -> dict[str, Any]:
    """Put adapters of the file's kinds and sizes into a model that has none."""
    made: dict[str, Any] = {}
    for name, f in found.items():
        if isinstance(f, Kronecker):
            sizes = f.rows, f.columns, f.rank, f.alpha
            made[name] = LoKrLinear.with_shapes(layers[name], *sizes)
        else:
            made[name] = adapt(layers[name], f.rank, f.alpha, 0.0, f.kind, -1)
    by_layer = {id(layers[n]): adapter for n, adapter in made.items()}
    places = [
        (n, by_layer[id(m)])
        for n, m in linear_layers(model, duplicates=True)
        if n and id(m) in by_layer
    ]
    replace_layers(model, places, first=True)
    return made


def _fill(layer: AdaptedLinear, factors: Factors) -> None:
    """Copy factors into an adapter, scaled to its own alpha."""
    for name, x in factor_arrays(factors.folded(layer.scaling)).items():
        p = getattr(layer, name)
        copy_(p, asarray(x).to(p.device))
    layer._state_loaded()
