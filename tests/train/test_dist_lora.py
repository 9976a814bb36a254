"""Adapters of a diffusion model, trained on several ranks and on one process."""

import numpy as np
import pytest
from tests.diffusion.training.tiny import SIZES
from tests.dist.threads import run

import weft as wf
from weft.diffusion.training.objective import FlowObjective
from weft.train.epochs import EpochLoader
from weft.train.parts import Share


class FixedBatches(EpochLoader):
    """Batches with noise and levels of their own, so that nothing is drawn."""

    def __init__(self, sizes):
        super().__init__(workers=0, prefetch=1)
        rng = np.random.default_rng(0)
        self.batches = [self.draw(rng, size) for size in sizes]

    @staticmethod
    def draw(rng, n):
        shapes = {"latents": (12, 4, 4), "noise": (12, 4, 4), "prompt_embeds": (4, 32)}
        shapes |= {"pooled": (32,)}
        batch = {k: rng.standard_normal((n, *s)).astype(np.float32) for k, s in shapes.items()}
        batch["sigma"] = rng.uniform(0.1, 0.9, n).astype(np.float32)
        return batch | {"weights": rng.uniform(0.5, 1, n).astype(np.float32)}

    def __len__(self):
        return len(self.batches)

    def _meaning(self):
        return {}

    def _check_length(self):
        pass

    def _maker(self, epoch):
        return lambda k, stopped: self.batches[k]

    def _maker_of_parts(self, epoch, part):
        def make(k, stopped):
            batch = self.batches[k]
            own = {name: part.of(x) for name, x in batch.items()}
            return Share(own, part.counts(len(batch["sigma"])))

        return make


def train(base, rank, dist, compile, ema=0.9):
    wf.random.seed(0)
    model = wf.diffusion.Flux.load(base)
    names = wf.nn.add_lora(model, {"*": {"rank": 2}})
    rng = np.random.default_rng(rank)  # each rank begins with other adapters
    for _, p in model.named_parameters():
        if p.requires_grad:
            with wf.no_grad():
                p.copy_(wf.tensor(rng.standard_normal(p.shape).astype(np.float32) / 50))
    trained = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    assert names
    made = wf.train.Trainer(
        model,
        wf.optim.SGD(trained, lr=0.05),
        FlowObjective(wf.diffusion.NoiseConfig(), 1.0),
        **{"clip_norm": 1.0, "ema": ema, "compile": compile, "dist": dist, "progress": False},
    )
    sizes = [4, 4] if compile else [4, 3, 1, 4]  # a program for each
    made.fit(FixedBatches(sizes), steps=50)
    return {n: np.asarray(p.detach().numpy()) for n, p in trained}, made.history["loss"]


@pytest.mark.parametrize("compile", [False, True])
def test_fifty_steps_of_adapters_are_those_of_one_process(compile, tmp_path):
    wf.random.seed(5)
    wf.diffusion.Flux(SIZES).save(tmp_path / "base")
    expected, losses = train(tmp_path / "base", 0, False, compile)
    found = run(2, lambda rank: train(tmp_path / "base", rank, True, compile))
    for name, x in expected.items():
        assert np.array_equal(found[0][0][name], found[1][0][name]), name
        np.testing.assert_allclose(found[0][0][name], x, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found[0][1], losses, rtol=1e-5)
