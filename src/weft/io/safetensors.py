"""Plain dicts of tensors in safetensors files, for other programs too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..arrays.tensor import Tensor
from ..backend.device import canonical_device, place
from ..core.value import GROUND, wrap
from ..errors import ArgumentError
from . import disk, tensor_file
from .header import Header, named_properly
from .paths import path_first

if TYPE_CHECKING:
    from os import PathLike

    from ..arrays.types import Device


def save_safetensors(
    path: str | PathLike[str],
    tensors: Mapping[str, Tensor],
    metadata: dict[str, str] | None = None,
) -> None:
    """Save tensors under their names, atomically; the first two arguments go in either order.

    path      the file
    tensors   tensors or arrays by name
    metadata  texts by name; None: none

    Complex tensors are stored as their real view, with a last axis of two, and listed in the
    metadata under `weft.complex`.

    >>> import weft as wf
    >>> import tempfile
    >>> import weft as wf
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.io.save_safetensors(f"{here}/a.safetensors", {"x": wf.ones(2, dtype="bfloat16")})
    ...     wf.io.load_safetensors(f"{here}/a.safetensors")
    {'x': tensor([1., 1.], dtype=bfloat16)}
    """
    path, tensors = path_first("save_safetensors", path, tensors)
    metadata = {} if metadata is None else metadata
    for name, tensor in tensors.items():
        _check(name, tensor)
    for key, value in metadata.items():
        if type(key) is not str or type(value) is not str or key.startswith(tensor_file.OWN):
            raise ArgumentError(
                f"save_safetensors: metadata {key!r}: {value!r:.80}, expected strings, and keys "
                f"that do not begin with {tensor_file.OWN!r}"
            )
    tensor_file.write_plain(path, {n: t._data for n, t in tensors.items()}, metadata)
    disk.sync_directory(path.parent)


def _check(name, tensor) -> None:
    if type(name) is not str or not named_properly(name):
        raise ArgumentError(
            f"save_safetensors: a tensor named {name!r:.80}, expected a line of text"
        )
    if type(tensor) not in GROUND:
        raise ArgumentError(
            f"save_safetensors: {name!r} is a {type(tensor).__name__}, expected a tensor, "
            "outside of jvp and vmap"
        )


def load_safetensors(path: str | PathLike[str], *, device: Device = "cpu") -> dict[str, Tensor]:
    """The tensors of a safetensors file by name; the file is checked before memory is taken.

    path    the file
    device  where the tensors go

    >>> import weft as wf
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.io.save_safetensors(f"{here}/a", {"x": wf.ones(2)})
    ...     wf.io.load_safetensors(f"{here}/a")["x"].tolist()
    [1.0, 1.0]
    """
    device = canonical_device(device)
    arrays = tensor_file.read_plain(Path(path))
    return {name: wrap(place(raw, device)) for name, raw in arrays.items()}


def read_header(path: str | PathLike[str]) -> Header:
    """Names, dtypes, shapes and metadata of a safetensors file, without its tensors.

    path  the file

    >>> import weft as wf
    >>> import tempfile
    >>> import weft as wf
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.io.save_safetensors(f"{here}/a", {"x": wf.ones((2, 3))}, {"author": "me"})
    ...     header = wf.io.read_header(f"{here}/a")
    >>> header.entries["x"].shape, header.metadata
    ((2, 3), {'author': 'me'})
    """
    return tensor_file.read_header(Path(path))
