"""000 FLAME Autograd API Documentation, "Autograd Engine".

Sections: Key Types; Setting Up Autograd; Recording Operations; Backward Pass.
"""

from expect import close

import weft as wf
from weft import AutogradEngine, GradientMap, Parameter, ParameterDict, Tensor


def key_types():
    """The document's imports; `TapeEntry` is what `graph_of` lists, `TensorId` is `x.id`."""
    assert issubclass(Parameter, Tensor)
    x = wf.tensor([1.0], requires_grad=True)
    entries = AutogradEngine.graph_of(x * x)
    assert [entry.op for entry in entries] == ["multiply"]
    assert isinstance(x.id, int) and entries[0].inputs == (x.id, x.id)


def setting_up_autograd():
    device = "cpu"
    autograd = AutogradEngine(device)
    ctx = wf.AutogradContext(device)

    x = ctx.tensor([3.0])
    with wf.no_grad(), ctx:
        y = x * x
    assert autograd.backward(y)[x].tolist() == [6.0]


def recording_operations():
    x = wf.randn((4, 3), 0.0, 1.0).requires_grad_(True)
    w = Parameter.randn((3, 2), 0.0, 0.02)

    y = x.matmul(w.tensor())
    z = y.relu()
    loss = z.mean()

    assert [entry.op for entry in wf.graph_of(loss)] == ["matmul", "relu", "mean"]
    return x, w, y, loss


def backward_pass(x, w, y, loss):
    params = ParameterDict()
    params.insert("w", w)

    grads = loss.backward()
    assert isinstance(grads, GradientMap)

    x_grad = grads.get(x.id)
    assert x_grad.shape == (4, 3)

    for _, param in params.named_parameters():
        grad = grads.get(param.id)
        if grad is not None:
            param.set_grad(grad.clone())

    g = (y.detach().numpy() > 0) / 8.0
    close(x_grad, g @ w.detach().numpy().T)
    close(w.grad, x.detach().numpy().T @ g)


def main():
    wf.random.seed(0)
    key_types()
    setting_up_autograd()
    backward_pass(*recording_operations())


if __name__ == "__main__":
    main()
