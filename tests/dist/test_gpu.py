"""Data-parallel training on a GPU: NCCL of one process, gloo of several that share the card."""

import json

import numpy as np
import pytest
import torch

from . import test_parallel
from .models import data, mlp, shard, values
from .processes import launch

STEPS = 20
NEEDS = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
# By name: the backend, how many processes, and where their arrays are. One runs without a GPU, so
# that the program itself is tested.
PLACES = {
    "host": ("gloo", 2, "torch"),
    "cuda-nccl-1": ("nccl", 1, "cuda"),
    "cuda-gloo-2": ("gloo", 2, "cuda"),
    "cuda-gloo-3": ("gloo", 3, "cuda"),
}
PROGRAM = """
import json, sys
import weft as wf
from tests.dist import test_parallel
from tests.dist.models import data, mlp, shard, values

backend, device, folder = sys.argv[1:]
group = wf.dist.init(backend=backend)
found = {}
ways = [("eager", None), ("model", None), ("eager", "bfloat16"), ("eager", "topk")]
# Collectives that wait on the host cannot be captured into a graph; those of NCCL are part of it.
ways += [("step", None)] if backend == "nccl" or device != "cuda" else []
for way, kind in ways:
    model = wf.dist.DataParallel(mlp("float64", device, seed=group.rank), 4e-4, kind)
    batches = shard(data(24), group.rank, group.size, device)
    test_parallel.train(model, batches, way, "sgd", steps=STEPS)
    found[f"{way} {kind}"] = {n: x.tolist() for n, x in values(model.to("cpu")).items()}
with open(f"{folder}/{group.rank}.json", "w") as f:
    json.dump(found, f)
wf.dist.finalize()
""".replace("STEPS", str(STEPS))


@pytest.mark.parametrize(
    "place", [n if n == "host" else pytest.param(n, marks=NEEDS) for n in PLACES]
)
def test_processes_train_as_one(place, tmp_path):
    backend, size, device = PLACES[place]
    outcomes = launch(size, PROGRAM, [backend, device, tmp_path], timeout=240)
    assert [o.code for o in outcomes] == [0] * size, outcomes
    results = [json.loads((tmp_path / f"{r}.json").read_text()) for r in range(size)]
    one = mlp(seed=0)
    test_parallel.train(one, shard(data(24), 0, 1), "eager", "sgd", steps=STEPS)
    for way, found in results[0].items():
        assert all(other[way] == found for other in results[1:])  # to the bit
        for name, x in values(one).items():
            if way.endswith("None"):
                np.testing.assert_allclose(found[name], x, rtol=1e-11, atol=1e-11)
            else:
                assert np.isfinite(found[name]).all()
