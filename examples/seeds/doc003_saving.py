"""003 FLAME Optimizer API Documentation, "Optimizer State Management".

Sections: Saving Optimizer State; Loading Optimizer State.
The document's files end in `.pt`; ours are safetensors files and directories of them, under any
name.
"""

import copy
import tempfile
from pathlib import Path

import weft as wf
from weft import (
    Checkpoint,
    load_checkpoint,
    load_optimizer,
    save_checkpoint,
    save_optimizer,
)
from weft.nn import Linear
from weft.optim import Adam, AdamConfig

INPUT = wf.tensor([[3.0, -1.0, 0.5], [1.0, 2.0, -2.0]])


def train(model, optimizer, steps):
    for _ in range(steps):
        grads = model(INPUT).square().sum().backward()
        optimizer.step([(name, p, grads[p]) for name, p in model.named_parameters()])


def state_of(model):
    return {name: value.tolist() for name, value in model.state_dict().items()}


def optimizer_state(directory):
    model, optimizer = Linear(3, 2), Adam(AdamConfig(lr=0.1))
    train(model, optimizer, 3)
    save_optimizer(optimizer, directory / "optimizer_checkpoint.pt")

    loaded = load_optimizer(directory / "optimizer_checkpoint.pt", Adam)
    assert loaded.config == optimizer.config
    same = copy.deepcopy(model)
    train(model, optimizer, 3)
    train(same, loaded, 3)
    assert state_of(same) == state_of(model)


def full_checkpoint(directory):
    model, optimizer = Linear(3, 2), Adam(AdamConfig(lr=0.1))
    current_epoch, global_step = 2, 3
    train(model, optimizer, global_step)

    checkpoint = Checkpoint(
        model_state=model.state_dict(),
        optimizer_state=optimizer.state_dict(),
        epoch=current_epoch,
        step=global_step,
    )
    save_checkpoint(checkpoint, directory / "full_checkpoint.pt")
    train(model, optimizer, 2)

    checkpoint = load_checkpoint(directory / "full_checkpoint.pt")
    assert (checkpoint.epoch, checkpoint.step) == (2, 3)
    resumed = Linear(3, 2)
    resumed.load_state_dict(checkpoint.model_state)
    optimizer = Adam(resumed, AdamConfig())
    optimizer.load_state_dict(checkpoint.optimizer_state)
    train(resumed, optimizer, 2)
    assert state_of(resumed) == state_of(model)


def main():
    with tempfile.TemporaryDirectory() as directory:
        optimizer_state(Path(directory))
        full_checkpoint(Path(directory))


if __name__ == "__main__":
    main()
