"""An engine of one process."""

from typing import Any

from ..core.backends import BACKENDS
from ..core.communicator import Reduction


class AloneEngine:
    """Every collective is a copy."""

    rank, size = 0, 1

    def all_reduce(self, x: Any, kind: Reduction, out: Any = None) -> Any:
        if out is None:
            return BACKENDS[type(x)].copy(x)
        if out is not x:
            BACKENDS[type(x)].overwrite(out, x)
        return out

    def all_gather(self, x: Any) -> Any:
        return BACKENDS[type(x)].copy(x)[None]

    def all_to_all(self, x: Any) -> Any:
        return BACKENDS[type(x)].copy(x)

    def broadcast(self, x: Any, root: int) -> Any:
        return BACKENDS[type(x)].copy(x)

    def close(self, failed: bool = False) -> None:
        return None
