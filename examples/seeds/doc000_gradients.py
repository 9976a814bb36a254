"""000 FLAME Autograd API Documentation, "Gradient Management".

Sections: GradientMap; Gradient Operations.
"""

from expect import close

import weft as wf
from weft.optim import clip_grad_norm, clip_grad_value


def gradient_map():
    tensor = wf.tensor([1.0, 2.0], requires_grad=True)
    gradient_tensor, new_gradient = wf.tensor([10.0, 20.0]), wf.tensor([1.0, 1.0])

    grad_map = wf.GradientMap()
    assert grad_map.get(tensor.id) is None

    grad_map.insert(tensor.id, gradient_tensor)
    grad = grad_map.get(tensor.id)
    assert grad.tolist() == [10.0, 20.0]

    grad_map.accumulate(tensor.id, new_gradient)
    assert grad_map.get(tensor.id).tolist() == [11.0, 21.0]
    assert gradient_tensor.tolist() == [10.0, 20.0]


def clipping():
    param = wf.Parameter(wf.tensor([3.0, 4.0]))
    grads = param.mul(param).sum().backward()

    total_norm = clip_grad_norm(grads, max_norm=1.0)
    assert total_norm == 10.0
    close(grads[param], [0.6, 0.8])

    grads = param.mul(param).sum().backward()
    clip_grad_value(grads, clip_value=7.0)
    assert grads[param].tolist() == [6.0, 7.0]


def manual_gradient():
    def compute_gradient(output, target):
        """Of ½·‖output − target‖²."""
        return output.sub(target)

    param = wf.Parameter(wf.tensor([3.0, -1.0]))
    target = wf.tensor([1.0, 1.0])

    manual_grad = compute_gradient(param.detach(), target)
    param.set_grad(manual_grad)
    assert param.grad.tolist() == [2.0, -2.0]

    param.update(1.0)
    assert param.tolist() == target.tolist()


def main():
    gradient_map()
    clipping()
    manual_gradient()


if __name__ == "__main__":
    main()
