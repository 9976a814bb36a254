"""001 FLAME Automatic Differentiation, "Advanced Features": an operation with its own backward.

Section: Custom Backward Functions.
"""

from expect import close

import weft as wf


class Double(wf.CustomOp):
    def forward(self, inputs):
        # Custom forward computation
        (x,) = inputs
        return x.mul_scalar(2.0)

    def backward(self, grad_output, _inputs):
        # Custom gradient computation
        grad_input = grad_output.mul_scalar(2.0)
        return [grad_input]


def in_a_backward_pass():
    custom_op = Double()

    x = wf.tensor([1.0, -3.0], requires_grad=True)
    y = custom_op(x)
    assert y.tolist() == [2.0, -6.0]

    grads = y.square().sum().backward()
    close(grads[x], [8.0, -24.0])


def of_two_functions():
    custom_op = wf.custom_op(
        lambda x: x.mul_scalar(2.0), vjp=lambda grad_output: grad_output.mul_scalar(2.0)
    )
    x = wf.tensor([1.0, -3.0], requires_grad=True)
    assert custom_op(x).sum().backward()[x].tolist() == [2.0, 2.0]


def its_backward_is_right():
    wf.check_op(Double(), wf.tensor([1.0, -3.0]))


def main():
    in_a_backward_pass()
    of_two_functions()
    its_backward_is_right()


if __name__ == "__main__":
    main()
