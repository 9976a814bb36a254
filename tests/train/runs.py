"""A small run that uses everything a checkpoint must hold, and whether two runs are the same."""

from dataclasses import fields

from tests.io.alike import same

import weft as wf

EPOCHS = 4


class Net(wf.nn.Module):
    """Two layers with noise in between, and a running mean of what it has seen."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.first = wf.Parameter.randn((3, width))
        self.second = wf.Parameter.randn((width, 1))
        self.register_buffer("mean", wf.zeros(3))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        hidden = wf.tanh((x - self.mean) @ self.first)
        if self.training:
            hidden = hidden * (wf.rand(hidden.shape) > 0.25)
        return hidden @ self.second


def squares(model, batch):
    """The mean square error, with the mean absolute one as a metric."""
    x, y = batch
    error = model(x) - y
    return (error * error).mean(), {"absolute": abs(error).mean()}


def pairs(n: int = 26, seed: int = 1) -> wf.train.TensorDataset:
    generator = wf.random.Generator(seed)
    x = wf.randn((n, 3), generator=generator)
    return wf.train.TensorDataset(x, x @ wf.tensor([[1.0], [-2.0], [3.0]]))


def loader(**options) -> wf.train.DataLoader:
    options = {"batch_size": 4, "shuffle": True, "seed": 5, **options}
    return wf.train.DataLoader(pairs(), **options)


def trainer(directory=None, *, optimizer=None, loss=squares, **options) -> wf.train.Trainer:
    """A trainer of a new model, always the same; an optimizer is given as a function of it."""
    wf.random.seed(0)
    model = Net()
    made = wf.optim.AdamW(model, lr=0.01) if optimizer is None else optimizer(model)
    options = {"progress": False, **options}
    return wf.train.Trainer(model, made, loss, directory=directory, **options)


def full_trainer(directory=None, **options) -> wf.train.Trainer:
    """A trainer with a bit of everything."""
    return trainer(
        directory,
        **{
            "schedule": wf.optim.CosineScheduler(0.05, 0.001, 3, 16),
            "accumulate": 2,
            "clip_norm": 1.0,
            "ema": 0.9,
            "callbacks": [wf.train.EarlyStopping(patience=50, restore_best=True)],
            "save_every": 2 if directory else None,
            "keep": 2,
            **options,
        },
    )


def finish(directory, **options) -> None:
    """Begin or go on with the run with everything, to its end."""
    full_trainer(directory, **options).fit(
        loader(), epochs=EPOCHS, validation=loader(shuffle=False, batch_size=9), resume="auto"
    )


def same_checkpoints(a: wf.Checkpoint, b: wf.Checkpoint) -> list[str]:
    """The fields that differ in any bit."""
    return [f.name for f in fields(a) if not same(getattr(a, f.name), getattr(b, f.name))]


def same_state(a: wf.train.Trainer, b: wf.train.Trainer) -> bool:
    """Whether two models and their optimizers are the same to the bit."""
    states = [(t.model.state_dict(), t.optimizer.state_dict()) for t in (a, b)]
    return same(*states)
