"""003 FLAME Optimizer API Documentation, "Optimizer State Management".

Sections: Saving Optimizer State; Loading Optimizer State.
The document's files end in `.pt`; ours are safetensors files and directories of them, under any
name.
"""

import tempfile
from pathlib import Path

import weft as wf
from weft import Checkpoint, load_checkpoint, load_optimizer, save_checkpoint, save_optimizer
from weft.optim import Adam, AdamConfig


def train(model, optimizer, steps):
    for _ in range(steps):
        loss = model["weight"].tensor().square().sum()
        grads = loss.backward()
        optimizer.step([(name, p, grads[p]) for name, p in model.named_parameters()])


def new_model():
    return wf.ParameterDict({"weight": wf.Parameter(wf.tensor([3.0, -1.0, 0.5]))})


def state_of(model):
    return {name: p.detach() for name, p in model.named_parameters()}


def optimizer_state(directory):
    model, optimizer = new_model(), Adam(AdamConfig(lr=0.1))
    train(model, optimizer, 3)
    save_optimizer(optimizer, directory / "optimizer_checkpoint.pt")

    loaded = load_optimizer(directory / "optimizer_checkpoint.pt", Adam)
    assert loaded.config == optimizer.config
    copy = wf.ParameterDict({"weight": wf.Parameter(model["weight"].detach())})
    train(model, optimizer, 3)
    train(copy, loaded, 3)
    assert copy["weight"].tolist() == model["weight"].tolist()


def full_checkpoint(directory):
    model, optimizer = new_model(), Adam(AdamConfig(lr=0.1))
    current_epoch, global_step = 2, 3
    train(model, optimizer, global_step)

    checkpoint = Checkpoint(
        model_state=state_of(model),
        optimizer_state=optimizer.state_dict(),
        epoch=current_epoch,
        step=global_step,
    )
    save_checkpoint(checkpoint, directory / "full_checkpoint.pt")
    train(model, optimizer, 2)

    checkpoint = load_checkpoint(directory / "full_checkpoint.pt")
    assert (checkpoint.epoch, checkpoint.step) == (2, 3)
    resumed = wf.ParameterDict({"weight": wf.Parameter(checkpoint.model_state["weight"])})
    optimizer = Adam(resumed, AdamConfig())
    optimizer.load_state_dict(checkpoint.optimizer_state)
    train(resumed, optimizer, 2)
    assert resumed["weight"].tolist() == model["weight"].tolist()


def main():
    with tempfile.TemporaryDirectory() as directory:
        optimizer_state(Path(directory))
        full_checkpoint(Path(directory))


if __name__ == "__main__":
    main()
