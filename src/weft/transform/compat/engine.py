"""The seeds' names for recording, differentiating and clearing: thin, stateless wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...arrays.make import tensor
from ...backend.device import canonical_device
from ..modes.backward import backward, enable_grad, no_grad
from ..modes.inspect import clear_tape, graph_of, memory_stats

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, Device
    from ..modes.backward import SettingsBlock
    from ..modes.gradient_map import GradientMap
    from ..modes.inspect import Entry, MemoryStats


class AutogradContext:
    """Switches recording; as a block it records, also inside `no_grad()`.

    device  where its tensors are

    >>> import weft as wf
    >>> x = wf.tensor([1.0], requires_grad=True)
    >>> with wf.AutogradContext.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    no_grad: staticmethod[[], SettingsBlock] = staticmethod(no_grad)
    enable_grad: staticmethod[[], SettingsBlock] = staticmethod(enable_grad)
    clear: staticmethod[[], None] = staticmethod(clear_tape)
    memory_stats: staticmethod[[], MemoryStats] = staticmethod(memory_stats)
    device: str

    def __init__(self, device: Device = "cpu"):
        self.device = canonical_device(device)

    def __enter__(self) -> "AutogradContext":
        self._block = enable_grad()
        self._block.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._block.__exit__(*exc)

    def tensor(self, data: ArrayLike, requires_grad: bool = True) -> Tensor:
        """A tensor on this context's device.

        data           numbers, an array or a tensor
        requires_grad  whether it is a leaf to differentiate by

        >>> import weft as wf
        >>> wf.AutogradContext().tensor([1.0])
        tensor([1.], requires_grad=True)
        """
        return tensor(data, requires_grad, device=self.device)


class AutogradEngine(AutogradContext):
    """An `AutogradContext` that also runs backward passes and lists what was recorded.

    device  where its tensors are

    >>> import weft as wf
    >>> engine = wf.AutogradEngine()
    >>> x = engine.tensor([3.0])
    >>> engine.backward((x * x).sum())[x].tolist()
    [6.0]
    """

    backward: staticmethod[..., GradientMap] = staticmethod(backward)
    graph_of: staticmethod[[Tensor], list[Entry]] = staticmethod(graph_of)
