"""The sources of a program's inputs at each call, and where changed values are written."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from ...arrays.inplace import own_memory
from ...arrays.tensor import Tensor
from ...core.backends import BACKENDS
from ...core.counter import POSITIONS, Generator, ReservedBlocks
from ...core.node import Leaf, Node, Severed
from ...core.origin import here
from ...core.record import field, record
from ...graph.staged import Staged
from .host_scalars import Host


@record(frozen=False, slots=True)
class Call:
    """One call of a program: the tensors among its arguments, each once, and its numbers.

    arrays      positions of the tensors that were passed as arrays of another library
    objects     the static leaves, on which the program is specialised
    containers  the lists, dicts, tuples and deques among the arguments
    """

    tensors: list[Tensor]
    numbers: list[float]
    arrays: Sequence[int] = ()
    objects: Sequence[Any] = ()
    containers: Sequence[Any] = ()


class Now:
    """The current call; None between calls."""

    def __init__(self, call: Call):
        self.call: Any = call

    def number(self, position: int) -> float:
        """A number among the arguments."""
        return self.call.numbers[position]

    def leaf(self, position: int) -> Leaf:
        """The leaf of a tensor among the arguments."""
        return self.call.tensors[position]._node


@record(frozen=False, eq=False)
class InputSource(ABC):
    """The source of an input at each call, and where its changed value is written."""

    kind: ClassVar[str]
    on_host: ClassVar[bool] = False  # whether it may be NumPy's beside tensors of another library
    staged: Staged  # its value at this point of the trace
    entered: Staged = field(init=False)
    label: str = field(init=False)
    node: Leaf | Node | Severed | None = field(init=False, default=None)
    rebinds: bool = field(init=False, default=False)  # a change binds new memory, as y[i] = v does
    donated: bool = field(init=False, default=False)  # the program writes into its memory

    def __post_init__(self) -> None:
        self.entered = self.staged

    @property
    def changed(self) -> bool:
        return self.staged is not self.entered

    @property
    def short(self) -> str:
        """The name in pictures."""
        return self.label

    @abstractmethod
    def read(self, call: Call) -> np.ndarray:
        """The raw value at a call."""


class Changeable(InputSource):
    """A source whose value a program may change."""

    @abstractmethod
    def write(self, call: Call, raw: np.ndarray) -> None:
        """Write the changed value back."""


def _overwrite(tensor: Tensor, raw: np.ndarray, rebinds: bool) -> None:
    if rebinds:
        tensor._data = raw
    elif tensor._data is not raw:
        memory = own_memory(tensor)
        BACKENDS[type(memory)].overwrite(memory, raw)


class TensorArgument(Changeable):
    """A tensor among the arguments."""

    kind = "arguments"
    label: str
    position: int

    def __init__(self, staged: Staged, position: int):
        super().__init__(staged)
        self.position, self.label = position, f"argument {position}"

    def read(self, call: Call) -> np.ndarray:
        return call.tensors[self.position]._data

    def write(self, call: Call, raw: np.ndarray) -> None:
        _overwrite(call.tensors[self.position], raw, self.rebinds)


class Captured(Changeable):
    """A captured tensor: the function reads it, and it is not an argument."""

    kind = "captured tensors"
    label: str
    line: str
    tensor: Tensor
    node: Leaf | Node | Severed | None
    entered_node: Leaf | Node | Severed | None

    def __init__(self, staged: Staged, tensor: Tensor):
        super().__init__(staged)
        self.tensor, self.node, self.entered_node = tensor, tensor._node, tensor._node
        a = staged.aval
        self.line = here()
        self.label = f"the tensor of {a.dtype}{list(a.shape)} that is first used at {self.line}"

    @property
    def short(self) -> str:
        return f"tensor of {self.line}"

    def read(self, call: Call) -> np.ndarray:
        return self.tensor._data

    def write(self, call: Call, raw: np.ndarray) -> None:
        _overwrite(self.tensor, raw, self.rebinds)


class Gradient(InputSource):
    """The `.grad` of a leaf: of a captured tensor, or of an argument."""

    kind = "gradients"
    label: str = "a .grad"
    leaf: Callable[[Call], Leaf]
    node: Leaf | Node | Severed | None

    def __init__(self, staged: Staged, leaf: Callable[[Call], Leaf], node: Node | Severed | None):
        super().__init__(staged)
        self.leaf, self.node = leaf, node

    def read(self, call: Call) -> np.ndarray:
        return self.leaf(call).held._data


class Keeper(Protocol):
    """An object that keeps arrays; `readings` counts up when they may have been replaced."""

    readings: int


@record(frozen=False, eq=False)
class StateArray(Changeable):
    """An array that a Python object keeps: an optimizer's moment."""

    kind = "arrays of state"
    on_host = True
    label: str
    get: Callable[[], np.ndarray]
    keeper: Keeper | None = None

    def read(self, call: Call) -> np.ndarray:
        return self.get()

    def write(self, call: Call, raw: np.ndarray) -> None:
        memory = self.get()
        if memory is not raw:
            BACKENDS[type(memory)].overwrite(memory, raw)


class HostNumber(InputSource):
    """A host scalar."""

    kind = "numbers"
    on_host = True
    label: str
    compute: Callable[[], Any]
    dtype: np.dtype

    def __init__(self, staged: Staged, host: Host):
        super().__init__(staged)
        self.compute, self.dtype, self.label = host.flat(), staged.aval.dtype, host.label

    def read(self, call: Call) -> np.ndarray:
        return np.asarray(self.compute(), self.dtype)


@record(frozen=False, eq=False)
class DrawWords(InputSource):
    """The key and the first counter of a draw of random numbers."""

    kind = "draws of random numbers"
    on_host = True
    label = "random words"
    generator: Generator
    words: int

    def read(self, call: Call) -> np.ndarray:
        return state_of(self.generator.reserve(self.words))


def state_of(draw: ReservedBlocks) -> np.ndarray:
    """The state of a draw as the rows take it: key, position and nonce."""
    nonce, position = divmod(draw.counter, POSITIONS)
    return np.array([draw.key, position, nonce], np.uint64)
