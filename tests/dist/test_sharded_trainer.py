"""Trainers of several ranks whose optimizers' states are distributed."""

import numpy as np
import pytest

import weft as wf

from .sharded_runs import assert_same, plain
from .threads import run


def trainer(sharded, rank, folder, compiled, rule):
    """Rank 0's model is that of all ranks; the others' values are not used."""
    model = wf.nn.Sequential(wf.nn.Linear(5, 40), wf.nn.Tanh(), wf.nn.Linear(40, 2))
    rng = np.random.default_rng(rank)
    with wf.no_grad():
        for p in model.parameters():
            p.copy_(wf.tensor(rng.standard_normal(p.shape), dtype="float32"))
    optimizer = getattr(wf.optim, rule)(lr=0.01)
    optimizer = wf.dist.ShardedOptimizer(optimizer) if sharded else optimizer
    options = {"progress": False, "signals": False, "dist": True, "clip_norm": 1.0}
    loss = wf.nn.functional.mse_loss
    return wf.train.Trainer(
        model, optimizer, loss, directory=folder, save_every=4, compile=compiled, **options
    )


def loader():
    x = wf.tensor(np.random.default_rng(9).standard_normal((24, 5)), dtype="float32")
    data = wf.train.TensorDataset(x, x[:, :2] * 3.0)
    return wf.train.DataLoader(data, batch_size=12, shuffle=True, seed=1)


@pytest.mark.filterwarnings("ignore:Trainer. the run goes on under other settings")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("rule", ["AdamW", "ScheduleFreeAdamW"])
def test_runs_are_those_without_sharding(rule, compiled, tmp_path):
    """Also what they go on with from a checkpoint, on as many ranks and on fewer."""

    def program(sharded, rank, name, resume, size):
        made = trainer(sharded, rank, tmp_path / name, compiled, rule)
        made.fit(loader(), epochs=4 if resume else 2, resume="auto" if resume else None)
        arrays = {n: p.detach().numpy().copy() for n, p in made.model.named_parameters()}
        return [arrays, plain(made.optimizer.state_dict())]

    for first, then in ((3, 2),) if compiled else ((2, 2), (3, 2)):
        found = {}
        for sharded in (False, True):
            name = f"{sharded} {first}"
            a = run(first, lambda r, s=sharded, n=name: program(s, r, n, False, first))
            b = run(then, lambda r, s=sharded, n=name: program(s, r, n, True, then))
            assert len({repr(x) for x in a}) == len({repr(x) for x in b}) == 1
            found[sharded] = [a[0], b[0]]
        assert_same(found[True], found[False])
