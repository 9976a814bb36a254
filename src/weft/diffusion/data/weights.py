"""Folders of weights on this machine: their identity, and their loading by other libraries."""

from __future__ import annotations

import os
from collections.abc import Mapping, Set
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, DatasetError
from ...io import SafetensorsReader, strict_json
from ...io.tensor_file import read_whole
from ..digests import FileDigests
from .encoders import digest_settings
from .folders import printable

_INDEX = ".safetensors.index.json"
_LONGEST = 50_000_000  # bytes of a JSON file
_CONTENT = (".safetensors", ".json", ".model", ".txt")


class WeightFolder:
    """A folder with a config and safetensors, or with a tokenizer's files.

    path     the folder
    what     what messages call it
    needs    endings of which the folder must have a file each
    digests  of files that are known
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        what: str,
        needs: tuple[str, ...],
        digests: FileDigests,
    ):
        self.path: Path = Path(path)
        self.what: str = what
        self._digests = digests
        if not self.path.is_dir():
            raise DatasetError(
                f"{what}: {printable(str(path))} is not a folder on this machine; nothing is "
                "fetched: give the folder that holds the downloaded files"
            )
        for ending in needs:
            if not any(name.endswith(ending) for name in self._names()):
                raise DatasetError(
                    f"{what}: the folder {printable(str(path))} has no file *{ending}; expected "
                    f"the files {', '.join(f'*{n}' for n in needs)} as downloaded"
                )

        self._check_headers()

    def _check_headers(self) -> None:
        """Raise if a file of weights is cut or damaged, or one that an index names is not there."""
        files = {name for name in self._names() if name.endswith(".safetensors")}
        there = {name: self._tensors(self.path / name) for name in sorted(files)}
        for name in self._names():
            if name.endswith(_INDEX):
                self._check_index(self.path / name, there)

    def _tensors(self, path: Path) -> Set[str]:
        try:
            with SafetensorsReader(path) as reader:
                return reader.header.entries.keys()
        except CheckpointError as e:
            raise DatasetError(f"{self.what}: {e.message}; get the file again") from None

    def _check_index(self, path: Path, there: Mapping[str, Set[str]]) -> None:
        found = strict_json.loads(read_whole(path, _LONGEST), str(path))
        places = found.get("weight_map") if isinstance(found, dict) else None
        if not isinstance(places, dict):
            raise DatasetError(f"{self.what}: {path}: expected names and files under weight_map")
        for tensor, name in places.items():
            if not isinstance(name, str) or tensor not in there.get(name, ()):
                raise DatasetError(
                    f"{self.what}: {path} says that {tensor!r:.80} is in {name!r:.80}, which is no "
                    "file of this folder with it; get the files again"
                )

    def _names(self) -> list[str]:
        found = [entry.name for entry in os.scandir(self.path) if entry.is_file()]
        return sorted(n for n in found if n.endswith(_CONTENT) and not n.startswith("."))

    def digest(self) -> str:
        """A digest of the names and the content of the files."""
        return digest_settings(files=[[n, self._digests.of(self.path / n)] for n in self._names()])

    def config(self) -> dict[str, Any]:
        """The folder's config.json."""
        path = self.path / "config.json"
        found = strict_json.loads(read_whole(path, 1 << 24), str(path))
        if not isinstance(found, dict):
            raise DatasetError(f"{self.what}: {printable(str(path))} holds no JSON object")
        return found

    def load(self, loader: Any, before: str, **options: Any) -> Any:
        """What a library loads from the folder, whose digest must be what it was before."""
        loaded = loader.from_pretrained(str(self.path), local_files_only=True, **options)
        if self.digest() != before:
            raise DatasetError(
                f"{self.what}: the files in {printable(str(self.path))} changed while they were "
                "loaded; run it again"
            )
        return loaded


def load_library(name: str, what: str) -> Any:
    """An optional library, imported when it is first needed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as e:
        raise DatasetError(f"{what}: needs {e.name}; pip install 'weft[diffusion,torch]'") from None


def free_device_memory(torch: Any, device: str) -> None:
    """Give the memory of dropped weights back to the device."""
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
