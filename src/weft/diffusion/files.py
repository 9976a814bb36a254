"""Where the weights of a transformer are: one file, or the shards of a folder of diffusers."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .. import errors
from ..io import SafetensorsReader, strict_json, tensor_file
from ..io.header import TensorEntry
from .config import CLASS_NAME, FluxConfig

if TYPE_CHECKING:
    from os import PathLike

    from ..arrays.tensor import Tensor
    from ..arrays.types import Device

CONFIG = "config.json"
STEM = "diffusion_pytorch_model"
INDEX = ".safetensors.index.json"
_PREFIXES = ("model.diffusion_model.", "diffusion_model.", "transformer.")
# The parts of a whole pipeline in one file, beside a transformer with the first prefix.
_BESIDE = ("vae.", "text_encoders.", "first_stage_model.", "cond_stage_model.", "conditioner.")
# Of the config.json of language models.
_OF_OTHERS = ("model_type", "architectures")
_SHARD = re.compile(r".+-\d{5}-of-(\d{5})\.safetensors")
_LONGEST = 50_000_000  # bytes of a JSON file


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    found = strict_json.loads(tensor_file.read_whole(path, _LONGEST), str(path))
    if not isinstance(found, dict):
        raise errors.CheckpointError(f"{path}: expected a JSON object, found {str(found)[:80]!r}")
    return found


def find_files(path: str | PathLike[str]) -> tuple[list[Path], FluxConfig | None]:
    """The safetensors files of a transformer, and its config where there is one."""
    path = Path(path)
    stated = stated_config(path)
    if path.is_dir():
        return _shards(_config_folder(path)), stated
    shard = _SHARD.fullmatch(path.name)
    if shard is not None and int(shard[1]) > 1:
        raise errors.CheckpointError(f"{path}: one of {int(shard[1])} shards; give their folder")
    return [path], stated


def stated_config(path: str | PathLike[str]) -> FluxConfig | None:
    """The config of a folder, whose weights need not be there, or that beside a file.

    None: there is none beside the file, or it is that of another kind of model.
    """
    path = Path(path)
    if path.is_dir():
        place = _config_folder(path) / CONFIG
        return _read_config(place, read_object(place))
    place = path.parent / CONFIG
    if not place.is_file():
        return None
    values = read_object(place)
    other = any(name in values for name in _OF_OTHERS)
    if values.get("_class_name", CLASS_NAME) != CLASS_NAME or other:
        return None
    return _read_config(place, values)


def has_weights(path: str | PathLike[str]) -> bool:
    """Whether there are files of weights: a folder may have its config alone.

    path  as of `Flux.load`
    """
    path = Path(path)
    if not path.is_dir():
        return path.exists()
    folder = _config_folder(path)
    return any([*folder.glob("*.safetensors"), *folder.glob(f"*{INDEX}")])


def _read_config(place: Path, values: dict[str, Any]) -> FluxConfig:
    try:
        return FluxConfig.from_dict(values)
    except errors.ArgumentError as e:
        raise errors.ArgumentError(f"{place}: {e.message}") from None


def _config_folder(path: Path) -> Path:
    folders = [f for f in (path, path / "transformer") if (f / CONFIG).is_file()]
    if not folders:
        raise errors.CheckpointNotFound(
            f"{path}: no {CONFIG} in it, nor in a folder `transformer` of it; expected a folder "
            "that diffusers has saved, or the path of a safetensors file"
        )
    return folders[0]


def _shards(folder: Path) -> list[Path]:
    for ending in (INDEX, ".safetensors"):
        found = sorted(folder.glob(f"*{ending}"))
        usual = folder / f"{STEM}{ending}"
        found = [usual] if usual in found else found
        if len(found) > 1:
            names = ", ".join(f.name for f in found[:8])
            raise errors.CheckpointError(
                f"{folder}: which of {names} is meant? Pass the path of that file, and config="
            )
        if found:
            return _read_index(found[0]) if ending == INDEX else found
    raise errors.CheckpointNotFound(f"{folder}: a {CONFIG}, but no safetensors file")


def _read_index(path: Path) -> list[Path]:
    """The shards in an index; their names stay in its folder."""
    places = read_object(path).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise errors.CheckpointError(f"{path}: expected names and files under weight_map")
    for name in places.values():
        plain = isinstance(name, str) and Path(name).name == name and name not in ("", "..")
        if not plain or "\\" in name or "\0" in name:
            raise errors.CheckpointError(
                f"{path}: the shard {str(name)[:80]!r}, expected the name of a file in the same "
                "folder"
            )
    return [path.parent / name for name in sorted(set(places.values()))]


class Weights:
    """The weights in open files by name, without the prefix that all of them have.

    paths  the safetensors files

    Use it as a context, which closes the files.
    """

    def __init__(self, paths: list[Path]):
        self.where: str = str(paths[0]) if len(paths) == 1 else str(paths[0].parent)
        self.entries: dict[str, TensorEntry] = {}
        self._found: dict[str, tuple[SafetensorsReader, str]] = {}
        self._open = ExitStack()
        with ExitStack() as opening:
            readers = [opening.enter_context(SafetensorsReader(p)) for p in paths]
            for reader in readers:
                self._add(reader)
            self._open = opening.pop_all()

    def _add(self, reader: SafetensorsReader) -> None:
        entries = reader.header.entries
        prefix = next((p for p in _PREFIXES if any(n.startswith(p) for n in entries)), "")
        for stored, entry in entries.items():
            if prefix == _PREFIXES[0] and stored.startswith(_BESIDE):
                continue
            name = stored.removeprefix(prefix)
            if name in self._found:
                raise errors.CheckpointError(f"{reader.path}: a second weight {name[:80]!r}")
            self._found[name], self.entries[name] = (reader, stored), entry

    def read(self, name: str, rows: tuple[int, int], device: Device) -> Tensor:
        """Some rows of a weight, on a device."""
        reader, stored = self._found[name]
        return reader.read(stored, rows, device=device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()
