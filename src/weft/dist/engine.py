"""What carries arrays between processes, one collective at a time."""

from typing import Any, Protocol

from ..core.communicator import Reduction


class Engine(Protocol):
    """A library that joins processes.

    Arrays are raw ones, of NumPy or PyTorch, which the engine does not write to; results are new
    arrays of the same kind. All ranks call the same methods in the same order, never two at once.
    """

    rank: int
    size: int

    def all_reduce(self, x: Any, kind: Reduction) -> Any: ...
    def all_gather(self, x: Any) -> Any:
        """The arrays of all ranks, of shape (size, *x.shape)."""
        ...

    def all_to_all(self, x: Any) -> Any:
        """Of x of shape (size, …), row i goes to rank i; row j of the result came from rank j."""
        ...

    def reduce_scatter(self, x: Any) -> Any:
        """Of x of shape (size, …), this rank's row of the sum over ranks."""
        ...

    def broadcast(self, x: Any, root: int) -> Any: ...
    def barrier(self) -> None: ...
    def close(self) -> None:
        """Leave the group; no other method is called afterwards."""
        ...
