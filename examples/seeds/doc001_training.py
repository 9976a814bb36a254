"""001 FLAME Automatic Differentiation, "Advanced Features" and "Common Patterns" of training.

Sections: Gradient Accumulation; No Gradient Context; Training Loop; Mixed Precision Training;
2. Clear Gradients Regularly; 3. Use Detach for Non-Training Paths.
"""

from expect import close, refusal

import weft as wf
from weft import AutogradContext, errors
from weft.amp import GradScaler, autocast
from weft.optim import Adam


def forward(w, inputs):
    return inputs.matmul(w)


def compute_loss(output, target):
    return output.sub(target).square().mean()


def data(count):
    """Batches for a weight of (2, −1)."""
    inputs = [wf.randn((4, 2)) for _ in range(count)]
    return [(x, x.matmul(wf.tensor([2.0, -1.0]))) for x in inputs]


def gradient_accumulation():
    w, batches = wf.tensor([0.5, 0.5], requires_grad=True), data(4)
    accumulation_steps = len(batches)
    accumulated_grads = wf.GradientMap()

    for inputs, target in batches:
        loss = compute_loss(forward(w, inputs), target)
        scaled_loss = loss.mul_scalar(1.0 / accumulation_steps)
        grads = scaled_loss.backward()

        for tensor_id, grad in grads.items():
            acc_grad = accumulated_grads.get(tensor_id)
            if acc_grad is not None:
                accumulated_grads.insert(tensor_id, acc_grad.add(grad))
            else:
                accumulated_grads.insert(tensor_id, grad.clone())

    inputs, target = (wf.concat(side) for side in zip(*batches, strict=True))
    big_batch = compute_loss(forward(w, inputs), target).backward()
    close(accumulated_grads[w], big_batch[w].numpy(), ulps=64)


def no_gradient_context():
    x, w = wf.ones((2, 3), requires_grad=True), wf.ones((3, 1), requires_grad=True)

    y = x.detach().matmul(w.detach())
    assert not y.requires_grad

    with AutogradContext.no_grad():
        y = x.matmul(w)
    assert not y.requires_grad and y.tolist() == [[3.0], [3.0]]
    with refusal(errors.NoGraph, "no_grad()"):
        y.sum().backward()

    assert x.matmul(w).requires_grad


def training_loop():
    w, dataloader = wf.Parameter.zeros((2,)), data(4)
    parameters, losses = [w], []
    optimizer = Adam(parameters, 0.1)  # the document's 1e-4 takes longer

    for _epoch in range(25):
        for inputs, target in dataloader:
            loss = compute_loss(forward(w.tensor(), inputs), target)
            grads = loss.backward()
            optimizer.step(grads)
            AutogradContext.clear()
            losses.append(loss.to_scalar())

    assert losses[-1] < 1e-3 * losses[0]


def mixed_precision_training():
    w, ((inputs, target),) = wf.Parameter.zeros((2,)), data(1)

    with autocast("float16"):
        loss = compute_loss(forward(w, inputs), target)
    plain = loss.backward(retain_graph=True)
    scale = 1024.0
    scaled_loss = loss.mul_scalar(scale)
    grads = scaled_loss.backward()

    for tensor_id, grad in grads.items():
        grads[tensor_id] = grad.mul_scalar(1.0 / scale)

    # A power of two scales without rounding, unless something was too small for float16.
    assert grads[w].tolist() == plain[w].tolist() and grads[w].dtype == wf.float32


def mixed_precision_training_loop():
    """The same by a scaler, in whole steps: float16 reaches what float32 does."""
    finals = []
    for precision in ("float32", "float16"):
        wf.random.seed(1)
        w, dataloader = wf.Parameter.zeros((2,)), data(4)
        optimizer, scaler = Adam([w], 0.05), GradScaler(init_scale=1024.0)
        loss = wf.tensor(float("inf"))
        for _epoch in range(20):
            for inputs, target in dataloader:
                with autocast(precision):
                    loss = compute_loss(forward(w, inputs), target)
                scaler.step(optimizer, scaler.scale(loss).backward())
                scaler.update()
        finals.append(loss.item())
    assert abs(finals[1] - finals[0]) <= 0.02 * finals[0]


def clear_gradients_regularly():
    x = wf.ones(1000, requires_grad=True)
    before = wf.memory_stats().bytes
    loss = x.square().exp().sum()
    assert wf.memory_stats().bytes > before

    AutogradContext.clear()
    assert wf.memory_stats().bytes <= before
    with refusal(errors.GraphFreed, "doc001_training.py"):
        loss.backward()


def use_detach_for_non_training_paths():
    w = wf.tensor([1.0, 2.0])
    inputs = wf.ones((1, 2), requires_grad=True)
    output = forward(w, inputs.detach())
    assert output.tolist() == [3.0] and not output.requires_grad


def main():
    wf.random.seed(0)
    gradient_accumulation()
    no_gradient_context()
    training_loop()
    mixed_precision_training()
    mixed_precision_training_loop()
    clear_gradients_regularly()
    use_detach_for_non_training_paths()


if __name__ == "__main__":
    main()
