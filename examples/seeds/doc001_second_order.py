"""001 FLAME Automatic Differentiation, "Second-Order Gradients".

The document's program takes the first gradient without its graph, so it cannot work as written;
with `create_graph=True` it gives the Hessian of Σx² applied to ones.
"""

from expect import refusal

import weft as wf
from weft import errors


def as_written():
    x = wf.randn([10], 0.0, 1.0).requires_grad_()
    y = x.square().sum()

    grads = y.backward()
    x_grad = grads.get(x.id)

    grad_sum = x_grad.sum()
    with refusal(errors.GradientNotRecorded, "create_graph=True", "doc001_second_order.py"):
        grad_sum.backward()


def with_the_graph():
    x = wf.randn([10], 0.0, 1.0).requires_grad_()
    y = x.square().sum()

    grads = y.backward(create_graph=True)
    x_grad = grads.get(x.id)
    assert x_grad.tolist() == (2 * x).tolist()

    grad_sum = x_grad.sum()
    second_grads = grad_sum.backward()
    assert second_grads.get(x.id).tolist() == [2.0] * 10


def main():
    wf.random.seed(0)
    as_written()
    with_the_graph()


if __name__ == "__main__":
    main()
