"""Sharded optimizers in real processes, on both engines, beside one process without sharding."""

import json

import numpy as np
import pytest

import weft as wf

from .models import data, mlp, shard, values
from .processes import MPIEXEC, launch
from .threads import run

ENGINES = ("torch", pytest.param("mpi", marks=pytest.mark.skipif(not MPIEXEC, reason="no mpiexec")))
PROGRAM = """
import json, sys
import weft as wf
from tests.dist import test_sharded_processes as own

engine, folder, load = sys.argv[1:]
group = wf.dist.init(engine=engine)
found = {}
for device, rule in own.CASES:
    found[f"{device} {rule}"] = own.train(device, rule, folder, load == "load", group)
with open(f"{folder}/{load}-{group.rank}.json", "w") as f:
    json.dump(found, f)
wf.dist.finalize()
"""
CASES = [("cpu", "AdamW"), ("torch", "AdamW"), ("cpu", "LAMB"), ("cpu", "Adam8bit")]


def train(device, rule, folder, load, group):
    """Five steps, from the start or from what five steps have saved."""
    model = wf.dist.DataParallel(mlp("float64", device, seed=group.rank), 4e-4)
    parameters = dict(model.named_parameters())
    optimizer = wf.dist.ShardedOptimizer(getattr(wf.optim, rule)(model, lr=0.01))
    where = f"{folder}/{device}-{rule}"
    if load:
        optimizer.load_sharded(where)
        state = wf.io.load_safetensors(f"{where}/weights.safetensors", device=device)
        with wf.no_grad():
            for name, p in parameters.items():
                p.copy_(state[name])
    for x, y in [shard(data(24), group.rank, group.size, device)] * 5:
        ((model(x) - y) ** 2).mean().backward()
        wf.optim.clip_grad_norm(list(parameters.values()), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    if not load:
        optimizer.save_sharded(where)
        if group.rank == 0:
            kept = {name: p.detach() for name, p in parameters.items()}
            wf.io.save_safetensors(f"{where}/weights.safetensors", kept)
        group.barrier()
    return {name: x.tolist() for name, x in values(model).items()}


@pytest.mark.parametrize("engine", ENGINES)
def test_processes_train_as_one_and_go_on_as_fewer(engine, tmp_path):
    first = launched(3, engine, tmp_path, "save")
    then = launched(2, engine, tmp_path, "load")
    (tmp_path / "one").mkdir()

    def alone(rank):
        group = wf.dist.world.world()
        return [[train(*case, tmp_path / "one", load, group) for case in CASES] for load in (0, 1)]

    expected = run(1, alone)[0]
    for results, one in zip((first, then), expected, strict=True):
        assert results[1:] == results[:-1]  # all ranks, to the bit
        for found, x in zip(results[0].values(), one, strict=True):
            for name in x:
                np.testing.assert_allclose(found[name], x[name], rtol=1e-9, atol=1e-9)


def launched(size, engine, folder, load):
    outcomes = launch(size, PROGRAM, [engine, folder, load], engine, timeout=120)
    assert [o.code for o in outcomes] == [0] * len(outcomes), outcomes
    return [json.loads((folder / f"{load}-{r}.json").read_text()) for r in range(size)]
