"""The blocks of a transformer in 8 bits: quantised while they are read, and kept on disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import weft as wf

from .. import errors
from ..core import dtypes
from ..io import disk, strict_json, tensor_file
from ..io.directory import remove_unfinished
from ..io.durable import make_directories
from ..io.lock import locked
from ..nn.quantised import BLOCK
from .config import FluxConfig
from .digests import FileDigests
from .finite import is_finite
from .making import shapes

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import Device, DTypeLike

Model = TypeVar("Model", bound=wf.nn.Module)

_BLOCKS = ("transformer_blocks.", "single_transformer_blocks.")
VERSION = 1  # of what is kept: codes, scales and their meaning


def is_quantised(name: str) -> bool:
    """Whether a linear layer is stored in 8 bits: all of the blocks are."""
    return name.startswith(_BLOCKS)


class Quantised:
    """The 8-bit weights of files, which a folder keeps for the next time.

    paths   the files
    config  the sizes
    dtype   of the parameters that are not in 8 bits
    folder  where the weights are kept; None: nowhere
    """

    def __init__(
        self, paths: list[Path], config: FluxConfig, dtype: DTypeLike, folder: Path | None
    ):
        self._paths, self._config, self._folder = paths, config, folder
        self._dtype = dtypes.canonical(dtype)

    def load(
        self, build: Callable[[], Model], source: Callable[[str], Tensor], device: Device | None
    ) -> Model:
        """The model with weights from the folder, or from the files.

        build   makes a model whose parameters have no elements
        source  gives the weights in the files by name
        """
        entry = None if self._folder is None else self._entry(self._folder)
        if entry is not None and entry.is_file():
            try:
                return _restore(build(), entry, "cpu" if device is None else device)
            except errors.CheckpointError as e:
                warnings.warn(
                    f"{entry.name}: not used, the weights are quantised again: {e.message}",
                    errors.CacheWarning,
                    stacklevel=4,
                )
        model = build()
        _quantise(model, source)
        if entry is not None:
            self._keep(model, entry)
        return model

    def _entry(self, folder: Path) -> Path:
        """The file of these contents and settings."""
        make_directories(folder)
        digests = FileDigests(folder / "digests.json")
        key = {
            "version": VERSION,
            "block": BLOCK,
            "dtype": self._dtype.name,
            "config": self._config.to_dict(),
            "sources": [digests.of(path) for path in self._paths],
        }
        return folder / f"{sha256(strict_json.dumps(key).encode()).hexdigest()}.safetensors"

    @staticmethod
    def _keep(model: wf.nn.Module, entry: Path) -> None:
        arrays: dict[str, Any] = {name: x._data for name, x in model.state_dict().items()}
        try:
            with locked(entry.parent):
                remove_unfinished(entry.parent)
                tensor_file.write_sealed(entry, arrays, {})
                disk.sync_directory(entry.parent)
        except (OSError, errors.CheckpointLocked) as e:
            reason = e.message if isinstance(e, errors.WeftError) else e.strerror or e
            warnings.warn(
                f"{entry.parent}: the 8-bit weights cannot be kept, the next load quantises them "
                f"again: {reason}",
                errors.CacheWarning,
                stacklevel=5,
            )


def _quantise(model: wf.nn.Module, source: Callable[[str], Tensor]) -> None:
    for name in shapes(model):
        where, _, last = name.rpartition(".")
        layer: Any = model.get_submodule(where)
        setattr(layer, last, wf.Parameter(source(name)))
        # A layer's bias comes after its weight.
        if last == "bias" and is_quantised(where):
            _replace(model, where, wf.nn.Linear8bit.from_linear(layer))


def _replace(model: wf.nn.Module, name: str, layer: wf.nn.Module) -> None:
    where, _, last = name.rpartition(".")
    setattr(model.get_submodule(where), last, layer)


def _restore(model: Model, entry: Path, device: Device) -> Model:
    """The model with the weights of a file that was kept; raises if it is not what was written."""
    for name, layer in list(model.named_modules()):
        if type(layer) is wf.nn.Linear and is_quantised(name):
            made = wf.nn.Linear8bit(0, 0)
            made.in_features, made.out_features = layer.in_features, layer.out_features
            _replace(model, name, made)
    wanted = set(model.state_dict())
    for name, array in tensor_file.stream_sealed(entry):
        if name not in wanted:
            raise errors.CheckpointError(f"{entry}: {name!r:.80} does not belong to the model")
        wanted.discard(name)
        where, _, last = name.rpartition(".")
        layer, value = model.get_submodule(where), wf.asarray(array).to(device)
        if last != "codes" and not is_finite(value):
            raise errors.CheckpointError(f"{entry}: {name} is not finite")
        if last in ("codes", "scales"):
            setattr(layer, last, value)
        else:
            frozen = isinstance(layer, wf.nn.Linear8bit)
            setattr(layer, last, wf.Parameter(value, requires_grad=not frozen))
    if wanted:
        raise errors.CheckpointError(f"{entry}: {len(wanted)} weights are missing")
    return model
