"""000 FLAME Autograd API Documentation, "Important Notes".

Notes 1 to 5: zero gradients, check availability, detach, Parameter against Tensor, gradient
checkpointing.
"""

import weft as wf
from weft import checkpoint, nn
from weft.optim import Adam


def always_zero_gradients():
    params = wf.ParameterDict({"w": wf.Parameter(wf.tensor([1.0, 2.0]))})
    w = params["w"]

    w.square().sum().backward()
    w.square().sum().backward()
    assert w.grad.tolist() == [4.0, 8.0]

    params.zero_grad()
    w.square().sum().backward()
    assert w.grad.tolist() == [2.0, 4.0]


def check_gradient_availability():
    used, unused = (wf.tensor([1.0], requires_grad=True) for _ in range(2))
    grads = used.mul_scalar(3.0).sum().backward()
    assert [t.id for t in (used, unused) if grads.get(t.id) is not None] == [used.id]


def detach_when_needed():
    tensor = wf.tensor([2.0, 3.0], requires_grad=True)
    detached = tensor.detach()
    assert not detached.requires_grad

    grads = tensor.mul(detached).sum().backward()
    assert grads[tensor].tolist() == [2.0, 3.0]


def parameter_against_tensor():
    weight = wf.Parameter.randn((3, 2), 0.0, 0.02)
    for _batch in range(2):
        activation = wf.ones((1, 3)).matmul(weight.tensor())
        assert not isinstance(activation, wf.Parameter) and not activation.is_leaf
        activation.sum().backward()
    assert weight.is_leaf and weight.grad.tolist() == [[2.0, 2.0]] * 3


def train(recompute):
    """Twenty steps of a deep network with dropout: the losses, and what a step's graph keeps."""
    wf.random.seed(0)
    layers = [nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.1)) for _ in range(12)]
    model = nn.Sequential(*layers, nn.Linear(32, 1))
    optimizer = Adam(model.parameters(), lr=1e-3)
    input, target = wf.randn((64, 32)), wf.randn((64, 1))

    def expensive_forward_pass(input):
        return model(input)

    def forward():
        if recompute:
            return checkpoint(expensive_forward_pass, input)
        return expensive_forward_pass(input)

    before = wf.memory_stats().bytes
    output = forward()
    kept = wf.memory_stats().bytes - before

    losses = []
    for _step in range(20):
        model.zero_grad()
        output = forward()
        loss = output.sub(target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, kept


def gradient_checkpointing():
    losses, kept = train(recompute=False)
    again, kept_again = train(recompute=True)
    assert again == losses, "dropout included, to the bit"
    assert kept_again < 0.2 * kept


def main():
    wf.random.seed(0)
    always_zero_gradients()
    check_gradient_availability()
    detach_when_needed()
    parameter_against_tensor()
    gradient_checkpointing()


if __name__ == "__main__":
    main()
