"""Reading adapter files: the keys of all layouts, and the update of each of their modules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ...core import dtypes
from ...core.record import record
from ...io.safetensors import load_safetensors, read_header
from .factors import Factors, Kronecker, LowRank
from .strength import Strength, read_strength

if TYPE_CHECKING:
    from os import PathLike

    from .factors import Array

_ROLES = {
    **{"lora_A": "a", "lora_down": "a", "lora.down": "a"},
    **{"lora_B": "b", "lora_up": "b", "lora.up": "b"},
    **{"lora_magnitude_vector": "magnitude", "dora_scale": "magnitude", "alpha": "alpha"},
    **{n: n for n in ("w1", "w1_a", "w1_b", "w2", "w2_a", "w2_b")},
}
# A module, what of it, perhaps the name of an adapter (of which PEFT holds several).
_KEY = re.compile(
    r"(?P<module>.+)\.(?:"
    r"(?P<pair>lora_[AB]|lora_down|lora_up|lora\.down|lora\.up)(?:\.(?P<adapter>[^.]+))?\.weight|"
    r"(?P<magnitude>lora_magnitude_vector)(?:\.(?P<adapter2>[^.]+?))??(?:\.weight)?|"
    r"lokr_(?P<kron>w[12](?:_[ab])?)(?:\.(?P<adapter3>[^.]+?))??|"
    r"(?P<scalar>alpha|dora_scale))"
)
# Layers of text encoders beside those of a transformer: kohya's, and diffusers' names.
_TEXT = re.compile(r"(?:lora_te\d*_|text_encoders?(?:_\d)?\.|te\d?\.).+")
_FILES = ("adapter_model.safetensors", "pytorch_lora_weights.safetensors")
_FOREIGN = ("lora_down", "lora_up", "dora_scale")  # spellings that PEFT does not have


@record(eq=False)
class AdapterFile:
    """What a file holds: the update of each module, and what of it is not understood."""

    path: Path
    layout: str  # "peft" or "kohya"
    modules: dict[str, Factors]
    dtypes: tuple[str, ...]
    metadata: dict[str, str]
    faults: list[str]

    @property
    def text_modules(self) -> list[str]:
        """The modules that by their names are text encoders'."""
        return [name for name in self.modules if _TEXT.fullmatch(name)]


def read_adapter(path: str | PathLike[str]) -> AdapterFile:
    """Read a file, or the one in a folder of PEFT's or diffusers'."""
    path = find_adapter(Path(path))
    tensors, metadata = load_safetensors(path), read_header(path).metadata
    faults: list[str] = []
    raw, spellings = _group(tensors, faults)
    strength = read_strength(path, metadata)
    modules: dict[str, Factors] = {}
    for name, roles in raw.items():
        try:
            modules[name] = _factors(name, roles, strength)
        except errors.CheckpointError as e:  # all of them are reported together
            faults.append(f"{name}: {e.message}")
    if not raw:
        faults.append("no adapter in it")
    underscored = any(m.startswith(("lora_", "lycoris_")) and "." not in m for m in raw)
    layout = "kohya" if underscored or spellings & set(_FOREIGN) else "peft"
    kinds = tuple(sorted({t.dtype.name for n, t in tensors.items() if not n.endswith(".alpha")}))
    return AdapterFile(path, layout, modules, kinds, dict(metadata), faults)


def find_adapter(path: Path) -> Path:
    """The file itself, or the one in a folder of PEFT's or diffusers'."""
    if not path.is_dir():
        return path
    found = [path / n for n in _FILES if (path / n).is_file()]
    if len(found) != 1:
        raise errors.CheckpointNotFound(
            f"load_lora: {path} is a folder with {'both' if found else 'neither'} of "
            f"{' and '.join(_FILES)}; give the file"
        )
    return found[0]


def _group(
    tensors: Mapping[str, Any], faults: list[str]
) -> tuple[dict[str, dict[str, Array]], set[str]]:
    """The arrays of each module by role, and the spellings of roles that occurred."""
    raw: dict[str, dict[str, Array]] = {}
    spellings, adapters, unknown = set(), set(), []
    for key, tensor in tensors.items():
        m = _KEY.fullmatch(key)
        if m is None:
            unknown.append(key)
            continue
        spelling = m["pair"] or m["magnitude"] or m["kron"] or m["scalar"]
        spellings.add(spelling)
        adapters.add(m["adapter"] or m["adapter2"] or m["adapter3"])
        roles = raw.setdefault(m["module"], {})
        if _ROLES[spelling] in roles:
            faults.append(f"{key}: another key says the same of {m['module']}")
        elif spelling != "alpha" and (
            not dtypes.is_inexact(tensor.dtype) or dtypes.is_complex(tensor.dtype)
        ):
            faults.append(f"{key}: of dtype {tensor.dtype}, expected floating-point numbers")
        else:
            wide = "float64" if tensor.dtype == dtypes.float64 else "float32"
            roles[_ROLES[spelling]] = np.asarray(tensor.to(wide).numpy())
    if unknown:
        faults.append(f"unexpected keys: {', '.join(unknown)}")
    if len(adapters - {None}) > 1:
        faults.append(f"several adapters in one file: {', '.join(sorted(adapters - {None}))}")
    return raw, spellings


def _factors(name: str, roles: dict[str, Array], strength: Strength | None) -> Factors:
    alpha = roles.pop("alpha", None)
    if alpha is not None and (alpha.size != 1 or not np.isfinite(alpha).all() or not alpha.all()):
        raise errors.CheckpointError(f"alpha {alpha.tolist()}, expected one number other than 0")
    if alpha is not None and strength is not None:
        raise errors.CheckpointError("an alpha of its own, and another one in the metadata")
    value = None if alpha is None else float(alpha.reshape(()))
    bad = {r: x.shape for r, x in roles.items() if r != "magnitude" and x.ndim != 2}
    if bad:
        r, shape = next(iter(bad.items()))
        raise errors.CheckpointError(f"{r} of shape {shape}, expected a matrix")
    if roles.keys() <= {"a", "b", "magnitude"}:
        return _low_rank(name, roles, value, strength)
    return _kronecker(name, roles, value, strength)


def _low_rank(
    name: str, roles: dict[str, Array], alpha: float | None, strength: Strength | None
) -> LowRank:
    if not {"a", "b"} <= roles.keys():
        raise errors.CheckpointError(
            f"{' and '.join(roles) or 'alpha'} alone, expected both factors (lora_A and lora_B, or "
            "lora_down and lora_up)"
        )
    a, b, m = roles["a"], roles["b"], roles.get("magnitude")
    if a.shape[0] != b.shape[1] or a.shape[0] == 0:
        raise errors.CheckpointError(f"factors {a.shape} and {b.shape}, expected one rank")
    if m is not None and m.shape not in ((b.shape[0],), (b.shape[0], 1)):
        raise errors.CheckpointError(
            f"magnitudes of shape {m.shape}, expected one for each of the {b.shape[0]} outputs"
        )
    given = float(a.shape[0]) if alpha is None else alpha
    if strength is not None:
        given = a.shape[0] * strength.scale(name, a.shape[0])
    return LowRank(a, b, given, None if m is None else m.reshape(-1))


def _kronecker(
    name: str, roles: dict[str, Array], alpha: float | None, strength: Strength | None
) -> Kronecker:
    first = _whole_or_pair(roles, "w1")
    second = _whole_or_pair(roles, "w2")
    if roles:
        raise errors.CheckpointError(f"{', '.join(roles)} beside the factors of a LoKr")
    ranks = [p[0].shape[1] for p in (first, second) if len(p) == 2]
    scale = 1.0
    if strength is not None:
        scale = strength.scale(name, ranks[0] if ranks else None)
    elif alpha is not None and ranks:  # LyCORIS scales by no alpha where both are whole
        scale = alpha / ranks[0]
    w1 = first[0] if len(first) == 1 else first[0] @ first[1]
    made = Kronecker(w1, second, scale)
    return made.folded() if len(second) == 1 else made


def _whole_or_pair(roles: dict[str, Array], name: str) -> tuple[Array, ...]:
    names = [n for n in (name, f"{name}_a", f"{name}_b") if n in roles]
    if names not in ([name], [f"{name}_a", f"{name}_b"]):
        raise errors.CheckpointError(
            f"{' and '.join(names) or 'nothing'} of lokr_{name}, expected it, or its _a and _b"
        )
    found = tuple(roles.pop(n) for n in names)
    if len(found) == 2 and found[0].shape[1] != found[1].shape[0]:
        raise errors.CheckpointError(
            f"factors {found[0].shape} and {found[1].shape} of lokr_{name}, expected one rank"
        )
    return found


@record
class AdapterSummary:
    """What a module of a file has: `norm` is that of its update, scale and all."""

    kind: str
    shape: tuple[int, int]
    rank: int | None
    alpha: float
    norm: float


@record
class LoRASummary:
    """What an adapter file holds; `faults` lists what is not understood."""

    layout: str
    modules: dict[str, AdapterSummary]
    dtypes: tuple[str, ...]
    metadata: dict[str, str]
    faults: list[str]

    @property
    def problems(self) -> list[str]:
        """What is wrong with the file, a line each: faults, and updates that are no use."""
        zero = [n for n, m in self.modules.items() if m.norm == 0]
        bad = [n for n, m in self.modules.items() if not isfinite(m.norm)]
        found = [f"an update of 0, which changes nothing: {listed(zero)}"] if zero else []
        found += [f"an update that is NaN or infinite: {listed(bad)}"] if bad else []
        return [*self.faults, *found]


def listed(names: list[str]) -> str:
    """The first of some names, and how many more there are."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def lora_summary(path: str | PathLike[str]) -> LoRASummary:
    """Layout, modules, ranks, alphas, norms, dtypes and metadata of an adapter file.

    path  the file, or a folder of PEFT's or diffusers'

    >>> import tempfile
    >>> import weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(4, 2))
    >>> names = wf.nn.add_lora(model, rank=2)
    >>> model[0].lora_B = wf.Parameter(wf.ones((2, 2)))
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.nn.save_lora(model, f"{here}/a.safetensors")
    ...     found = wf.nn.lora_summary(f"{here}/a.safetensors")
    >>> found.layout, found.modules["transformer.0"].rank, found.modules["transformer.0"].alpha
    ('peft', 2, 2.0)
    """
    file = read_adapter(path)
    modules = {
        name: AdapterSummary(f.kind, f.shape, f.rank, f.alpha, f.norm())
        for name, f in file.modules.items()
    }
    return LoRASummary(file.layout, modules, file.dtypes, file.metadata, file.faults)
