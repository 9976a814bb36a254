"""PyTorch's tensors, for the compiler."""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial
from sys import getrefcount
from typing import Any, cast

import numpy as np
import torch

from ...backend.torch import namespace as torch_
from ...core import dtypes
from ...core.aval import Shape
from .references import alone_check


class TorchArrays:
    """The tensors of one device; `on` gives the one object of a device."""

    kind = torch.Tensor
    owner = staticmethod(torch_.owner)
    is_frozen = staticmethod(torch_.is_frozen)
    overwrite = staticmethod(torch_.overwrite)
    dtype_of = staticmethod(torch_.dtype_of)
    raw_dtype = staticmethod(torch_.raw_dtype)
    address = staticmethod(torch.Tensor.data_ptr)

    def __init__(self, device: str):
        self.device = device
        self.where: torch.device = torch_.torch_device(device)
        self.host_runtime = self.where.type == "cpu"

    @staticmethod
    @lru_cache(maxsize=None)
    def on(device: str) -> "TorchArrays":
        """The tensors of a device."""
        return TorchArrays(device)

    def meets(self, raws: Iterable[torch.Tensor], owners: Collection[int]) -> bool:
        for raw in raws:
            if _storage(raw).data_ptr() in owners:  # `owner`, without a call of it
                return True
        return False

    def shares_memory(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        return np.shares_memory(_places(a), _places(b))

    def drop_shared(self, raws: Iterable[torch.Tensor | None]) -> list[torch.Tensor | None]:
        held, are_alone = [*raws], alone_check()
        if are_alone is not None and are_alone(held):
            return held
        fewest = _fewest_references()
        return [x if x is not None and _references(x) == fewest else None for x in held]

    def empty(self, shape: Shape, dtype: np.dtype) -> torch.Tensor:
        return torch.empty(shape, dtype=torch_.raw_dtype(dtype), device=self.where)

    def maker(self, shape: Shape, dtype: np.dtype) -> Callable[[], torch.Tensor]:
        raw, quick = torch_.raw_dtype(dtype), _quick_empty(self.where.type)
        if quick is None:
            return partial(torch.empty, shape, dtype=raw, device=self.where)
        return partial(quick, shape, torch.empty(shape, device="meta").stride(), raw)

    def zeros(self, shape: Shape, dtype: np.dtype) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch_.raw_dtype(dtype), device=self.where)

    def copy(self, raw: torch.Tensor) -> torch.Tensor:
        return raw.detach().clone(memory_format=torch.contiguous_format)

    def whole(self, value: Any) -> torch.Tensor:
        is_tensor = isinstance(value, torch.Tensor)
        return value if is_tensor else torch_.from_any(value, self.device)

    def note_write(self, raws: Sequence[torch.Tensor]) -> None:
        try:
            _count_writes(raws)
        except RuntimeError:  # an inference tensor has no versions: a count too many does no harm
            _count_writes([raw for raw in raws if not raw.is_inference()])

    def is_here(self, raw: torch.Tensor) -> bool:
        return raw.device == self.where

    def obstacle(self, raw: torch.Tensor, writes: bool) -> str:
        if not self.is_here(raw):
            return f"it is on {raw.device}"
        if raw.is_neg() or raw.is_conj():
            return "PyTorch negates or conjugates it only where it is read"
        if not raw.is_contiguous():
            return "it is not laid out row by row"
        if raw.data_ptr() % raw.element_size():
            return "it is misaligned"
        return "its memory is read-only" if writes and torch_.is_frozen(raw) else ""

    def view(self, raw: torch.Tensor) -> np.ndarray:
        if raw.requires_grad:
            raw = raw.detach()
        if raw.is_neg() or raw.is_conj():
            raw = raw.resolve_neg().resolve_conj()
        if raw.dtype is torch.bfloat16:
            return raw.view(torch.int16).numpy().view(dtypes.bfloat16)
        return raw.numpy()

    def of_view(self, array: np.ndarray) -> torch.Tensor:
        if array.dtype == dtypes.bfloat16:
            return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).detach()
        return torch.from_numpy(array)


def _quick_empty(kind: str) -> Callable[..., torch.Tensor] | None:
    """PyTorch's own short cut for generated code, on the current device of a kind.

    It takes a third of the time of `torch.empty`.
    """
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    return getattr(guards, f"_empty_strided_{kind}", None)


_storage: Callable[[torch.Tensor], Any] = torch.Tensor.untyped_storage
_storage_users: Callable[[int], int] = torch._C._storage_Use_Count
_tensor_users: Callable[[torch.Tensor], int] = cast(Any, torch.Tensor)._use_count
# What `torch.autograd.graph.increment_version` calls for several tensors.
_count_writes: Callable[[Sequence[torch.Tensor]], None] = torch._C._increment_version


def _references(raw: torch.Tensor) -> tuple[int, int, int]:
    """How many hold the storage of a tensor, Python's object of that storage, and the tensor.

    Each tensor on a storage counts (also what a view is of), and so do Python's object of it and
    who holds that. References to Python's object of the tensor do not.
    """
    storage = _storage(raw)
    return _storage_users(storage._cdata), getrefcount(storage), _tensor_users(raw)


@lru_cache(maxsize=1)
def _fewest_references() -> tuple[int, int, int]:
    """The references of a new tensor, which differ between versions of PyTorch."""
    return _references(torch.empty(1))


class _Interface:
    """An object that NumPy makes an array of."""

    def __init__(self, interface: dict[str, Any]):
        self.__array_interface__ = interface


def _places(raw: torch.Tensor) -> np.ndarray:
    """An array at the addresses of a tensor's elements, which may be a GPU's: nothing reads it."""
    size = raw.element_size()
    interface = {
        "version": 3,
        "data": (raw.data_ptr(), True),
        "shape": tuple(raw.shape),
        "strides": tuple([s * size for s in raw.stride()]),
        "typestr": f"|V{size}",
    }
    return np.asarray(_Interface(interface))
