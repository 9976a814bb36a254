"""000 FLAME Autograd API Documentation, "Parameter Management".

Sections: Creating Parameters; Parameter Operations; Parameter Collections.
The document's `tensor()` gives a clone; here it is the value itself, still connected, and a clone
is asked for.
"""

from expect import refusal

import weft as wf
from weft import errors


def creating_parameters():
    out_features, in_features = 3, 5
    weight = wf.Parameter.randn((out_features, in_features), mean=0.0, std=0.02, device="cpu")
    bias = wf.Parameter.zeros((out_features,), device="cpu")

    tensor = wf.randn((2, 2), 0.0, 0.02, device="cpu")
    param = wf.Parameter(tensor)

    assert weight.shape == (3, 5) and 0.0 < wf.max(wf.abs(weight)).item() < 8 * 0.02
    assert bias.tolist() == [0.0, 0.0, 0.0]
    assert param.tolist() == tensor.tolist()
    assert all(p.requires_grad for p in (weight, bias, param)) and not tensor.requires_grad


def parameter_operations():
    param = wf.Parameter(wf.tensor([1.0, -2.0, 3.0]))

    tensor = param.tensor()
    assert tensor.tolist() == [1.0, -2.0, 3.0]
    assert tensor.id == param.id
    assert param.requires_grad
    assert param.grad is None

    loss = tensor.square().sum()
    loss.backward()
    gradient: wf.Tensor = param.grad  # pyright: ignore[reportAssignmentType]  (it is set now)
    assert gradient.tolist() == [2.0, -4.0, 6.0]

    before = param.tensor().clone()
    learning_rate = 0.25
    param.update(learning_rate)
    assert param.tolist() == [0.5, -1.0, 1.5]
    assert before.tolist() == [1.0, -2.0, 3.0]

    param.zero_grad()
    assert param.grad is None
    with refusal(errors.MissingGradient, "update", "backward()"):
        param.update(learning_rate)

    optimizer = wf.optim.SGD(wf.optim.SGDConfig(lr=0.5))
    grad = wf.tensor([1.0, 0.0, -1.0])
    update = optimizer.compute_update(grad)
    assert update.tolist() == [0.5, 0.0, -0.5]
    param.apply_update(update)
    assert param.tolist() == [0.0, -1.0, 2.0]


def parameter_collections():
    params = wf.ParameterDict()
    params.insert("weight", wf.Parameter.randn((3, 5), 0.0, 0.02))
    params.insert("bias", wf.Parameter.zeros((3,)))

    weight = params.get("weight")
    assert weight.shape == (3, 5) and params.get("scale") is None

    weight.sum().backward()
    for param in params.parameters():
        param.zero_grad()
    assert weight.grad is None

    lines = [f"Parameter {name}: {param.shape}" for name, param in params.named_parameters()]
    assert lines == ["Parameter weight: (3, 5)", "Parameter bias: (3,)"]


def main():
    wf.random.seed(0)
    creating_parameters()
    parameter_operations()
    parameter_collections()


if __name__ == "__main__":
    main()
