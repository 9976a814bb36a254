"""The grid on the GPU engine, where tensors in host memory stand for those on GPUs.

gloo stands for NCCL: it has the same methods. So this shows what is put together for the library,
not that library.
"""

import sys

import torch

from weft.dist import nccl_engine, reductions
from weft.dist.member import Member
from weft.dist.world import _world, init

from . import grid


class StandIn(nccl_engine.NcclEngine):
    def near(self, x):
        return isinstance(x, torch.Tensor)

    def capturing(self):
        return False

    def on_this_stream(self, action):
        return action


def main(folder: str) -> None:
    def init_with_stand_in(engine):
        member = init()
        host = member.engine
        gpu = StandIn(host, host._group, host._pulse)
        _world[0] = Member(gpu, "world", host._pulse, gpu)

    grid.wf.dist.init = init_with_stand_in
    reductions.lies_on_gpu = lambda x: isinstance(x, torch.Tensor)
    grid.main("torch", folder)


if __name__ == "__main__":
    main(sys.argv[1])
