"""000 FLAME Autograd API Documentation, "Important Notes".

Notes 1 to 4: zero gradients, check availability, detach, Parameter against Tensor. Note 5 is left
to checkpointing.
"""

import weft as wf


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


def main():
    wf.random.seed(0)
    always_zero_gradients()
    check_gradient_availability()
    detach_when_needed()
    parameter_against_tensor()


if __name__ == "__main__":
    main()
