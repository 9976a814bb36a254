"""Training on several processes and machines, which torch.distributed or MPI joins.

>>> import weft as wf
>>> group = wf.dist.init()  # of the processes that torchrun or mpiexec started; else of one
>>> wf.dist.all_reduce([1.0, 2.0]).tolist()
[1.0, 2.0]
>>> wf.dist.finalize()
"""

from .collectives import all_gather, all_reduce, barrier, broadcast, reduce_scatter
from .compression import PowerSGD, TopK
from .measure import measure_link, measure_step
from .network import Link
from .parallel import DataParallel
from .sharded import ShardedOptimizer
from .simulate import Prediction, Scaling, simulate
from .step_profile import GradientProfile, StepProfile
from .world import finalize, init, is_initialized, rank, size

__all__ = [
    "DataParallel",
    "GradientProfile",
    "Link",
    "PowerSGD",
    "Prediction",
    "Scaling",
    "ShardedOptimizer",
    "StepProfile",
    "TopK",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "finalize",
    "init",
    "is_initialized",
    "measure_link",
    "measure_step",
    "rank",
    "reduce_scatter",
    "simulate",
    "size",
]


def __dir__() -> list[str]:
    return list(__all__)
