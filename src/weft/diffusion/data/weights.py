"""Folders of weights on this machine: their identity, and their loading by other libraries."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Any

from ...errors import DatasetError
from ...io import strict_json
from ...io.tensor_file import read_whole
from ..digests import FileDigests
from .encoders import digest_settings
from .folders import printable

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
