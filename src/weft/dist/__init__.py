"""Training on several processes and machines, which torch.distributed or MPI joins.

>>> import weft as wf
>>> group = wf.dist.init()  # of the processes that torchrun or mpiexec started; else of one
>>> wf.dist.all_reduce([1.0, 2.0]).tolist()
[1.0, 2.0]
>>> wf.dist.finalize()
"""

from .collectives import all_gather, all_reduce, barrier, broadcast, reduce_scatter
from .compression import PowerSGD, TopK
from .parallel import DataParallel
from .sharded import ShardedOptimizer
from .world import finalize, init, is_initialized, rank, size

__all__ = [
    "DataParallel",
    "PowerSGD",
    "ShardedOptimizer",
    "TopK",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "finalize",
    "init",
    "is_initialized",
    "rank",
    "reduce_scatter",
    "size",
]


def __dir__() -> list[str]:
    return list(__all__)
