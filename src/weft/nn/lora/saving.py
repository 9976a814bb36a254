"""Saving the adapters of a model in the layouts of other programs, and reading the file back."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ...arrays.dtype_functions import finfo
from ...arrays.inplace import copy_
from ...arrays.make import asarray
from ...core import dtypes
from ...io.safetensors import save_safetensors
from ...transform.modes.backward import no_grad
from ..making import one_of
from .adapted import AdaptedLinear
from .factors import Factors, Kronecker, LowRank, stack
from .inject import adapted_layers, linear_layers
from .kronecker import factorize
from .loading import assign, factor_arrays
from .names import AdapterGroup, AdapterNames, names_of
from .reading import listed, read_adapter

if TYPE_CHECKING:
    from os import PathLike

    from ...arrays.types import DTypeLike
    from ..module import Module
    from .factors import Array


def save_lora(
    model: Module,
    path: str | PathLike[str],
    layout: str = "peft",
    dtype: DTypeLike | None = None,
    prefix: str = "transformer",
) -> None:
    """Save the adapters of a model, atomically, and read the file back.

    model   the module
    path    the file
    layout  "peft": `<prefix>.<name>.lora_A.weight`, for diffusers and PEFT; "kohya":
            `lora_unet_<name>.lora_down.weight`, for ComfyUI, kohya's and LyCORIS' programs, with
            the names of the original model where the model knows them
    dtype   of the tensors in the file; None: that of the adapters
    prefix  before the names in the layout "peft"; "": none

    The strength alpha/rank is multiplied into B, so that readers that know no alpha are right. In
    the layout "peft" alphas are written only where ranks differ, no metadata ever. An
    `AdapterWarning` names the layers whose update is 0 or not finite, that the file does not hold,
    or that a program which reads the layout is known to pass over.

    >>> import tempfile
    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(4, 2))
    >>> names = wf.nn.add_lora(model, rank=1)
    >>> model[0].lora_B = wf.Parameter(wf.ones((2, 1)))
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.nn.save_lora(model, f"{here}/a.safetensors")
    ...     list(wf.io.load_safetensors(f"{here}/a.safetensors"))
    ['transformer.0.lora_A.weight', 'transformer.0.lora_B.weight']
    """
    one_of("save_lora", "layout", layout, ("peft", "kohya"))
    layers = dict(linear_layers(model))
    adapters = {n: m for n, m in layers.items() if isinstance(m, AdaptedLinear)}
    if not adapters or "" in adapters:
        what = "the model is itself an adapter" if adapters else "the model has no adapters"
        raise errors.ArgumentError(f"save_lora: {what}; add some to a module with add_lora()")
    if dtype is not None and not dtypes.is_inexact(dtypes.canonical(dtype)):
        raise errors.DTypeError(f"save_lora: dtype {dtype!r}, expected a floating-point one")
    found = {n: read_factors(m) for n, m in adapters.items()}
    save_factors(found, model, layers, path, layout, dtype, prefix)


def save_factors(
    found: dict[str, Factors],
    model: Module,
    layers: dict[str, Any],
    path: str | PathLike[str],
    layout: str,
    dtype: DTypeLike | None = None,
    prefix: str = "transformer",
) -> None:
    """Save updates of a model's layers, which need no weights, and read the file back.

    found          the update of each layer that has one
    model, layers  the model, and its linear layers by name
    path, layout, dtype, prefix  as of `save_lora`
    """
    names = names_of(model, layers)
    folder = Path(path).parent
    if not folder.is_dir():
        raise errors.CheckpointNotFound(f"save_lora: no folder {folder}; create it first")
    if layout == "peft":
        arrays = _peft_arrays(found, f"{prefix}." if prefix else "")
        metadata = {}
    else:
        arrays = _kohya_arrays(found, names.groups, layers)
        metadata = _kohya_metadata(arrays)
    tensors = {n: _tensor(n, x, dtype) for n, x in arrays.items()}
    save_safetensors(path, tensors, metadata)
    inner = prefix if layout == "peft" else None
    faults = _faults_in_file(path, model, layers, found, inner)
    faults += _unread(names, layout, layers, found)
    if faults:
        lines = "\n  ".join(faults)
        warnings.warn(f"save_lora: {path}:\n  {lines}", errors.AdapterWarning, stacklevel=3)


def read_factors(layer: AdaptedLinear) -> Factors:
    """The update of an adapter as arrays."""
    arrays = [_array(getattr(layer, n)) for n in layer.adapters]
    if layer.kind == "lokr":
        return Kronecker(arrays[0], tuple(arrays[1:]), layer.scaling)
    a, b, *m = arrays
    return LowRank(a, b, layer.scaling * layer.rank, m[0] if m else None)


@contextmanager
def as_saved(model: Module, dtype: DTypeLike | None = None) -> Iterator[None]:
    """A block in which a model computes what it would with a file of its adapters.

    model  the module
    dtype  as of `save_lora`

    As in a file, alpha/rank is multiplied into a factor, and the factors are rounded to the dtype.
    """
    layers: list[Any] = list(adapted_layers(model).values())
    kept = [(m.alpha, [getattr(m, n).detach().clone() for n in m.adapters]) for m in layers]
    try:
        with no_grad():
            for m in layers:
                arrays = factor_arrays(read_factors(m).folded())
                m.alpha = m.rank
                for n in m.adapters:
                    p = getattr(m, n)
                    copy_(p, _tensor(n, arrays[n], dtype).to(p.dtype).to(p.device))
        yield
    finally:
        with no_grad():
            for m, (alpha, values) in zip(layers, kept, strict=True):
                m.alpha = alpha
                for n, x in zip(m.adapters, values, strict=True):
                    copy_(getattr(m, n), x)


def _array(p: Any) -> Array:
    wide = "float64" if p.dtype == dtypes.float64 else "float32"
    return np.asarray(p.detach().to("cpu").to(wide).numpy())


def _tensor(name: str, x: Array, dtype: DTypeLike | None) -> Any:
    # Alphas stay as they are: a rounded one would be another strength.
    tensor = asarray(np.asarray(x, order="C"))
    return tensor if dtype is None or name.endswith(".alpha") else tensor.to(dtype)


# The layout of PEFT and diffusers


def _peft_arrays(found: dict[str, Factors], prefix: str) -> dict[str, Array]:
    low = {n: f.folded() for n, f in found.items() if isinstance(f, LowRank)}
    low = _pad_alike(low)
    mixed = len({f.rank for f in low.values()}) > 1
    arrays: dict[str, Array] = {}
    for name, f in found.items():
        key = f"{prefix}{name}"
        if isinstance(f, Kronecker):
            arrays |= _kronecker_arrays(key, f.folded())
            continue
        f = low[name]
        arrays[f"{key}.lora_A.weight"] = f.a
        arrays[f"{key}.lora_B.weight"] = f.b
        if f.magnitude is not None:
            arrays[f"{key}.lora_magnitude_vector"] = f.magnitude
        if mixed:  # without it, diffusers took one alpha for all ranks until mid 2026
            arrays[f"{key}.alpha"] = np.asarray(f.alpha, np.float32)
    return arrays


def _pad_alike(low: dict[str, LowRank]) -> dict[str, LowRank]:
    """Give modules one rank if the name of one is the end of the other's.

    diffusers hands alphas to PEFT by name, and PEFT takes a name for all modules that end so:
    the alpha of `proj_out` for that of `single_transformer_blocks.0.proj_out`.
    """
    ranks = {n: f.rank for n, f in low.items()}
    for short in low:
        alike = [n for n in low if n == short or n.endswith(f".{short}")]
        most = max(ranks[n] for n in alike)
        ranks |= dict.fromkeys(alike, most)
    return {n: f if f.rank == ranks[n] else f.padded(ranks[n]) for n, f in low.items()}


def _kronecker_arrays(key: str, f: Kronecker) -> dict[str, Array]:
    names = ("lokr_w2",) if len(f.w2) == 1 else ("lokr_w2_a", "lokr_w2_b")
    return {
        f"{key}.lokr_w1": f.w1,
        **{f"{key}.{n}": w for n, w in zip(names, f.w2, strict=True)},
    }


# The layout of kohya and LyCORIS


def _kohya_arrays(
    found: dict[str, Factors], groups: Iterable[AdapterGroup], layers: dict[str, Any]
) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for name, f in found.items():
        if isinstance(f, Kronecker):  # LyCORIS' names: rows of fused layers are no products
            key = f"lycoris_{name.replace('.', '_')}"
            arrays |= _kronecker_arrays(key, f.folded())
            arrays[f"{key}.alpha"] = np.asarray(f.rank or 1, np.float32)
    for group in groups:
        whole = _fuse(group, found, layers)
        if whole is not None:
            whole = whole.swapped() if group.swap else whole
            key = f"lora_unet_{group.file.replace('.', '_')}"
            if f"{key}.alpha" in arrays:
                raise errors.ArgumentError(
                    f"save_lora: two layers would both be {key} in the layout 'kohya'; use 'peft'"
                )
            arrays[f"{key}.lora_down.weight"] = whole.a
            arrays[f"{key}.lora_up.weight"] = whole.b
            arrays[f"{key}.alpha"] = np.asarray(whole.alpha, np.float32)
            if whole.magnitude is not None:
                arrays[f"{key}.dora_scale"] = whole.magnitude.reshape(-1, 1)
    return arrays


def _fuse(group: AdapterGroup, found: dict[str, Factors], layers: dict[str, Any]) -> LowRank | None:
    """The update of a layer of the file; None if none of its parts has one."""
    parts: list[Any] = [found.get(p) for p in group.parts]
    kinds = {None if p is None else p.kind for p in parts} - {"lokr"}
    if kinds <= {None}:
        return None
    if len(kinds) > 1 and kinds != {None, "lora"}:
        has = ", ".join(
            f"{n}: {p.kind if p else 'none'}" for n, p in zip(group.parts, parts, strict=True)
        )
        raise errors.ArgumentError(
            f"save_lora: {group.file} is one layer in the layout 'kohya', whose magnitudes are for "
            f"all of it, but there are adapters of several kinds ({has}); use layout='peft'"
        )
    if len(parts) == 1:
        return parts[0].folded()
    low = [p if isinstance(p, LowRank) else None for p in parts]
    return stack(low, [layers[p].out_features for p in group.parts])


def _kohya_metadata(arrays: dict[str, Array]) -> dict[str, str]:
    """The rank and alpha as kohya's programs show them; their loaders read the tensors."""
    found = {float(x) for n, x in arrays.items() if n.endswith(".alpha")}
    text = f"{found.pop():g}" if len(found) == 1 else "Dynamic"
    return {"ss_network_dim": text, "ss_network_alpha": text}


# Reading back


def _faults_in_file(
    path: str | PathLike[str],
    model: Module,
    layers: dict[str, Any],
    found: dict[str, Factors],
    prefix: str | None,
) -> list[str]:
    """What a file does not hold of a model's adapters, or not as they are."""
    file = read_adapter(Path(path))
    faults = list(file.faults)
    saved = assign(file, model, layers, prefix, faults)
    # A product of two rounded factors, whose norm is a sum of like terms.
    near = max(8 * float(finfo(d).eps) for d in file.dtypes)
    missing, zero, infinite, other = [], [], [], []
    for name, f in found.items():
        norm = saved[name].norm() if name in saved else 0.0
        if name not in saved and f.norm() > 0:
            missing.append(name)
        elif not isfinite(norm):
            infinite.append(name)
        elif norm == 0:
            zero.append(name)
        elif abs(norm - f.norm()) > near * f.norm():
            other.append(name)
    for what, names in (
        ("not in the file", missing),
        ("an update that is not finite", infinite),
        ("an update of 0, which changes nothing", zero),
        ("another update in the file than in the model", other),
    ):
        faults += [f"{what}: {listed(names)}"] if names else []
    return faults


def _unread(
    names: AdapterNames, layout: str, layers: dict[str, Any], found: dict[str, Factors]
) -> list[str]:
    kinds = {n: f.kind for n, f in found.items()}
    faults = names.unread(layout, kinds, {n: m.out_features for n, m in layers.items()})
    lokr = [n for n, k in kinds.items() if k == "lokr"]
    if layout == "peft" and lokr and len(lokr) < len(kinds):
        faults.append(f"PEFT and diffusers read LoKr in files of its own only: {listed(lokr)}")
    elif layout == "peft" and lokr and not _peft_factor(found.values()):
        faults.append(
            "PEFT and diffusers split widths by one factor for all layers, which these shapes of "
            f"LoKr do not come from: {listed(lokr)}"
        )
    return faults


def _peft_factor(found: Iterable[Any]) -> bool:
    """Whether PEFT's rule gives all the shapes for one factor, or for none (−1)."""
    pairs = [p for f in found for p in (f.rows, f.columns)]
    return any(all(_split(m * n, k) == (m, n) for m, n in pairs) for k in (-1, *_firsts(pairs)))


def _firsts(pairs: list[tuple[int, int]]) -> set[int]:
    return {m for m, _ in pairs[::2]}


def _split(width: int, factor: int) -> tuple[int, int]:
    # LyCORIS puts the smaller factor first, PEFT the one that is given.
    divides = factor > 0 and width % factor == 0
    return (factor, width // factor) if divides else factorize(width, factor)
