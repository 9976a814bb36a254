"""003 FLAME Optimizer API Documentation: Training Loop with Optimizer.

The document's trainer, with a small network in the place of the diffusion model.
"""

import weft as wf
from weft import nn
from weft.optim import EMA, AdamW, AdamWConfig, CosineScheduler, clip_grad_norm
from weft.train import DataLoader, TensorDataset


class Model(nn.Module):
    """Two linear maps with a tanh between them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 16), nn.Linear(16, 1)

    def forward(self, batch):
        inputs, _ = batch
        return self.second(self.first(inputs).tanh())


class FluxLoRATrainer:
    def __init__(self, model, scheduler, decay):
        self.model, self.scheduler = model, scheduler
        self.optimizer = AdamW(AdamWConfig(weight_decay=0.0))
        self.ema = None if decay is None else EMA(model, decay)
        self.global_step = 0
        self.norms = []

    def compute_loss(self, output, batch):
        return output.sub(batch[1]).square().mean()

    def collect_param_updates(self, grads):
        found = [(p, grads.get(p.id)) for _, p in self.model.named_parameters()]
        return [(p.id, p, grad) for p, grad in found if grad is not None]

    def train_epoch(self, dataloader):
        total_loss = 0.0
        for batch in dataloader:
            self.model.zero_grad()

            output = self.model.forward(batch)
            loss = self.compute_loss(output, batch)

            grads = loss.backward()

            param_updates = self.collect_param_updates(grads)
            self.norms.append(clip_grad_norm(param_updates, 1.0))

            lr = self.scheduler.get_lr(self.global_step)
            self.optimizer.set_lr(lr)

            self.optimizer.step(param_updates)

            if self.ema is not None:
                self.ema.update()

            total_loss += loss.to_scalar()
            self.global_step += 1
        return total_loss / len(dataloader)


def main():
    wf.random.seed(0)
    x = wf.randn((80, 4))
    dataset = TensorDataset(x, x[:, :1].sub(x[:, 1:2]).tanh())
    dataloader = DataLoader(dataset, batch_size=16, shuffle=True)

    trainer = FluxLoRATrainer(Model(), CosineScheduler(0.02, 1e-4, 20, 200), decay=0.9)
    losses = [trainer.train_epoch(dataloader) for _ in range(40)]
    assert trainer.global_step == 200 and len(trainer.norms) == 200
    assert losses[-1] < 0.05 * losses[0]

    assert trainer.ema is not None
    with trainer.ema.swapped():
        loss = trainer.compute_loss(trainer.model.forward(dataset.tensors), dataset.tensors)
    assert loss.item() < 0.1 * losses[0]


if __name__ == "__main__":
    main()
