"""The state of one optimizer in one sealed file."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from ..errors import ArgumentError, CheckpointError
from . import disk, strict_json, tensor_file
from .paths import path_first
from .tree import Flattener, Restorer

if TYPE_CHECKING:
    from ..arrays.types import Device

FORMAT = "weft-optimizer/1"


class Saved(Protocol):
    """An object with a state: an optimizer."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, saved: dict[str, Any], /) -> None: ...


_O = TypeVar("_O", bound=Saved)


def save_optimizer(
    path: str | PathLike[str] | Saved, optimizer: str | PathLike[str] | Saved
) -> None:
    """Save what `optimizer.state_dict()` gives, atomically; the arguments go in either order.

    path       the file
    optimizer  the optimizer

    The file is a safetensors file with the numbers and the structure in its metadata.

    >>> import weft as wf
    >>> import tempfile
    >>> import weft as wf
    >>> from weft.optim import SGD
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.save_optimizer(f"{here}/sgd", SGD([wf.Parameter(wf.ones(2))], lr=0.5))
    ...     optimizer = wf.load_optimizer(f"{here}/sgd", SGD([wf.Parameter(wf.ones(2))], lr=0.1))
    >>> optimizer.param_groups[0]["lr"]
    0.5
    """
    where, source = path_first("save_optimizer", path, optimizer)
    _check_optimizer("save_optimizer", source)
    flattener = Flattener("state_dict")
    skeleton = flattener.skeleton(source.state_dict())
    metadata = {
        "weft.format": FORMAT,
        "weft.class": type(source).__name__,
        "weft.tree": strict_json.dumps(skeleton),
    }
    tensor_file.write_sealed(where, flattener.arrays, metadata)
    disk.sync_directory(where.parent)


@overload
def load_optimizer(
    path: str | PathLike[str], optimizer: type[_O] | _O, *, device: Device = "cpu"
) -> _O: ...
@overload
def load_optimizer(
    path: type[_O] | _O, optimizer: str | PathLike[str], *, device: Device = "cpu"
) -> _O: ...
def load_optimizer(path: Any, optimizer: Any, *, device: Device = "cpu") -> Any:
    """Load a saved state into an optimizer, and return it; the arguments go in either order.

    path       the file
    optimizer  one like that whose state was saved, or its class, which is then called without
               arguments
    device     where the tensors go

    >>> import weft as wf
    >>> import tempfile
    >>> adam = wf.optim.Adam([wf.Parameter([1.0])], lr=0.5)
    >>> with tempfile.TemporaryDirectory() as here:
    ...     wf.save_optimizer(f"{here}/adam", adam)
    ...     loaded = wf.load_optimizer(f"{here}/adam", wf.optim.Adam([wf.Parameter([1.0])]))
    >>> loaded.param_groups[0]["lr"]
    0.5
    """
    path, optimizer = path_first("load_optimizer", path, optimizer)
    cls = optimizer if isinstance(optimizer, type) else type(optimizer)
    _check_optimizer("load_optimizer", cls)
    state = _read(path, cls.__name__, device)
    optimizer = cls() if cls is optimizer else optimizer
    optimizer.load_state_dict(state)
    return optimizer


def _check_optimizer(what: str, optimizer) -> None:
    if not all(hasattr(optimizer, n) for n in ("state_dict", "load_state_dict")):
        raise ArgumentError(
            f"{what}: {optimizer!r:.80} has no state_dict() and load_state_dict(): expected an "
            "optimizer"
        )


def _read(path: Path, cls: str, device) -> Any:
    arrays, metadata = tensor_file.read_sealed(path)
    if metadata.get("weft.format") != FORMAT or "weft.tree" not in metadata:
        raise CheckpointError(
            f"{path}: format {metadata.get('weft.format')!r:.40}, this version reads {FORMAT!r}"
        )
    if metadata.get("weft.class") != cls:
        raise CheckpointError(
            f"{path}: the state of a {metadata.get('weft.class')!r:.40} cannot be loaded into "
            f"{cls!r}; make the optimizer that was saved"
        )
    skeleton = strict_json.loads(metadata["weft.tree"], str(path))
    return Restorer(arrays, device, str(path)).tree(skeleton)
