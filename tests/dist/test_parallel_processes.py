"""Data-parallel training of real processes, on both engines, beside one process."""

import json

import numpy as np
import pytest

from . import test_parallel
from .models import data, mlp, shard, values
from .processes import MPIEXEC, launch

ENGINES = ("torch", pytest.param("mpi", marks=pytest.mark.skipif(not MPIEXEC, reason="no mpiexec")))
STEPS = 10
PROGRAM = """
import json, sys
import numpy as np
import weft as wf
from tests.dist import test_parallel
from tests.dist.models import data, mlp, shard, values

engine, folder = sys.argv[1:]
group = wf.dist.init(engine=engine)
found = {}
cases = (
    ("cpu", "step", None),
    ("torch", "eager", None),
    ("cpu", "model", "topk"),
    ("torch", "eager", wf.dist.PowerSGD(rank=2, start=2)),
    ("cpu", "eager", "bfloat16"),
)
for device, way, kind in cases:
    model = wf.dist.DataParallel(mlp("float64", device, seed=group.rank), 4e-4, kind)
    batches = shard(data(24), group.rank, group.size, device)
    test_parallel.train(model, batches, way, "sgd", steps=STEPS)
    found[f"{device} {way} {kind}"] = {n: x.tolist() for n, x in values(model).items()}
with open(f"{folder}/{group.rank}.json", "w") as f:
    json.dump(found, f)
wf.dist.finalize()
""".replace("STEPS", str(STEPS))


@pytest.mark.parametrize("engine", ENGINES)
def test_processes_train_as_one(engine, tmp_path):
    size = 3
    outcomes = launch(size, PROGRAM, [engine, tmp_path], engine, timeout=120)
    assert [o.code for o in outcomes] == [0] * len(outcomes), outcomes
    results = [json.loads((tmp_path / f"{r}.json").read_text()) for r in range(size)]
    one = mlp(seed=0)
    test_parallel.train(one, shard(data(24), 0, 1), "eager", "sgd", steps=STEPS)
    for case, found in results[0].items():
        for other in results[1:]:
            assert other[case] == found  # to the bit
        if case.endswith("None"):
            for name, x in values(one).items():
                np.testing.assert_allclose(found[name], x, rtol=1e-12, atol=1e-12)
