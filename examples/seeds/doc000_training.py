"""000 FLAME Autograd API Documentation, "Common Training Patterns".

Sections: Basic Training Loop; Gradient Accumulation; Mixed Precision Training.
"""

from expect import close

import weft as wf
from weft import nn
from weft.amp import GradScaler, autocast
from weft.optim import Adam, AdamConfig
from weft.train import DataLoader, TensorDataset


class Model(nn.Module):
    """The document's model: two linear layers and their parameters."""

    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(3, 8)
        self.linear2 = nn.Linear(8, 2, bias=False)

    def forward(self, x):
        return self.linear2.forward(self.linear1.forward(x))


CRITERION = nn.MSELoss()


def batches(count, size):
    """Inputs with the targets of a fixed affine map."""
    slope = wf.tensor([[1.0, -1.0], [0.5, 2.0], [-2.0, 0.0]])
    inputs = wf.randn((count * size, 3))
    data = TensorDataset(inputs, inputs.matmul(slope).add(wf.tensor([1.0, -0.5])))
    return DataLoader(data, batch_size=size)


def basic_training_loop():
    model, dataloader = Model(), batches(8, 16)
    optimizer = Adam(AdamConfig(lr=0.01))
    losses, param_updates = [], []

    for _epoch in range(60):
        for inputs, target in dataloader:
            model.zero_grad()

            output = model.forward(inputs)
            loss = CRITERION.forward(output, target)

            grads = loss.backward()

            param_updates = []
            for param in model.parameters():
                grad = grads.get(param.id)
                if grad is not None:
                    param.set_grad(grad.clone())
                    param_updates.append((param.id, param, grad))

            optimizer.step(param_updates)
            losses.append(loss.to_scalar())

    assert len(param_updates) == len(list(model.parameters())) == 3
    assert losses[-1] < 1e-6 * losses[0]


def gradient_accumulation():
    model, accumulation_steps = Model(), 4
    parts = batches(accumulation_steps, 8)
    accumulated_grads = wf.GradientMap()

    for inputs, target in parts:
        loss = CRITERION.forward(model.forward(inputs), target)
        loss_scaled = loss.div_scalar(accumulation_steps)
        grads = loss_scaled.backward()
        for tensor_id, grad in grads.items():
            accumulated_grads.accumulate(tensor_id, grad)

    inputs, target = (wf.concat(side) for side in zip(*parts, strict=True))
    big_batch = CRITERION.forward(model.forward(inputs), target).backward()
    for param in model.parameters():
        grad = accumulated_grads.get(param.id)
        close(grad, big_batch[param].numpy(), ulps=64)
        param.set_grad(grad.clone())

    optimizer = Adam(model.parameters(), AdamConfig())
    before = [param.detach().clone() for param in model.parameters()]
    optimizer.step()
    for old, param in zip(before, model.parameters(), strict=True):
        # Adam's first step is lr, whatever the gradient's size.
        close(param, (old - 1e-3 * wf.sign(param.grad)).numpy(), ulps=64)


def mixed_precision_training():
    loss_scale = 1024.0
    param, inputs = wf.Parameter(wf.tensor([[1.0]])), wf.tensor([[2.0**-13]])

    def compute_loss():
        with autocast("float16"):
            return inputs.matmul(param).mul_scalar(2.0**-13).sum()

    # On its way through the product the gradient is 2⁻²⁶, below the smallest float16, 2⁻²⁴.
    assert compute_loss().backward()[param].tolist() == [[0.0]]

    scaled_loss = compute_loss().mul_scalar(loss_scale)
    grads = scaled_loss.backward()
    for tensor_id, grad in grads.items():
        grads[tensor_id] = grad.div_scalar(loss_scale)
    assert grads[param].dtype == wf.float32 and grads[param].tolist() == [[2.0**-26]]

    scaler = GradScaler(init_scale=loss_scale)
    scaled = scaler.scale(compute_loss()).backward()
    assert scaler.unscale(scaled) == 2.0**-26
    assert scaled[param].tolist() == grads[param].tolist()


def main():
    wf.random.seed(0)
    basic_training_loop()
    gradient_accumulation()
    mixed_precision_training()


if __name__ == "__main__":
    main()
