"""Tensors of a safetensors file one at a time, or some rows of one, each read when asked for."""

from __future__ import annotations

from os import fstat
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from ..backend.device import place
from ..core import dtypes
from ..core.value import wrap
from ..errors import ArgumentError, CheckpointError
from . import disk, tensor_file
from .header import Header

if TYPE_CHECKING:
    from os import PathLike

    from ..arrays.tensor import Tensor
    from ..arrays.types import Device


def open_safetensors(path: str | PathLike[str]) -> SafetensorsReader:
    """Open a safetensors file, of which tensors are read when they are asked for.

    path  the file

    The header is read and checked at once.

    >>> import tempfile
    >>> import weft as wf
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.io.save_safetensors(f"{here}/a", {"x": wf.arange(6.0).reshape(3, 2)})
    ...     with wf.io.open_safetensors(f"{here}/a") as file:
    ...         file.read("x", (1, 3)).tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """
    return SafetensorsReader(path)


class SafetensorsReader:
    """An open safetensors file: its header, and its tensors when they are asked for.

    path  the file

    Bytes are read into the tensors' own memory, and not mapped: a mapped file that shrinks ends
    the process.

    >>> import tempfile
    >>> import weft as wf
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.io.save_safetensors(f"{here}/a", {"x": wf.ones((2, 3))})
    ...     with wf.io.open_safetensors(f"{here}/a") as file:
    ...         file.header.entries["x"].shape
    (2, 3)
    """

    def __init__(self, path: str | PathLike[str]):
        self.path: Path = Path(path)
        with tensor_file.readable(self.path):
            self._file = disk.open_to_read(self.path)
        try:
            size = fstat(self._file.fileno()).st_size
            with tensor_file.readable(self.path):
                self.header: Header = tensor_file.header_of(self._file, size, str(self.path))
        except CheckpointError:
            self.close()
            raise
        self._start = len(self.header.raw)

    def read(
        self, name: str, rows: tuple[int, int] | None = None, *, device: Device = "cpu"
    ) -> Tensor:
        """A tensor, or some of its rows.

        name    the tensor's
        rows    the first of them, and the one after the last; None: the whole tensor
        device  where the tensor goes

        >>> import tempfile
        >>> import weft as wf
        >>> with tempfile.TemporaryDirectory() as here:
        ...     wf.io.save_safetensors(f"{here}/a", {"x": wf.tensor([1.0, 2.0])})
        ...     with wf.io.open_safetensors(f"{here}/a") as file:
        ...         file.read("x").tolist()
        [1.0, 2.0]
        """
        entry = self.header.entries.get(name)
        if entry is None or name in tensor_file.complex_names(self.header, str(self.path)):
            what = "no tensor" if entry is None else "the complex tensor"
            raise ArgumentError(
                f"{self.path}: {what} {name!r:.80}; load_safetensors reads all, complex ones too"
            )
        shape, begin = entry.shape, entry.begin
        if rows is not None:
            if not shape or not 0 <= rows[0] <= rows[1] <= shape[0]:
                raise ArgumentError(f"{self.path}: rows {rows} of {name!r:.80}, which is {shape}")
            row = (entry.end - entry.begin) // shape[0] if shape[0] else 0
            shape, begin = (rows[1] - rows[0], *shape[1:]), begin + rows[0] * row
        array = np.empty(shape, entry.dtype)
        with tensor_file.readable(self.path):
            self._file.seek(self._start + begin)
            tensor_file.read_exactly(self._file, tensor_file.bytes_of(array), str(self.path))
        if entry.dtype == dtypes.bool_:
            tensor_file.check_bools(name, array, str(self.path))
        return wrap(place(array, device))

    def close(self) -> None:
        """Close the file.

        >>> import tempfile
        >>> import weft as wf
        >>> with tempfile.TemporaryDirectory() as here:
        ...     wf.io.save_safetensors(f"{here}/a", {"x": wf.ones(2)})
        ...     wf.io.open_safetensors(f"{here}/a").close()
        """
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
